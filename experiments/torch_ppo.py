"""PPO in plain PyTorch on one of our tasks with Isaac Gym's interface: a starting point for other trainers.

Usage: python experiments/torch_ppo.py --task toy --iterations 40

Any trainer for Isaac Gym must also exclude the step after the end of an episode, which is a phantom.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import tyro

from envs.bridge.errors import torch as pytorch
from envs.bridge.torch_tasks import TorchVecTask

GAMMA, LAMBDA = 0.99, 0.95


@dataclass
class Options:
    """PPO in PyTorch on a task of `aesjax list`."""

    task: str = "toy"
    iterations: int = 40
    copies: int = 64
    rollout: int = 32
    epochs: int = 5
    minibatches: int = 4
    hidden: int = 64
    learning_rate: float = 1e-3  # initial; it adapts to the policy's change
    kl_target: float = 0.008
    seed: int = 0


class Scale:
    """Mean and variance (S,) of all rows (B, S) so far."""

    def __init__(self) -> None:
        self.count, self.mean, self.var = 0.0, 0.0, 1.0

    def add(self, rows) -> None:
        """Merge rows (Chan et al. 1979)."""
        total, delta = self.count + len(rows), rows.mean(0) - self.mean
        spread = self.var * self.count + rows.var(0, correction=0) * len(rows)
        self.var = (spread + delta**2 * self.count * len(rows) / total) / total
        self.mean, self.count = self.mean + delta * len(rows) / total, total

    def __call__(self, rows):
        return ((rows - self.mean) / (self.var + 1e-8) ** 0.5).clamp(-5.0, 5.0)


class Progress(NamedTuple):
    """Samples of one iteration."""

    reward: float  # mean per step
    episode: float  # mean return of finished episodes; NaN if there are none


def train(options: Options) -> Iterator[Progress]:
    """Train, and yield the progress of every iteration."""
    most = options.copies * (options.rollout // 2) // 2  # two valid steps in each; at worst half are phantoms
    if options.minibatches > most:
        raise ValueError(f"minibatches must be at most {most} = copies * (rollout // 2) / 2; got {options.minibatches}")
    torch = pytorch()
    nn = torch.nn
    torch.manual_seed(options.seed)
    env = TorchVecTask(options.task, options.copies, options.seed)

    def network(out: int):
        h = options.hidden
        return nn.Sequential(nn.Linear(env.num_obs, h), nn.ELU(), nn.Linear(h, h), nn.ELU(), nn.Linear(h, out))

    actor, critic, log_std = network(env.num_acts), network(1), nn.Parameter(torch.zeros(env.num_acts))
    of_policy = [*actor.parameters(), log_std]
    optimiser = torch.optim.Adam([*of_policy, *critic.parameters()], lr=options.learning_rate)
    observed, returned, discounted = Scale(), Scale(), torch.zeros(options.copies)

    def policy(obs):
        return torch.distributions.Normal(actor(observed(obs)), log_std.exp())

    def value_of(obs):
        return critic(observed(obs)).squeeze(-1)

    def step(action):
        """Step the environment and clone its buffers, which it overwrites."""
        seen, reward, reset, extras = env.step(action)
        done, late = reset != 0, extras["time_outs"]
        return seen["obs"].clone(), reward.clone(), done, done & ~late

    obs, _, phantom, _ = step(env.zero_actions())  # the first step resets
    total = torch.zeros(options.copies)
    for _ in range(options.iterations):
        rows, returns, ended = [], [], []
        with torch.no_grad():
            for _ in range(options.rollout):
                action = policy(obs).sample()
                after, reward, done, failed = step(action)
                log_prob = policy(obs).log_prob(action).sum(-1)
                rows.append((obs, action, log_prob, reward, done, failed, ~phantom, after))
                discounted = torch.where(phantom, 0.0, GAMMA * discounted + reward)
                total = torch.where(phantom, 0.0, total + reward)
                returns.append(discounted)
                ended.append(total[done & ~phantom])
                obs, phantom = after, done
            seen, actions, old, rewards, dones, fails, valid, following = (
                torch.stack(x) for x in zip(*rows, strict=True)
            )
            progress = Progress(float(rewards[valid].mean()), float(torch.cat(ended).mean()))
            # Values stay near 1, because larger ones would dominate the clipped gradient.
            returned.add(torch.stack(returns)[valid])
            value, ahead = value_of(seen), value_of(following)
            delta = rewards / (returned.var + 1e-8) ** 0.5 + GAMMA * ahead * ~fails - value
            advantage, last = torch.zeros_like(delta), torch.zeros(options.copies)
            for t in reversed(range(options.rollout)):
                last = valid[t] * (delta[t] + LAMBDA * GAMMA * last * ~dones[t])
                advantage[t] = last
            data = [x[valid] for x in (seen, actions, old, advantage, advantage + value)]
        for _ in range(options.epochs):
            change = []
            for index in torch.randperm(len(data[0])).tensor_split(options.minibatches):
                o, a, before, adv, target = (x[index] for x in data)
                log_ratio = policy(o).log_prob(a).sum(-1) - before
                ratio = log_ratio.exp()
                change.append(float((ratio - 1.0 - log_ratio).detach().mean()))
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                loss = loss + (value_of(o) - target).square().mean()
                optimiser.zero_grad()
                loss.backward()
                for part in (of_policy, critic.parameters()):
                    nn.utils.clip_grad_norm_(part, 1.0)
                optimiser.step()
            kl = sum(change) / len(change)
            factor = 1 / 1.5 if kl > 2.0 * options.kl_target else 1.5 if kl < 0.5 * options.kl_target else 1.0
            for group in optimiser.param_groups:
                group["lr"] = min(max(group["lr"] * factor, 1e-5), 1e-2)
        observed.add(data[0])  # after the updates, so that the ratios belong to one policy
        yield progress


if __name__ == "__main__":
    for number, seen in enumerate(train(tyro.cli(Options))):
        print(
            f"iteration {number + 1:4d}  reward of a step {seen.reward:8.3f}  return of an episode {seen.episode:8.2f}"
        )

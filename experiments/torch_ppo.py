"""PPO in plain PyTorch on one of our own tasks, which it takes for one of Isaac Gym: a page to start from.

Usage: python experiments/torch_ppo.py --task toy --iterations 40

What any trainer for Isaac Gym must do as well: the step after an episode's end is a phantom and is left out.
"""

from dataclasses import dataclass

import tyro

from envs.bridge.errors import torch as pytorch
from envs.bridge.torch_tasks import TorchVecTask


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
    learning_rate: float = 1e-3
    reward_scale: float = 0.1
    seed: int = 0


def train(options: Options) -> list[float]:
    """Mean reward of a step in every iteration."""
    torch = pytorch()
    nn = torch.nn
    torch.manual_seed(options.seed)
    env = TorchVecTask(options.task, options.copies, options.seed)

    def network(out: int):
        h = options.hidden
        return nn.Sequential(nn.Linear(env.num_obs, h), nn.ELU(), nn.Linear(h, h), nn.ELU(), nn.Linear(h, out))

    actor, critic, log_std = network(env.num_acts), network(1), nn.Parameter(torch.zeros(env.num_acts))
    params = [*actor.parameters(), *critic.parameters(), log_std]
    optimiser = torch.optim.Adam(params, lr=options.learning_rate)

    def policy(obs):
        return torch.distributions.Normal(actor(obs), log_std.exp())

    def step(action):
        """Buffers of the environment are its own: what is kept is cloned."""
        observed, reward, reset, extras = env.step(action)
        done, late = reset != 0, extras["time_outs"]
        return observed["obs"].clone(), options.reward_scale * reward.clone(), done, done & ~late

    obs, _, phantom, _ = step(env.zero_actions())  # the first step resets
    history = []
    for _ in range(options.iterations):
        rows = []
        with torch.no_grad():
            for _ in range(options.rollout):
                action = policy(obs).sample()
                after, reward, done, failed = step(action)
                log_prob = policy(obs).log_prob(action).sum(-1)
                rows.append((obs, action, log_prob, reward, done, failed, ~phantom, after))
                obs, phantom = after, done
            seen, actions, old, rewards, dones, fails, valid, following = (
                torch.stack(x) for x in zip(*rows, strict=True)
            )
            value, ahead = critic(seen).squeeze(-1), critic(following).squeeze(-1)
            delta = rewards + 0.99 * ahead * ~fails - value
            advantage, last = torch.zeros_like(delta), torch.zeros(options.copies)
            for t in reversed(range(options.rollout)):
                last = valid[t] * (delta[t] + 0.95 * 0.99 * last * ~dones[t])
                advantage[t] = last
            history.append(float(rewards[valid].mean()) / options.reward_scale)
            data = [x[valid] for x in (seen, actions, old, advantage, advantage + value)]
        for _ in range(options.epochs):
            for index in torch.randperm(len(data[0])).chunk(options.minibatches):
                o, a, before, adv, target = (x[index] for x in data)
                ratio = (policy(o).log_prob(a).sum(-1) - before).exp()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                loss = loss + (critic(o).squeeze(-1) - target).square().mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(params, 1.0)
                optimiser.step()
    return history


if __name__ == "__main__":
    for number, mean in enumerate(train(tyro.cli(Options))):
        print(f"iteration {number + 1:4d}  reward of a step {mean:8.3f}")

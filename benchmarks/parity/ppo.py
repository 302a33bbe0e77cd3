"""PPO against a re-derivation in PyTorch: normalisers, GAE, losses, clipped gradients, steps and whole epochs.

    python benchmarks/parity/ppo.py --out benchmarks/parity/ppo.json

Needs torch==2.13.0 beside this package. Parameters, optimiser states, the stream of an imagined environment and random
numbers are copied; everything else on the PyTorch side is written from the formulas: a plain loop for the advantages,
moments of the pooled history for the normalisers, `torch.distributions`, autograd, `clip_grad_norm_` and
`torch.optim.Adam`. Errors are relative, norm of the difference over norm of the PyTorch side; of steps, the norm is
that of the update (new minus old) of each tensor by itself, and the largest is kept.

The project computes in float32, as it does in use, and a second time in float64, where only the formulas count;
PyTorch computes in float64. Two things are taken out of the float32 steps. Adam's first step is the sign of the
gradient, decided by rounding where there is none: compared are the steps of the second rollout, with the moments the
first has left (in float64, those of the first too). And a stored parameter is rounded to its spacing in float32, which
may be a large part of the step: half a spacing per step is allowed, and the numbers without it are recorded beside.
"""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import torch
from against_torch import Errors, adam_of, record, relative, tensor
from torch import distributions, nn

from agents import ppo
from agents.common.carrier import Rollout

S, A, T, N = 7, 3, 32, 4
EPOCHS, MINIBATCHES = 3, 4
SEEDS = (0, 1)
WEIGHTS = (0.0, 0.01)
NORMS = (0.05, 100.0)  # gradients are cut, are not cut
BASE = {"rollout": T, "epochs": EPOCHS, "minibatches": MINIBATCHES}
RATES = {"Z": 1e-4}  # by the first letter of a case, else 1e-3; that profile has 2e-5 to 3e-4
CASES = {
    "C: clipped value, tanh 64-64, orthogonal": {},
    "Z: plain MSE, ReLU 256-256, log_std -2": {
        "hidden": (256, 256), "activation": "relu", "orthogonal": False, "log_std": -2.0, "value_clip": False,
    },
    "I: shared ELU trunk, bounded log_std, value scaler, constant reward scale, adaptive rate": {
        "hidden": (64, 32), "activation": "elu", "orthogonal": False, "shared": True, "log_std_bounds": (-20.0, 2.0),
        "normalise_reward": False, "normalise_value": True, "adaptive_rate": True,
    },
    "GELU, shared, plain MSE, raw advantages and observations, log_std at its bound": {
        "hidden": (64,), "activation": "gelu", "orthogonal": False, "shared": True, "value_clip": False,
        "log_std": -1.5, "log_std_bounds": (-1.0, 2.0), "normalise_advantage": False,
        "normalise_obs": 0.0,
    },
}  # fmt: skip
HYPER = ppo.PpoHyper(
    learning_rate=1e-3, gamma=0.97, gae_lambda=0.9, clip=0.1, value_coef=0.6, reward_scale=0.3, kl_target=0.004
)
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU}


class Net(nn.Module):
    """Mean and value, as two networks or two heads of one trunk, and a log standard deviation for all states."""

    def __init__(self, config):
        super().__init__()
        self.bounds = config.log_std_bounds
        act, hidden = ACTIVATIONS[config.activation], config.hidden

        def body(widths, out=None):
            layers = [m for i, o in itertools.pairwise(widths) for m in (nn.Linear(i, o), act())]
            return nn.Sequential(*layers, *([nn.Linear(widths[-1], out)] if out else []))

        self.trunk = body((S, *hidden)) if config.shared else nn.Identity()
        widths = hidden[-1:] if config.shared else (S, *hidden)
        self.policy, self.value = body(widths, A), body(widths, 1)
        self.log_std = nn.Parameter(torch.zeros(A))

    def forward(self, obs):
        """The policy's normal distribution and the value."""
        features = self.trunk(obs)
        log_std = self.log_std if self.bounds is None else self.log_std.clamp(*self.bounds)
        return distributions.Normal(self.policy(features), log_std.exp()), self.value(features).squeeze(-1)

    def tensors(self):
        """Parameters in the order of `arrays_of`."""
        return [p for net in (self.trunk, self.policy, self.value) for p in net.parameters()] + [self.log_std]

    def load(self, arrays):
        """Copy the parameters of the other side."""
        with torch.no_grad():
            for parameter, array in zip(self.tensors(), arrays, strict=True):
                parameter.copy_(tensor(array))


def arrays_of(tree):
    """Trunk, policy and value as weights and biases of `nn.Linear`, then the log standard deviation."""
    tree, arrays = tree["params"], []
    for net in ("trunk", "policy", "value"):
        layers = tree.get(net, {})
        for name in sorted(layers):
            arrays += [np.asarray(layers[name]["kernel"], np.float64).T, np.asarray(layers[name]["bias"], np.float64)]
    return [*arrays, np.asarray(tree["log_std"], np.float64)]


class Pooled:
    """Mean and variance of a whole history, beside which a thing of mean 0 and variance 1 weighs 1e-4 (in float32)."""

    weight = float(np.float32(1e-4))

    def __init__(self):
        self.history = []

    def moments(self):
        """Both moments, from sums over everything seen."""
        if not self.history:
            return 0.0, 1.0
        values = np.concatenate(self.history)
        weight = self.weight + len(values)
        mean = values.sum(0) / weight
        return mean, (self.weight * (1.0 + mean**2) + ((values - mean) ** 2).sum(0)) / weight

    def standardise(self, values, clip):
        """Values in standard deviations from the mean, cut at `clip`."""
        mean, var = self.moments()
        return np.clip((values - mean) / np.sqrt(var + 1e-8), -clip, clip)


def environment(rng, config):
    """Raw observations, successors, rewards and ends of T steps; outliers reach the clips of the normalisers."""

    def observations():
        if not config.normalise_obs:
            return rng.normal(size=(T, N, S))
        x = 3.0 + np.array([0.1, 1.0, 5.0, 1.0, 1.0, 0.01, 20.0]) * rng.normal(size=(T, N, S))
        return x + 200.0 * (rng.random((T, N, S)) < 0.01)

    obs, successor = observations(), observations()
    reward = rng.normal(size=(T, N)) + 60.0 * (rng.random((T, N)) < 0.02)
    terminated = rng.random((T, N)) < 0.1
    truncated = (rng.random((T, N)) < 0.1) & ~terminated
    for t in range(T - 1):  # where nothing ended, the next observation is the successor
        going_on = ~(terminated[t] | truncated[t])
        obs[t + 1][going_on] = successor[t][going_on]
    return obs, successor, reward, terminated, truncated


def generalised_advantages(reward, value, next_value, terminated, truncated):
    """TD residuals and advantages, one environment and one step at a time."""
    delta, advantage = np.zeros((T, N)), np.zeros((T, N))
    for n in range(N):
        following = 0.0
        for t in reversed(range(T)):
            delta[t, n] = reward[t, n] - value[t, n] + (0.0 if terminated[t, n] else HYPER.gamma * next_value[t, n])
            if terminated[t, n] or truncated[t, n]:
                following = 0.0
            following = delta[t, n] + HYPER.gamma * HYPER.gae_lambda * following
            advantage[t, n] = following
    return delta, advantage


class Side:
    """The PyTorch side of one run: networks and the histories of its normalisers."""

    def __init__(self, config):
        self.config, self.net = config, Net(config).double()
        self.obs, self.returns, self.values = Pooled(), Pooled(), Pooled()
        self.under_way = np.zeros(N)

    def view(self, obs):
        """Normalised observations."""
        return self.obs.standardise(obs, self.config.normalise_obs) if self.config.normalise_obs else obs

    def scale(self, reward, done):
        """Scaled rewards, by the deviation of the discounted returns so far or by a constant."""
        if not self.config.normalise_reward:
            return HYPER.reward_scale * reward
        self.under_way = HYPER.gamma * self.under_way + reward
        self.returns.history.append(self.under_way.copy())
        scaled = np.clip(reward / np.sqrt(self.returns.moments()[1] + 1e-8), -10.0, 10.0)
        self.under_way[done] = 0.0
        return scaled

    def prepare(self, obs, action, reward, terminated, truncated, next_obs):
        """The data set of a rollout, T x N each, and the residuals."""
        with torch.no_grad():
            policy, value = self.net(tensor(obs))
            log_prob = policy.log_prob(tensor(action)).sum(-1)
            value, next_value = value.numpy(), self.net(tensor(next_obs))[1].numpy()
        if self.config.normalise_value:
            mean, var = self.values.moments()
            value, next_value = (mean + np.sqrt(var + 1e-8) * x for x in (value, next_value))
        delta, advantage = generalised_advantages(reward, value, next_value, terminated, truncated)
        target = advantage + value
        if self.config.normalise_value:
            self.values.history += [value.ravel(), target.ravel()]
            value, target = (self.values.standardise(x, np.inf) for x in (value, target))
        rows = {"obs": obs, "action": action, "log_prob": log_prob.numpy()}
        rows |= {"advantage": advantage, "value": value, "target": target}
        return {name: tensor(x).flatten(0, 1) for name, x in rows.items()}, delta

    def losses(self, rows, weight):
        """Total loss and what is reported of it."""
        policy, value = self.net(rows["obs"])
        log_ratio = policy.log_prob(rows["action"]).sum(-1) - rows["log_prob"]
        ratio = log_ratio.exp()
        advantage = rows["advantage"]
        if self.config.normalise_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        low, high = 1 - HYPER.clip, 1 + HYPER.clip
        gains = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        if self.config.value_clip:
            near = rows["value"] + (value - rows["value"]).clamp(-HYPER.clip, HYPER.clip)
            squares = torch.maximum((value - rows["target"]) ** 2, (near - rows["target"]) ** 2)
            value_loss = 0.5 * squares.mean()
        else:
            value_loss = nn.functional.mse_loss(value, rows["target"])
        entropy = policy.entropy().sum(-1).mean()
        loss = -gains.mean() + HYPER.value_coef * value_loss - weight * entropy
        return loss, {
            "actor_loss": -gains.mean().item(),
            "critic_loss": value_loss.item(),
            "kl": (ratio - 1 - log_ratio).mean().item(),
            "clip_fraction": ((ratio < low) | (ratio > high)).double().mean().item(),
            "size of the actor loss": gains.abs().mean().item(),
            "entropy": entropy.item(),
        }


def as_type(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def collect(errors, carrier, state, side, rng, key, hyper):
    """One rollout, on both sides; returns the state, the project's rollout and that of the PyTorch side."""
    dtype = errors.dtype
    obs, successor, reward, terminated, truncated = environment(rng, side.config)
    ours, theirs = [], []
    for t in range(T):
        state, seen = carrier.observe(state, jnp.asarray(obs[t], dtype))
        side.obs.history.append(obs[t])
        own_seen = side.view(obs[t])
        key, key_act = jax.random.split(key)
        action = carrier.act(state, seen, key_act)
        with torch.no_grad():
            policy = side.net(tensor(own_seen))[0]
        errors.add("act", relative(action, policy.mean + policy.stddev * tensor(jax.random.normal(key_act, (N, A)))))
        done = terminated[t] | truncated[t]
        state, scaled = carrier.scale_reward(state, jnp.asarray(reward[t], dtype), jnp.asarray(done, dtype), hyper)
        ends = (jnp.asarray(x[t], dtype) for x in (terminated, truncated))
        ours.append(Rollout(seen, action, scaled, *ends, carrier.view(state, jnp.asarray(successor[t], dtype))))
        theirs.append((own_seen, np.asarray(action), side.scale(reward[t], done), side.view(successor[t])))
    rollout = jax.tree.map(lambda *x: jnp.stack(x), *ours)
    own_obs, action, scaled, next_obs = (np.stack(x) for x in zip(*theirs, strict=True))
    errors.add("normalised observations", relative(rollout.obs, own_obs))
    errors.add("normalised observations", relative(rollout.next_obs, next_obs))
    errors.add("scaled rewards", relative(rollout.reward, scaled))
    for name, moments, pooled in (("obs", state.obs_moments, side.obs), ("return", state.return_moments, side.returns)):
        if float(moments.count) > 1:
            mean, var = pooled.moments()
            errors.add(f"{name} moments", relative(moments.mean, mean))
            errors.add(f"{name} moments", relative(moments.var, var))
    with torch.no_grad():
        mode = side.net(tensor(side.view(obs[0])))[0].mean.clamp(-1, 1)
    errors.add("act_deterministic", relative(carrier.act_deterministic(state, jnp.asarray(obs[0], dtype)), mode))
    return state, rollout, (own_obs, action, scaled, terminated, truncated, next_obs)


def learn(errors, carrier, state, side, rows, own_rows, rng, weight, hyper, compared):
    """All epochs of one rollout; both sides go their own way after the first parameters."""
    dtype, config = errors.dtype, side.config
    start = arrays_of(state.params)
    rate = hyper.learning_rate * float(state.rate)
    optimiser = adam_of(side.net.tensors(), rate, state.opt, arrays_of, eps=1e-5)
    for epoch in range(EPOCHS):
        measured, own_measured = [], []
        for index in rng.permutation(T * N).reshape(MINIBATCHES, -1):
            before = state
            batch = jax.tree.map(lambda x, index=index: x[index], rows)
            out = carrier.update(state, batch, entropy_weight=jnp.asarray(weight, dtype), hyper=hyper)
            state = out.state
            old = [p.detach().clone() for p in side.net.tensors()]
            loss, own = side.losses({name: x[index] for name, x in own_rows.items()}, weight)
            optimiser.zero_grad()
            loss.backward()
            for p in side.net.tensors():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            norm = float(nn.utils.clip_grad_norm_(side.net.tensors(), hyper.max_norm))
            optimiser.step()
            measured.append(out.metrics)
            own_measured.append(own)
            if not compared:
                continue
            errors.reached["gradient norm over its bound"] |= norm > hyper.max_norm
            errors.reached["gradient norm below its bound"] |= norm < hyper.max_norm
            errors.reached["ratios clipped"] |= own["clip_fraction"] > 0
            size = own["size of the actor loss"]  # its terms cancel: over their size, not over that of the sum
            errors.add("actor loss", abs(float(out.metrics["actor_loss"]) - own["actor_loss"]) / size)
            errors.add("critic loss", relative(out.metrics["critic_loss"], own["critic_loss"]))
            errors.add("critic loss", relative(out.signals.value_loss, own["critic_loss"]))
            kl = float(out.metrics["kl"])
            errors.add("kl, over at least its target", abs(kl - own["kl"]) / max(own["kl"], hyper.kl_target))
            errors.add("clip fraction", abs(float(out.metrics["clip_fraction"]) - own["clip_fraction"]))
            errors.add("log_prob signal", relative(out.signals.log_prob, [-own["entropy"]]))
            moved = [p.detach() - b for p, b in zip(side.net.tensors(), old, strict=True)]
            first = len(list(side.net.trunk.parameters())), len(list(side.net.policy.parameters()))
            critic = moved[: first[0]] + moved[sum(first) : -1]
            drift = np.linalg.norm(np.concatenate([x.numpy().ravel() for x in critic]))
            errors.add("critic_drift", relative(out.signals.critic_drift, drift))
            if epoch == 0 and len(measured) == 1:
                gradients = arrays_of(state.opt.mu), arrays_of(before.opt.mu)
                for new, mean, p in zip(*gradients, side.net.tensors(), strict=True):
                    if float(p.grad.norm()) > 0 or np.any(new != 0.9 * mean):
                        errors.add("clipped gradient", relative((new - 0.9 * mean) / 0.1, p.grad))
                errors.steps("minibatch", 1, start, arrays_of(state.params), side.net.tensors())
        if compared:
            taken = (epoch + 1) * MINIBATCHES
            name = "one epoch" if epoch == 0 else "all epochs"
            if epoch in (0, EPOCHS - 1):
                errors.steps(name, taken, start, arrays_of(state.params), side.net.tensors())
        state = carrier.end_epoch(state, {k: jnp.mean(jnp.stack([m[k] for m in measured])) for k in measured[0]}, hyper)
        if config.adaptive_rate:
            kl = np.mean([own["kl"] for own in own_measured])
            if kl > 2 * hyper.kl_target:
                rate = rate / 1.5
            elif kl < hyper.kl_target / 2:
                rate = rate * 1.5
            rate = min(max(rate, 1e-6), 1e-2)
            for group in optimiser.param_groups:
                group["lr"] = rate
        errors.add("learning rate", relative(hyper.learning_rate * state.rate, rate))
        errors.reached["learning rate changed"] |= rate != hyper.learning_rate
    return state


def compare(errors, carrier, config, seed, weight, hyper):
    dtype = errors.dtype
    rng, side = np.random.default_rng(seed), Side(config)
    state = as_type(carrier.init(jax.random.key(seed), N), dtype)
    for number in range(2):
        side.net.load(arrays_of(state.params))
        key = jax.random.key(10 * seed + number)
        state, rollout, own = collect(errors, carrier, state, side, rng, key, hyper)
        state, rows, residuals = carrier.prepare(state, rollout, hyper)
        own_rows, delta = side.prepare(*own)
        errors.add("td residuals", relative(residuals, delta.ravel()))
        for name in ("log_prob", "advantage", "value", "target"):
            errors.add(f"rows: {name}", relative(getattr(rows, name), own_rows[name]))
        if config.normalise_value:
            mean, var = side.values.moments()
            errors.add("value moments", relative(state.value_moments.mean, mean))
            errors.add("value moments", relative(state.value_moments.var, var))
        with torch.no_grad():
            entropy = side.net(own_rows["obs"])[0].entropy().sum(-1).mean()
        ours = carrier.entropy(state, rollout.obs[0], key)
        errors.add("entropy", relative(ours, entropy))
        if config.log_std_bounds is None:
            bonus = ppo.entropy_bonus(ours, entropy_weight=jnp.asarray(weight, dtype))
            errors.add("entropy bonus", relative(bonus, -weight * entropy))
        compared = dtype == "float64" or number == 1
        state = learn(errors, carrier, state, side, rows, own_rows, rng, weight, hyper, compared)


def measure(dtype):
    """Largest errors over seeds, entropy weights and bounds of the gradient's norm, by case."""
    cases = {}
    for name, options in CASES.items():
        errors = cases[name] = Errors(dtype)
        names = ("norm over its bound", "norm below its bound")
        errors.reached = {f"gradient {n}": False for n in names} | {"ratios clipped": False}
        errors.reached["learning rate changed"] = False
        config = ppo.PpoConfig(**BASE, **options)
        carrier = ppo.Ppo(S, A, config)
        # Compiled once for all seeds, weights and bounds.
        compiled = ("observe", "view", "act", "act_deterministic", "scale_reward", "prepare", "update", "end_epoch")
        others = {"init": carrier.init, "entropy": carrier.entropy}
        carrier = SimpleNamespace(**others, **{n: jax.jit(getattr(carrier, n)) for n in compiled})
        rate = RATES.get(name[0], HYPER.learning_rate)
        for seed in SEEDS:
            # Both weights and both bounds with every seed, all four pairs over two seeds.
            for i, weight in enumerate(WEIGHTS):
                hyper = HYPER._replace(learning_rate=rate, max_norm=NORMS[(seed + i) % 2])
                compare(errors, carrier, config, seed, weight, hyper)
    return cases


def judged(dtype, case, quantity):
    return not quantity.startswith(("raw", "max abs"))


def main():
    settings = {
        "obs": S,
        "action": A,
        "steps": T,
        "environments": N,
        "rollouts": 2,
        "epochs": EPOCHS,
        "minibatches": MINIBATCHES,
        "seeds": SEEDS,
        "entropy_weights": WEIGHTS,
        "max_norms": NORMS,
        "cases": CASES,
        "learning_rates": RATES,
        "hyper": {name: value for name, value in HYPER._asdict().items() if name != "max_norm"},
    }

    def reached(cases):
        return {"reached": {name: errors.reached for name, errors in cases["float32"].items()}}

    return record("ppo", __doc__, measure, judged, settings, "raw ..., max abs ...", reached)


if __name__ == "__main__":
    raise SystemExit(main())

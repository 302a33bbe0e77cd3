"""SAC against a re-derivation in PyTorch: target, losses, residuals, log-density and one whole update.

    python benchmarks/parity/sac.py --out benchmarks/parity/sac.json

Needs torch==2.13.0 beside this package. Parameters, optimiser states, batch and random numbers are copied; everything
else on the PyTorch side is written from the formulas (autograd, `torch.optim.Adam`, `torch.distributions`). Errors are
relative, norm of the difference over norm of the PyTorch side; of a step, the norm is that of the update (new minus
old) of each tensor by itself, and the largest is kept.

The project computes in float32, as it does in use, and a second time in float64, where only the formulas count;
PyTorch computes in float64. Two things are taken out of the float32 steps. Adam's first step is the sign of the
gradient, decided by rounding where there is none: the compared update comes after a few others, with the moments those
left (the first step is compared in float64). And a stored parameter is rounded to its spacing in float32, which may be
a large part of the step: half a spacing per step is allowed, and the numbers without it are recorded beside.
"""

import copy
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import torch
from against_torch import Errors, adam_of, record, relative, tensor
from torch import distributions, nn

from agents import sac
from agents.common.carrier import Transition

S, A = 11, 3
SIZES = (((64, 64), 128), ((256, 256), 256))  # hidden, batch
SEEDS = (0, 1, 2)
WEIGHTS = (0.05, 0.5)
WARM = 10  # updates before the compared one in float32
HYPER = sac.SacHyper(learning_rate=3e-4, critic_learning_rate=1e-3, gamma=0.97, tau=0.01)


def linear(layer, index=..., columns=slice(None)):
    """Weight and bias of `nn.Linear` from one of flax, or from a slice of it."""
    kernel, bias = (np.asarray(layer[part], np.float64)[index] for part in ("kernel", "bias"))
    return [kernel.T[columns], bias[columns]]


def actor_arrays(tree):
    """Trunk, mean head, log-std head."""
    first, second, heads = (tree["params"][f"Dense_{i}"] for i in range(3))
    return linear(first) + linear(second) + linear(heads, columns=slice(A)) + linear(heads, columns=slice(A, None))


def critic_arrays(tree):
    """Both critics, one after the other."""
    layers = tree["params"]["VmapMLP_0"]
    return [x for i in range(2) for name in sorted(layers) for x in linear(layers[name], i)]


def load(module, arrays):
    with torch.no_grad():
        for parameter, array in zip(module.parameters(), arrays, strict=True):
            parameter.copy_(tensor(array))
    return module.requires_grad_(True)


class Actor(nn.Module):
    """Two ReLU layers, a mean head and a head whose tanh spans log standard deviations from -5 to 2."""

    def __init__(self, hidden):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(S, hidden[0]), nn.ReLU(), nn.Linear(hidden[0], hidden[1]), nn.ReLU())
        self.mean, self.rho = nn.Linear(hidden[1], A), nn.Linear(hidden[1], A)

    def forward(self, obs, noise):
        """Action and its log-density, the latter by the change of variables of `torch.distributions`."""
        features = self.trunk(obs)
        mean = self.mean(features)
        std = torch.exp(-5 + 0.5 * (2 - -5) * (torch.tanh(self.rho(features)) + 1))
        u = mean + std * noise
        normal = distributions.Normal(mean, std)
        squash = distributions.TanhTransform(cache_size=1)
        action = squash(u)  # the cache keeps u, so that the density need not invert tanh
        return action, distributions.TransformedDistribution(normal, [squash]).log_prob(action).sum(-1)


class Twin(nn.Module):
    """Two state-action values."""

    def __init__(self, hidden):
        super().__init__()
        widths = (S + A, *hidden)
        self.each = nn.ModuleList()
        for _ in range(2):
            layers = [m for i, o in zip(widths, hidden, strict=False) for m in (nn.Linear(i, o), nn.ReLU())]
            self.each.append(nn.Sequential(*layers, nn.Linear(hidden[-1], 1)))

    def forward(self, obs, action):
        """The two values, one tensor each."""
        return [net(torch.cat([obs, action], -1)).squeeze(-1) for net in self.each]


def batch_of(rng, size, dtype):
    action, reward = np.tanh(rng.normal(size=(size, A))), 2.0 * rng.normal(size=size)
    terminated = rng.random(size) < 0.25
    fields = (rng.normal(size=(size, S)), action, reward, terminated, rng.normal(size=(size, S)))
    return Transition(*(jnp.asarray(x, dtype) for x in fields))


def compare(errors, carrier, update, config, seed, weight):
    dtype, hidden, size, delay = errors.dtype, config.hidden, config.batch_size, config.actor_delay
    rng = np.random.default_rng(seed)
    state = jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, carrier.init(jax.random.key(seed))
    )
    # Target networks that are not the online ones, and Q of the size of a few rewards.
    critic = jax.tree.map(lambda x: 1.5 * x, state.critic)
    target = jax.tree.map(lambda x: x + jnp.asarray(0.02 * rng.normal(size=x.shape), dtype), critic)
    state = state._replace(critic=critic, target=target)
    weight = jnp.asarray(weight, dtype)
    for i in range(WARM if dtype == "float32" else 0):
        batch = batch_of(rng, size, dtype)
        key = jax.random.key(1000 * seed + i)
        state = update(state, batch, key, jnp.int32(0), entropy_weight=weight, hyper=HYPER).state

    batch, key = batch_of(rng, size, dtype), jax.random.key(1000 * seed + 999)
    lam = float(weight)
    obs, action, reward, terminated, next_obs = (tensor(x) for x in batch)
    actor, online, lagged = Actor(hidden).double(), Twin(hidden).double(), Twin(hidden).double()
    old_actor, old_critic = actor_arrays(state.actor), critic_arrays(state.critic)
    old_target = critic_arrays(state.target)

    def residuals(noise):
        """Bootstrapped target and what the two critics miss of it."""
        with torch.no_grad():
            next_action, next_log_prob = actor(next_obs, noise)
            value = torch.minimum(*lagged(next_obs, next_action)) - lam * next_log_prob
            y = torch.where(terminated > 0, reward, reward + HYPER.gamma * value)
        return y, torch.stack([y - q for q in online(obs, action)])

    for step in range(delay):
        out = update(state, batch, key, jnp.int32(step), entropy_weight=weight, hyper=HYPER)
        noise = tensor(jax.random.normal(key, (2 + delay, size, A)))
        load(actor, old_actor)
        load(online, old_critic)
        load(lagged, old_target)
        critic_adam = adam_of(online.parameters(), HYPER.critic_learning_rate, state.critic_opt, critic_arrays)
        actor_adam = adam_of(actor.parameters(), HYPER.learning_rate, state.actor_opt, actor_arrays)

        if step == 0:  # the standing functions, under the parameters before the update
            key_td = jax.random.key(seed + 77)
            td = residuals(tensor(jax.random.normal(key_td, (size, A))))[1].flatten()
            ours = carrier.td_error(state, batch, key_td, entropy_weight=weight, hyper=HYPER)
            errors.add("td_error", relative(ours, td))
            drawn = tensor(jax.random.normal(key_td, (size, A)))
            fresh, log_prob = actor(obs, drawn)
            errors.add("act", relative(carrier.act(state, batch.obs, key_td), fresh))
            errors.add("entropy", relative(carrier.entropy(state, batch.obs, key_td), -log_prob.mean()))
            mode = actor(obs, torch.zeros_like(drawn))[0]
            errors.add("act_deterministic", relative(carrier.act_deterministic(state, batch.obs), mode))
            values = carrier.q_value(state, batch.obs, batch.action, entropy_weight=weight, hyper=HYPER)
            errors.add("q_value", relative(values, torch.stack(online(obs, action))))

        # Critic: the sum of two mean squared errors, one Adam.
        y, delta = residuals(noise[0])
        loss = sum(nn.functional.mse_loss(q, y) for q in online(obs, action))
        critic_adam.zero_grad()
        loss.backward()
        critic_adam.step()
        values = np.asarray(carrier.q_value(state, batch.obs, batch.action, entropy_weight=weight, hyper=HYPER))
        errors.add("target", relative(np.asarray(out.signals.td_error).reshape(2, size) + values, torch.stack([y, y])))
        errors.add("residuals", relative(out.signals.td_error, delta.flatten()))
        errors.add("critic loss", relative(out.metrics["critic_loss"], loss))
        errors.add("critic loss", relative(out.signals.value_loss, loss))
        gradients = critic_arrays(out.state.critic_opt.mu), critic_arrays(state.critic_opt.mu)
        for new, old, p in zip(*gradients, online.parameters(), strict=True):
            errors.add("critic gradient", relative((new - 0.9 * old) / 0.1, p.grad))
        errors.steps("critic", 1, old_critic, critic_arrays(out.state.critic), online.parameters())
        moved = torch.cat([(p - tensor(b)).flatten() for p, b in zip(online.parameters(), old_critic, strict=True)])
        errors.add("critic_drift", relative(out.signals.critic_drift, moved.norm()))

        # Actor: `delay` steps on the same batch when due, against the critics just updated.
        online.requires_grad_(False)
        if step == 0:
            for i in range(delay):
                fresh, log_prob = actor(obs, noise[2 + i])
                terms = lam * log_prob, torch.minimum(*online(obs, fresh))
                actor_loss = (terms[0] - terms[1]).mean()
                actor_adam.zero_grad()
                actor_loss.backward()
                actor_adam.step()
            # The two terms may cancel: over their size, not over that of the difference.
            scale = sum(term.abs().mean().item() for term in terms)
            errors.add("actor loss", abs(float(out.metrics["actor_loss"]) - actor_loss.item()) / scale)
            if delay == 1:
                gradients = actor_arrays(out.state.actor_opt.mu), actor_arrays(state.actor_opt.mu)
                for new, old, p in zip(*gradients, actor.parameters(), strict=True):
                    errors.add("actor gradient", relative((new - 0.9 * old) / 0.1, p.grad))
        errors.steps(
            "actor" if step == 0 else "actor not due",
            delay,
            old_actor,
            actor_arrays(out.state.actor),
            actor.parameters(),
        )
        log_prob = actor(obs, noise[1])[1]
        errors.add("log_prob signal", relative(out.signals.log_prob, log_prob))
        single = copy.deepcopy(actor).float()(obs.float(), noise[1].float())[1]
        errors.add("raw log_prob, PyTorch in float32", relative(single.detach(), log_prob.detach()))

        # Targets: a convex combination.
        with torch.no_grad():
            for slow, fast in zip(lagged.parameters(), online.parameters(), strict=True):
                slow.copy_((1 - HYPER.tau) * slow + HYPER.tau * fast)
        errors.steps("target network", 1, old_target, critic_arrays(out.state.target), lagged.parameters())


def measure(dtype):
    """Largest errors over seeds and entropy weights, by case."""
    cases = {}
    for hidden, size in SIZES:
        for delay in (1, 2):
            if dtype == "float64" and delay > 1:
                continue  # the branch that is not due returns a float32 zero, which JAX refuses beside float64
            name = f"{'-'.join(map(str, hidden))}, actor_delay {delay}"
            cases[name] = Errors(dtype)
            config = sac.SacConfig(hidden, size, delay)
            carrier = sac.Sac(S, A, config)
            # Compiled once for all seeds and weights.
            names = ("act", "act_deterministic", "entropy", "td_error", "q_value")
            carrier = SimpleNamespace(
                init=carrier.init, **{name: jax.jit(getattr(carrier, name)) for name in names}, update=carrier.update
            )
            update = jax.jit(carrier.update)
            for seed in SEEDS:
                for weight in WEIGHTS:
                    compare(cases[name], carrier, update, config, seed, weight)
    return cases


def judged(dtype, case, quantity):
    """In float32 ``log(1 - a^2 + 1e-6)`` loses its digits, PyTorch's too: that case is judged in float64."""
    return not quantity.startswith(("raw", "max abs"))


def main():
    settings = {
        "obs": S,
        "action": A,
        "hidden_and_batch": SIZES,
        "seeds": SEEDS,
        "entropy_weights": WEIGHTS,
        "updates_before": {"float32": WARM, "float64": 0},
        "hyper": HYPER._asdict(),
    }
    left_out = "raw ..., max abs ..."
    return record("sac", __doc__, measure, judged, settings, left_out)


if __name__ == "__main__":
    raise SystemExit(main())

"""Soft Q-learning against a re-derivation in PyTorch: copied parameters, the same random numbers, one update.

Needs torch beside the project (`pip install torch==2.13.0`); nothing of the project's mathematics is used on the
PyTorch side. Errors are the largest absolute difference over the largest absolute value of the PyTorch side.

Usage: python benchmarks/parity/sql.py --out benchmarks/parity/sql.json
"""

import argparse
import json
import math
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch

from agents import sql
from agents.common.carrier import Transition
from agents.common.stein import stein_directions

S, A, B, K, KF, KU = 11, 3, 64, 16, 16, 16
HIDDEN = (128, 128)
WEIGHT, REFERENCE_WEIGHT = 0.07, 0.2
TOLERANCE = 1e-4
CASES = {
    "default": {},
    "unscheduled sampler": {"schedule_sampler": False},
}


def tensor(x):
    return torch.from_numpy(np.array(x, np.float32))


def layers_of(tree, index=None):
    """Flax layers as (weight, bias) of torch.nn.functional.linear, leaves that require gradients."""
    result = []
    for name in sorted(tree):
        kernel, bias = (np.asarray(tree[name][part]) for part in ("kernel", "bias"))
        if index is not None:
            kernel, bias = kernel[index], bias[index]
        result += [tensor(kernel.T).requires_grad_(), tensor(bias).requires_grad_()]
    return result


def twin(tree):
    return [layers_of(tree["params"]["VmapMLP_0"], index) for index in range(2)]


def forward(layers, *inputs):
    x = torch.cat(inputs, -1)
    for index in range(0, len(layers), 2):
        x = torch.nn.functional.linear(x, layers[index], layers[index + 1])
        x = torch.relu(x) if index + 2 < len(layers) else x
    return x


def minimum(critics, obs, action):
    return torch.minimum(*(forward(layers, obs, action)[..., 0] for layers in critics))


def kernel(x, z, h):
    """k(x_j, z_i), (B, Kf, Ku)."""
    return torch.exp(-((x[:, :, None] - z[:, None]) ** 2).sum(-1) / h[:, None, None])


def direction(x, z, score, count, floor):
    """Stein direction with the kernel's gradient by autodiff, (B, Ku, A)."""
    x = x.detach().requires_grad_()
    z = z.detach()
    distances = ((x[:, :, None] - z[:, None]) ** 2).sum(-1).flatten(1)
    # The mean of the two middle values; torch.median takes the lower one.
    h = (distances.quantile(0.5, 1) / math.log(count + 1)).clamp(min=floor).detach()
    columns = []
    for i in range(z.shape[1]):
        k = kernel(x, z[:, i : i + 1], h)[..., 0]
        (dk,) = torch.autograd.grad(k.sum(), x)
        columns.append((k[..., None] * score + dk).mean(1))
    return torch.stack(columns, 1).detach()


def error(ours, theirs):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs.detach(), np.float64)
    return float(np.max(np.abs(ours - theirs)) / max(np.max(np.abs(theirs)), 1e-12))


def tree_error(tree, layers, index=None):
    return max(error(a.detach().numpy(), b) for a, b in zip(layers_of(tree, index), layers, strict=True))


def gradient_error(moments, layers, index=None):
    """From Adam's first moments after one step, a tenth of the gradients, whose size the step itself hides."""
    ours = layers_of(moments, index)
    return max(error(10.0 * a.detach().numpy(), b.grad) for a, b in zip(ours, layers, strict=True))


def measure(options):
    config = sql.SqlConfig(HIDDEN, B, K, KF, KU, **options)
    carrier = sql.Sql(S, A, config)
    hyper = sql.SqlHyper(3e-4, 1e-3, 0.99, 0.005, reward_scale=30.0, reference_weight=REFERENCE_WEIGHT)
    state = carrier.init(jax.random.key(0))
    # Larger networks than at the start, so that the particles spread and Q differs between actions.
    actor, critic = (jax.tree.map(lambda x: 2.0 * x, part) for part in (state.actor, state.critic))
    state = state._replace(actor=actor, critic=critic, target=jax.tree.map(lambda x: 0.8 * x, critic))
    rng = np.random.default_rng(0)
    fields = (rng.normal(size=(B, S)), np.tanh(rng.normal(size=(B, A))), rng.normal(size=B))
    batch = Transition(*map(jnp.float32, (*fields, rng.random(B) < 0.2, rng.normal(size=(B, S)))))
    key = jax.random.key(1)
    weight = jnp.float32(WEIGHT)
    out = jax.jit(carrier.update)(state, batch, key, jnp.int32(0), entropy_weight=weight, hyper=hyper)

    # The random numbers of that update.
    key_proposals, key_noise = jax.random.split(key)
    proposals = tensor(jax.random.uniform(key_proposals, (B, K, A), minval=-1.0, maxval=1.0))
    noise = tensor(jax.random.normal(key_noise, (B, KF + KU, A)))
    obs, action, reward, terminated, next_obs = (tensor(x) for x in batch)

    def per_state(x, count):
        return x[:, None].expand(B, count, S)

    # Soft value, target, critic loss and step.
    c, errors = hyper.reward_scale, {}
    with torch.no_grad():
        q = minimum(twin(state.target), per_state(next_obs, K), proposals)
        temperature = c * WEIGHT
        value = temperature * (torch.logsumexp(q / temperature, -1) - math.log(K) + A * math.log(2))
        target = c * reward + hyper.gamma * (1 - terminated) * value
    stacked = jnp.asarray(np.stack([q.numpy(), q.numpy() + 1.0]))
    errors["soft_value"] = error(sql.soft_value(stacked, temperature=temperature, action_size=A), value)
    critics = twin(state.critic)
    q = torch.stack([forward(layers, obs, action)[:, 0] for layers in critics])
    residuals = target[None] - q
    errors["residuals"] = error(out.signals.td_error, residuals.flatten() / c)
    online = carrier.q_value(state, batch.obs, batch.action, entropy_weight=jnp.float32(0), hyper=hyper)
    errors["q_value"] = error(online, q / c)
    ours = np.asarray(out.signals.td_error).reshape(2, B) + np.asarray(online)
    errors["target"] = error(ours, (target / c).expand(2, B))
    loss = (residuals**2).mean(-1).sum()
    errors["critic_loss"] = error(out.signals.value_loss, loss / c**2)
    optimisers = [torch.optim.Adam(layers, lr=hyper.critic_learning_rate) for layers in critics]
    loss.backward()
    for optimiser in optimisers:
        optimiser.step()
    updated, moments = (tree["params"]["VmapMLP_0"] for tree in (out.state.critic, out.state.critic_opt.mu))
    errors["critic_gradient"] = max(gradient_error(moments, layers, i) for i, layers in enumerate(critics))
    errors["critic_step"] = max(tree_error(updated, layers, i) for i, layers in enumerate(critics))

    # Score under the updated critics, Stein direction, sampler step.
    sampler = layers_of(state.actor["params"])
    x = torch.tanh(forward(sampler, per_state(obs, KF), noise[:, :KF])).detach().requires_grad_()
    z = torch.tanh(forward(sampler, per_state(obs, KU), noise[:, KF:]))
    temperature = c * (WEIGHT if config.schedule_sampler else REFERENCE_WEIGHT)
    energy = minimum(critics, per_state(obs, KF), x) / temperature
    energy = energy + torch.log(1 - x**2 + 1e-6).sum(-1)
    (score,) = torch.autograd.grad(energy.sum(), x)
    count, floor = KF, 1e-3
    phi = direction(x, z, score, count, floor)
    arrays = (jnp.asarray(v.detach().numpy()) for v in (x, z, score))
    errors["stein_direction"] = error(stein_directions(*arrays, count=count, floor=floor), phi)
    errors["stein_norm"] = error(out.metrics["actor_loss"], phi.norm(dim=-1).mean())
    optimiser = torch.optim.Adam(sampler, lr=hyper.learning_rate)
    (-(phi * z).sum(-1).mean()).backward()
    optimiser.step()
    errors["sampler_gradient"] = gradient_error(out.state.actor_opt.mu["params"], sampler)
    errors["sampler_step"] = tree_error(out.state.actor["params"], sampler)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    errors = {name: measure(options) for name, options in CASES.items()}
    worst = max(value for case in errors.values() for value in case.values())
    record = {
        "command": "python benchmarks/parity/sql.py --out benchmarks/parity/sql.json",
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "torch": torch.__version__},
        "sizes": {"S": S, "A": A, "B": B, "K": K, "Kf": KF, "Ku": KU, "hidden": HIDDEN},
        "largest_relative_errors": errors,
        "tolerance": TOLERANCE,
        "passed": worst < TOLERANCE,
    }
    for name, case in errors.items():
        print(name, "  ".join(f"{quantity} {value:.1e}" for quantity, value in case.items()))
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"largest {worst:.1e}, {'within' if worst < TOLERANCE else 'ABOVE'} {TOLERANCE:g}")
    if worst >= TOLERANCE:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

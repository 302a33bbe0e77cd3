"""MEow against a re-derivation in PyTorch on copied parameters: flow, density, values, loss and one Adam step.

    python benchmarks/parity/meow.py --out benchmarks/parity/meow.json

Needs torch==2.13.0 beside this package. Values must agree to 1e-5 absolutely, loss and step to 1e-4 relatively."""

import argparse
import json
import math
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from agents import meow
from agents.common.carrier import Transition
from agents.common.flow import COUPLINGS, ConditionalFlow, dropout_masks

S, A, B = 5, 3, 64
HIDDEN, SHIFT_HIDDEN = (64, 64), (256, 256)
LOW, HIGH = -2.0, 1.0
WEIGHT, REFERENCE, GAMMA, TAU, RATE = 0.1, 0.25, 0.97, 0.01, 1e-3
ABSOLUTE, RELATIVE = 1e-5, 1e-4


def torch_tree(tree):
    """Nested dict of leaves that require gradients."""
    if isinstance(tree, dict):
        return {name: torch_tree(value) for name, value in tree.items()}
    return torch.tensor(np.array(tree), requires_grad=True)


def tensor(x):
    return torch.tensor(np.array(x))


def perceptron(p, x, masks=None):
    layers = sum(name.startswith("Dense") for name in p)
    for i in range(layers):
        x = x @ p[f"Dense_{i}"]["kernel"] + p[f"Dense_{i}"]["bias"]
        if i == layers - 1:
            return x
        if f"LayerNorm_{i}" in p:
            norm = p[f"LayerNorm_{i}"]
            x = F.layer_norm(x, x.shape[-1:], norm["scale"], norm["bias"], 1e-5)
        x = x * torch.sigmoid(p[f"Swish_{i}"]["beta"] * x)
        if masks is not None:
            x = x * masks[i]
    raise AssertionError


def coupling_mask(k):
    return (torch.arange(A) % 2 == k % 2).float()


def translation(p, k, v, s, masks):
    return perceptron(p[f"t_{k}"], torch.cat([coupling_mask(k) * v, s], -1), None if masks is None else masks[k])


def generate(p, z, s):
    for k in range(COUPLINGS):
        z = z + (1 - coupling_mask(k)) * translation(p, k, z, s, None)
    return torch.tanh(z)


def infer(p, a, s, masks=None):
    a = torch.clamp(a, -1 + 1e-5, 1 - 1e-5)
    v, log_det = torch.atanh(a), -torch.log(1 - a**2 + 1.19e-7).sum(-1)
    for k in reversed(range(COUPLINGS)):
        v = v - (1 - coupling_mask(k)) * translation(p, k, v, s, masks)
    return v, log_det


def log_sigma(p, s):
    return LOW + 0.5 * (HIGH - LOW) * (torch.tanh(perceptron(p["h"], s)) + 1)


def shifts(p, s):
    pick = lambda tree, i: {n: pick(v, i) for n, v in tree.items()} if isinstance(tree, dict) else tree[i]  # noqa: E731
    return torch.stack([perceptron(pick(p["b"], i), s)[..., 0] for i in range(2)])


def q_values(p, s, a, masks=None):
    lead = (1 if masks is None else 2, -1, -1)
    z, log_det = infer(p, a.expand(*lead), s.expand(*lead), masks)
    core = log_det - 0.5 * ((z / torch.exp(log_sigma(p, s))) ** 2).sum(-1)
    return REFERENCE * shifts(p, s) + WEIGHT * core


def log_z(p, s):
    return A / 2 * math.log(2 * math.pi) + log_sigma(p, s).sum(-1)


def v_values(p, s):
    return REFERENCE * shifts(p, s) + WEIGHT * log_z(p, s)


def leaves(tree):
    return [leaf for _, value in sorted(tree.items()) for leaf in leaves(value)] if isinstance(tree, dict) else [tree]


def gap(ours, theirs):
    return float(np.max(np.abs(np.asarray(ours) - theirs.detach().numpy())))


def relative(ours, theirs):
    """Largest difference in terms of the largest entry."""
    return gap(ours, theirs) / float(theirs.detach().abs().max())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out

    rng = np.random.default_rng(0)
    config = meow.MeowConfig(HIDDEN, SHIFT_HIDDEN, batch_size=B, log_sigma_min=LOW, log_sigma_max=HIGH)
    carrier = meow.Meow(S, A, config)
    # Noise on all parameters: zero kernels and unit scales would hide differences.
    noisy = lambda x: x + jnp.asarray(0.02 * rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    state = carrier.init(jax.random.key(0))
    state = state._replace(params=jax.tree.map(noisy, state.params), target=jax.tree.map(noisy, state.params))
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    batch = Transition(draw(B, S), jnp.tanh(draw(B, A)), draw(B), jnp.float32(rng.random(B) < 0.1), draw(B, S))
    hyper = meow.MeowHyper(RATE, GAMMA, TAU, REFERENCE, 30.0)
    weights = {"entropy_weight": WEIGHT, "shift_weight": REFERENCE}
    p, target = torch_tree(state.params["params"]), torch_tree(state.target["params"])
    obs, action, next_obs = tensor(batch.obs), tensor(batch.action), tensor(batch.next_obs)

    net = ConditionalFlow(A, HIDDEN, SHIFT_HIDDEN, LOW, HIGH)
    ours = lambda method, *args: net.apply(state.params, *args, method=method)  # noqa: E731
    z = 0.5 * draw(B, A)
    latent, log_det = ours("infer", batch.action, batch.obs)
    sigma = ours("log_sigma", batch.obs)
    core = meow.unnormalised(latent, log_det, sigma)
    ours_v = meow.soft_value(ours("shift", batch.obs), meow.log_normaliser(sigma)[None], **weights)
    theirs_z, theirs_det = infer(p, action, obs)
    theirs_core = theirs_det - 0.5 * ((theirs_z / torch.exp(log_sigma(p, obs))) ** 2).sum(-1)
    at_weight = {"entropy_weight": jnp.float32(WEIGHT), "hyper": hyper}
    absolute = {
        "generate": gap(ours("generate", z, batch.obs)[0], generate(p, tensor(z), obs)),
        "infer": gap(latent, theirs_z),
        "log_density": gap(core - meow.log_normaliser(sigma), theirs_core - log_z(p, obs)),
        "q": gap(carrier.q_value(state, batch.obs, batch.action, **at_weight), q_values(p, obs, action)),
        "v": gap(ours_v, v_values(p, obs)),
    }

    key = jax.random.key(7)
    masks = dropout_masks(jax.random.split(key)[0], config.dropout, B, HIDDEN)
    done = carrier.update(state, batch, key, jnp.int32(0), entropy_weight=jnp.float32(WEIGHT), hyper=hyper)
    with torch.no_grad():
        v = torch.min(v_values(target, next_obs), 0).values
        y = tensor(batch.reward) + GAMMA * (1 - tensor(batch.terminated)) * v
    q = q_values(p, obs, action, [[tensor(m) for m in layers] for layers in masks])
    loss = ((q - y) ** 2).mean()
    loss.backward()
    parameters = leaves(p)
    before = [x.detach().clone() for x in parameters]
    torch.nn.utils.clip_grad_norm_(parameters, 30.0)
    first = [x.grad.clone() for x in parameters]
    torch.optim.Adam(parameters, lr=RATE).step()
    new = leaves(jax.tree.map(np.asarray, done.state.params["params"]))
    new_target = leaves(jax.tree.map(np.asarray, done.state.target["params"]))
    nu = leaves(jax.tree.map(np.asarray, done.state.opt.nu["params"]))
    old_target = leaves(target)
    polyak = [TAU * a + (1 - TAU) * b for a, b in zip(parameters, old_target, strict=True)]
    # Adam's first step is lr * sign(g): an entry whose gradient is rounding noise has no defined sign.
    largest = max(float(g.abs().max()) for g in first)
    # A parameter near 1 is stored to 1.2e-7, which is 1.2e-4 of a step of 1e-3: one such rounding is allowed.
    steps, raw = [], []
    for ours_new, theirs_new, old, g in zip(new, parameters, before, first, strict=True):
        sure = (g.abs() > 1e-4 * largest).numpy()
        difference = np.abs(ours_new - theirs_new.detach().numpy())
        beyond = np.maximum(difference - np.spacing(np.abs(old.numpy())), 0.0)
        size = np.max(np.abs(ours_new - old.numpy()))
        steps.append(float(np.max(beyond[sure], initial=0.0) / size))
        raw.append(float(np.max(difference[sure], initial=0.0) / size))
    rel = {
        "loss": relative(done.metrics["critic_loss"], loss),
        "residuals": relative(done.signals.td_error, (y - q).reshape(-1)),
        "clipped_gradient": max(
            relative(np.sqrt(n * 1e3), g.abs()) for n, g in zip(nu, first, strict=True) if g.abs().max() > 0
        ),
        "adam_parameters": max(relative(a, b) for a, b in zip(new, parameters, strict=True)),
        "adam_step": max(steps),
        "target_parameters": max(relative(a, b) for a, b in zip(new_target, polyak, strict=True)),
    }
    record = {
        "what": "largest differences between agents.meow and a PyTorch re-derivation, float32",
        "sizes": {"obs": S, "action": A, "batch": B, "flow_hidden": HIDDEN, "shift_hidden": SHIFT_HIDDEN},
        "absolute": absolute,
        "relative": rel,
        "not_judged": {"adam_step_with_rounding_of_parameters": max(raw)},
        "tolerance": {"absolute": ABSOLUTE, "relative": RELATIVE},
        "passed": max(absolute.values()) <= ABSOLUTE and max(rel.values()) <= RELATIVE,
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "torch": torch.__version__},
    }
    text = json.dumps(record, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n")
    return 0 if record["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())

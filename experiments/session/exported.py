"""A policy as one NumPy file, which `experiments.session.reader` reads without JAX."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from agents.common.networks import BatchRenorm
from agents.crossq import CrossQ
from agents.discrete import DiscretePpo, DiscreteSac, DiscreteSql
from agents.ppo import Ppo
from agents.sac import Sac
from experiments.session.reader import act
from experiments.study import store

_TOLERANCE = 1e-5  # largest difference between actions of a policy and of its file, float32 and float64


def save(policy: Any, path: Path) -> None:
    """`Policy.save` of an `experiments.session.policy.Policy`."""
    if path.suffix != ".npz" or path.exists():
        raise ValueError(f"a policy is written to a new file that ends in .npz; got {path}")
    obs = 3.0 * np.random.default_rng(0).standard_normal((256, policy.world.obs_size)).astype(np.float32)
    if arrays := _arrays(policy.carrier, policy.agent, policy.world.obs_size):
        obs = (arrays["mean"] + arrays["scale"] * obs).astype(np.float32)
    if not arrays or np.abs(act(arrays, obs) - np.asarray(policy(obs))).max() > _TOLERANCE:
        raise ValueError(
            f"{policy.method} has no deterministic action that is one pass through a network, so no NumPy file; "
            "SAC, CrossQ and PPO have one, and SQL on a task with discrete actions, without layer normalisation"
        )
    file = BytesIO()
    np.savez_compressed(file, **arrays)
    store.write_bytes(path, file.getvalue())


def _arrays(carrier: Any, agent: Any, obs_size: int) -> dict[str, Any]:
    """Arrays of the file; empty for other carriers."""
    mean, scale, clip, activation = np.zeros(obs_size), np.ones(obs_size), np.inf, "relu"
    if isinstance(carrier, Ppo):
        networks = [agent.params["params"].get("trunk", {}), agent.params["params"]["policy"]]
        activation, head = carrier.config.activation, "one_hot" if isinstance(carrier, DiscretePpo) else "clip"
        if carrier.config.normalise_obs:
            mean, clip = np.asarray(agent.obs_moments.mean, float), carrier.config.normalise_obs
            scale = np.sqrt(np.asarray(agent.obs_moments.var, float) + 1e-8)
    elif isinstance(carrier, CrossQ):
        networks, head = [_folded(agent.actor["params"], agent.actor["batch_stats"])], "tanh"
    elif isinstance(carrier, Sac):
        networks, head = [agent.actor["params"]], "one_hot" if isinstance(carrier, DiscreteSac) else "tanh"
    elif isinstance(carrier, DiscreteSql):
        networks, head = list(agent.critic["params"].values()), "one_hot"
    else:
        return {}
    layers = [network[f"Dense_{i}"] for network in networks for i in range(len(network)) if f"Dense_{i}" in network]
    arrays = {"mean": mean, "scale": scale, "clip": clip, "activation": activation, "head": head, "layers": len(layers)}
    for i, layer in enumerate(layers):
        # Of the last layer of SAC's actor the second half is standard deviations.
        size = carrier.action_size if i + 1 == len(layers) else None
        kernel, bias = np.asarray(layer["kernel"])[..., :size], np.asarray(layer["bias"])[..., :size]
        arrays[f"kernel{i}"] = kernel if kernel.ndim == 3 else kernel[None]
        arrays[f"bias{i}"] = bias.reshape(-1, 1, bias.shape[-1])
    return {name: np.asarray(value) for name, value in arrays.items()}


def _folded(params: Any, stats: Any) -> dict[str, Any]:
    """Dense layers into which the normalisation of their inputs by running statistics is multiplied."""
    layers = {}
    for i in range(len(stats)):
        norm, running, dense = params[f"BatchRenorm_{i}"], stats[f"BatchRenorm_{i}"], params[f"Dense_{i}"]
        factor = np.asarray(norm["scale"] / np.sqrt(running["var"] + BatchRenorm.epsilon), float)
        shift, kernel = norm["bias"] - running["mean"] * factor, np.asarray(dense["kernel"], float)
        layers[f"Dense_{i}"] = {"kernel": factor[:, None] * kernel, "bias": dense["bias"] + shift @ kernel}
    return layers

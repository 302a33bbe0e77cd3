"""Deterministic actions of an exported policy, with NumPy alone."""

import math

import numpy as np

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "gelu": lambda x: 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))),
}
HEADS = {
    "tanh": np.tanh,
    "clip": lambda x: np.clip(x, -1.0, 1.0),
    "one_hot": lambda x: np.eye(x.shape[-1])[x.argmax(-1)],
}


def act(policy, obs):
    """Actions (A,) or (N, A) in [-1, 1] of ``policy = np.load("policy.npz")`` for observations (S,) or (N, S)."""
    x = (np.atleast_2d(obs) - policy["mean"]) / policy["scale"]
    x = np.clip(x, -policy["clip"], policy["clip"])
    for i in range(policy["layers"]):
        x = x if i == 0 else ACTIVATIONS[str(policy["activation"])](x)
        x = x @ policy[f"kernel{i}"] + policy[f"bias{i}"]  # (K, N, width): K critics, or one actor
    action = HEADS[str(policy["head"])](x.min(0))
    return action[0] if np.ndim(obs) == 1 else action

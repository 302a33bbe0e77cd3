"""Small carriers and batches for tests."""

import jax.numpy as jnp
import numpy as np

from agents import CARRIERS
from agents.common.carrier import Transition

S, A, B = 3, 2, 16
SIZES = {
    "sac": {"hidden": (8,), "batch_size": B},
    "ppo": {"hidden": (8,), "rollout": 10, "epochs": 2, "minibatches": 2},
    "sql": {"hidden": (8,), "batch_size": B, "value_samples": 4, "fixed_particles": 4, "updated_particles": 4},
    "meow": {"flow_hidden": (8,), "shift_hidden": (8,), "batch_size": B},
}


def small(name, obs_size, action_size, **options):
    """A registered carrier with small networks."""
    spec = CARRIERS[name]
    return spec.make(obs_size, action_size, spec.config(**(SIZES[name] | options)))


def make_batch(seed=0, terminated=0.0):
    """Random transitions (B,); actions stay away from the bounds."""
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(B, S)), np.tanh(0.7 * rng.normal(size=(B, A))), rng.normal(size=B)
    return Transition(*map(jnp.float32, (*arrays, np.full(B, terminated), rng.normal(size=(B, S)))))

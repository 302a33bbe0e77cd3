"""Small carriers and batches for tests."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from agents import CARRIERS
from agents.common.carrier import Transition

S, A, B = 3, 2, 16
#: Sizes of any carrier that has such a field.
SIZES = {name: (8,) for name in ("hidden", "flow_hidden", "shift_hidden")}
SIZES |= {name: 4 for name in ("value_samples", "fixed_particles", "updated_particles")}
SIZES |= {"batch_size": B, "rollout": 10, "epochs": 2, "minibatches": 2}
#: They share the loop of SAC; MEow's flow takes as long to compile as three others together.
SLOW = ("crossq", "sql", "meow")


def sizes_of(name, **options):
    """Those of `SIZES` and ``options`` that a registered carrier has."""
    known = {field.name for field in dataclasses.fields(CARRIERS[name].config)}
    return {field: size for field, size in (SIZES | options).items() if field in known}


def small(name, obs_size, action_size, discrete=False, **options):
    """A registered carrier with small networks."""
    spec = CARRIERS[name]
    make: Any = spec.discrete if discrete else spec.make
    return make(obs_size, action_size, spec.config(**sizes_of(name, **options)))


def carriers(wanted=lambda spec: True):
    """Registered names as parameters of a test, of the specs ``wanted``."""
    names = [name for name, spec in CARRIERS.items() if wanted(spec)]
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def make_batch(seed=0, terminated=0.0):
    """Random transitions (B,); actions stay away from the bounds."""
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(B, S)), np.tanh(0.7 * rng.normal(size=(B, A))), rng.normal(size=B)
    return Transition(*map(jnp.float32, (*arrays, np.full(B, terminated), rng.normal(size=(B, S)))))

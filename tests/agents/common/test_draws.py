"""Random numbers of learning steps are those of JAX."""

import jax
import numpy as np

import aesjax
from agents.common.draws import standard_normal


def keys():
    return jax.random.split(jax.random.key(3), 4)


def test_numbers_are_those_of_jax():
    ours = aesjax.jit(jax.vmap(lambda key: standard_normal(key, (3, 50, 6))))(keys())
    theirs = aesjax.jit(jax.vmap(lambda key: jax.random.normal(key, (3, 50, 6))))(keys())
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)

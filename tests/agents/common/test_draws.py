"""Random numbers of learning steps: those of JAX, and not computed again by every expression that reads them."""

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


def test_expressions_read_numbers_that_were_computed_once():
    def two(key):
        noise = standard_normal(key, (50, 6))
        return noise[:, ::2] ** 2, noise.sum(-1)

    program = aesjax.jit(two).lower(keys()[0]).compile().as_text()
    assert "opt-barrier" in program

"""Random numbers of learning steps."""

import math

import jax

from aesjax.types import Array


def standard_normal(key: Array, shape: tuple[int, ...]) -> Array:
    """The numbers of `jax.random.normal`, float32, each computed once.

    XLA would repeat the inverse error function in every expression that reads the numbers, in rows of the last axis,
    which are short for vector instructions: on a CPU 30 % of the time of SAC's gradient step with six actions.
    """
    return jax.lax.optimization_barrier(jax.random.normal(key, (math.prod(shape),))).reshape(shape)

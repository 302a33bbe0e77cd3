"""Jitted for one call: not operation by operation, each compiled for itself, and not optimised."""

import jax


def quick(function, **options):
    """``function`` as one program that is compiled fast and runs slowly."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}, **options)

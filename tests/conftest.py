"""Strict settings for the whole suite: two CPU devices, no silent broadcasting, no key used twice."""

import os

# The suite compiles hundreds of small programs and runs each for an instant: optimising them costs more than it saves.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

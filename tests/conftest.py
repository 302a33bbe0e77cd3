"""Strict settings for the whole suite: two CPU devices, no silent broadcasting, no key used twice."""

import os

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
os.environ.setdefault("MPLBACKEND", "Agg")

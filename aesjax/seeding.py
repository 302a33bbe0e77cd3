"""Named random streams: the draws of one part of a run are independent of the draws of other parts."""

import zlib

import jax


def stream(key: jax.Array, name: str) -> jax.Array:
    """Sub-key of ``key`` for ``name``: a fold-in of the name's CRC-32."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))

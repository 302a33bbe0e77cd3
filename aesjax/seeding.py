"""Named random streams, so that what one part of a run draws never depends on what another part drew."""

import zlib

import jax


def stream(key: jax.Array, name: str) -> jax.Array:
    """The sub-key of ``key`` that belongs to ``name``: a fold-in of the name's CRC-32."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))

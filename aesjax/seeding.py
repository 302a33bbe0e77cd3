"""Named random streams, so that what one part of a run draws never depends on what another part drew."""

import zlib

import jax

from aesjax.types import Array


def stream(key: Array, name: str) -> Array:
    """The sub-key of ``key`` that belongs to ``name``: a fold-in of the name's CRC-32."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))

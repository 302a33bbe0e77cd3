"""One program over several hosts: the run axis is divided among the devices of all of them.

Runs know nothing of each other, so the program itself has nothing to send: every process trains its share of a wave,
neighbours in the order of runs. What crosses the network is read on the host: metrics after every chunk, states where a
checkpoint is written. It goes from memory to memory, by the collectives of JAX's CPU backend (gloo), whatever the
program runs on. All processes must call these functions in the same order.

In a program of one process everything here is the identity.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PIECE = 2**24  # bytes of one host that travel at once


class Gone(Exception):
    """Nothing can be exchanged any more: a process is gone, or the network is."""


def count() -> int:
    """Processes of the program."""
    return jax.process_count()


def first() -> bool:
    """Whether this is the process that owns the study's folder and speaks for all."""
    return jax.process_index() == 0


def devices() -> list[Any]:
    """Devices of the program in the order in which runs are divided among them: each process's are neighbours."""
    return sorted(jax.devices(), key=lambda device: device.process_index)


def share(rows: Sequence[int]) -> Sequence[int]:
    """This process's part of the rows of a wave, whose number `count` divides."""
    width = len(rows) // count()
    return rows[jax.process_index() * width : (jax.process_index() + 1) * width]


def place(tree: Any, sharding: NamedSharding) -> Any:
    """Arrays of this process's rows as its part of the arrays of all, sharded; arrays that are so already stay."""
    if count() == 1:
        return jax.device_put(tree, sharding)

    def placed(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return leaf
        return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))

    return jax.tree.map(placed, tree)


def own(tree: Any) -> Any:
    """This process's rows of arrays that are sharded over all hosts, as NumPy arrays; without others as they are."""
    return tree if count() == 1 else jax.tree.map(_own, tree)


def gather(tree: Any, *, to_all: bool = False) -> Any:
    """Arrays of this process's rows, or sharded over all hosts, as NumPy arrays with the rows of all.

    Args:
      to_all: every process gets them; otherwise only the first does, and the others None.
    """
    if count() == 1:
        return jax.tree.map(np.asarray, jax.device_get(tree))
    leaves, structure = jax.tree.flatten(own(tree))
    mine = np.concatenate([_bytes(leaf) for leaf in leaves])
    wanted = to_all or first()
    whole = np.empty((count(), mine.size), np.uint8) if wanted else None
    for part, rows in _exchanged(mine):
        if whole is not None:
            whole[:, part] = rows
    if whole is None:
        return None
    gathered = [
        _of_type(whole[:, at : at + leaf.nbytes], leaf.dtype, (count() * leaf.shape[0], *leaf.shape[1:]))
        for leaf, at in zip(leaves, _offsets(leaves), strict=True)
    ]
    return jax.tree.unflatten(structure, gathered)


def scatter(tree: Any, like: Any) -> Any:
    """This process's rows of the arrays that the first process holds, as NumPy arrays.

    Args:
      tree: what the first process holds; not read in the others.
      like: its shapes, with the rows of all processes.
    """
    if count() == 1:
        return tree
    shapes, structure = jax.tree.flatten(like)
    mine = [np.empty((leaf.shape[0] // count(), *leaf.shape[1:]), leaf.dtype) for leaf in shapes]
    buffer = np.empty(sum(leaf.nbytes for leaf in mine), np.uint8)
    for host in range(count()):
        sent = np.zeros(buffer.size, np.uint8)
        if first():
            rows = [np.split(np.asarray(leaf), count())[host] for leaf in jax.tree.leaves(tree)]
            sent = np.concatenate([_bytes(leaf) for leaf in rows])
        for part, received in _exchanged(sent):
            if host == jax.process_index():
                buffer[part] = received[0]
    leaves = [
        _of_type(buffer[at : at + leaf.nbytes], leaf.dtype, leaf.shape)
        for leaf, at in zip(mine, _offsets(mine), strict=True)
    ]
    return jax.tree.unflatten(structure, leaves)


def every(data: bytes) -> list[bytes]:
    """What each process gave, in their order."""
    if count() == 1:
        return [data]
    lengths = gather(np.array([len(data)], np.int64), to_all=True)
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    received = gather(padded[None], to_all=True)
    return [row[:length].tobytes() for row, length in zip(received, lengths, strict=True)]


def from_first(data: bytes) -> bytes:
    """What the first process gave."""
    return every(data if first() else b"")[0]


def agree(*asked: bool) -> tuple[bool, ...]:
    """Each question answered with yes if any process does."""
    if count() == 1:
        return asked
    answers = gather(np.array([asked], np.bool_), to_all=True)
    return tuple(bool(answer) for answer in answers.any(axis=0))


def least(number: int) -> int:
    """The smallest of the processes' numbers."""
    return number if count() == 1 else int(gather(np.array([number], np.int64), to_all=True).min())


def _own(leaf: Any) -> np.ndarray:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def _bytes(leaf: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def _of_type(data: np.ndarray, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes as the array they are, in memory of its own."""
    return np.array(data, order="C").reshape(-1).view(dtype).reshape(shape)


def _offsets(leaves: Sequence[np.ndarray]) -> list[int]:
    """Where each leaf begins among the bytes of all."""
    ends = np.cumsum([0, *(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)])
    return [int(end) for end in ends[:-1]]


def _exchanged(mine: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Piece by piece of ``mine``, (n,) uint8: where it stands, and that piece of every process, (processes, size).

    Raises:
      Gone: the collective failed.
    """
    mesh, replicate = _collective()
    for at in range(0, mine.size, PIECE):
        part = slice(at, min(at + PIECE, mine.size))
        rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("hosts")), mine[None, part])
        try:
            received = np.asarray(replicate(rows).addressable_data(0))
        except (RuntimeError, ValueError) as error:  # gloo's errors come as both
            raise Gone(f"the processes can exchange nothing any more: {str(error).splitlines()[0]}") from None
        yield part, received


@cache
def _collective() -> tuple[Mesh, Any]:
    """One CPU device of every process, and the program that gives each of them the rows of all."""
    own = {device.process_index: device for device in reversed(jax.devices("cpu"))}
    mesh = Mesh(np.array([own[process] for process in range(count())]), ("hosts",))
    return mesh, jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))

"""Many runs as one compiled program: stacked, vmapped, sharded over all devices, in batches that fit in memory.

A *program* is three pure functions of one run. Here they become three executables over a stack of runs, whose run
axis is divided among the devices with `jax.shard_map`; on a CPU with one XLA device per core each core then works
on runs of its own, with no communication at all.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aesjax.compiling import jit
from aesjax.types import Array, Program

_AXIS = "runs"
Device = Any  # `jax.Device` is a variable to type checkers
_CPU_GROUP = 8
_LARGEST_GROUPED_STATE = 64 * 2**20  # bytes: a group's state is copied once per interval


class Executables(NamedTuple):
    """A program over a stack of runs. ``chunk`` donates its state: the argument is gone after the call."""

    init: Callable[[Any], Any]
    chunk: Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]
    evaluate: Callable[[Any, Any, Array], dict[str, Array]]
    place: Callable[[Any], Any]  # host pytree with a leading run axis -> sharded device pytree
    devices: tuple[Device, ...]


class Batches(NamedTuple):
    """How many runs go through the program at once. The last batch repeats its first run to keep the shape."""

    width: int  # runs per batch, a multiple of the number of devices
    count: int
    group: int  # runs of one device that go through a chunk together; divides width / devices


def stack(runs: Sequence[Any]) -> Any:
    """List of equally shaped pytrees to one pytree of NumPy arrays with a leading run axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *runs)


def take(stacked: Any, indices: Sequence[int]) -> Any:
    """The runs ``indices`` of a stacked pytree."""
    return jax.tree.map(lambda leaf: leaf[np.asarray(indices)], stacked)


def compile_program(program: Program, devices: Sequence[Device] | None = None, group: int | None = None) -> Executables:
    """The three functions vmapped over runs, sharded over ``devices`` (all of them by default) and jitted.

    Compilation happens at the first call; every later call with the same number of runs reuses it, whatever the
    runs hold.

    Args:
      group: runs of a device that go through a chunk together, the next group after them; divides the runs per
        device. On a CPU eight small networks and their activations stay in the cache of a core where twenty-five do
        not, which is a third of the speed. None: all at once.
    """
    devices = tuple(jax.devices() if devices is None else devices)
    mesh = Mesh(np.array(devices), axis_names=(_AXIS,))
    rows, common = PartitionSpec(_AXIS), PartitionSpec()

    def sharded(function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
        specs = tuple(rows if axis == 0 else common for axis in axes)
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False)

    def over_runs(function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
        return sharded(jax.vmap(function, in_axes=axes), *axes)

    def chunk(state: Any, runs: Any, step: Array) -> Any:
        together = jax.vmap(program.chunk, in_axes=(0, 0, None))
        count = jax.tree.leaves(runs)[0].shape[0]
        if group is None or group >= count:
            return together(state, runs, step)

        def split(tree: Any) -> Any:
            return jax.tree.map(lambda x: x.reshape(count // group, group, *x.shape[1:]), tree)

        def join(tree: Any) -> Any:
            return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), tree)

        return join(jax.lax.map(lambda pair: together(pair[0], pair[1], step), (split(state), split(runs))))

    def place(tree: Any) -> Any:
        return jax.device_put(tree, NamedSharding(mesh, rows))

    # The initial state is computed once, but takes as long to compile as the training step when optimised.
    platform = devices[0].platform
    quick = {"xla_backend_optimization_level": 0} if platform == "cpu" else None
    return Executables(
        init=jit(over_runs(program.init, 0), platform=platform, compiler_options=quick),
        chunk=jit(sharded(chunk, 0, 0, None), platform=platform, donate_argnums=0),
        evaluate=jit(over_runs(program.evaluate, 0, 0, None), platform=platform),
        place=place,
        devices=devices,
    )


def memory_budget(devices: Sequence[Device]) -> int:
    """Bytes that the states of one batch may take: half of what the device (or, on a CPU, the machine) has free."""
    stats = [device.memory_stats() for device in devices]
    known = [s["bytes_limit"] - s["bytes_in_use"] for s in stats if s and "bytes_limit" in s]
    if len(known) == len(devices):
        return sum(known) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def state_bytes(program: Program, run: Any) -> int:
    """Size of one run's state."""
    leaves = jax.tree.leaves(jax.eval_shape(program.init, run))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def plan_batches(
    program: Program, run: Any, num_runs: int, num_devices: int, budget: int, largest_group: int | None = None
) -> Batches:
    """The fewest equal batches whose states fit in ``budget`` bytes, and within them groups of equal size.

    Args:
      run: one run (no leading axis); only its shapes are used.
      num_runs, num_devices: at least 1.
      largest_group: see `compile_program`; None: all runs of a device together.

    Raises:
      ValueError: not even one run per device fits.
    """
    bytes_per_run = state_bytes(program, run)
    fit = (budget // max(bytes_per_run, 1)) // num_devices * num_devices
    if fit < 1:
        raise ValueError(
            f"one run on each of {num_devices} devices needs {bytes_per_run * num_devices / 2**20:.0f} MiB, "
            f"but only {budget / 2**20:.0f} MiB are free; use fewer devices or a smaller replay"
        )
    padded = math.ceil(num_runs / num_devices) * num_devices
    count = math.ceil(padded / fit)
    per_device = math.ceil(math.ceil(num_runs / count) / num_devices)
    groups = 1 if largest_group is None else math.ceil(per_device / largest_group)
    group = math.ceil(per_device / groups)
    width = group * groups * num_devices
    return Batches(width, math.ceil(num_runs / width), group)


def cache_group(devices: Sequence[Device], bytes_per_run: int) -> int | None:
    """Runs that share a core's cache on a CPU; None on an accelerator, or where moving the states costs more."""
    return _CPU_GROUP if devices[0].platform == "cpu" and bytes_per_run <= _LARGEST_GROUPED_STATE else None

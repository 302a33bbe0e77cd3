"""Many runs as one compiled program: stacked, vmapped, sharded over all devices, in waves that fit in memory.

A *program* is three pure functions of one run. Here they become three executables over a stack of runs, whose run
axis is divided among the devices with `jax.shard_map`; on a CPU with one XLA device per core each core then works
on runs of its own, with no communication at all.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aesjax.types import Array

__all__ = ["Executables", "Program", "Waves", "compile_program", "memory_budget", "plan_waves", "stack", "take"]

AXIS = "runs"


class Program(NamedTuple):
    """One run as pure functions. ``run`` is data that never changes, ``state`` is all that does.

    ``step`` is the number of steps done, () int32, and the same for all stacked runs; it comes from the host, which
    counts chunks, so nothing overflows on the device before 2^31 vector steps.
    """

    init: Callable[[Any], Any]  # run -> state
    chunk: Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]  # state, run, step -> state, metrics
    evaluate: Callable[[Any, Any, Array], dict[str, Array]]  # state, run, step -> metrics


class Executables(NamedTuple):
    """A program over a stack of runs. ``chunk`` donates its state: the argument is gone after the call."""

    init: Callable[[Any], Any]
    chunk: Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]
    evaluate: Callable[[Any, Any, Array], dict[str, Array]]
    place: Callable[[Any], Any]  # host pytree with a leading run axis -> sharded device pytree
    devices: tuple[jax.Device, ...]


class Waves(NamedTuple):
    """How many runs go through the program at once. The last wave repeats its first run to keep the shape."""

    width: int  # runs per wave, a multiple of the number of devices
    count: int


def stack(runs: Sequence[Any]) -> Any:
    """List of equally shaped pytrees to one pytree of NumPy arrays with a leading run axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *runs)


def take(stacked: Any, indices: Sequence[int]) -> Any:
    """The runs ``indices`` of a stacked pytree."""
    return jax.tree.map(lambda leaf: leaf[np.asarray(indices)], stacked)


def compile_program(program: Program, devices: Sequence[jax.Device] | None = None) -> Executables:
    """The three functions vmapped over runs, sharded over ``devices`` (all local ones by default) and jitted.

    Compilation happens at the first call; every later call with the same number of runs reuses it, whatever the
    runs hold.
    """
    devices = tuple(jax.local_devices() if devices is None else devices)
    mesh = Mesh(np.array(devices), (AXIS,))
    rows, common = PartitionSpec(AXIS), PartitionSpec()

    def over_runs(function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
        specs = tuple(rows if axis == 0 else common for axis in axes)
        return jax.shard_map(
            jax.vmap(function, in_axes=axes), mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False
        )

    def place(tree: Any) -> Any:
        return jax.device_put(tree, NamedSharding(mesh, rows))

    # The initial state is computed once, but takes as long to compile as the training step when optimised.
    quick = {"xla_backend_optimization_level": 0} if devices[0].platform == "cpu" else None
    return Executables(
        init=jax.jit(over_runs(program.init, 0), compiler_options=quick),
        chunk=jax.jit(over_runs(program.chunk, 0, 0, None), donate_argnums=0),
        evaluate=jax.jit(over_runs(program.evaluate, 0, 0, None)),
        place=place,
        devices=devices,
    )


def memory_budget(devices: Sequence[jax.Device]) -> int:
    """Bytes that the states of one wave may take: half of what the device (or, on a CPU, the machine) has free."""
    stats = [device.memory_stats() for device in devices]
    known = [s["bytes_limit"] - s["bytes_in_use"] for s in stats if s and "bytes_limit" in s]
    if len(known) == len(devices):
        return sum(known) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def plan_waves(program: Program, run: Any, num_runs: int, num_devices: int, budget: int) -> Waves:
    """The fewest equal waves whose states fit in ``budget`` bytes.

    Args:
      run: one run (no leading axis); only its shapes are used.
      num_runs, num_devices: at least 1.

    Raises:
      ValueError: not even one run per device fits.
    """
    state = jax.eval_shape(program.init, run)
    bytes_per_run = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    fit = (budget // max(bytes_per_run, 1)) // num_devices * num_devices
    if fit < 1:
        raise ValueError(
            f"one run on each of {num_devices} devices needs {bytes_per_run * num_devices / 2**20:.0f} MiB, "
            f"but only {budget / 2**20:.0f} MiB are free; use fewer devices or a smaller replay"
        )
    padded = math.ceil(num_runs / num_devices) * num_devices
    count = math.ceil(padded / fit)
    width = math.ceil(math.ceil(num_runs / count) / num_devices) * num_devices
    return Waves(width, math.ceil(num_runs / width))


def step_array(step: int) -> Array:
    """The step as the () int32 that the executables take.

    Raises:
      OverflowError: a run longer than 2^31 - 1 vector steps.
    """
    if step > np.iinfo(np.int32).max:
        raise OverflowError(f"a run may have at most 2147483647 vector steps; got {step}")
    return jnp.int32(step)

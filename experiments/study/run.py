"""Many runs as one compiled program: batched, sharded over all devices, trained by intervals, returned as rows.

A *program* is three pure functions of one run. They are compiled to three executables over a batch of runs, whose run
axis is divided among the devices with `jax.shard_map`. On a CPU with one XLA device per core, each core trains its own
runs without communication. `sweep` calls the executables once per evaluation.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aesjax.compiling import jit
from aesjax.types import STREAM, Array, Program
from agents.common import REASONS
from experiments.study import checkpoint

_AXIS = "runs"
Device = Any  # `jax.Device` is a variable to type checkers
_CPU_GROUP = 8
_LARGEST_GROUPED_STATE = 64 * 2**20  # bytes: a group's state is copied once per interval
# First columns of the curves, in this order; logged quantities follow.
LEADING = ("family", "task", "method", "carrier", "schedule", "variant", "pattern", "seed", "step")
LEADING += ("return_mean", "return_std", "n_episodes", "drift_value")


class Executables(NamedTuple):
    """A program over a batch of runs. ``chunk`` donates its state, so the argument is invalid after the call."""

    init: Callable[[Any], Any]
    chunk: Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]
    evaluate: Callable[[Any, Any, Array], dict[str, Array]]
    place: Callable[[Any], Any]  # host pytree with a leading run axis -> sharded device pytree
    devices: tuple[Device, ...]


class Batches(NamedTuple):
    """Number of runs per call of the program. The last batch repeats its first run to fill its shape."""

    width: int  # runs per batch, a multiple of the number of devices
    count: int
    group: int  # runs of one device trained together in an interval; divides width / devices


def stack(runs: Sequence[Any]) -> Any:
    """Stack equally shaped pytrees to one pytree of NumPy arrays with a leading run axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *runs)


def take(stacked: Any, indices: Sequence[int]) -> Any:
    """Runs ``indices`` of a batched pytree."""
    return jax.tree.map(lambda leaf: leaf[np.asarray(indices)], stacked)


def compile_program(program: Program, devices: Sequence[Device] | None = None, group: int | None = None) -> Executables:
    """Compile the three functions, vmapped over runs and sharded over ``devices`` (by default all).

    Args:
      group: runs of a device trained together in an interval; divides the runs per device. None: all. On a CPU eight
        small networks fit into the cache of a core and twenty-five do not, which costs two thirds of the speed.
    """
    devices = tuple(jax.devices() if devices is None else devices)
    mesh = Mesh(np.array(devices), axis_names=(_AXIS,))
    rows, common = PartitionSpec(_AXIS), PartitionSpec()

    def sharded(function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False)

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

    evaluate = jax.vmap(program.evaluate, in_axes=(0, 0, None))
    # The initial state is computed once, and its optimised compilation would take as long as that of the training step.
    platform = devices[0].platform
    quick = {"xla_backend_optimization_level": 0} if platform == "cpu" else None
    return Executables(
        init=jit(sharded(jax.vmap(program.init), rows), platform=platform, compiler_options=quick),
        chunk=jit(sharded(chunk, rows, rows, common), platform=platform, donate_argnums=0),
        evaluate=jit(sharded(evaluate, rows, rows, common), platform=platform),
        place=lambda tree: jax.device_put(tree, NamedSharding(mesh, rows)),
        devices=devices,
    )


def memory_budget(devices: Sequence[Device]) -> int:
    """Bytes allowed for the states of one batch: half of the free memory of the device (on a CPU, of the machine)."""
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
    """Fewest equal batches whose states fit in ``budget`` bytes, with groups of equal size and few empty places.

    Args:
      run: one run without leading axis; only its shapes are used.
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
    group = per_device if largest_group is None else _group(per_device, largest_group)
    width = math.ceil(per_device / group) * group * num_devices
    return Batches(width, math.ceil(num_runs / width), group)


def _group(runs: int, largest: int) -> int:
    """The size of a group, more than half of ``largest``, that leaves the fewest places empty; the largest of these."""
    sizes = range(min(runs, largest), largest // 2, -1)
    return min(sizes, key=lambda size: -runs % size, default=runs)


def cache_group(devices: Sequence[Device], bytes_per_run: int) -> int | None:
    """Runs that share a core's cache on a CPU; None on an accelerator, or if copying the states costs more."""
    return _CPU_GROUP if devices[0].platform == "cpu" and bytes_per_run <= _LARGEST_GROUPED_STATE else None


class Intervals(NamedTuple):
    """Evaluations of a run, and the training between them."""

    evaluations: int  # after the one at step 0
    interval: int  # vector steps between them
    num_envs: int  # environment steps per vector step


class Evaluated(NamedTuple):
    """A batch of runs after an evaluation."""

    batch: int
    number: int  # number of the evaluation, 0 before training
    labels: Sequence[Mapping[str, Any]]  # of the batch's runs
    state: Any  # state of the runs, possibly with further rows; invalid after the next evaluation
    rows: pl.DataFrame  # the evaluation, one row per run
    last: bool  # of the batch

    def save(self, directory: Path, study: str, rows: pl.DataFrame, devices: int, seconds: float) -> None:
        """Write a checkpoint from which `sweep` continues, with all ``rows`` and ``seconds`` of training so far.

        Raises:
          Unwritable: it cannot be written; earlier checkpoints are unchanged.
        """
        checkpoint.save(directory, study, self.batch, self.number, self.state, rows, devices=devices, seconds=seconds)


def sweep(
    executables: Executables,
    runs: Any,
    labels: Sequence[Mapping[str, Any]],
    batches: Batches,
    intervals: Intervals,
    *,
    begin: Callable[[Sequence[int], Any], Any] | None = None,
    saved: checkpoint.Saved | None = None,
) -> Iterator[Evaluated]:
    """Train all runs by batches, and yield after every evaluation: at step 0 and after every training interval.

    A column without a value, such as training statistics at step 0, is NaN.

    Args:
      runs: pytree of NumPy arrays with leading axis ``len(labels)``.
      labels: one mapping per run, with the identifying columns of its rows.
      begin: returns the state of a batch before training, from the indices of its runs (one per row of the state) and
        their initial state; leaves may be NumPy arrays. Not called after a checkpoint.
      saved: the checkpoint to continue, as `load` returns it.
    """
    first, at, state = (0, -1, None) if saved is None else (saved.batch, saved.number, saved.state)
    for batch in range(first, batches.count):
        members = list(range(batch * batches.width, min((batch + 1) * batches.width, len(labels))))
        padded = members + [members[0]] * (batches.width - len(members))
        data, names = executables.place(take(runs, padded)), [labels[i] for i in members]
        if state is None:
            state = executables.init(data)
            state = state if begin is None else begin(padded, state)
        state = executables.place(state)
        for number in range(at + 1, intervals.evaluations + 1):
            metrics: dict[str, Any] = {}
            if number > 0:
                state, metrics = executables.chunk(state, data, jnp.int32((number - 1) * intervals.interval))
            step = number * intervals.interval
            metrics = executables.evaluate(state, data, jnp.int32(step)) | metrics
            rows = frame_of(names, jax.device_get(metrics), step * intervals.num_envs)
            yield Evaluated(batch, number, names, state, rows, number == intervals.evaluations)
        state, at = None, -1


def load(
    executables: Executables, program: Program, runs: Any, batches: Batches, directory: Path, study: str
) -> checkpoint.Saved | None:
    """The newest checkpoint that `sweep` can continue; None without checkpoints.

    Raises:
      CheckpointError: all checkpoints are damaged, or made with another number of devices.
    """
    like = jax.eval_shape(jax.vmap(program.init), take(runs, [0] * batches.width))
    saved = checkpoint.load_newest(directory, study, like)
    if saved is None:
        return None
    if saved.devices not in (None, now := len(executables.devices)):
        raise checkpoint.CheckpointError(
            f"the runs in {directory} began with --devices {saved.devices}, on which their numbers depend; this "
            f"process has {now}: continue with --devices {saved.devices}, in a new process"
        )
    # The stored state is restored for any requested shape.
    stored, wanted = ([np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (saved.state, like))
    if stored != wanted:
        raise checkpoint.CheckpointError(
            f"the checkpoint in {directory} does not have batches of {batches.width} runs; continue with the "
            "number of devices and the free memory that the study began with"
        )
    return saved


def frame_of(labels: Sequence[Mapping[str, Any]], metrics: Mapping[str, np.ndarray], step: int) -> pl.DataFrame:
    """One evaluation as rows, with the labels of each run, the step in environment steps, and all metrics."""
    count = len(labels)
    columns: dict[str, Any] = {name: [label[name] for label in labels] for name in labels[0]}
    columns["step"] = np.full(count, step, np.int64)
    for name, value in metrics.items():
        value = np.asarray(value)[:count]
        if name.startswith(STREAM):
            columns[name] = pl.Series(values=np.ascontiguousarray(value, np.float32))
            continue
        value = value.astype(np.int64) if np.issubdtype(value.dtype, np.integer) else value.astype(np.float64)
        if value.ndim == 1:
            columns[name] = value
        else:
            columns |= {f"{name}_{i}": value[:, i] for i in range(value.shape[1])}
    return pl.DataFrame(columns)


def ordered(frames: Sequence[pl.DataFrame], labels: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """All rows of a sweep, ordered by run and step."""
    names = list(labels[0])
    order = pl.DataFrame({**{n: [label[n] for label in labels] for n in names}, "_run": range(len(labels))})
    rows = pl.concat(frames, how="diagonal")
    return rows.join(order, on=names, how="left").sort("_run", "step").drop("_run")


def arranged(rows: pl.DataFrame, episodes: int) -> pl.DataFrame:
    """Rows of `curves.parquet`: labels and drift first, then logged columns."""
    rows = rows.drop("diverged_at", "reason").with_columns(n_episodes=pl.lit(episodes))
    first = [*LEADING, *(name for name in rows.columns if name.startswith("drift_") and name not in LEADING)]
    return rows.select(*first, pl.exclude(first))


def split_streams(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split rows into the curves and the streams, which have one row per run and one list per stream.

    A stream is NaN without an update; its name has no prefix.
    """
    names = [name for name in rows.columns if name.startswith(STREAM)]
    labels = rows.columns[: rows.columns.index("step")]
    whole = [
        pl.col(name).drop_nulls().arr.to_list().explode().alias(name.removeprefix(STREAM))  # in the order of rows
        for name in names
    ]
    return rows.drop(names), rows.group_by(labels, maintain_order=True).agg(whole)


def statuses_of(rows: pl.DataFrame, num_envs: int) -> list[dict[str, Any]]:
    """Status of each run: finished, or diverged with the environment step and the reason."""
    identity = ["task", "method", "pattern", "seed"]
    if "simulation_faults" not in rows.columns:  # a task without a simulator
        rows = rows.with_columns(simulation_faults=pl.lit(None, pl.Float64))
    table = rows.group_by(identity, maintain_order=True).agg(
        pl.col("simulation_faults").fill_nan(None).max(),
        pl.col("diverged_at").max(),
        pl.col("reason").max(),
        pl.col("step").filter(~pl.col("return_mean").is_finite()).min().alias("bad_return"),
    )
    statuses = []
    for entry in table.to_dicts():
        at, reason, bad, faults = (entry.pop(n) for n in ("diverged_at", "reason", "bad_return", "simulation_faults"))
        if at is not None and not math.isnan(at) and at >= 0:
            why = ", ".join(text for bit, text in enumerate(REASONS) if int(reason) >> bit & 1)
            entry |= {"status": "diverged", "diverged_at": int(at) * num_envs, "reason": why}
        elif bad is not None:
            entry |= {"status": "diverged", "diverged_at": bad, "reason": "evaluation return not finite"}
        else:
            entry["status"] = "finished"
        statuses.append(entry | ({"simulation_faults": int(faults)} if faults else {}))
    return statuses

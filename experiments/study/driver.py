"""The host loop of a sweep: the same two executables again and again, with rows, checkpoints and a clean stop."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import STREAM, Program
from experiments.study import checkpoint, store
from experiments.study.stop import StopFlag
from experiments.study.sweep import Executables, Waves, take

if TYPE_CHECKING:
    import polars as pl


class Interrupted(Exception):
    """A signal was honoured; the text says at which checkpoint the study stands."""


class Plan(NamedTuple):
    """Sizes of a sweep that the host needs."""

    chunks: int  # evaluations after the one at step 0
    chunk_steps: int  # vector steps per chunk
    num_envs: int  # environment steps per vector step
    checkpoint_seconds: float = 30.0


class Tick(NamedTuple):
    """Input of the progress display after every training interval."""

    wave: int
    chunk: int
    rows: "pl.DataFrame"  # the newest evaluation, one row per run


def _frame(labels: Sequence[Mapping[str, Any]], metrics: Mapping[str, np.ndarray], step: int) -> "pl.DataFrame":
    """One evaluation as rows: the labels of each run, the step in environment steps, every metric."""
    import polars as pl

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


def run_sweep(
    executables: Executables,
    program: Program,
    runs: Any,
    labels: Sequence[Mapping[str, Any]],
    waves: Waves,
    plan: Plan,
    *,
    directory: Path | None = None,
    study: str = "",
    resume: bool = False,
    on_tick: Callable[[Tick], None] = lambda tick: None,
    on_note: Callable[[str], None] = lambda text: None,
    on_chunk: Callable[[int, int, Sequence[Mapping[str, Any]], Any], None] = lambda wave, chunk, labels, state: None,
    on_wave: Callable[[int, Sequence[Mapping[str, Any]], Any], None] = lambda wave, labels, state: None,
    begin: Callable[[Sequence[int], Any], Any] | None = None,
) -> "pl.DataFrame":
    """Train all runs and return one row per run and evaluation, ordered by run and step.

    Evaluations happen at step 0 and after every chunk. Where a column has no value yet (training statistics at
    step 0) it is NaN.

    Args:
      runs: stacked pytree of NumPy arrays with leading axis ``len(labels)``.
      labels: one mapping per run, the identifying columns of its rows.
      directory: where checkpoints go; None writes none.
      study: fingerprint of the configuration.
      begin: what a wave starts from instead of its initial state, from the numbers of its runs (in ``runs``, one for
        every row of the state) and that state; leaves may be NumPy arrays. Not called where a checkpoint is resumed.
      on_chunk: called after every evaluation with its wave and number, the labels of the wave's runs and their state,
        whose run axis may be longer.
      on_wave: called when a wave has ended with its number, the labels of its runs and their final state, likewise.

    Raises:
      Interrupted: stopped by a signal after writing a checkpoint, or where that failed at the one before.
      CheckpointError: ``resume`` and no checkpoint can be trusted.
    """
    import polars as pl

    total = len(labels)
    first, at_chunk, frames, state = 0, -1, [], None
    if resume and directory is not None:
        saved = _load(executables, program, runs, waves, directory, study)
        if saved is not None:
            for note in saved.notes:
                on_note(note)
            first, at_chunk, state, frames = saved.wave, saved.chunk, saved.state, [saved.rows]

    def write(wave: int, chunk: int, state: Any) -> str:
        """Where the study stands then. A checkpoint is no reason to end a study: another one follows."""
        nonlocal frames
        frames = [pl.concat(frames, how="diagonal")]
        if directory is None:
            return "no checkpoints are written"
        try:
            checkpoint.save(directory, study, wave, chunk, state, frames[0], devices=len(executables.devices))
        except store.Unwritable as error:
            before = "the one before it is unchanged" if checkpoint.newest_height(directory) else "there is no other"
            on_note(f"{error}; {before}")
            return f"{error}; {before}"
        return "a checkpoint is written"

    with ExitStack() as stack:
        stop: StopFlag | None = None
        for wave in range(first, waves.count):
            members = list(range(wave * waves.width, min((wave + 1) * waves.width, total)))
            padded = members + [members[0]] * (waves.width - len(members))
            data = executables.place(take(runs, padded))
            names = [labels[i] for i in members]
            if state is None:
                at_chunk, state = -1, executables.init(data)
                if begin is not None:
                    state = executables.place(begin(padded, state))
            else:
                state = executables.place(state)
            written = time.monotonic()
            for chunk in range(at_chunk + 1, plan.chunks + 1):
                metrics: dict[str, Any] = {}
                if chunk > 0:
                    state, metrics = executables.chunk(state, data, jnp.int32((chunk - 1) * plan.chunk_steps))
                step = chunk * plan.chunk_steps
                metrics = executables.evaluate(state, data, jnp.int32(step)) | metrics
                frames.append(_frame(names, jax.device_get(metrics), step * plan.num_envs))
                # Compiled and trained: from here on a signal would lose work.
                if stop is None and chunk > 0:
                    stop = stack.enter_context(StopFlag())
                on_tick(Tick(wave, chunk, frames[-1]))
                on_chunk(wave, chunk, names, state)
                last = chunk == plan.chunks
                if last:  # before a checkpoint says that this wave is done
                    on_wave(wave, names, state)
                due = time.monotonic() - written > plan.checkpoint_seconds
                if stop is not None and stop.asked:
                    raise Interrupted(write(wave, chunk, state))
                if (last and wave < waves.count - 1) or due:
                    write(wave, chunk, state)
                    written = time.monotonic()
            state, at_chunk = None, -1
    rows = pl.concat(frames, how="diagonal")
    position = {name: i for i, name in enumerate(labels[0])}
    order = pl.DataFrame({**{n: [label[n] for label in labels] for n in position}, "_run": range(total)})
    return rows.join(order, on=list(position), how="left").sort("_run", "step").drop("_run")


def _load(
    executables: Executables, program: Program, runs: Any, waves: Waves, directory: Path, study: str
) -> checkpoint.Saved | None:
    like = jax.eval_shape(jax.vmap(program.init), take(runs, [0] * waves.width))
    saved = checkpoint.load_newest(directory, study, like)
    if saved is None:
        return None
    if saved.devices not in (None, now := len(executables.devices)):
        raise checkpoint.CheckpointError(
            f"the runs in {directory} began with --devices {saved.devices}, on which their numbers depend; this "
            f"process has {now}: continue without --devices, in a process of its own"
        )
    # The stored state is restored whatever shape is requested.
    stored, wanted = ([np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (saved.state, like))
    if stored != wanted:
        raise checkpoint.CheckpointError(
            f"the checkpoint in {directory} stacks runs otherwise than {waves.width} at a time; continue with as "
            "many devices and as much free memory as the study began with"
        )
    return saved

"""The host loop of a sweep: the same two executables again and again, an evaluation at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import Program
from experiments.study import checkpoint
from experiments.study.curves import frame_of
from experiments.study.sweep import Batches, Executables, take

if TYPE_CHECKING:
    import polars as pl


class Plan(NamedTuple):
    """Sizes of a sweep that the host needs."""

    evaluations: int  # after the one at step 0
    interval: int  # vector steps between them
    num_envs: int  # environment steps per vector step


class Evaluated(NamedTuple):
    """A batch of runs after an evaluation."""

    batch: int
    number: int  # of the evaluation, 0 before training
    labels: Sequence[Mapping[str, Any]]  # of the batch's runs
    state: Any  # of these, stacked, maybe with further rows; gone after the next evaluation
    rows: "pl.DataFrame"  # the evaluation, one row per run
    last: bool  # of the batch

    def save(self, directory: Path, study: str, rows: "pl.DataFrame", devices: int) -> None:
        """Write a checkpoint from which `sweep` continues, with all ``rows`` so far.

        Raises:
          Unwritable: it cannot be written; those before it are unchanged.
        """
        checkpoint.save(directory, study, self.batch, self.number, self.state, rows, devices=devices)


def sweep(
    executables: Executables,
    runs: Any,
    labels: Sequence[Mapping[str, Any]],
    batches: Batches,
    plan: Plan,
    *,
    begin: Callable[[Sequence[int], Any], Any] | None = None,
    saved: checkpoint.Saved | None = None,
) -> Iterator[Evaluated]:
    """Train all runs, batch by batch, and yield after every evaluation: at step 0 and after every training interval.

    Where a column has no value yet (training statistics at step 0) it is NaN.

    Args:
      runs: stacked pytree of NumPy arrays with leading axis ``len(labels)``.
      labels: one mapping per run, the identifying columns of its rows.
      begin: the state of a batch before training, from the numbers of its runs (in ``runs``, one for every row of the
        state) and their initial state; leaves may be NumPy arrays. Not called where a checkpoint is continued.
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
        for number in range(at + 1, plan.evaluations + 1):
            metrics: dict[str, Any] = {}
            if number > 0:
                state, metrics = executables.chunk(state, data, jnp.int32((number - 1) * plan.interval))
            step = number * plan.interval
            metrics = executables.evaluate(state, data, jnp.int32(step)) | metrics
            rows = frame_of(names, jax.device_get(metrics), step * plan.num_envs)
            yield Evaluated(batch, number, names, state, rows, number == plan.evaluations)
        state, at = None, -1


def load(
    executables: Executables, program: Program, runs: Any, batches: Batches, directory: Path, study: str
) -> checkpoint.Saved | None:
    """The newest checkpoint that `sweep` can continue; None where there is none.

    Raises:
      CheckpointError: no checkpoint can be trusted, or the numbers of its runs depend on other devices.
    """
    like = jax.eval_shape(jax.vmap(program.init), take(runs, [0] * batches.width))
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
            f"the checkpoint in {directory} stacks runs otherwise than {batches.width} at a time; continue with as "
            "many devices and as much free memory as the study began with"
        )
    return saved

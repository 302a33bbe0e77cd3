"""Live logs of a training, one writer per run: TensorBoard event files, and Weights & Biases."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report.plots import file_stem
from experiments.study import store

if TYPE_CHECKING:
    import polars as pl

_LABELS = ("task", "method", "pattern", "seed")
_SKIPPED = {*_LABELS, "family", "carrier", "schedule", "variant", "step", "n_episodes"}
OnRows = Callable[["pl.DataFrame"], None]
_Log = Callable[[dict[str, float], int], None]  # numbers of one run by column, environment step


@contextmanager
def writers(tensorboard: Path | None, wandb: str | None) -> Iterator[OnRows | None]:
    """A function that logs the rows of an evaluation; None where nothing is logged.

    Args:
      tensorboard: a folder, in which a run is the folder ``TASK/METHOD/PATTERN/seed-N``.
      wandb: a project; a run is a run of it, grouped by method.

    Raises:
      ValueError: the folder is not new.
      ModuleNotFoundError: the library is not installed; one sentence that says what to install.
    """
    with ExitStack() as stack:
        openers = []
        if tensorboard is not None:
            store.check_new(tensorboard, "--tensorboard")
            openers.append(_tensorboard(tensorboard, stack))
        if wandb is not None:
            openers.append(_wandb(wandb, stack))
        yield _logging(openers) if openers else None


def _logging(openers: list[Callable[[dict[str, Any]], _Log]]) -> OnRows:
    logs: dict[tuple, list[_Log]] = {}

    def on_rows(rows: "pl.DataFrame") -> None:
        columns = [name for name, kind in rows.schema.items() if name not in _SKIPPED and kind.is_numeric()]
        for row in rows.to_dicts():
            key = tuple(row[name] for name in _LABELS)
            if key not in logs:
                logs[key] = [opened({name: row[name] for name in _LABELS}) for opened in openers]
            numbers = {name: float(row[name]) for name in columns if row[name] is not None and np.isfinite(row[name])}
            for log in logs[key]:
                log(numbers, int(row["step"]))

    return on_rows


def _tensorboard(out: Path, stack: ExitStack) -> Callable[[dict[str, Any]], _Log]:
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        text = "--tensorboard needs tensorboardX; install it with pip install 'aesjax[tensorboard]'"
        raise ModuleNotFoundError(text) from None

    def opened(label: dict[str, Any]) -> _Log:
        stems = [file_stem(label[name]) for name in _LABELS[:3]]
        writer = stack.enter_context(SummaryWriter(str(out.joinpath(*stems, f"seed-{label['seed']}"))))

        def log(numbers: dict[str, float], step: int) -> None:
            for name, value in numbers.items():
                # Wall time is part of an event; a study stores none per evaluation, so all runs begin at zero.
                writer.add_scalar(name, value, step, walltime=0.0)

        return log

    return opened


def _wandb(project: str, stack: ExitStack) -> Callable[[dict[str, Any]], _Log]:
    try:
        import wandb  # type: ignore
    except ModuleNotFoundError:
        raise ModuleNotFoundError("--wandb needs wandb; install it with pip install 'aesjax[wandb]'") from None

    def opened(label: dict[str, Any]) -> _Log:
        name = "-".join(str(label[part]) for part in _LABELS)
        run = wandb.init(project=project, name=name, group=label["method"], config=label, reinit="create_new")
        stack.callback(run.finish)
        return lambda numbers, step: run.log(numbers, step=step)

    return opened


def write_tensorboard(curves: "pl.DataFrame", out: Path) -> int:
    """Write every logged number of a finished study into ``out``, and return how many runs it has.

    Raises:
      ValueError, ModuleNotFoundError: as `writers`.
    """
    with writers(out, None) as on_rows:
        assert on_rows is not None
        on_rows(curves.sort("step", maintain_order=True))
    return curves.select(_LABELS).n_unique()

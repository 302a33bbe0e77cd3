"""Live logs of a training, one writer per run: TensorBoard event files, and Weights & Biases."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
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
def writers(tensorboard: Path | None, wandb: str | None, *, resume: bool = False) -> Iterator[OnRows | None]:
    """A function that logs the rows of an evaluation; None without logging.

    Args:
      tensorboard: a folder; a run is its subfolder ``TASK/METHOD/PATTERN/seed-N``.
      wandb: a project, with one run per run, grouped by method.
      resume: the folder may hold the events of an interrupted study, to which those of its rest are added.

    Raises:
      ValueError: the folder is not new, and ``resume`` is false.
      ModuleNotFoundError: the library is not installed; the text names the package.
    """
    with ExitStack() as stack:
        openers = []
        if tensorboard is not None:
            library = check_tensorboard(tensorboard, resume=resume)
            openers.append(partial(_tensorboard, library, tensorboard, stack))
        if wandb is not None:
            openers.append(partial(_wandb, _library("wandb", "wandb"), wandb, stack))
        yield partial(_log_rows, openers, {}) if openers else None


def check_tensorboard(folder: Path, *, resume: bool = False) -> Any:
    """The library that writes events into a folder.

    Raises:
      ValueError, ModuleNotFoundError: as `writers`.
    """
    if not resume:
        store.check_new(folder, "--tensorboard")
    return _library("tensorboardX", "tensorboard")


def _library(name: str, option: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        text = f"--{option} needs {name}; install it with pip install '.[{option}]' in a clone"
        raise ModuleNotFoundError(text) from None


def _log_rows(openers: list[Callable[[dict], _Log]], logs: dict[tuple, list[_Log]], rows: "pl.DataFrame") -> None:
    """Log rows (one per run and evaluation); ``logs`` holds the open logs by run."""
    columns = [name for name, kind in rows.schema.items() if name not in _SKIPPED and kind.is_numeric()]
    for row in rows.to_dicts():
        label = {name: row[name] for name in _LABELS}
        key = tuple(label.values())
        if key not in logs:
            logs[key] = [opened(label) for opened in openers]
        numbers = {name: float(row[name]) for name in columns if row[name] is not None and np.isfinite(row[name])}
        for log in logs[key]:
            log(numbers, int(row["step"]))


def _tensorboard(library: Any, out: Path, stack: ExitStack, label: dict[str, Any]) -> _Log:
    stems = [file_stem(label[name]) for name in _LABELS[:3]]
    writer = stack.enter_context(library.SummaryWriter(str(out.joinpath(*stems, f"seed-{label['seed']}"))))

    def log(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            # Events need a wall time; studies store none per evaluation, so all runs begin at zero.
            writer.add_scalar(name, value, step, walltime=0.0)

    return log


def _wandb(library: Any, project: str, stack: ExitStack, label: dict[str, Any]) -> _Log:
    name = "-".join(map(str, label.values()))
    run = library.init(project=project, name=name, group=label["method"], config=label, reinit="create_new")
    stack.callback(run.finish)
    return lambda numbers, step: run.log(numbers, step=step)


def write_tensorboard(curves: "pl.DataFrame", out: Path) -> int:
    """Write every logged number of a finished study into ``out``, and return its number of runs.

    Raises:
      ValueError, ModuleNotFoundError: as `writers`.
    """
    with writers(out, None) as on_rows:
        assert on_rows is not None
        on_rows(curves.sort("step", maintain_order=True))
    return curves.select(_LABELS).n_unique()

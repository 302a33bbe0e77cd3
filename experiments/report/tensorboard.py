"""A finished study as TensorBoard event files, a folder per run."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.measure.study import RunKey
from experiments.report.folder import load
from experiments.report.plots import file_stem
from experiments.study import store

if TYPE_CHECKING:
    import polars as pl


_SKIPPED = {*RunKey._fields, "carrier", "schedule", "variant", "step", "n_episodes"}


def write_tensorboard(directory: str | Path, out: str | Path) -> int:
    """Write every logged number of every run of the study in ``directory`` into ``out`` and return how many runs.

    A run is the folder ``TASK/METHOD/PATTERN/seed-N``; each column of ``curves.parquet`` is a scalar at the environment
    step of its evaluation, with nothing where nothing was logged. Needs the extra ``tensorboard``.

    Raises:
      ValueError: the study cannot be read, or ``out`` is not a new or empty folder.
      ModuleNotFoundError: tensorboardX is not installed; one sentence that says what to install.
    """
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "--tensorboard needs tensorboardX; install it with pip install 'aesjax[tensorboard]'"
        ) from None
    out = Path(out)
    store.check_new(out, "--tensorboard")
    curves = load(Path(directory)).curves
    columns = [name for name, kind in curves.schema.items() if name not in _SKIPPED and kind.is_numeric()]
    partial = out.with_name(f".{out.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    runs = curves.partition_by(list(RunKey._fields), as_dict=True, maintain_order=True)
    try:
        for names, rows in runs.items():
            key = RunKey(*names)
            folder = partial / file_stem(key.task) / file_stem(key.method) / file_stem(key.pattern) / f"seed-{key.seed}"
            with SummaryWriter(str(folder)) as writer:
                _write_run(writer, rows.sort("step"), columns)
        if out.exists():
            out.rmdir()
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return len(runs)


def _write_run(writer, rows: "pl.DataFrame", columns: list[str]) -> None:
    steps = rows["step"].to_numpy()
    for name in columns:
        values = rows[name].cast(float).fill_null(np.nan).to_numpy()
        for step, value in zip(steps, values, strict=True):
            if np.isfinite(value):
                # Wall time is part of an event; a study keeps none per evaluation, so all runs begin at zero.
                writer.add_scalar(name, float(value), int(step), walltime=0.0)

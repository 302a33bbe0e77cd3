"""`aesjax replay`: the proxies that a finished study recorded, fed through other schedules, without training."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aesjax.schedules import SCHEDULES
from experiments.report.draw import draw
from experiments.report.page import Figure, render_html, render_markdown
from experiments.report.replay_output import LEVER_COLUMNS, PAGE, SUMMARY, TRAINED, WEIGHTS, Track, page, plots, tell
from experiments.study import store
from experiments.study.entries import BASELINE, parse_entries
from experiments.study.recorded import LOGGED, Asked, Recorded, ask, load, obstacle_of, recorded_in, replayed, rows_of
from experiments.study.rescore import Replayed, at_evaluations

if TYPE_CHECKING:
    import polars as pl


LABELS = ("family", "task", "method", "carrier", "schedule", "variant", "pattern", "seed")


def run(directory: Path, schedules: str, methods: str | None, out: Path) -> str:
    """Replay ``schedules`` on the study in ``directory``, write ``out``, and return the summary's text.

    Raises:
      ValueError, KeyError: with one sentence; nothing was written.
    """
    import polars as pl

    store.check_new(out, "--out")
    names = list(SCHEDULES) if schedules == "all" else parse_entries(schedules)
    study = load(directory, methods)
    carriers = [name for name in study.config.carriers if name in study.streams["carrier"]]
    asked = {carrier: _asked(study, carrier, names, lenient=schedules == "all") for carrier in carriers}
    tracks, frames = _trained(study), []
    for carrier in carriers:
        for item in asked[carrier]:
            more, frame = _replayed(study, carrier, item)
            tracks += more
            frames.append(frame)
    valid = [t for t in tracks if (t.run["method"], t.run["pattern"], t.run["seed"]) in study.finished]
    told = tell(study.config, valid, {carrier: study.stride(carrier) for carrier in carriers})
    figures = [Figure(plot, draw(plot)) for plot in plots(study.config, valid, study.patterns)]
    shown = page(study.config, told, figures)
    text = render_markdown(shown)
    files = {PAGE: render_html(shown).encode(), SUMMARY: text.encode()}
    files |= {f"{figure.plot.name}.png": figure.picture.png for figure in figures}
    files |= {f"{figure.plot.name}.svg": figure.picture.svg for figure in figures}
    _write(out, pl.concat(frames, how="diagonal"), files)
    return text


def _asked(study: Recorded, carrier: str, names: Sequence[str], lenient: bool) -> list[Asked]:
    """The replays on one carrier.

    Raises:
      ValueError: one of them is impossible (``lenient``: it is left out), with the reason.
    """
    recorded, items = recorded_in(rows_of(study, carrier)), []
    if not recorded:
        raise ValueError(f"{store.STREAMS} holds no proxy of carrier '{carrier}'")
    for name in names:
        asked = ask(study.config, carrier, name)
        reason = obstacle_of(asked, recorded)
        if reason and not lenient:
            alias = f" ({asked.choice.schedule})" if asked.entry.schedule == BASELINE else ""
            raise ValueError(f"schedule '{name}'{alias} cannot be replayed on carrier '{carrier}': {reason}")
        if not reason:
            items.append(asked)
    return items


def _replayed(study: Recorded, carrier: str, asked: Asked) -> tuple[list[Track], "pl.DataFrame"]:
    """One schedule on all runs of one carrier: what is summarised and drawn, and the rows of `WEIGHTS`."""
    rows, stride, config = rows_of(study, carrier), study.stride(carrier), study.config
    result, skipped = replayed(study, carrier, asked)
    samples = skipped + result.weight.shape[1]
    logs = at_evaluations(result, skipped, config.evaluations)
    steps = np.arange(1, config.evaluations + 1) * config.steps / config.evaluations
    at = np.arange(skipped + 1, samples + 1) * config.steps / samples
    tracks = [
        Track(labels, asked.name, steps, {name: values[i] for name, values in logs.items()}, (at, result.weight[i]))
        for i, labels in enumerate(rows.select(LABELS).to_dicts())
    ]
    return tracks, _frame(rows, asked, result, stride, skipped, config.steps / samples)


def _frame(
    rows: "pl.DataFrame", asked: Asked, result: Replayed, stride: int, skipped: int, steps: float
) -> "pl.DataFrame":
    """Entry i of `weight` is the weight after update (i + 1) * updates_per_sample, which is at environment step
    (warmup_samples + i + 1) * steps_per_sample. So with the levers of responses: the window as a share of what is
    stored then, the factor of the learning rates; a refresh stands, with its strength, where it would fall due."""
    import polars as pl

    levers = {name: _lists(values) for name, values in result.levers._asdict().items() if values is not None}
    return rows.select(LABELS).with_columns(
        replayed=pl.lit(asked.name),
        updates_per_sample=pl.lit(stride),
        warmup_samples=pl.lit(skipped),
        steps_per_sample=pl.lit(float(steps)),
        initial=pl.Series(result.initial),
        weight=_lists(result.weight),
        **levers,
    )


def _lists(values: np.ndarray) -> "pl.Series":
    """(R, n) as a column of lists: of arrays polars makes a type of their length, and carriers have other lengths."""
    import polars as pl

    return pl.Series(list(values)).cast(pl.List(pl.Float32))


def _trained(study: Recorded) -> list[Track]:
    """The weights that the runs trained with."""
    tracks = []
    for rows in study.curves.partition_by(LABELS, maintain_order=True):
        rows = rows.sort("step")
        steps = rows["step"].to_numpy().astype(np.float64)
        names = (*LOGGED, *(name for name in LEVER_COLUMNS if name in rows.columns))
        logs = {name: rows[name].cast(float).to_numpy() for name in names}
        seen = np.isfinite(logs["entropy_weight"])
        line = (steps[seen], logs["entropy_weight"][seen])
        tracks.append(Track(rows.select(LABELS).row(0, named=True), TRAINED, steps, logs, line))
    return tracks


def _write(out: Path, weights: "pl.DataFrame", files: Mapping[str, bytes]) -> None:
    """The folder appears complete or not at all."""
    partial = out.with_name(f".{out.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        store.write_rows(partial / WEIGHTS, weights)
        for name, content in files.items():
            (partial / name).write_bytes(content)
        os.replace(partial, out)
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)

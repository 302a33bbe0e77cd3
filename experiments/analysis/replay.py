"""`aesjax replay`: the proxies that a finished study recorded, fed through other schedules, without training."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from aesjax.lab import store
from aesjax.lab.replay import Replayed, at_evaluations, first_update, obstacle, replay
from aesjax.measure.patterns import PatternFacts, describe_runs
from aesjax.registry import Registry
from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper
from agents import CARRIERS
from experiments.analysis.replay_output import TRAINED, Track, figures, summary
from experiments.study.build import schedule_hyper_of
from experiments.study.config import StudyConfig
from experiments.study.entries import BASELINE, COUPLING, Entry, parse_entries, parse_entry
from experiments.study.folder import open_study
from experiments.study.methods import methods_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SUMMARY", "WEIGHTS", "run"]

SUMMARY, WEIGHTS = "summary.md", "weights.parquet"
LABELS = ("family", "task", "method", "carrier", "schedule", "variant", "pattern", "seed")


class Recorded(NamedTuple):
    """A finished study."""

    config: StudyConfig
    parts: Mapping[str, Any]  # per carrier: updates, updates_per_stream_sample
    finished: set[tuple[str, str, int]]  # method, pattern and seed of the runs that did not diverge
    curves: "pl.DataFrame"
    streams: "pl.DataFrame"
    patterns: Mapping[str, PatternFacts]

    def updates(self, carrier: str) -> int:
        """Gradient steps of a run."""
        return self.parts[carrier]["updates"]

    def stride(self, carrier: str) -> int:
        """Updates per recorded sample."""
        return self.parts[carrier]["updates_per_stream_sample"]


class Asked(NamedTuple):
    """One replay on one carrier's runs."""

    name: str  # as typed
    entry: Entry
    choice: Choice


def run(directory: Path, schedules: str, methods: str | None, out: Path) -> str:
    """Replay ``schedules`` on the study in ``directory``, write ``out``, and return the summary's text.

    Raises:
      ValueError, KeyError: with one sentence; nothing was written.
    """
    import polars as pl

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not an empty folder; remove it or choose another one with --out")
    names = list(SCHEDULES) if schedules == "all" else parse_entries(schedules)
    study = _load(directory, methods)
    carriers = [name for name in study.config.carriers if name in study.streams["carrier"]]
    asked = {carrier: _asked(study, carrier, names, lenient=schedules == "all") for carrier in carriers}
    tracks, frames = _trained(study), []
    for carrier in carriers:
        for item in asked[carrier]:
            more, frame = _replayed(study, carrier, item)
            tracks += more
            frames.append(frame)
    valid = [t for t in tracks if (t.run["method"], t.run["pattern"], t.run["seed"]) in study.finished]
    text = summary(study.config, valid, {carrier: study.stride(carrier) for carrier in carriers})
    _write(out, text, pl.concat(frames), figures(study.config, valid, study.patterns))
    return text


def _load(directory: Path, methods: str | None) -> Recorded:
    """The finished study in ``directory``, limited to the methods asked for."""
    import polars as pl

    study = open_study(directory, ended=True)
    if not (directory / store.STREAMS).exists():
        raise ValueError(f"{directory} has no {store.STREAMS}: its proxies were not recorded, run the study again")
    try:
        parts = {name: study.ended["parts"][name] for name in study.config.carriers}
        if any({"updates", "updates_per_stream_sample"} - set(part) for part in parts.values()):
            raise ValueError("its manifest does not say how many updates a sample stands for")
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"the study in {directory} cannot be replayed: {error}") from None
    curves, streams = (study.rows(name) for name in (store.CURVES, store.STREAMS))
    patterns = describe_runs(study.ended, study.config.patterns)
    if methods is not None:
        known = Registry("method", **{name: None for name in streams["method"].unique(maintain_order=True)})
        wanted = [part.strip() for part in re.split(r",(?![^\[]*\])", methods)]  # a variant has commas of its own
        for name in wanted:
            known[name]
        curves, streams = (rows.filter(pl.col("method").is_in(wanted)) for rows in (curves, streams))
    return Recorded(study.config, parts, study.runs("finished"), curves, streams, patterns)


def _asked(study: Recorded, carrier: str, names: Sequence[str], lenient: bool) -> list[Asked]:
    """The replays on one carrier.

    Raises:
      ValueError: one of them is impossible (``lenient``: it is left out), with the reason.
    """
    config, recorded, items = study.config, _recorded(_rows(study, carrier)), []
    if not recorded:
        raise ValueError(f"{store.STREAMS} holds no proxy of carrier '{carrier}'")
    for name in names:
        entry = parse_entry(name)
        schedule = CARRIERS[carrier].baseline if entry.schedule == BASELINE else entry.schedule
        choice = Choice(schedule, entry.proxy or config.proxy, entry.source or config.source)
        reason = _obstacle(entry, choice, recorded)
        if reason and not lenient:
            alias = f" ({schedule})" if entry.schedule == BASELINE else ""
            raise ValueError(f"schedule '{name}'{alias} cannot be replayed on carrier '{carrier}': {reason}")
        if not reason:
            items.append(Asked(name, entry, choice))
    return items


def _obstacle(entry: Entry, choice: Choice, recorded: list[str]) -> str:
    """Why a replay is impossible; empty if it is not."""
    given = dict(entry.values)
    if "q" in given and choice.proxy == "td_quantile":
        return "the quantile was measured while training, at the run's own q, so q cannot be varied"
    if given.get(COUPLING):
        return "coupling changes how the agent learns, which takes training"
    return obstacle(choice, recorded)


def _rows(study: Recorded, carrier: str) -> "pl.DataFrame":
    return study.streams.filter(carrier=carrier)


def _recorded(rows: "pl.DataFrame") -> list[str]:
    """The proxies that all these runs recorded."""
    return [name for name in rows.columns if "/" in name and not rows[name].null_count()]


def _samples(rows: "pl.DataFrame", name: str) -> np.ndarray:
    """One stream of all runs, (R, S) float32."""
    lengths = rows[name].list.len().unique().to_list()
    if len(lengths) != 1:
        raise ValueError(f"{store.STREAMS} is damaged: runs of one carrier have {len(lengths)} different lengths")
    return rows[name].explode().fill_null(np.nan).to_numpy().astype(np.float32).reshape(rows.height, lengths[0])


def _hypers(study: Recorded, carrier: str, rows: "pl.DataFrame", entry: Entry) -> ScheduleHyper:
    """Stacked, (R,) float32 each: the study's, overridden by a run's own values, overridden by the entry's."""
    methods = methods_of(study.config, carrier)
    own = {method.name: dict(method.values) for method in methods}
    schedules = {method.name: method.choice.schedule for method in methods}
    if unknown := sorted(set(rows["method"]) - set(own)):
        raise ValueError(f"{store.STREAMS} and {store.CONFIG} do not fit together: {', '.join(unknown)}")
    given = {name: value for name, value in entry.values if name != COUPLING}
    size = study.config.build_task().env.spec.action_size
    schedule = CARRIERS[carrier].baseline if entry.schedule == BASELINE else entry.schedule

    def hyper_of(method: str) -> ScheduleHyper:
        # What a schedule from elsewhere was trained with means nothing to another one, though it may have the name.
        trained = SCHEDULES[schedules[method]].own if schedules[method] != schedule else {}
        values = {name: value for name, value in own[method].items() if name not in trained} | given
        return schedule_hyper_of(
            study.config, carrier, study.updates(carrier), size, values.items(), schedule, [schedule]
        )

    hypers = [hyper_of(method) for method in rows["method"]]
    return jax.tree.map(lambda *values: np.stack(values), *hypers)


def _replayed(study: Recorded, carrier: str, asked: Asked) -> tuple[list[Track], "pl.DataFrame"]:
    """One schedule on all runs of one carrier: what is summarised and drawn, and the rows of `WEIGHTS`."""
    rows, stride, config = _rows(study, carrier), study.stride(carrier), study.config
    recorded = _recorded(rows)
    key = asked.choice.key if asked.choice.key in recorded else recorded[0]
    streams = _samples(rows, key)
    skipped, samples = first_update(streams), streams.shape[1]
    if samples % config.evaluations:
        raise ValueError(f"{store.STREAMS} is damaged: {samples} samples in {config.evaluations} evaluations")
    result = replay(asked.choice, _hypers(study, carrier, rows, asked.entry), streams[:, skipped:], stride)
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
    (warmup_samples + i + 1) * steps_per_sample."""
    import polars as pl

    return rows.select(LABELS).with_columns(
        replayed=pl.lit(asked.name),
        updates_per_sample=pl.lit(stride),
        warmup_samples=pl.lit(skipped),
        steps_per_sample=pl.lit(float(steps)),
        initial=pl.Series(result.initial),
        weight=pl.Series(list(result.weight), dtype=pl.List(pl.Float32)),
    )


def _trained(study: Recorded) -> list[Track]:
    """The weights that the runs trained with."""
    tracks = []
    for rows in study.curves.partition_by(LABELS, maintain_order=True):
        rows = rows.sort("step")
        steps = rows["step"].to_numpy().astype(np.float64)
        logs = {name: rows[name].cast(float).to_numpy() for name in ("entropy_weight", "at_min", "at_max")}
        seen = np.isfinite(logs["entropy_weight"])
        line = (steps[seen], logs["entropy_weight"][seen])
        tracks.append(Track(rows.select(LABELS).row(0, named=True), TRAINED, steps, logs, line))
    return tracks


def _write(out: Path, text: str, weights: "pl.DataFrame", images: Mapping[str, bytes]) -> None:
    """The folder appears complete or not at all."""
    partial = out.with_name(f".{out.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        (partial / SUMMARY).write_text(text, encoding="utf-8")
        store.write_rows(partial / WEIGHTS, weights)
        for name, png in images.items():
            (partial / name).write_bytes(png)
        os.replace(partial, out)
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)

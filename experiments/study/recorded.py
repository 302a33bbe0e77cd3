"""What a finished study recorded, and schedules with their responses replayed on it."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from aesjax import adaptations as responses
from aesjax.adaptations import ResponseHyper
from aesjax.registry import Registry
from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper
from aesjax.types import DriftResponse
from experiments.measure.patterns import PatternFacts, describe_runs
from experiments.study import store
from experiments.study.build import carrier_of, check, schedule_hyper_of, supply_of, world_of
from experiments.study.config import StudyConfig
from experiments.study.entries import COUPLING, Entry, parse_entry
from experiments.study.folder import open_study
from experiments.study.methods import Method, Together, check_levers, methods_of
from experiments.study.plugins import origin_of
from experiments.study.rescore import Replayed, Responses, first_update, obstacle, replay

if TYPE_CHECKING:
    import polars as pl


LOGGED = ("entropy_weight", "at_min", "at_max")  # at every evaluation, whatever was trained


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


def load(directory: Path, methods: str | None = None) -> Recorded:
    """The finished study in ``directory``, limited to the methods asked for.

    Raises:
      ValueError, UnknownNameError: it cannot be replayed, or has no such method; one sentence.
    """
    import polars as pl

    study = open_study(directory, ended=True)
    if not (directory / store.STREAMS).exists():
        raise ValueError(f"{directory} has no {store.STREAMS}: its proxies were not recorded, run the study again")
    try:
        parts = {name: study.ended.manifest["parts"][name] for name in study.config.carriers}
        if any({"updates", "updates_per_stream_sample"} - set(part) for part in parts.values()):
            raise ValueError("its manifest does not say how many updates a sample stands for")
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"the study in {directory} cannot be replayed: {error}") from None
    curves, streams = (study.rows(name) for name in (store.CURVES, store.STREAMS))
    _check_logs(directory / store.CURVES, curves, study.config)
    patterns = describe_runs(study.ended.manifest, study.config.patterns)
    if methods is not None:
        known = Registry("method", **{name: None for name in streams["method"].unique(maintain_order=True)})
        wanted = [part.strip() for part in re.split(r",(?![^\[]*\])", methods)]  # a variant has commas of its own
        for name in wanted:
            known[name]
        curves, streams = (rows.filter(pl.col("method").is_in(wanted)) for rows in (curves, streams))
    return Recorded(study.config, parts, study.runs("finished"), curves, streams, patterns)


def _check_logs(path: Path, curves: "pl.DataFrame", config: StudyConfig) -> None:
    """Refuse curves that do not tell what the runs were trained with."""
    for name in LOGGED:
        if name not in curves.columns or not curves.schema[name].is_numeric():
            raise ValueError(f"{path} is damaged: it has no numbers in a column '{name}'")
    if "carrier" not in curves.columns or (strange := set(curves["carrier"]) - set(config.carriers)):
        told = "lacks it" if "carrier" not in curves.columns else f"holds {store.shortened(sorted(map(str, strange)))}"
        raise ValueError(f"{path} is damaged: column 'carrier' must name the study's carriers; it {told}")


class Asked(NamedTuple):
    """One replay on one carrier's runs."""

    name: str  # as typed
    entry: Entry
    choice: Choice
    signal: Choice | None  # what drives its responses


def ask(config: StudyConfig, carrier: str, name: str) -> Asked:
    """An item of `--schedules` as a replay on one carrier of a study.

    Raises:
      ValueError: a response that the carrier does not have, or a control.
    """
    entry = parse_entry(name)
    if entry.control is not None:
        raise ValueError(f"control '{entry.control.name}' plays a record; there is nothing to replay")
    alone = dataclasses.replace(config, carriers=(carrier,), schedules=(name,), sweep={}, together=None)
    method = methods_of(alone, carrier)[0]
    check_levers(method)
    if any(origin_of("schedule", schedule) is not None for schedule in method.schedules):
        check(alone)  # nobody has trained with it yet
    return Asked(name, entry, method.choice, method.signal)


def obstacle_of(asked: Asked, recorded: list[str]) -> str:
    """Why a replay is impossible; empty if it is not."""
    given = dict(asked.entry.values)
    choices = [choice for choice in (asked.choice, asked.signal) if choice is not None]
    if "q" in given and any(choice.proxy == "td_quantile" for choice in choices):
        return "the quantile was measured while training, at the run's own q, so q cannot be varied"
    if given.get(COUPLING):
        return "coupling changes how the agent learns, which takes training"
    reasons = [obstacle(choice, recorded) for choice in choices]
    if not reasons[0] and any(reasons):
        return f"of its signal '{choices[1].schedule}': {reasons[1]}"
    return reasons[0]


def rows_of(study: Recorded, carrier: str) -> "pl.DataFrame":
    """The streams of one carrier's runs."""
    return study.streams.filter(carrier=carrier)


def recorded_in(rows: "pl.DataFrame") -> list[str]:
    """The proxies that all these runs recorded."""
    return [name for name in rows.columns if "/" in name and not rows[name].null_count()]


def samples_of(rows: "pl.DataFrame", name: str) -> np.ndarray:
    """One stream of all runs, (R, S) float32."""
    lengths = rows[name].list.len().unique().to_list()
    if len(lengths) != 1:
        raise ValueError(f"{store.STREAMS} is damaged: runs of one carrier have {len(lengths)} different lengths")
    return rows[name].explode().fill_null(np.nan).to_numpy().astype(np.float32).reshape(rows.height, lengths[0])


def replayed(study: Recorded, carrier: str, asked: Asked) -> tuple[Replayed, int]:
    """One schedule with its responses on all recorded runs of one carrier, and the samples before their first update.

    Raises:
      ValueError: the files do not fit together.
    """
    rows, stride, config = rows_of(study, carrier), study.stride(carrier), study.config
    recorded = recorded_in(rows)
    key = asked.choice.key if asked.choice.key in recorded else recorded[0]
    streams = samples_of(rows, key)
    skipped, samples = first_update(streams), streams.shape[1]
    if samples % config.evaluations:
        raise ValueError(f"{store.STREAMS} is damaged: {samples} samples in {config.evaluations} evaluations")
    hypers, turned = _hypers(study, carrier, rows, asked)
    if turned is not None and asked.signal is not None and SCHEDULES[asked.signal.schedule].uses_proxy:
        turned = turned._replace(streams={asked.signal.key: samples_of(rows, asked.signal.key)[:, skipped:]})
    return replay(asked.choice, hypers, streams[:, skipped:], stride, turned), skipped


def _hypers(
    study: Recorded, carrier: str, rows: "pl.DataFrame", asked: Asked
) -> tuple[ScheduleHyper, Responses | None]:
    """Stacked, (R,) float32 each: the study's, overridden by a run's own values, overridden by the entry's."""
    methods = {method.name: method for method in methods_of(study.config, carrier)}
    if unknown := sorted(set(rows["method"]) - set(methods)):
        raise ValueError(f"{store.STREAMS} and {store.CONFIG} do not fit together: {', '.join(unknown)}")
    given = {name: value for name, value in asked.entry.values if name != COUPLING}
    size = study.config.build_task().env.spec.action_size
    schedule, signal = asked.choice.schedule, None if asked.signal is None else asked.signal.schedule
    names = asked.entry.responses
    both = Together(names, (asked.signal,) if asked.signal else (), frozenset(), False)

    def hypers_of(method: Method) -> tuple[ScheduleHyper, ResponseHyper]:
        # What a schedule from elsewhere was trained with means nothing to another one, though it may have the name.
        trained = SCHEDULES[method.choice.schedule].own if method.choice.schedule != schedule else {}
        values = {name: value for name, value in method.values if name not in trained} | given
        hyper = schedule_hyper_of(
            study.config, carrier, study.updates(carrier), size, values.items(), schedule, [schedule], signal
        )
        return hyper, both.hyper_of(names, asked.signal, values.items())

    hypers = [hypers_of(methods[name]) for name in rows["method"]]
    stacked, runs = jax.tree.map(lambda *values: np.stack(values), *hypers)
    if not names:
        return stacked, None
    world = world_of(study.config, carrier)
    supply = supply_of(study.config, carrier, carrier_of(study.config, carrier, world))

    def build(hyper: ScheduleHyper, run: ResponseHyper) -> DriftResponse:
        return responses.build(names, both.signals, hyper, run, supply)

    return stacked, Responses(build, runs, {})

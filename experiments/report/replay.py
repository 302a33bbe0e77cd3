"""`aesjax replay`: the proxies that a finished study recorded, fed through other schedules, without training."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.measure.curves import change_steps, nan_mean
from experiments.measure.patterns import STEADY
from experiments.measure.weights import weight_metrics
from experiments.report.cells import NONE, Cell, Table, number
from experiments.report.draw import draw
from experiments.report.folder import write_folder
from experiments.report.looks import DASHES, PALETTE, Look
from experiments.report.page import Figure, Page, groups_of, render_markdown
from experiments.report.plots import Line, Panel, Plot, Row, file_stem, spans_decades, time_axis
from experiments.report.series import thinned
from experiments.study import store
from experiments.study.method import BASELINE, Method
from experiments.study.parser import parse, text_of
from experiments.study.rescore import (
    LOGGED,
    Recorded,
    Request,
    at_evaluations,
    load,
    obstacle,
    proxies_in,
    replay_runs,
    request_of,
)

if TYPE_CHECKING:
    import polars as pl


LABELS = ("family", "task", "method", "carrier", "schedule", "variant", "pattern", "seed")
SUMMARY, WEIGHTS, PAGE = "summary.md", "weights.parquet", "index.html"
_TRAINED = "trained"
_POINTS = 1000  # of a line at most; the picture is some 1300 pixels wide
_HEAD = ("streams of", "weight", "runs", "mean", "at lambda_min", "at lambda_max", "rise after a change")
#: Columns of a run's curves of adaptations -> head in the table, how to fold, how to print.
_LEVERS: Mapping[str, tuple[str, Callable[..., Any], str]] = {
    "window_share": ("mean window", nan_mean, "{:.3f}"),
    "refreshes": ("refreshes", np.nansum, "{:.2g}"),
    "rate_factor": ("mean rate factor", nan_mean, "{:.3f}"),
    "gradient_steps": ("gradient steps", np.nansum, "{:.0f}"),
}
_LEVERS_TEXT = """\
Adaptations, where any are: the window as a share of the stored transitions, refreshes per run, the factor of
the learning rates, gradient steps per run.
"""
_READING = """\
The entropy weights that each schedule would have given on the recorded proxies, beside the weight of the run that
was trained. The agent of a replay does not react to the weight: this shows how a schedule responds, not what it
would have earned. Means over the runs that did not diverge; mean weight in reward per nat; shares of the updates at
a bound; rise: largest weight within 2 % of the run after a change over the one before it, minus 1 (on steady: at the
steps where other patterns change).
"""


class Track(NamedTuple):
    """The weight of one run under one schedule, trained or replayed."""

    run: Mapping[str, Any]  # its labels
    schedule: str  # `_TRAINED`, or the replayed schedule as typed
    steps: np.ndarray  # (m,) environment steps of the evaluations
    logs: Mapping[str, np.ndarray]  # (m,) each: entropy_weight, at_min, at_max, and levers
    line: tuple[np.ndarray, np.ndarray]  # (k,) environment steps and (k,) weights, at the recorded resolution


#: (carrier, pattern) -> method -> trained or replayed schedule -> its runs.
_Groups = Mapping[tuple[str, str], Mapping[str, Mapping[str, Sequence[Track]]]]


def run(directory: Path, schedules: str, methods: str | None, out: Path) -> str:
    """Replay ``schedules`` on the study in ``directory``, write ``out``, and return the summary's text.

    Raises:
      ValueError, KeyError: with one sentence; nothing was written.
    """
    import polars as pl

    store.check_new(out, "--out")
    study = load(directory, methods)
    carriers = [name for name in study.config.carriers if name in study.streams["carrier"]]
    wanted = parse({"carriers": carriers, "schedules": schedules})["methods"]
    requests = [(c, r) for c in carriers for r in _requests(study, c, wanted, lenient=schedules == "all")]
    replayed = [_replayed(study, carrier, request) for carrier, request in requests]
    groups: dict[tuple[str, str], dict[str, dict[str, list[Track]]]] = {}
    for track in sum((tracks for tracks, _ in replayed), _trained(study)):
        if (track.run["method"], track.run["pattern"], track.run["seed"]) in study.finished:
            own = groups.setdefault((track.run["carrier"], track.run["pattern"]), {})
            own.setdefault(track.run["method"], {}).setdefault(track.schedule, []).append(track)
    page = _page(study, groups, {carrier: study.stride(carrier) for carrier in carriers})
    weights = pl.concat([frame for _, frame in replayed], how="diagonal")
    write_folder(out, page, {}, {WEIGHTS: weights}, markdown=SUMMARY)
    return render_markdown(page)


def weights_of(directory: Path, methods: Sequence[Method]) -> "pl.DataFrame":
    """The weights that ``methods`` would have given on the recorded proxies of their carriers' runs, as `WEIGHTS` is.

    Raises:
      ValueError, UnknownNameError: one cannot be replayed; one sentence that says why.
    """
    import polars as pl

    study = load(directory)
    requests = [(m.carrier, r) for m in methods for r in _requests(study, m.carrier, [m], lenient=False)]
    return pl.concat([_replayed(study, *asked)[1] for asked in requests], how="diagonal")


def _requests(study: Recorded, carrier: str, methods: Sequence[Method], lenient: bool) -> list[Request]:
    """The replays on one carrier.

    Raises:
      ValueError: one of them is impossible (``lenient``: it is left out), with the reason.
    """
    recorded, possible = proxies_in(study.streams.filter(carrier=carrier)), []
    for method in methods:
        if method.carrier != carrier or (lenient and method.schedule == BASELINE):
            continue
        request = request_of(study.config, method)
        if not (reason := obstacle(request, recorded)):
            possible.append(request)
        elif not lenient:
            alias = f" ({request.arm.choice.schedule})" if method.schedule == BASELINE else ""
            raise ValueError(f"schedule '{text_of(method)}'{alias} cannot be replayed on carrier '{carrier}': {reason}")
    return possible


def _replayed(study: Recorded, carrier: str, request: Request) -> tuple[list[Track], "pl.DataFrame"]:
    """One schedule on all runs of one carrier: the tracks, and the rows of `WEIGHTS`.

    Entry i of `weight` and of what adaptations control is the value after update (i + 1) * updates_per_sample, at
    environment step (warmup_samples + i + 1) * steps_per_sample.
    """
    import polars as pl

    labels, config = study.streams.filter(carrier=carrier).select(LABELS), study.config
    result, skipped = replay_runs(study, carrier, request)
    samples = skipped + result.weight.shape[1]
    logs = at_evaluations(result, skipped, config.evaluations, study.stride(carrier))
    steps = np.arange(1, config.evaluations + 1) * config.steps / config.evaluations
    at = np.arange(skipped + 1, samples + 1) * config.steps / samples
    name = text_of(request.method)
    tracks = [
        Track(run, name, steps, {column: values[i] for column, values in logs.items()}, (at, result.weight[i]))
        for i, run in enumerate(labels.to_dicts())
    ]

    def lists(values: np.ndarray) -> pl.Series:  # of arrays polars makes a type of their length
        return pl.Series(list(values)).cast(pl.List(pl.Float32))

    frame = labels.with_columns(
        replayed=pl.lit(name),
        updates_per_sample=pl.lit(study.stride(carrier)),
        warmup_samples=pl.lit(skipped),
        steps_per_sample=pl.lit(float(config.steps / samples)),
        initial=pl.Series(result.initial),
        weight=lists(result.weight),
        **{name: lists(values) for name, values in result.levers._asdict().items() if values is not None},
    )
    return tracks, frame


def _trained(study: Recorded) -> list[Track]:
    """The weights that the runs trained with."""
    tracks = []
    for rows in study.curves.partition_by(LABELS, maintain_order=True):
        rows = rows.sort("step")
        steps = rows["step"].to_numpy().astype(np.float64)
        names = (*LOGGED, *(name for name in _LEVERS if name in rows.columns))
        logs = {name: rows[name].cast(float).to_numpy() for name in names}
        seen = np.isfinite(logs["entropy_weight"])
        line = (steps[seen], logs["entropy_weight"][seen])
        tracks.append(Track(rows.select(LABELS).row(0, named=True), _TRAINED, steps, logs, line))
    return tracks


def _page(study: Recorded, groups: _Groups, strides: Mapping[str, int]) -> Page:
    """The replay as a page like a report's."""
    config = study.config
    plots = [_plot(study, *key, methods) for key, methods in groups.items()]
    looks = {name: look for plot in plots for name, look in plot.looks.items()}
    table, conclusion = _table(study, groups)
    notes = []
    if coarse := ", ".join(f"{carrier}: {n}" for carrier, n in strides.items() if n > 1):
        notes = [f"The proxies are means over several updates ({coarse}), so the replayed weights are approximate."]
    if len(table.header) > len(_HEAD):
        notes += _LEVERS_TEXT.splitlines()
    return Page(
        title=f"Replay of entropy schedules: {config.task}",
        subtitle=f"{len(looks) - 1} schedules on the proxies that {config.task} recorded; nothing was trained",
        conclusion=conclusion,
        looks=looks,
        segments=config.segments,
        figures_title="Entropy weights",
        figures_reading="Dashed lines are abrupt changes, dotted lines the segments of gradual drift.",
        groups=list(groups_of([Figure(plot, draw(plot)) for plot in plots], {})),
        tables=[table],
        limits=[_READING, *notes],
        footer=f"The same numbers: {SUMMARY}; all weights: {WEIGHTS}.",
    )


def _table(study: Recorded, groups: _Groups) -> tuple[Table, str]:
    """The weights in numbers, and in a sentence how strongly every schedule responds to a change."""
    horizon = float(study.config.steps)
    changes = change_steps(horizon, study.config.segments)
    logged = {name for methods in groups.values() for m in methods.values() for t in m.values() for name in t[0].logs}
    levers = [lever for lever in _LEVERS if lever in logged]
    rows: dict[str, list[list[Cell]]] = {}
    rises: dict[str, list[float]] = {}
    for (_, pattern), methods in groups.items():
        for method, schedules in methods.items():
            for name, runs in schedules.items():
                metrics = [weight_metrics(t.steps, t.logs, changes, horizon) for t in runs]
                mean = {key: float(nan_mean([m[key].value for m in metrics])) for key in metrics[0]}
                shares = [mean[key] for key in ("saturation_min", "saturation_max", "responsiveness")]
                cells = [method, name, str(len(runs)), _printed(mean["mean_entropy_weight"], "{:.4g}")]
                cells += [_printed(100.0 * share, "{:.1f} %") for share in shares]
                cells += [_lever(runs, lever) for lever in levers]
                rows.setdefault(pattern, []).append(list(map(Cell, cells)))
                if pattern != STEADY:
                    rises.setdefault(name, []).append(mean["responsiveness"])
    head = [*_HEAD, *(_LEVERS[lever][0] for lever in levers)]
    table = Table("replay", "Weights in numbers", _READING, head, list(rows.items()), labels=2)
    return table, _conclusion({name: float(nan_mean(values)) for name, values in rises.items()})


def _conclusion(rises: Mapping[str, float]) -> str:
    known = {name: f"{100.0 * value:.0f} %" for name, value in rises.items() if np.isfinite(value)}
    if not known:
        return "Conclusion: no rise of a weight after a change could be measured."
    beside = f"; the weights that were trained with rose by {known[_TRAINED]}" if _TRAINED in known else ""
    ranked = sorted(known.keys() - {_TRAINED}, key=lambda name: (-rises[name], list(rises).index(name)))
    strengths = ", ".join(f"{name} by {known[name]}" for name in ranked)
    return f"Conclusion: after a change the weight rises under {strengths} (means over drifts and methods){beside}."


def _lever(runs: Sequence[Track], column: str) -> str:
    _, fold, form = _LEVERS[column]
    return _printed(float(nan_mean([fold(track.logs[column]) for track in runs if column in track.logs])), form)


def _printed(value: float, form: str) -> str:
    return form.format(value) if np.isfinite(value) else NONE


def _plot(study: Recorded, carrier: str, pattern: str, methods: Mapping[str, Mapping[str, Sequence[Track]]]) -> Plot:
    """A panel per method, one above the other. The trained weight is drawn black and broad, so that a replay which
    agrees with it lies inside it."""
    panels: dict[str, list[Line]] = {}
    spoken, weights, horizon = [], [], float(study.config.steps)
    for method, schedules in methods.items():
        count = len(schedules[_TRAINED])
        title = method + (f", mean of {count} runs" if count > 1 else "")
        means = {name: np.mean([run.line[1] for run in runs], axis=0) for name, runs in schedules.items()}
        panels[title] = [thinned(Line(name, schedules[name][0].line[0], y), _POINTS) for name, y in means.items()]
        ranges = [f"{name} {number(y.min(), 3)} to {number(y.max(), 3)}" for name, y in means.items() if y.size]
        spoken.append(f"{title}: {', '.join(ranges)}")
        weights += means.values()
    others = dict.fromkeys(name for schedules in methods.values() for name in schedules if name != _TRAINED)
    looks = {_TRAINED: Look(-1, 0, 3.2)}
    looks |= {name: Look(i % len(PALETTE), 1 + i % (len(DASHES) - 1), 1.5) for i, name in enumerate(others)}
    # A schedule near its base beside one near its upper bound needs a log axis.
    wide = spans_decades(np.concatenate(weights), factor=5.0)
    return Plot(
        file_stem("weights", carrier, pattern),
        "replay",
        "",
        pattern,
        carrier,
        "Entropy weight in reward per nat, mean over runs: black as it was trained, the others as they would have been",
        f"Entropy weights of {carrier} under {pattern} drift. {'; '.join(spoken)}.",
        time_axis(horizon, study.config.segments, pattern, study.patterns[pattern]),
        tuple(Row("entropy weight", 1.9, log=wide, title=title) for title in panels),
        ("",),
        tuple(Panel(i, 0, tuple(lines)) for i, lines in enumerate(panels.values())),
        looks,
    )

"""`aesjax calibrate`: how well the proxies that a study recorded bound the drift of its environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.schedules import DriftProxy
from aesjax.schedules import calibration as cal
from agents import OnPolicyCarrier
from envs import PATTERNS, pattern_index
from envs.drift import change_points, draw
from envs.world import DriftData, World
from experiments.report.cells import NONE, Cell, Table
from experiments.report.page import render_table
from experiments.study import store
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.program import Row, Share, share_of
from experiments.study.replay import proxies_in

if TYPE_CHECKING:
    import polars as pl

NUMBERS, TEXT = "calibration.json", "calibration.md"
_COVERAGES = ("coverage", "coverage_at_drift", "coverage_at_jumps")
_HEAD = ["pattern", "runs", "dominated", "slack", "coverage", "at drift", "at jumps"]
_MEANING = """\
Every run is judged by a calibration on the runs of all other seeds.

- Drift is the length of the environment's path, as a share of each drifting parameter's range. The drift of the best
  policy is another quantity, and no factor between them is known.
- dominated: accumulated drift <= rho times accumulated proxy after every sample of the run. Promised for
  {share:g} % of fresh runs of the same method, schedule, task and mix of patterns, if runs are independent; runs of one
  seed share their draws. Nothing is promised for a single pattern.
- slack: accumulated bound over accumulated drift at the end, median of the runs that drift. Regret grows with its root.
- coverage: share of evaluation intervals whose drift a split conformal bound at {share:g} % covers. Intervals of a run
  are dependent, so it is a measurement and not a guarantee.
- at drift, at jumps: coverage of the intervals in which the environment moves, or jumps. A dash replaces an infinite
  bound."""


def run(directory: Path, delta: float, out: Path) -> str:
    """Calibrate the finished study in ``directory`` and write `NUMBERS` and `TEXT` into ``out``; returns the text.

    Args:
      delta: share of fresh runs that may exceed the bound, in (0, 1).

    Raises:
      ValueError: the study cannot be used, or a file is there; one sentence, nothing was written.
    """
    for name in (NUMBERS, TEXT):
        if (out / name).exists():
            raise ValueError(f"{out / name} exists; remove it or choose another folder with --out")
    record = calibrate(directory, delta)
    text = _text(record)
    out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / NUMBERS, record)
    store.write_text(out / TEXT, text)
    return text


def calibrate(directory: Path, delta: float) -> dict[str, Any]:
    """The numbers of `run` as JSON."""
    import polars as pl

    if not 0.0 < delta < 1.0:
        raise ValueError(f"--delta must lie in (0, 1); got {delta:g}")
    study = open_study(directory)
    config, results = study.config, study.ended
    finished = pl.DataFrame(list(results.runs("finished")), ["method", "pattern", "seed"], orient="row")
    streams = results.rows(store.STREAMS)
    if finished.height:
        streams = streams.join(finished, on=finished.columns, how="semi")
    if not (finished.height and streams.height):
        raise ValueError(f"the study in {directory} has no run that can be used")
    methods = {}
    for carrier in config.carriers:
        clock = _clock(config, carrier)
        share = share_of(config, carrier)
        for row in share.rows:
            rows = streams.filter(method=row.name)
            if rows.height:
                key = _key(share, row, rows)
                traces = [_trace(clock, each, key) for each in rows.to_dicts()]
                methods[row.name] = {"proxy": key} | _calibrated(traces, delta)
    diverged = len(results.runs("diverged"))
    return {
        "delta": delta,
        "runs_needed": cal.runs_needed(delta),
        "task": config.task,
        "notes": [f"{diverged} runs that diverged are left out"] if diverged else [],
        "methods": methods,
    }


def _key(share: Share, row: Row, rows: "pl.DataFrame") -> str:
    """The proxy that the method's schedule reads; for a schedule without one, a recorded proxy of the update batch."""
    recorded = sorted(proxies_in(rows), key=lambda name: (not name.endswith("/update"), name))
    read = share.schedule(row.method).reads
    key = read.key if isinstance(read, DriftProxy) else next(iter(recorded), "")
    if key not in recorded:
        known = ", ".join(recorded) or "none"
        raise ValueError(f"the proxy {key} of method '{row.name}' was not recorded; recorded: {known}")
    return key


class _Clock(NamedTuple):
    """Times of recorded samples and of the environment's drift, for one carrier's runs."""

    evaluations: int
    chunk: int  # vector steps between two evaluations
    length: int  # vector steps whose drift the same updates answer: 1, or a rollout
    updates: int  # per evaluation interval
    changes: dict[tuple[str, int], np.ndarray]  # per pattern and seed (total,): the size of every step's change
    jumps: np.ndarray  # (evaluations,) bool, an interval in which a segment begins


def _clock(config: StudyConfig, carrier: str) -> _Clock:
    total, chunk = config.vector_steps(carrier), config.interval(carrier)
    world = World(config.build_task(), total, config.segments)
    agent = share_of(config, carrier).learner.agent
    length, ticks = (agent.rollout, agent.epochs * agent.minibatches) if isinstance(agent, OnPolicyCarrier) else (1, 1)

    @jit
    def path(pattern: jax.Array, seed: jax.Array) -> jax.Array:  # the seed is data, so that all runs share one program
        drift = DriftData(pattern, draw(world.task, seed, world.segments))
        return world.path(drift, jnp.arange(total, dtype=jnp.int32))[1]

    changes = {}
    for pattern in config.patterns:
        for seed in config.seeds:
            drawn = np.uint32(seed if config.drift_seed is None else config.drift_seed)
            changes[pattern, seed] = np.asarray(path(np.int32(pattern_index(pattern)), drawn), np.float64)
    at = np.array(change_points(total, config.segments)) // chunk
    jumps = np.isin(np.arange(config.evaluations), at)
    return _Clock(config.evaluations, chunk, length, chunk // length * ticks, changes, jumps)


class Trace(NamedTuple):
    """One run: the observed proxy and the true drift."""

    pattern: str
    seed: int
    signal: np.ndarray  # (n,) proxy summed over the updates of a recorded sample
    drift: np.ndarray  # (n,) path length of the environment during the sample, in channel ranges
    mean_signal: np.ndarray  # (E,) mean proxy of an evaluation interval
    interval_drift: np.ndarray  # (E,)
    jump: np.ndarray  # (E,) bool, a change point at which the pattern jumps lies in the interval


def _trace(clock: _Clock, row: Mapping[str, Any], key: str) -> Trace:
    """Signal and true drift of one run, from its first update on: earlier drift is no round of the schedule's."""
    samples = np.asarray(row[key], np.float64)
    seen = np.isfinite(samples)
    first = int(np.argmax(seen))
    if not np.all(seen[first:]):
        run = ", ".join(str(row[name]) for name in ("method", "pattern", "seed"))
        raise ValueError(f"the proxy of {run} is not finite everywhere")
    per_interval = len(samples) // clock.evaluations
    # By the end of a sample's updates, the environment has gone through these vector steps.
    rollouts = clock.chunk // clock.length
    done = -(-np.arange(1, len(samples) + 1) * rollouts // per_interval) * clock.length
    path = np.concatenate([[0.0], np.cumsum(clock.changes[row["pattern"], row["seed"]])])
    drift = np.diff(path[done], prepend=0.0)
    drift[:first] = 0.0
    by_interval = np.where(seen, samples, np.nan).reshape(clock.evaluations, per_interval)
    begun = np.any(np.isfinite(by_interval), axis=-1)
    return Trace(
        row["pattern"],
        row["seed"],
        samples[first:] * clock.updates / per_interval,
        drift[first:],
        np.nanmean(by_interval[begun], axis=-1),
        drift.reshape(clock.evaluations, per_interval).sum(-1)[begun],
        (clock.jumps & PATTERNS[row["pattern"]].jumps)[begun],
    )


def _calibrated(traces: Sequence[Trace], delta: float) -> dict[str, Any]:
    """Run-level and per-interval calibration of one method, every run judged without the runs of its seed.

    Runs of one seed share the drift that was drawn and the network they start from, so they are left out together.
    """
    seeds = np.array([t.seed for t in traces])
    ratios = np.array([float(cal.run_ratios(t.drift, t.signal)) for t in traces])
    rows: list[dict[str, Any]] = []
    for seed in np.unique(seeds):
        rest = ratios[seeds != seed]
        scale = _finite(cal.run_level_scale(rest, delta)) if len(rest) else None
        bound = _envelope([t for t in traces if t.seed != seed], delta)
        rows += [_judged(t, r, scale, bound) for t, r in zip(traces, ratios, strict=True) if t.seed == seed]
    patterns = dict.fromkeys(t.pattern for t in traces)
    return {
        "runs": len(traces),
        "seeds": len(np.unique(seeds)),
        "calibration_runs": min(int(np.sum(seeds != seed)) for seed in seeds),
        "rho": _finite(cal.run_level_scale(ratios, delta)),
        "groups": {"all": _summary(rows)} | {p: _summary([r for r in rows if r["pattern"] == p]) for p in patterns},
    }


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _envelope(traces: Sequence[Trace], delta: float) -> cal.Envelope | None:
    """Split conformal bound on an interval's drift, fitted on every other seed; None without a finite one."""
    seeds = sorted({t.seed for t in traces})
    if len(seeds) < 2:
        return None
    (v, b), (w, c) = (
        [np.concatenate([getattr(t, of) for t in traces if t.seed in half]) for of in ("mean_signal", "interval_drift")]
        for half in (seeds[::2], seeds[1::2])
    )
    bound = cal.split_conformal(v, b, w, c, delta)
    return bound if np.isfinite(bound.margin) else None


def _judged(trace: Trace, ratio: float, scale: float | None, bound: cal.Envelope | None) -> dict[str, Any]:
    """The calibration of other runs checked on this one; without a finite bound there is nothing to check."""
    row: dict[str, Any] = {"pattern": trace.pattern}
    moved = trace.interval_drift > 0.0
    if scale is not None:
        row["dominated"] = bool(ratio <= scale)
        if np.any(moved):
            row["slack"] = float(cal.slack(trace.drift, scale * trace.signal))
    if bound is not None:
        covered = trace.interval_drift <= cal.upper_bound(bound, trace.mean_signal)
        row |= dict(zip(_COVERAGES, (covered, covered[moved], covered[trace.jump]), strict=True))
    return row


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and means over runs; None where there is nothing to count."""
    dominated, slack = ([row[of] for row in rows if of in row] for of in ("dominated", "slack"))
    pooled = {name: np.concatenate([row[name] for row in rows if name in row] or [np.zeros(0)]) for name in _COVERAGES}
    return {
        "runs": len(rows),
        "bounded_runs": len(dominated),  # of which one can be judged
        "dominated": sum(dominated),
        "slack": float(np.median(slack)) if slack else None,
        **{name: float(values.mean()) if values.size else None for name, values in pooled.items()},
    }


def _text(record: Mapping[str, Any]) -> str:
    """The record as Markdown: the conclusion, the table, the meaning of its columns."""
    promised, conclusions = 100.0 * (1.0 - record["delta"]), []
    table = Table("calibration", "In numbers", "Dominated: runs on which the other seeds' factor holds.", _HEAD)
    for name, result in record["methods"].items():
        every, rho = result["groups"]["all"], result["rho"]
        if every["bounded_runs"]:
            held = f"{every['dominated']} of {every['bounded_runs']} runs (promised {promised:g} %)"
            conclusions.append(f"{name} on {held}")
        else:
            conclusions.append(
                f"{name} cannot be judged: of {record['runs_needed']} runs besides those of the judged seed "
                f"there are {result['calibration_runs']}"
            )
        table.notes.append(
            f"{name}: rho = {NONE if rho is None else f'{rho:.4g}'} ranges per update and unit of the proxy."
        )
        rows = [list(map(Cell, _row(pattern, group))) for pattern, group in result["groups"].items()]
        table.groups.append((f"{name}, proxy {result['proxy']}", rows))
    parts = [f"# Calibration of drift proxies: {record['task']}", *record["notes"]]
    parts += [f"Conclusion: the bound on drift held for {'; '.join(conclusions)}.", render_table(table).strip()]
    return "\n\n".join([*parts, _MEANING.format(share=promised)])


def _row(pattern: str, group: Mapping[str, Any]) -> tuple[str, ...]:
    shares = [group[name] for name in _COVERAGES]
    return (
        pattern,
        str(group["runs"]),
        f"{group['dominated']}/{group['bounded_runs']}" if group["bounded_runs"] else NONE,
        NONE if group["slack"] is None else f"{group['slack']:.3g}",
        *(NONE if share is None else f"{100.0 * share:.1f} %" for share in shares),
    )

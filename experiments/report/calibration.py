"""`aesjax calibrate`: how well the proxies that a study recorded bound the drift of its environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import SCHEDULES
from aesjax.schedules import calibration as cal
from aesjax.types import STREAM
from agents import OnPolicyCarrier
from envs import PATTERNS, pattern_index
from envs.drift import change_points, draw
from envs.world import DriftData, World
from experiments.study import checkpoint, store
from experiments.study.arms import Arm, arms_of
from experiments.study.build import set_up
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.rescore import proxies_in

if TYPE_CHECKING:
    import polars as pl


COVERAGES = ("coverage", "coverage_at_drift", "coverage_at_jumps", "coverage_at_jumps_late")
_WINDOW = 3  # evaluation intervals within which a late proxy may respond
_RUN = ("method", "pattern", "seed")


def calibrate(directory: Path, delta: float, source: str | None) -> tuple[dict[str, Any], dict[str, Sequence["Trace"]]]:
    """Calibrate every method of the study in ``directory``.

    Args:
      delta: share of fresh runs that may exceed the bound, in (0, 1).
      source: of the proxy, ``update`` or ``fresh``; None: the one that the schedule reads.

    Returns:
      The numbers as JSON, and the runs of every method.

    Raises:
      ValueError: the study cannot be used, or lacks the proxy; one sentence.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"--delta must lie in (0, 1); got {delta:g}")
    recorded = _load(directory)
    config, methods, judged = recorded.config, {}, {}
    for carrier in recorded.evaluations:
        rows = [(method, recorded.streams.filter(method=method.name)) for method in arms_of(config, carrier)]
        keys = {method.name: _key(config, method, own, source) for method, own in rows if own.height}
        clock = _clock(recorded, carrier)
        traces = {m.name: [_trace(clock, row, keys[m.name]) for row in own.to_dicts()] for m, own in rows if own.height}
        for name, key in keys.items():
            others = {n: traces[n] for n, theirs in keys.items() if n != name and theirs == key}
            methods[name] = {"proxy": key} | _calibrated(traces[name], others, delta)
        judged |= traces
    record = {"delta": delta, "runs_needed": cal.runs_needed(delta), "window": _WINDOW, "notes": recorded.notes}
    return record | {"task": config.task, "patterns": list(config.patterns), "methods": methods}, judged


class _Recorded(NamedTuple):
    """The part of a study that can be calibrated."""

    config: StudyConfig
    streams: "pl.DataFrame"  # of usable runs, all of them recorded as far as `evaluations`
    evaluations: dict[str, int]  # per usable carrier: evaluations after step 0
    notes: list[str]  # the runs left out, and why


def _load(directory: Path) -> _Recorded:
    """The study in ``directory``; of a stopped one the newest checkpoints, and in them the runs that got farthest."""
    import polars as pl

    study = open_study(directory)
    config, notes = study.config, []
    if study.results is not None:
        streams, usable = study.results.rows(store.STREAMS), study.results.runs("finished")
        evaluations = dict.fromkeys(config.carriers, config.evaluations)
        if diverged := len(study.results.runs("diverged")):
            notes.append(f"{diverged} runs that diverged are left out")
    else:
        frames, usable, evaluations = [], set(), {}
        for carrier in config.carriers:
            rows = checkpoint.newest_rows(directory / store.CHECKPOINTS / carrier, config.fingerprint())
            if rows is None or not any(name.startswith(STREAM) for name in rows.columns):
                notes.append(f"{carrier} has no checkpoint with proxies and is left out")
                continue
            reached = rows.group_by(_RUN).agg(pl.col("step").max())
            last = int(np.max(reached["step"].to_numpy()))
            usable |= set(reached.filter(step=last).select(_RUN).iter_rows())
            evaluations[carrier] = last // (config.chunk(carrier) * config.envs_of(carrier))
            frames.append(store.split_streams(rows)[1])
            steps = f"{last:,} of {config.steps:,} steps"
            notes.append(f"the study was stopped: {carrier} is calibrated on its first {steps}")
        if not frames:
            raise ValueError(f"{directory} has neither {store.STREAMS} nor a checkpoint with proxies; --resume its run")
        streams = pl.concat(frames, how="diagonal")
    used = [labels in usable for labels in streams.select(_RUN).iter_rows()]
    streams = streams.filter(pl.Series(used, dtype=pl.Boolean))
    if not streams.height:
        raise ValueError(f"the study in {directory} has no run that can be used")
    return _Recorded(config, streams, evaluations, notes)


def _key(config: StudyConfig, method: Arm, rows: "pl.DataFrame", source: str | None) -> str:
    """The recorded proxy to calibrate: that of ``source``, else the one that the method's schedule reads, else any."""
    recorded = proxies_in(rows)
    if source is not None:
        key = f"{config.proxy}/{source}"
    elif SCHEDULES[method.choice.schedule].uses_proxy:
        key = method.choice.key
    else:
        key = min(recorded, key=lambda name: (not name.endswith("/update"), name), default=f"{config.proxy}/update")
    if key not in recorded:
        known = ", ".join(recorded) or "none"
        raise ValueError(f"the proxy {key} of method '{method.name}' was not recorded; recorded: {known}")
    return key


class _Clock(NamedTuple):
    """How recorded samples and the drift of the environment lie in time, for one carrier's runs."""

    evaluations: int
    chunk: int  # vector steps between two evaluations
    length: int  # vector steps whose drift the same updates answer: 1, or a rollout
    updates: int  # per evaluation interval
    changes: dict[tuple[str, int], np.ndarray]  # per pattern and seed (total,): the size of every step's change
    jumps: np.ndarray  # (evaluations,) bool, an interval in which a segment begins


def _clock(recorded: _Recorded, carrier: str) -> _Clock:
    config, evaluations = recorded.config, recorded.evaluations[carrier]
    total, chunk = config.vector_steps(carrier), config.chunk(carrier)
    world = World(config.build_task(), total, config.segments)
    agent = set_up(config, carrier).agent
    length, ticks = (agent.rollout, agent.epochs * agent.minibatches) if isinstance(agent, OnPolicyCarrier) else (1, 1)

    @jax.jit
    def path(pattern: jax.Array, seed: jax.Array) -> jax.Array:  # the seed is data, so that all runs share one program
        drift = DriftData(pattern, draw(world.task, seed, world.segments))
        return world.path(drift, jnp.arange(total, dtype=jnp.int32))[1]

    changes = {}
    for pattern in config.patterns:
        for seed in config.seeds:
            drawn = np.uint32(seed if config.drift_seed is None else config.drift_seed)
            changes[pattern, seed] = np.asarray(path(np.int32(pattern_index(pattern)), drawn), np.float64)
    at = np.array(change_points(total, config.segments)) // chunk
    return _Clock(evaluations, chunk, length, chunk // length * ticks, changes, np.isin(np.arange(evaluations), at))


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
        raise ValueError(f"the proxy of {', '.join(str(row[name]) for name in _RUN)} is not finite everywhere")
    per_interval = len(samples) // clock.evaluations
    # By the end of a sample's updates, the environment has gone through these vector steps.
    rollouts = clock.chunk // clock.length
    done = -(-np.arange(1, len(samples) + 1) * rollouts // per_interval) * clock.length
    path = np.concatenate([[0.0], np.cumsum(clock.changes[row["pattern"], row["seed"]])])
    drift = np.diff(path[done], prepend=0.0)
    drift[:first] = 0.0
    by_interval = np.where(seen, samples, np.nan).reshape(clock.evaluations, per_interval)
    whole = np.any(np.isfinite(by_interval), axis=-1)
    jump = clock.jumps & PATTERNS[row["pattern"]].jumps
    return Trace(
        row["pattern"],
        row["seed"],
        samples[first:] * clock.updates / per_interval,
        drift[first:],
        np.nanmean(by_interval[whole], axis=-1),
        drift.reshape(clock.evaluations, per_interval).sum(-1)[whole],
        jump[whole],
    )


def _calibrated(traces: Sequence[Trace], others: Mapping[str, Sequence[Trace]], delta: float) -> dict[str, Any]:
    """Run-level and per-interval calibration of one method, every run judged without the runs of its seed.

    Runs of one seed share the drift that was drawn and the network they start from, so they are left out together.
    """
    seeds, ratios = np.array([t.seed for t in traces]), _ratios(traces)
    rows: list[dict[str, Any]] = []
    elsewhere, left = {name: [0, 0] for name in others}, []
    for seed in np.unique(seeds):
        rest = ratios[seeds != seed]
        left.append(len(rest))
        scale = _finite(cal.run_level_scale(rest, delta)) if len(rest) else None
        bound = _envelope([t for t in traces if t.seed != seed], delta)
        rows += [_judged(t, r, scale, bound) for t, r in zip(traces, ratios, strict=True) if t.seed == seed]
        for name, runs in others.items() if scale is not None else ():
            theirs = _ratios([t for t in runs if t.seed == seed])
            elsewhere[name][0] += int(np.sum(theirs <= scale))
            elsewhere[name][1] += len(theirs)
    rho = _finite(cal.run_level_scale(ratios, delta))
    patterns = dict.fromkeys(t.pattern for t in traces)
    groups = {"all": rows} | {p: [r for r in rows if r["pattern"] == p] for p in patterns}
    return {
        "runs": len(traces),
        "seeds": len(left),
        "calibration_runs": min(left),
        "rho": rho,
        "rho_is_finite": rho is not None,
        "no_signal": int(np.sum(np.isinf(ratios))),
        "groups": {name: _summary(group) for name, group in groups.items()},
        "elsewhere": elsewhere,
    }


def _ratios(traces: Sequence[Trace]) -> np.ndarray:
    return np.array([float(cal.run_ratios(t.drift, t.signal)) for t in traces])


def _finite(value: Any) -> float | None:
    """A number, or None for an infinite one: a bound that bounds nothing."""
    return float(value) if np.isfinite(value) else None


def _envelope(traces: Sequence[Trace], delta: float) -> cal.Envelope | None:
    """Split conformal bound on an interval's drift: every other seed for the fit; None with fewer than two seeds, or
    where it would be infinite."""
    seeds = sorted({t.seed for t in traces})
    halves = [[t for t in traces if t.seed in seeds[i::2]] for i in (0, 1)]
    if not all(halves):
        return None
    fit, rest = (
        (np.concatenate([t.mean_signal for t in half]), np.concatenate([t.interval_drift for t in half]))
        for half in halves
    )
    bound = cal.split_conformal(*fit, *rest, delta)
    return bound if np.all(np.isfinite(bound.margin)) else None


def _judged(trace: Trace, ratio: float, scale: float | None, bound: cal.Envelope | None) -> dict[str, Any]:
    """The calibration of other runs checked on this one; without a finite bound there is nothing to check."""
    row: dict[str, Any] = {"pattern": trace.pattern}
    moved = trace.interval_drift > 0.0
    if scale is not None:
        row["dominated"] = bool(ratio <= scale)
        if np.any(moved):
            row["slack"] = float(cal.slack(trace.drift, scale * trace.signal))
    if bound is not None:
        upper = cal.upper_bound(bound, trace.mean_signal)
        kept = trace.interval_drift <= upper
        # The largest bound of the intervals to come: has the proxy responded at least late?
        late = cal.window_maximum(np.concatenate([upper, np.full(_WINDOW - 1, -np.inf)]), _WINDOW)
        shares = (kept, kept[moved], kept[trace.jump], (trace.interval_drift <= late)[trace.jump])
        row |= dict(zip(COVERAGES, shares, strict=True))
    return row


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and means over runs; None where there is nothing to count."""
    dominated, slack, kept = ([row[of] for row in rows if of in row] for of in ("dominated", "slack", "coverage"))
    pooled = {name: np.concatenate([row[name] for row in rows if name in row] or [np.zeros(0)]) for name in COVERAGES}
    return {
        "runs": len(rows),
        "bounded_runs": len(dominated),  # of which one can be judged
        "dominated": sum(dominated),
        "slack": float(np.median(slack)) if slack else None,
        "whole_runs_covered": sum(bool(np.all(own)) for own in kept) if kept else None,
        **{name: float(values.mean()) if values.size else None for name, values in pooled.items()},
    }

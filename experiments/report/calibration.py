"""`aesjax calibrate`: how well the proxies that a study recorded bound the drift that its environment really made."""

from collections.abc import Mapping
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
from experiments.report.calibration_page import STEM, files
from experiments.report.calibration_runs import WINDOW, Trace, calibrated
from experiments.study import checkpoint, store
from experiments.study.build import carrier_of
from experiments.study.config import StudyConfig
from experiments.study.entries import SOURCES
from experiments.study.folder import open_study
from experiments.study.methods import Method, methods_of

if TYPE_CHECKING:
    import polars as pl


_SMALLEST_DELTA = 1e-6  # of which a million runs would be needed
NUMBERS, TEXT, PAGE = (f"{STEM}.{suffix}" for suffix in ("json", "md", "html"))


def run(directory: Path, delta: float, source: str | None, out: Path) -> str:
    """Calibrate the study in ``directory``, write `NUMBERS`, `TEXT` and `PAGE` with its figure into ``out``;
    returns the page as Markdown.

    Raises:
      ValueError: with one sentence; nothing was written.
    """
    if not _SMALLEST_DELTA <= delta < 1.0:
        raise ValueError(f"--delta must lie in (0, 1) and be at least {_SMALLEST_DELTA:g}; got {delta:g}")
    if source not in (None, *SOURCES):
        raise ValueError(f"--source must be one of {', '.join(SOURCES)}; got '{source}'")
    for name in (NUMBERS, TEXT, PAGE):
        if (out / name).exists():
            raise ValueError(f"{out / name} exists; remove it or choose another folder with --out")
    found = _load(directory)
    methods: dict[str, Any] = {}
    judged: dict[str, list[Trace]] = {}
    for carrier in found.config.carriers:
        if carrier not in found.evaluations:
            continue
        clock, traces = _clock(found, carrier), {}
        for method in methods_of(found.config, carrier):
            rows = found.streams.filter(method=method.name)
            if rows.height:
                key = _key(found.config, method, rows, source)
                traces[method.name] = key, [_trace(clock, row, key) for row in rows.to_dicts()]
        for name, (key, own) in traces.items():
            others = {n: t for n, (k, t) in traces.items() if n != name and k == key}
            methods[name] = {"proxy": key} | calibrated(own, others, delta)
            judged[name] = own
    config, notes = found.config, found.notes
    record = {"delta": delta, "runs_needed": cal.runs_needed(delta), "window": WINDOW, "notes": notes}
    record |= {"task": config.task, "patterns": list(config.patterns), "methods": methods}
    shown = files(record, judged)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {store.reason(error)}") from None
    store.write_json(out / NUMBERS, record)
    for name, content in shown.items():
        store.write_bytes(out / name, content)
    return shown[TEXT].decode()


class _Recorded(NamedTuple):
    """What there is of a study."""

    config: StudyConfig
    streams: "pl.DataFrame"  # runs that can be used, all of them recorded as far as `evaluations`
    evaluations: dict[str, int]  # per carrier that can be used: evaluations after step 0
    notes: list[str]  # what was left out, and why


class _Clock(NamedTuple):
    """How recorded samples and the drift of the environment lie in time, for one carrier's runs."""

    evaluations: int
    chunk: int  # vector steps between two evaluations
    length: int  # vector steps whose drift the same updates answer: 1, or a rollout
    updates: int  # per evaluation interval
    changes: dict[tuple[str, int], np.ndarray]  # per pattern and seed (total,): the size of every step's change
    jumps: np.ndarray  # (evaluations,) bool, an interval in which a segment begins


def _load(directory: Path) -> _Recorded:
    """The study in ``directory``, finished or stopped."""
    import polars as pl

    study = open_study(directory)
    config = study.config
    if study.results is not None:
        streams, good = study.rows(store.STREAMS), study.runs("finished")
        evaluations = {carrier: config.evaluations for carrier in config.carriers}
        diverged = len(study.runs("diverged"))
        notes = [f"{diverged} runs that diverged are left out"] if diverged else []
    else:
        streams, good, evaluations, notes = _stopped(directory, config)
    keep = [(r["method"], r["pattern"], r["seed"]) in good for r in streams.to_dicts()]
    streams = streams.filter(pl.Series(keep, dtype=pl.Boolean))
    if not streams.height:
        raise ValueError(f"the study in {directory} has no run that can be used")
    return _Recorded(config, streams, evaluations, notes)


def _stopped(directory: Path, config: StudyConfig) -> tuple["pl.DataFrame", set[Any], dict[str, int], list[str]]:
    """The rows of the newest checkpoint of every carrier; of its runs, those that got farthest."""
    import polars as pl

    frames, good, evaluations, notes = [], set(), {}, []
    for carrier in config.carriers:
        rows = checkpoint.newest_rows(directory / store.CHECKPOINTS / carrier, config.fingerprint())
        if rows is None:
            notes.append(f"{carrier} has no checkpoint and is left out")
            continue
        if not any(name.startswith(STREAM) for name in rows.columns):
            notes.append(f"{carrier} has trained too little for a proxy and is left out")
            continue
        reached = rows.group_by("method", "pattern", "seed", maintain_order=True).agg(pl.col("step").max())
        last = int(np.max(reached["step"].to_numpy()))
        good |= {(r["method"], r["pattern"], r["seed"]) for r in reached.to_dicts() if r["step"] == last}
        evaluations[carrier] = last // (config.chunk(carrier) * config.envs_of(carrier))
        frames.append(store.split_streams(rows)[1])
        notes.append(f"the study was stopped: {carrier} is calibrated on its first {last:,} of {config.steps:,} steps")
    if not frames:
        raise ValueError(f"{directory} has neither {store.STREAMS} nor a checkpoint with proxies; --resume its run")
    return pl.concat(frames, how="diagonal"), good, evaluations, notes


def _key(config: StudyConfig, method: Method, rows: "pl.DataFrame", source: str | None) -> str:
    """The recorded proxy to calibrate: the one asked for, else the one that the method's schedule reads, else any."""
    recorded = [name for name in rows.columns if "/" in name and not rows[name].null_count()]
    if source is not None:
        key = f"{config.proxy}/{source}"
    elif SCHEDULES[method.choice.schedule].uses_proxy:
        key = method.choice.key
    else:
        key = next(iter(sorted(recorded, key=lambda name: not name.endswith("/update"))), f"{config.proxy}/update")
    if key not in recorded:
        known = ", ".join(recorded) or "none"
        raise ValueError(f"the proxy {key} of method '{method.name}' was not recorded; recorded: {known}")
    return key


def _clock(found: _Recorded, carrier: str) -> _Clock:
    config = found.config
    total, chunk = config.vector_steps(carrier), config.chunk(carrier)
    world = World(config.build_task(), total, config.segments)
    built = carrier_of(config, carrier, world)
    length, ticks = (built.rollout, built.epochs * built.minibatches) if isinstance(built, OnPolicyCarrier) else (1, 1)

    @jax.jit
    def path(pattern: jax.Array, seed: jax.Array) -> jax.Array:  # the seed is data, so that all runs share one program
        drift = DriftData(pattern, draw(world.task, seed, world.segments))
        return world.path(drift, jnp.arange(total, dtype=jnp.int32))[1]

    changes = {}
    for pattern in config.patterns:
        for seed in config.seeds:
            drawn = np.uint32(seed if config.drift_seed is None else config.drift_seed)
            changes[pattern, seed] = np.asarray(path(np.int32(pattern_index(pattern)), drawn), np.float64)
    evaluations = found.evaluations[carrier]
    at = np.array(change_points(total, config.segments)) // chunk
    return _Clock(evaluations, chunk, length, chunk // length * ticks, changes, np.isin(np.arange(evaluations), at))


def _trace(clock: _Clock, row: Mapping[str, Any], key: str) -> Trace:
    """Signal and true drift of one run, from its first update on: earlier drift is no round of the schedule's."""
    samples = np.asarray(row[key], np.float64)
    who = f"{row['method']}, {row['pattern']}, seed {row['seed']}"
    per_interval, rest = divmod(len(samples), clock.evaluations)
    if rest or not per_interval:
        raise ValueError(f"{len(samples)} samples of {who} do not fit {clock.evaluations} evaluations")
    seen = np.isfinite(samples)
    first = int(np.argmax(seen))
    if not np.all(seen[first:]):
        raise ValueError(f"the proxy of {who} is not finite everywhere")
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

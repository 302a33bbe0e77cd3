"""`aesjax calibrate`: coverage of bounds on the environment's drift from the recorded proxies of a study."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.schedules import DriftProxy
from aesjax.schedules import calibration as cal
from agents import OnPolicyCarrier
from envs.drift import draw
from envs.world import DriftData
from experiments.report.cells import NONE
from experiments.report.page import escaped
from experiments.study import store
from experiments.study.folder import open_study
from experiments.study.program import Plan, Share
from experiments.study.replay import proxies_in

if TYPE_CHECKING:
    import polars as pl

NUMBERS, TEXT = "calibration.json", "calibration.md"
_MEANING = """\
Every run is compared with a calibration on the runs of all other seeds.

- Drift is the length of the environment's path, as a share of each drifting parameter's range. The drift of the best
  policy is another quantity, and no factor between them is known.
- dominated: accumulated drift <= rho times accumulated proxy after every sample of the run. Promised for
  {share:g} % of fresh runs of the same method, schedule, task and mix of patterns, if runs are independent; runs of one
  seed share their draws. Nothing is promised for a single pattern.
- rho: drift in ranges per update and unit of the proxy.
- slack: accumulated bound over accumulated drift at the end, median of the runs that drift. Regret grows with its
  root."""


def run(directory: Path, delta: float, out: Path) -> str:
    """Calibrate the finished study in ``directory`` and write `NUMBERS` and `TEXT` into ``out``; returns the text.

    Args:
      delta: share of new runs that may exceed the bound, in (0, 1).

    Raises:
      ValueError: the study cannot be used, or a file exists; one sentence, nothing was written.
    """
    for name in (NUMBERS, TEXT):
        if (out / name).exists():
            raise ValueError(f"{out / name} exists; remove it or choose another folder with --out")
    record = calibrate(directory, delta)
    out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / NUMBERS, record)
    store.write_text(out / TEXT, text := _text(record))
    return text


def calibrate(directory: Path, delta: float) -> dict[str, Any]:
    """The numbers of `run` as JSON."""
    import polars as pl

    if not 0.0 < delta < 1.0:
        raise ValueError(f"--delta must lie in (0, 1); got {delta:g}")
    study = open_study(directory)
    config, results = study.config, study.ended
    finished = pl.DataFrame(list(results.runs("finished")), ["method", "pattern", "seed"], orient="row")
    streams, methods = results.rows(store.STREAMS), {}
    if finished.height:
        streams = streams.join(finished, on=finished.columns, how="semi")
    if not (finished.height and streams.height):
        raise ValueError(f"the study in {directory} has no usable run")
    plan = Plan(config)
    for share in map(plan.share, config.carriers):
        for row in share.rows:
            if (rows := streams.filter(method=row.name)).height:
                key = _key(row.name, share.schedule(row.method).reads, proxies_in(rows))
                methods[row.name] = {"proxy": key} | _calibrated(_traces(share, rows, key), delta)
    diverged = len(results.runs("diverged"))
    notes = [f"{diverged} diverged runs are excluded"] if diverged else []
    needed = cal.runs_needed(delta)
    return {"delta": delta, "runs_needed": needed, "task": config.task, "notes": notes, "methods": methods}


def _key(method: str, read: Any, recorded: Sequence[str]) -> str:
    """Proxy that the method's schedule reads; for a schedule without a proxy, a recorded proxy of the update batch."""
    recorded = sorted(recorded, key=lambda name: (not name.endswith("/update"), name))
    key = read.key if isinstance(read, DriftProxy) else next(iter(recorded), "")
    if key not in recorded:
        known = ", ".join(recorded) or "none"
        raise ValueError(f"the proxy {key} of method '{method}' was not recorded; recorded: {known}")
    return key


class Trace(NamedTuple):
    """One run from its first update on."""

    pattern: str
    seed: int
    signal: np.ndarray  # (n,) proxy summed over the updates of a recorded sample
    drift: np.ndarray  # (n,) path length of the environment during the sample, in channel ranges


def _traces(share: Share, rows: "pl.DataFrame", key: str) -> list[Trace]:
    """The runs of one method."""
    config, world, agent = share.config, share.learner.world, share.learner.agent
    count, total, interval = config.evaluations, world.total, share.learner.sizes.interval
    index = {name: i for i, name in enumerate(world.patterns)}
    # Vector steps per group of updates, and updates per group: one step, or a rollout.
    length, ticks = 1, 1
    if isinstance(agent, OnPolicyCarrier):
        length, ticks = agent.config.rollout, agent.config.epochs * agent.config.minibatches

    @jit
    def path(pattern, seed):  # the seed is data, so that all runs share one program
        drift = DriftData(pattern, draw(world.task, seed, world.segments))
        return world.path(drift, jnp.arange(total, dtype=jnp.int32))[1]

    traces = []
    for row in rows.to_dicts():
        samples = np.asarray(row[key], np.float64)
        known = np.isfinite(samples)
        first, each = int(np.argmax(known)), len(samples) // count  # samples per interval
        if not np.all(known[first:]):
            label = ", ".join(str(row[name]) for name in ("method", "pattern", "seed"))
            raise ValueError(f"the proxy of {label} is not finite everywhere")
        drawn = np.uint32(row["seed"] if config.drift_seed is None else config.drift_seed)
        moved = np.asarray(path(np.int32(index[row["pattern"]]), drawn), np.float64)
        # Vector steps of the environment up to the end of a sample's updates.
        done = -(-np.arange(1, len(samples) + 1) * (interval // length) // each) * length
        drift = np.diff(np.concatenate([[0.0], np.cumsum(moved)])[done], prepend=0.0)
        drift[:first] = 0.0  # the schedule has no rounds before its first update
        signal = samples[first:] * (interval // length * ticks) / each
        traces.append(Trace(row["pattern"], row["seed"], signal, drift[first:]))
    return traces


def _calibrated(traces: Sequence[Trace], delta: float) -> dict[str, Any]:
    """Calibration of one method; every run is compared with the runs of the other seeds.

    Runs of one seed share their drift sample and initial network, so they are excluded together.
    """
    seeds = np.array([t.seed for t in traces])
    ratios = np.array([float(cal.run_ratios(t.drift, t.signal)) for t in traces])
    rest = {seed: ratios[seeds != seed] for seed in np.unique(seeds)}
    scales = {seed: float(cal.run_level_scale(own, delta)) if len(own) else np.inf for seed, own in rest.items()}
    groups = {}
    for name in ("all", *dict.fromkeys(t.pattern for t in traces)):
        own = [(t, r, scales[t.seed]) for t, r in zip(traces, ratios, strict=True) if name in ("all", t.pattern)]
        bounded = [(t, r, scale) for t, r, scale in own if np.isfinite(scale)]
        slack = [float(cal.slack(t.drift, scale * t.signal)) for t, _, scale in bounded if np.any(t.drift > 0.0)]
        groups[name] = {
            "runs": len(own),
            "bounded_runs": len(bounded),
            "dominated": sum(bool(r <= scale) for _, r, scale in bounded),
            "slack": float(np.median(slack)) if slack else None,
        }
    rho = float(cal.run_level_scale(ratios, delta))
    return {"rho": rho if np.isfinite(rho) else None, "others": min(map(len, rest.values())), "groups": groups}


def _text(record: Mapping[str, Any]) -> str:
    """The record as Markdown: conclusion, table, and definitions of its columns."""
    promised, held = 100.0 * (1.0 - record["delta"]), []
    rows = ["| method | proxy | pattern | runs | dominated | slack | rho |", "|---|---|---|---:|---:|---:|---:|"]
    for name, result in record["methods"].items():
        every, rho = result["groups"]["all"], result["rho"]
        few = (
            f"{name} cannot be calibrated: it needs {record['runs_needed']} runs of other seeds, got {result['others']}"
        )
        text = f"{name} on {every['dominated']} of {every['bounded_runs']} runs (promised {promised:g} %)"
        held.append(text if every["bounded_runs"] else few)
        for pattern, group in result["groups"].items():
            bounded, slack = group["bounded_runs"], group["slack"]
            cells = [escaped(name), result["proxy"], pattern, str(group["runs"])]
            cells += [f"{group['dominated']}/{bounded}" if bounded else NONE]
            cells += [NONE if number is None else f"{number:.3g}" for number in (slack, rho)]
            rows.append(f"| {' | '.join(cells)} |")
    parts = [f"# Calibration of drift proxies: {record['task']}", *record["notes"]]
    parts += [f"Conclusion: the bound on drift held for {'; '.join(held)}.", "\n".join(rows)]
    return "\n\n".join([*parts, _MEANING.format(share=promised)])

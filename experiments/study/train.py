"""Training of a study in its folder, with progress, checkpoints, curves, streams and manifest."""

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from shutil import get_terminal_size
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

import polars as pl

from envs.physics.host import in_own_words
from experiments.study import store
from experiments.study.checkpoint import CheckpointError, changes_of, save_agents, save_snapshot, snapshots_at
from experiments.study.folder import Claim
from experiments.study.parts import add
from experiments.study.prepare import Prepared, floor_of, optimum_of
from experiments.study.process import StopFlag
from experiments.study.program import Plan
from experiments.study.run import (
    Evaluated,
    Intervals,
    arranged,
    compile_program,
    load,
    ordered,
    split_streams,
    statuses_of,
    sweep,
)


class Interrupted(Exception):
    """A signal stopped the training; the text names the latest checkpoint."""


class Refused(ValueError):
    """The study cannot be continued; nothing was changed."""


class Stopped(Exception):
    """A simulator or a Gymnasium environment failed; the study continues from its latest checkpoint."""


class Outcome(NamedTuple):
    """Results of training."""

    curves: Path
    diverged: list[str]  # one sentence per run
    faults: int  # failed simulations, which were reset


def train(
    plan: Plan,
    claim: Claim,
    prepared: Sequence[Prepared],
    *,
    checkpoint_seconds: float = 30.0,
    facts: Mapping[str, Any] = MappingProxyType({}),
    quiet: bool = False,
    on_rows: Callable[[pl.DataFrame], None] | None = None,
) -> Outcome:
    """Train all unfinished runs, write curves, streams and manifest, and release the folder.

    A resumed study whose training has ended is not changed. Added runs are joined with their study at the end.

    Args:
      claim: the folder, locked for this plan.
      prepared: of the plan; its errors must occur before the folder is locked.
      facts: further facts for the manifest, such as the command that reproduces these results.
      quiet: show no progress.
      on_rows: called with the rows of every evaluation, one per run.

    Raises:
      Refused: all checkpoints are damaged, or the results of a finished training are damaged.
      Interrupted: a signal stopped the training.
      Stopped: a simulator or a Gymnasium environment failed.
      Unwritable: results cannot be written, or the folder was removed; the latest checkpoint can be continued.
    """
    config, directory = plan.config, claim.directory
    with claim.owner:
        if claim.resume and (directory / store.MANIFEST).exists():
            try:
                results = store.open_results(directory)
                results.check(store.CURVES)
            except ValueError as error:
                raise Refused(f"--resume: {error}; remove its {store.MANIFEST} to train it again") from None
            return _outcome(claim, results.manifest["runs"])
        with in_own_words(plan.task.env, Stopped) as simulator:
            began, floor, trained = time.monotonic(), floor_of(plan.world), {}
            with StopFlag() as stop:
                for ready in prepared:
                    trained[ready.share.carrier] = _train_share(ready, claim, stop, checkpoint_seconds, quiet, on_rows)
            claim.owner.check()
            streams = pl.concat([share.streams for share in trained.values()], how="diagonal")
            curves = pl.concat([share.curves for share in trained.values()], how="diagonal")
            statuses = list(itertools.chain.from_iterable(share.statuses for share in trained.values()))
            store.write_rows(directory / store.STREAMS, streams)
            store.write_rows(directory / store.CURVES, arranged(curves, config.episodes))
            about = {
                "resumed": claim.resume,
                "wall_seconds": round(sum(share.earlier for share in trained.values()) + time.monotonic() - began, 2),
                "parts": {carrier: share.facts for carrier, share in trained.items()},
                "floors": {config.task: floor},
                "runs": statuses,
            }
            about |= {name: fact for name, fact in facts.items() if fact}
            store.write_manifest(directory, about | _facts(plan, prepared, simulator))
            return _outcome(claim, statuses)


def _facts(plan: Plan, prepared: Sequence[Prepared], simulator: Any) -> dict[str, Any]:
    """Facts of a study in the manifest besides its training."""
    config = plan.config
    patterns = {name: plan.world.patterns[name] for name in config.patterns}
    begun = {ready.share.carrier: ready.warm.agents for ready in prepared if ready.warm is not None}
    changes = changes_of(config, prepared[0].share.learner)
    if config.horizon is None:
        changes = {name: changes[name] for name in config.states_changes(patterns)}
    env: Any = plan.task.env  # `about` of a custom task may be anything
    some = {
        "small_windows": plan.small_windows,
        "changes": changes and {config.task: changes},  # of the others: where segments begin
        "simulator": simulator and simulator.about,
        "physics": type(env).__module__.startswith("envs.physics.") and env.about,
        "warm_start": begun and {**config.warm_start, "agents": begun},
    }
    return {
        **store.environment(),
        "oracle": {config.task: optimum_of(plan.world, config)},
        "inert": {config.task: list(plan.task.inert)} if plan.task.inert else {},
        # For metrics and report, which have no registry of patterns.
        "patterns": {
            name: {"jumps": known.jumps, "recovery": known.jumps and known.holds, "summary": known.summary}
            for name, known in patterns.items()
        },
        **{name: value for name, value in some.items() if value},
    }


class _Trained(NamedTuple):
    """Trained runs of one carrier."""

    curves: pl.DataFrame
    streams: pl.DataFrame
    statuses: list[dict[str, Any]]
    facts: dict[str, Any]  # for the manifest
    earlier: float  # seconds of training before this session


def _train_share(
    prepared: Prepared,
    claim: Claim,
    stop: StopFlag,
    checkpoint_seconds: float,
    quiet: bool,
    on_rows: Callable[[pl.DataFrame], None] | None,
) -> _Trained:
    share, batches, start = prepared.share, prepared.batches, time.monotonic()
    config, sizes = share.config, share.learner.sizes
    place, name = claim.directory / store.CHECKPOINTS / share.carrier, config.fingerprint()
    intervals = Intervals(config.evaluations, sizes.interval, sizes.num_envs)
    executables = compile_program(prepared.program, prepared.devices, batches.group)
    wanted = snapshots_at(config, share.learner)
    title, stream = f"{share.carrier}: {len(share.labels)} runs", None if quiet else sys.stdout
    shown = Progress(intervals, len(share.labels), batches.count, title, stream)
    try:
        saved = load(executables, prepared.program, prepared.runs, batches, place, name) if claim.resume else None
    except CheckpointError as error:
        raise Refused(f"--resume: {error}; remove that folder to start its runs again") from None
    frames, earlier = ([], 0.0) if saved is None else ([saved.rows], saved.seconds)
    start -= earlier
    for note in () if saved is None else saved.notes:
        shown.note(note)
    written = time.monotonic()
    begin = None if prepared.warm is None else prepared.warm.begin
    for now in sweep(executables, prepared.runs, share.labels, batches, intervals, begin=begin, saved=saved):
        claim.owner.check()
        frames.append(now.rows)
        shown.tick(now)
        if on_rows is not None:
            on_rows(now.rows)
        if now.number in wanted:
            save_snapshot(claim.directory, config, share.learner, now, shown.note)
        if now.last:  # before the checkpoint that marks this batch as done
            save_agents(claim.directory, config, share.carrier, now)
        due = time.monotonic() - written > checkpoint_seconds
        if stop.asked or due or (now.last and now.batch < batches.count - 1):
            frames, where = [pl.concat(frames, how="diagonal")], "a checkpoint is written"
            try:
                now.save(place, name, frames[0], len(executables.devices), time.monotonic() - start)
            except store.Unwritable as error:  # not fatal: another checkpoint follows
                where = f"{error}; earlier checkpoints are unchanged"
                shown.note(where)
            if stop.asked:
                raise Interrupted(f"interrupted; {where}")
            written = time.monotonic()
    rows, streams = split_streams(ordered(frames, share.labels))
    facts = {
        "runs": len(share.labels),
        "updates": share.updates,
        "updates_per_stream_sample": share.learner.stride,
        "batches": batches.count,
        "batch_size": batches.width,
        "seconds": round(time.monotonic() - start, 2),
    }
    return _Trained(rows, streams, statuses_of(rows, sizes.num_envs), facts, earlier)


def _outcome(claim: Claim, statuses: Sequence[Mapping[str, Any]]) -> Outcome:
    directory = claim.owner.directory
    if claim.extended is not None:
        try:
            statuses = add(claim.extended, directory, claim.directory)["runs"]
        except ValueError as error:
            raise Refused(f"--resume: {error}") from None
    lines = [
        f"{s['method']}, {s['pattern']}, seed {s['seed']} diverged at step {s['diverged_at']}: {s['reason']}"
        for s in statuses
        if s["status"] == "diverged"
    ]
    return Outcome(directory / store.CURVES, lines, sum(s.get("simulation_faults", 0) for s in statuses))


class Progress:
    """Progress of a sweep: one updated line on a terminal, plain lines elsewhere.

    If the stream cannot be written, the study continues without it.
    """

    def __init__(self, intervals: Intervals, num_runs: int, batches: int, title: str, stream: TextIO | None):
        self.stream, self.live = stream, stream is not None and stream.isatty()
        self.evaluations, self.num_runs, self.total = intervals.evaluations, num_runs, batches * intervals.evaluations
        self._steps = intervals.interval * intervals.num_envs  # environment steps of an interval
        self._ticks, self._since, self._line_at = 0, (0, 0.0), time.monotonic()
        self.note(f"{title}: compiling")

    def note(self, text: str, end: str = "\n") -> None:
        """Print a permanent line."""
        if self.stream is not None:
            with suppress(OSError):
                print(("\r\x1b[K" if self.live else "") + text, end=end, file=self.stream, flush=True)

    def tick(self, now: Evaluated) -> None:
        """Show an evaluation: finished share of the study, environment steps per second, time left, and each method."""
        done, clock = now.batch * self.evaluations + now.number, time.monotonic()
        text = f"{100 * done / self.total:5.1f} %  step {now.number * self._steps:,}"
        self._ticks += 1
        if self._ticks < 3:  # the evaluation is compiled first, then the training step
            self._since = done, clock
        else:
            worked, elapsed = done - self._since[0], clock - self._since[1]
            rate = worked * self._steps * self.num_runs * self.evaluations / self.total / elapsed
            left = timedelta(seconds=round((self.total - done) * elapsed / worked))
            text += f"  {rate:,.0f} environment steps/s  {left} left"
        text = "  ".join([text, *_methods(now.rows)[:8]])
        if now.number == self.evaluations or (not self.live and clock - self._line_at > 10.0):
            self._line_at = clock
            self.note(text)
        elif self.live:
            self.note(text[: get_terminal_size().columns - 1], end="")


def _methods(rows: pl.DataFrame) -> list[str]:
    """Method, mean return and, if available, mean weight of the last evaluation, in order of appearance."""
    weight = pl.col("entropy_weight") if "entropy_weight" in rows.columns else pl.lit(None, pl.Float64)
    means = (column.fill_nan(None).mean() for column in (pl.col("return_mean"), weight.alias("weight")))
    table = rows.group_by("method", maintain_order=True).agg(*means)
    return [
        f"{name} {'nan' if mean is None else f'{mean:.2f}'}{'' if weight is None else f' (weight {weight:.3g})'}"
        for name, mean, weight in table.rows()
    ]

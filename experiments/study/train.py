"""Trains a study in the folder that is its own and writes curves, streams and manifest."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envs.patterns import Pattern
from envs.physics.host import in_own_words
from experiments.study import checkpoint, store
from experiments.study.checkpoint import CheckpointError
from experiments.study.config import StudyConfig
from experiments.study.curves import arranged, ordered, split_streams, statuses_of
from experiments.study.folder import Claim
from experiments.study.prepare import Prepared, prepare
from experiments.study.program import small_windows
from experiments.study.progress import Progress
from experiments.study.references import floor_of, optimum_of
from experiments.study.results import open_results, write_manifest
from experiments.study.run import Evaluated, Plan, load, sweep
from experiments.study.snapshots import save_agents, save_snapshot, snapshots_at
from experiments.study.stop import StopFlag
from experiments.study.sweep import compile_program

if TYPE_CHECKING:
    import polars as pl


class Interrupted(Exception):
    """A signal was honoured; the text says at which checkpoint the study stands."""


class Refused(ValueError):
    """The study cannot be continued; nothing was changed."""


class Stopped(Exception):
    """A simulator or a Gymnasium environment failed; the text says how. What was checkpointed can be continued."""


class Outcome(NamedTuple):
    """Results of training."""

    curves: Path
    diverged: list[str]  # one sentence per run
    faults: int  # simulations that the physics engine gave up on and that were reset


def train(
    study: Claim,
    *,
    prepared: Sequence[Prepared] | None = None,
    checkpoint_seconds: float = 30.0,
    command: str = "",
    quiet: bool = False,
    on_rows: "Callable[[pl.DataFrame], None] | None" = None,
) -> Outcome:
    """Train everything that is not trained yet, write curves, streams and manifest, and release the folder.

    A resumed study whose training has ended stays as it is.

    Args:
      prepared: as `prepare` returns it, where that was done before the folder was claimed.
      command: the command that makes these results again, for the manifest.
      quiet: show no progress.
      on_rows: called with the rows of every evaluation, one per run.

    Raises:
      Refused: no checkpoint can be trusted, or the results of an ended training are damaged.
      Interrupted: a signal asked to stop.
      Stopped: a simulator or a Gymnasium environment failed.
      Unwritable: results cannot be written, or the folder is gone; what was checkpointed can be continued.
    """
    with study.owner:
        if study.resume and (study.directory / store.MANIFEST).exists():
            try:
                results = open_results(study.directory)
                results.check(store.CURVES)
            except ValueError as error:
                raise Refused(f"--resume: {error}; remove its {store.MANIFEST} to train it again") from None
            return _outcome(study.directory, results.manifest["runs"])
        with in_own_words(study.config.build_task().env, Stopped) as simulator:
            prepared = prepare(study.config) if prepared is None else prepared
            return _train(study, prepared, checkpoint_seconds, simulator, command, quiet, on_rows)


def _train(
    study: Claim,
    prepared: Sequence[Prepared],
    checkpoint_seconds: float,
    simulator: Any,
    command: str,
    quiet: bool,
    on_rows: "Callable[[pl.DataFrame], None] | None",
) -> Outcome:
    import polars as pl

    config, directory = study.config, study.directory
    began, frames, recordings, statuses, parts = time.monotonic(), [], [], [], {}
    begun: dict[str, Any] = {}
    floor = floor_of(config)
    with StopFlag() as stop:
        for each in prepared:
            carrier, batches, start = each.share.carrier, each.batches, time.monotonic()
            if each.warm is not None:
                begun[carrier] = each.warm.agents
            trained = _train_share(study, each, checkpoint_seconds, quiet, on_rows, stop)
            rows = ordered(trained, each.share.labels)
            parts[carrier] = {
                "runs": len(each.share.labels),
                "updates": each.share.learner.updates,
                "updates_per_stream_sample": each.share.learner.stride,
                "batches": batches.count,
                "batch_size": batches.width,
                "seconds": round(time.monotonic() - start, 2),
            }
            rows, recorded = split_streams(rows)
            frames.append(rows)
            recordings.append(recorded)
            statuses += statuses_of(rows, config.envs_of(carrier))
    outcome = _outcome(directory, statuses)
    rows = pl.concat(frames, how="diagonal")
    study.owner.check()
    store.write_rows(directory / store.STREAMS, pl.concat(recordings, how="diagonal"))
    store.write_rows(outcome.curves, arranged(rows, config.episodes))
    write_manifest(
        directory,
        store.environment()
        | {
            "resumed": study.resume,
            "wall_seconds": round(time.monotonic() - began, 2),
            "parts": parts,
            "floors": {config.task: floor},
            "oracle": {config.task: optimum_of(config)},
            "inert": _inert(config),
            "patterns": {name: _facts(config.patterns_known[name]) for name in config.patterns},
            "runs": statuses,
        }
        | ({"small_windows": small} if (small := small_windows(config)) else {})
        | ({"command": command} if command else {})
        | (_physics(prepared[0].share.learner.world.task.env) if simulator is None else {"simulator": simulator.about})
        | ({"warm_start": {**config.warm_start, "agents": begun}} if begun else {}),
    )
    return outcome


def _train_share(
    study: Claim,
    prepared: Prepared,
    checkpoint_seconds: float,
    quiet: bool,
    on_rows: "Callable[[pl.DataFrame], None] | None",
    stop: StopFlag,
) -> "list[pl.DataFrame]":
    """Train one carrier's runs; the rows of all of its evaluations."""
    import polars as pl

    config, share, batches = study.config, prepared.share, prepared.batches
    place, name = study.directory / store.CHECKPOINTS / share.carrier, config.fingerprint()
    plan = Plan(config.evaluations, config.interval(share.carrier), config.envs_of(share.carrier))
    executables = compile_program(prepared.program, prepared.devices, batches.group)
    wanted = snapshots_at(config, share)
    with Progress(plan, len(share.labels), batches.count, f"{share.carrier}: {len(share.labels)} runs", quiet) as shown:
        try:
            saved = load(executables, prepared.program, prepared.runs, batches, place, name) if study.resume else None
        except CheckpointError as error:
            raise Refused(f"--resume: {error}; remove that folder to start its runs again") from None
        frames = [] if saved is None else [saved.rows]
        for note in () if saved is None else saved.notes:
            shown.note(note)

        def write(now: Evaluated) -> str:
            """Where the study stands then. A checkpoint is no reason to end a study: another one follows."""
            frames[:] = [pl.concat(frames, how="diagonal")]
            try:
                now.save(place, name, frames[0], len(executables.devices))
            except store.Unwritable as error:
                before = "the one before it is unchanged" if checkpoint.newest_height(place) else "there is no other"
                shown.note(f"{error}; {before}")
                return f"{error}; {before}"
            return "a checkpoint is written"

        written = time.monotonic()
        begin = None if prepared.warm is None else prepared.warm.begin
        for now in sweep(executables, prepared.runs, share.labels, batches, plan, begin=begin, saved=saved):
            study.owner.check()
            frames.append(now.rows)
            shown.tick(now)
            if on_rows is not None:
                on_rows(now.rows)
            if now.number in wanted:
                save_snapshot(study.directory, config, share, now, shown.note)
            if now.last:  # before a checkpoint says that this batch is done
                save_agents(study.directory, config, share.carrier, now)
            if stop.asked:
                raise Interrupted(write(now))
            if (now.last and now.batch < batches.count - 1) or time.monotonic() - written > checkpoint_seconds:
                write(now)
                written = time.monotonic()
    return frames


def _outcome(directory: Path, statuses: Sequence[Mapping[str, Any]]) -> Outcome:
    lines = [
        f"{s['method']}, {s['pattern']}, seed {s['seed']} diverged at step {s['diverged_at']}: {s['reason']}"
        for s in statuses
        if s["status"] == "diverged"
    ]
    return Outcome(directory / store.CURVES, lines, sum(s.get("simulation_faults", 0) for s in statuses))


def _physics(env: Any) -> dict[str, Any]:
    """The engine of a physics environment; empty for other environments, whose `about` may be anything."""
    return {"physics": env.about} if type(env).__module__.startswith("envs.physics.") else {}


def _inert(config: StudyConfig) -> dict[str, list[str]]:
    """Task -> channels that drift without changing anything in it."""
    channels = list(config.build_task().inert)
    return {config.task: channels} if channels else {}


def _facts(pattern: Pattern) -> dict[str, Any]:
    """Facts of a pattern for metrics and report, which do not know its name."""
    return {"jumps": pattern.jumps, "recovery": pattern.jumps and pattern.holds, "summary": pattern.summary}

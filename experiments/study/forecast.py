"""Sizes of a study, and the time that a short trial suggests, before anything of it is written."""

import dataclasses
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.study.config import StudyConfig
from experiments.study.prepare import Prepared, floor_of, optimum_of, results_bytes
from experiments.study.program import share_of
from experiments.study.run import compile_program, memory_budget, state_bytes, take

_LEAST = 32  # vector steps of a trial interval, at least; fewer would show what a call costs
_FEWEST = 2  # trial intervals that are timed


class Seconds(NamedTuple):
    """Of one carrier's share, measured or inferred."""

    start: float  # tracing, compiling or reading compiled programs, and the initial states
    chunk: float  # of training between two evaluations
    evaluation: float


class Forecast(NamedTuple):
    """One carrier's share of a study."""

    carrier: str
    runs: int
    updates: int  # gradient steps of a run
    steps: int  # environment steps of a run
    chunks: int  # and one evaluation more
    state: int  # bytes of one run, the replay included
    replay: int  # bytes of one run
    batches: int
    width: int  # runs of a batch
    seconds: Seconds | None  # None: in another simulator, which is not started

    @property
    def total(self) -> float:
        """Seconds from the start of training to the last evaluation; nan where no time was measured."""
        if self.seconds is None:
            return float("nan")
        s = self.seconds
        return s.start + self.batches * (self.chunks * s.chunk + (self.chunks + 1) * s.evaluation)


def forecast(config: StudyConfig, prepared: Sequence[Prepared], seconds: float = 10.0) -> list[Forecast]:
    """Sizes of every carrier's share, and a trial of about ``seconds`` in all besides compiling; its runs are dropped.

    Evaluations are timed on agents that have hardly learned: where falling ends an episode, later ones take longer.
    """
    return [_forecast(config, share, seconds / len(prepared)) for share in prepared]


def _forecast(config: StudyConfig, prepared: Prepared, seconds: float) -> Forecast:
    share, batches = prepared.share, prepared.batches
    run = jax.tree.map(lambda leaf: leaf[0], take(prepared.runs, [0]))
    replay = getattr(jax.eval_shape(prepared.program.init, run), "replay", None)
    apart = getattr(share.learner.world.task.env, "exclusive", False)
    return Forecast(
        share.carrier,
        len(share.labels),
        share.learner.updates,
        config.steps,
        config.evaluations,
        state_bytes(prepared.program, run),
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay)),
        batches.count,
        batches.width,
        None if apart else _seconds(config, prepared, seconds),
    )


def _seconds(config: StudyConfig, prepared: Prepared, seconds: float) -> Seconds:
    """A trial of one carrier's program at the width of its batches, in short intervals where the study's are long."""
    share, batches, carrier = prepared.share, prepared.batches, prepared.share.carrier
    short, pieces = _shortened(config, carrier)
    program = prepared.program if pieces == 1 else share_of(short, carrier).program()
    executables = compile_program(program, prepared.devices, batches.group)
    data = executables.place(take(prepared.runs, [i % len(share.labels) for i in range(batches.width)]))
    at = jnp.int32(max(share.learner.sizes.warmup, short.interval(carrier)))

    def first() -> Any:
        state, _ = executables.chunk(executables.init(data), data, jnp.int32(0))
        return state, executables.evaluate(state, data, at)

    start, (state, _) = _timed(first)
    trials: list[float] = []
    while len(trials) < _FEWEST or sum(trials) < seconds * 3 / 4:
        given = state  # donated
        took, (state, _) = _timed(lambda given=given: executables.chunk(given, data, at))
        trials.append(took)
    evaluations: list[float] = []
    while not evaluations or sum(evaluations) < seconds / 4:
        took, _ = _timed(lambda state=state: jax.device_get(executables.evaluate(state, data, at)))
        evaluations.append(took)
    return Seconds(start, pieces * float(np.mean(trials)), float(np.mean(evaluations)))


def _shortened(config: StudyConfig, carrier: str) -> tuple[StudyConfig, int]:
    """The study with shorter intervals of complete rollouts, and how many of them make one of the study's."""
    interval, unit = config.interval(carrier), config.settings[carrier].config.get("rollout", 1)
    least = min(interval, max(_LEAST, unit))
    steps = next(n for n in range(least, interval + 1) if interval % n == 0 and n % unit == 0)
    pieces = interval // steps
    return dataclasses.replace(config, evaluations=config.evaluations * pieces), pieces


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = jax.block_until_ready(work())
    return time.perf_counter() - began, result


def lines_of(config: StudyConfig, shares: Sequence[Forecast]) -> list[str]:
    """The forecast in lines for a person."""
    devices, lines = jax.local_devices(), []
    for s in shares:
        batches = "1 batch" if s.batches == 1 else f"{s.batches} batches"
        lines += [
            f"{s.carrier}: {s.runs:,} runs of {s.steps:,} environment steps and {s.updates:,} updates, "
            f"{s.runs * s.steps:,} steps in all; {batches} of {s.width}",
            f"  memory: {_mib(s.state)} a run, {_mib(s.replay)} of it replay; {_mib(s.width * s.state)} a batch "
            f"of {_mib(memory_budget(devices))}",
        ]
        if s.seconds is not None:
            t = s.seconds
            lines.append(
                f"  time: {t.start:.1f} s to start; a batch is {s.chunks} times {t.chunk:.3g} s of "
                f"training and {s.chunks + 1} evaluations of {t.evaluation:.3g} s: {s.total:.0f} s"
            )
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    results = results_bytes(config, sum(share.runs for share in shares))
    saved = max(s.width * s.state for s in shares)  # once more on the host, for a checkpoint
    lines += [
        f"memory in all: about {_mib(process + saved + results)}: {_mib(process)} of the process in this trial, "
        f"{_mib(saved)} for a checkpoint, {_mib(results)} of results"
    ]
    where = f"{len(devices)} {devices[0].platform} device{'s' * (len(devices) > 1)}"
    if any(share.seconds is None for share in shares):
        return [*lines, f"no time is estimated: {config.task} runs in another simulator, which was not started"]
    bounds, _ = _timed(lambda: (floor_of(config), optimum_of(config)))  # returns of random and of best actions
    total = bounds + sum(share.total for share in shares)
    clock = f"{total / 3600:.1f} h" if total > 5400 else f"{total / 60:.1f} min"
    return [*lines, f"estimated: {total:.0f} s ({clock}) on {where}, without the report; nothing was written"]


def _mib(size: float) -> str:
    return f"{size / 2**20:,.4g} MiB"

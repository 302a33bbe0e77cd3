"""What a study will take, before anything of it is written: its sizes, and the time that a short trial suggests."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.study.build import build_part, floor_of, optimum_of
from experiments.study.config import StudyConfig
from experiments.study.prepare import Prepared
from experiments.study.sweep import compile_program, memory_budget, state_bytes, step_array, take

_LEAST = 32  # vector steps of a trial chunk, at least; fewer would show what a call costs
_FEWEST = 2  # trial chunks that are timed
_Clock = Callable[[], float]  # seconds


class Seconds(NamedTuple):
    """Of one carrier's share, measured or inferred."""

    lowering: float  # tracing and lowering, at every start
    compiling: float  # what was measured; 0 where the study will find everything compiled
    start: float  # the initial states of a wave
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
    waves: int
    width: int  # runs of a wave
    seconds: Seconds | None  # None: in another simulator, which is not started

    @property
    def total(self) -> float:
        """Seconds of training from the claim of the folder to the last evaluation; nan where no time was measured."""
        if self.seconds is None:
            return float("nan")
        s = self.seconds
        wave = s.start + self.chunks * s.chunk + (self.chunks + 1) * s.evaluation
        return s.lowering + s.compiling + self.waves * wave


def forecast(
    config: StudyConfig, prepared: Sequence[Prepared], seconds: float = 10.0, clock: _Clock = time.perf_counter
) -> list[Forecast]:
    """Sizes of every carrier's share, and a trial of about ``seconds`` in all besides compiling; its runs are dropped.

    Evaluations are timed on agents that have hardly learned: where falling ends an episode, later ones take longer.
    """
    return [_forecast(config, share, seconds / len(prepared), clock) for share in prepared]


def world_seconds(config: StudyConfig, clock: _Clock = time.perf_counter) -> float:
    """Of the returns of random and of best actions, which a study finds out besides training; as if compiled."""

    def known() -> None:
        floor_of(config)
        optimum_of(config)

    known()
    return _timed(known, clock)[0]


def _forecast(config: StudyConfig, share: Prepared, seconds: float, clock: _Clock) -> Forecast:
    part, waves = share.part, share.waves
    one = take(part.runs, [0] * waves.width)
    run = jax.tree.map(lambda leaf: leaf[0], one)
    replay = getattr(jax.eval_shape(part.program.init, run), "replay", None)
    apart = getattr(config.build_task().env, "exclusive", False)
    return Forecast(
        part.carrier,
        len(part.labels),
        part.updates,
        config.steps,
        config.evaluations,
        state_bytes(part.program, run),
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay)),
        waves.count,
        waves.width,
        None if apart else _seconds(config, share, seconds, clock),
    )


def _seconds(config: StudyConfig, share: Prepared, seconds: float, clock: _Clock) -> Seconds:
    """A trial of one carrier's program at the width of its waves, in short chunks where the study's are long.

    What JAX kept of the trial's programs the study will find, if they are the same.
    """
    part, _, devices, waves = share
    short, pieces = _shortened(config, part.carrier)
    program = part.program if pieces == 1 else build_part(short, part.carrier).program
    executables = compile_program(program, devices, waves.group)
    data = executables.place(take(part.runs, [i % len(part.labels) for i in range(waves.width)]))
    lowering = compiling = 0.0

    def compiled(function: Any, *given: Any) -> Callable[..., Any]:
        nonlocal lowering, compiling
        began = clock()
        lowered = function.lower(*given)
        lowering += clock() - began
        with _watched() as kept:
            began = clock()
            executable = lowered.compile()
            took = clock() - began
        compiling += 0.0 if kept and (pieces == 1 or function is not executables.chunk) else took
        return executable

    init = compiled(executables.init, data)
    start, state = _timed(lambda: init(data), clock)
    chunk = compiled(executables.chunk, state, data, step_array(0))
    state, _ = chunk(state, data, step_array(0))
    at = max(config.warmup_of(part.carrier) // config.envs_of(part.carrier), short.chunk(part.carrier))
    trials: list[float] = []
    while len(trials) < _FEWEST or sum(trials) < seconds * 3 / 4:
        given = state  # donated
        took, (state, _) = _timed(lambda given=given: chunk(given, data, step_array(at)), clock)
        trials.append(took)
    evaluate = compiled(executables.evaluate, state, data, step_array(at))
    evaluations: list[float] = []
    while not evaluations or sum(evaluations) < seconds / 4:
        took, _ = _timed(lambda state=state: jax.device_get(evaluate(state, data, step_array(at))), clock)
        evaluations.append(took)
    return Seconds(lowering, compiling, start, pieces * float(np.mean(trials)), float(np.mean(evaluations)))


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Collect the events of JAX's cache of compiled programs, reads and writes, while the block runs."""
    seen: list[str] = []

    def on_event(event: str, **_: Any) -> None:
        if event in ("/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"):
            seen.append(event)

    jax.monitoring.register_event_listener(on_event)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_listener(on_event)


def _shortened(config: StudyConfig, carrier: str) -> tuple[StudyConfig, int]:
    """The study with shorter chunks of whole rollouts, and how many of them make one of the study's."""
    chunk, unit = config.chunk(carrier), config.settings[carrier]["config"].get("rollout", 1)
    least = min(chunk, max(_LEAST, unit))
    steps = next(n for n in range(least, chunk + 1) if chunk % n == 0 and n % unit == 0)
    pieces = chunk // steps
    return dataclasses.replace(config, evaluations=config.evaluations * pieces), pieces


def _timed(work: Callable[[], Any], clock: _Clock) -> tuple[float, Any]:
    began = clock()
    result = jax.block_until_ready(work())
    return clock() - began, result


def told(config: StudyConfig, shares: Sequence[Forecast]) -> list[str]:
    """The forecast in lines for a person."""
    devices, lines = jax.local_devices(), []
    for s in shares:
        waves = "1 wave" if s.waves == 1 else f"{s.waves} waves"
        lines += [
            f"{s.carrier}: {s.runs:,} runs of {s.steps:,} environment steps and {s.updates:,} updates, "
            f"{s.runs * s.steps:,} steps in all; {waves} of {s.width}",
            f"  memory: {_mib(s.state)} a run, {_mib(s.replay)} of it replay; {_mib(s.width * s.state)} a wave "
            f"of {_mib(memory_budget(devices))}",
        ]
        if s.seconds is not None:
            t = s.seconds
            compiling = f"compiling {t.compiling:.1f} s" if t.compiling else "all of it compiled before or just now"
            lines.append(
                f"  time: tracing {t.lowering:.1f} s, {compiling}; a wave is {s.chunks} times {t.chunk:.3g} s of "
                f"training and {s.chunks + 1} evaluations of {t.evaluation:.3g} s: {s.total:.0f} s"
            )
    where = f"{len(devices)} {devices[0].platform} device{'s' * (len(devices) > 1)}"
    if any(share.seconds is None for share in shares):
        return [*lines, f"no time is estimated: {config.task} runs in another simulator, which was not started"]
    total = world_seconds(config) + sum(share.total for share in shares)
    clock = f"{total / 3600:.1f} h" if total > 5400 else f"{total / 60:.1f} min"
    return [*lines, f"estimated: {total:.0f} s ({clock}) on {where}, the report apart; nothing was written"]


def _mib(size: float) -> str:
    return f"{size / 2**20:,.4g} MiB"

"""Sizes of a study and a time estimate from a short trial; nothing is written."""

import dataclasses
import math
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.measure.comparisons import ENOUGH
from experiments.measure.stats import detectable, pairs_for
from experiments.study import store
from experiments.study.checkpoint import evaluated
from experiments.study.config import StudyConfig
from experiments.study.prepare import Prepared, floor_of, optimum_of, results_bytes
from experiments.study.program import Plan
from experiments.study.run import compile_program, memory_budget, state_bytes, take

ENDED = "the training has ended; nothing is trained again"
_LEAST = 32  # fewest vector steps of a trial interval; shorter intervals measure the cost of a call
_FEWEST = 2  # trial intervals that are timed


class Seconds(NamedTuple):
    """Times of one carrier's share, measured in a trial."""

    start: float  # tracing, compiling or reading compiled programs, and the initial states
    interval: float  # of training between two evaluations
    evaluation: float

    def total(self, batches: int, intervals: int, done: int = 0) -> float:
        """Seconds of training to the last evaluation, without the first ``done`` intervals of all batches."""
        left, begun = batches * intervals - done, math.ceil(done / intervals)
        return self.start + left * self.interval + (left + batches - begun) * self.evaluation


def forecast(plan: Plan, prepared: Sequence[Prepared], seconds: float = 10.0, folder: Path | None = None) -> list[str]:
    """Lines with the sizes of a study and a time estimate from a trial of about ``seconds``, besides compilation.

    The runs of the trial are discarded. Evaluations are timed on almost untrained agents, so later evaluations take
    longer in tasks whose episodes end by a fall. A task in another simulator is not started and has no estimate.

    Args:
      folder: of the study, whose time from its latest checkpoints is estimated; None: from its beginning.
    """
    if folder is not None and (folder / store.MANIFEST).exists():
        return [ENDED]
    config, devices, lines, total, widest = plan.config, jax.local_devices(), [], 0.0, 0
    apart = any(getattr(each.share.learner.world.task.env, "exclusive", False) for each in prepared)
    for each in prepared:
        share, batches = each.share, each.batches
        count, run = len(share.labels), jax.tree.map(lambda leaf: leaf[0], take(each.runs, [0]))
        replay = jax.tree.leaves(getattr(jax.eval_shape(each.program.init, run), "replay", None))
        state, stored = state_bytes(each.program, run), sum(leaf.size * leaf.dtype.itemsize for leaf in replay)
        widest = max(widest, batches.width * state)
        lines += [
            f"{share.carrier}: {count:,} runs of {config.steps:,} environment steps and {share.updates:,} "
            f"updates, {count * config.steps:,} steps in all; {batches.count} batches of {batches.width}",
            f"  memory: {_mib(state)} a run, {_mib(stored)} of it replay; {_mib(batches.width * state)} a batch "
            f"of {_mib(memory_budget(devices))}",
        ]
        if not apart:
            t = trial(each, seconds / len(prepared))
            place = None if folder is None else folder / store.CHECKPOINTS / share.carrier
            done = 0 if place is None else evaluated(place, config.evaluations)
            total += (spent := t.total(batches.count, config.evaluations, done))
            already = f", {done} of {batches.count * config.evaluations} are done" if done else ""
            lines.append(
                f"  time: {t.start:.1f} s to start; a batch is {config.evaluations} times {t.interval:.3g} s of "
                f"training and {config.evaluations + 1} evaluations of {t.evaluation:.3g} s{already}: {spent:.0f} s"
            )
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    results = results_bytes(config, sum(len(each.share.labels) for each in prepared))
    lines.append(  # a checkpoint holds the states once more, on the host
        f"memory in all: about {_mib(process + widest + results)}: {_mib(process)} of the process in this trial, "
        f"{_mib(widest)} for a checkpoint, {_mib(results)} of results"
    )
    lines.append(power(plan))
    if apart:
        return [*lines, f"no time is estimated: {config.task} runs in another simulator, which was not started"]
    total += _timed(lambda: floor_of(plan.world))[0] + _timed(lambda: optimum_of(plan.world, config))[0]
    clock = f"{total / 3600:.1f} h" if total > 5400 else f"{total / 60:.1f} min"
    where = f"{len(devices)} {devices[0].platform} device{'s' * (len(devices) > 1)}"
    return [*lines, f"estimated: {total:.0f} s ({clock}) on {where}, without the report; nothing was written"]


def power(plan: Plan) -> str:
    """The differences that the seeds of a study detect with probability 0.8, and the seeds that others need.

    Tests are counted as in the report, where constants and controls are a Holm family apart; they count if the study
    has no other methods.
    """
    seeds, compared = len(plan.config.seeds), [row.method for row in plan.rows if not row.method.is_baseline]
    others = [method for method in compared if method.control is None and not method.follows("fixed")]
    tests = max(1, len(others or compared) * len(plan.config.patterns))
    sizes = " and ".join(f"{detectable(seeds, count):.2g} ({count})" for count in (1, tests))
    now = f"{seeds} seeds detect differences of {sizes}" if seeds >= ENOUGH else f"{seeds} seeds decide nothing"
    needed = " and ".join(f"{size:g} needs {pairs_for(size, tests)}" for size in (1.0, 0.5))
    return f"power 0.8, differences in standard deviations (tests after Holm): {now}; {needed} ({tests})"


def trial(prepared: Prepared, seconds: float) -> Seconds:
    """Time one carrier's program at its batch size, in intervals no longer than needed."""
    share, batches, carrier = prepared.share, prepared.batches, prepared.share.carrier
    short, pieces = shortened(share.config, carrier)
    program = prepared.program if pieces == 1 else Plan(short).share(carrier).program()
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
        evaluations.append(_timed(lambda state=state: jax.device_get(executables.evaluate(state, data, at)))[0])
    return Seconds(start, pieces * float(np.mean(trials)), float(np.mean(evaluations)))


def shortened(config: StudyConfig, carrier: str) -> tuple[StudyConfig, int]:
    """The study with shorter intervals of complete rollouts, and their number per interval of the study."""
    interval, on_policy = config.interval(carrier), config.methods_of(carrier)[0].carrier.on_policy
    unit = config.settings[carrier].config["rollout"] if on_policy else 1
    least = min(interval, max(_LEAST, unit))
    steps = next(n for n in range(least, interval + 1) if interval % n == 0 and n % unit == 0)
    pieces = interval // steps
    return dataclasses.replace(config, evaluations=config.evaluations * pieces), pieces


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = jax.block_until_ready(work())
    return time.perf_counter() - began, result


def _mib(size: float) -> str:
    return f"{size / 2**20:,.4g} MiB"

"""Updates (PPO: environment steps) per second of a carrier's methods and of rejax, and the record of a bench.

Absolute rates vary on a shared machine, so each round times all contestants one after another and ratios are taken
within a round.
"""

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments.session.study import Study
from experiments.study import store
from experiments.study.config import StudyConfig
from experiments.study.prepare import prepare
from experiments.study.program import Plan
from experiments.study.run import compile_program, take

REJAX = ("rejax==0.1.3", "gymnax==0.0.9")
TARGET_SECONDS = 1.0
Timer = Callable[[], float]  # does a fixed amount of work, returns its rate
Case = tuple[str, Callable[[], dict[str, Any]]]  # name and measurement


def until(work: Callable[[], float]) -> Timer:
    """Rate of ``work``, which returns its number of steps and is repeated for the target time."""

    def timer() -> float:
        began, steps = time.perf_counter(), 0.0
        while time.perf_counter() - began < TARGET_SECONDS:
            steps += work()
        return steps / (time.perf_counter() - began)

    return timer


def timed(config: StudyConfig) -> Timer:
    """Updates (PPO: environment steps) per second of all runs in the training of a study with one carrier.

    Runs are placed on devices as in the study. The first interval, with the warm-up, is not timed.
    """
    (prepared,) = prepare(Plan(config))
    carrier, batches = prepared.share.carrier, prepared.batches
    interval, count = config.interval(carrier), len(prepared.share.labels)
    executables = compile_program(prepared.program, prepared.devices, batches.group)
    data = executables.place(take(prepared.runs, [i % count for i in range(batches.width)]))
    state, done = executables.init(data), 0
    work = batches.width * interval * (config.envs_of(carrier) if carrier == "ppo" else 1)

    def advance() -> float:
        nonlocal state, done
        state, _ = executables.chunk(state, data, jnp.int32(done * interval))
        jax.block_until_ready(state)
        done = done % (config.evaluations - 1) + 1
        return work

    advance()
    advance()
    return until(advance)


def interleaved(contestants: Mapping[str, Timer], rounds: int, ratios: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Medians of the contestants, ratios of pairs of them within rounds, and the rates of every round.

    Args:
      ratios: name -> two contestants; pairs with a missing contestant are omitted.
    """
    names, measured = list(contestants), []
    for index in range(rounds):
        order = names[index % len(names) :] + names[: index % len(names)]  # the order rotates
        measured.append({name: contestants[name]() for name in order})
    summary = {}
    for ratio, (above, below) in ratios.items():
        if above in contestants and below in contestants:
            values = [entry[above] / entry[below] for entry in measured]
            summary[ratio] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    medians = {name: statistics.median(entry[name] for entry in measured) for name in names}
    return {"medians": medians, "ratios": summary, "rounds": measured}


def measure(cases: Sequence[Case], out: Path | None, about: Mapping[str, Any]) -> None:
    """Measure cases one after another, print them, and write the record to ``out`` before the first and after each.

    After a kill the record has the finished cases, and the names of the others in `left_out`. A failed case, such as
    out of memory, is recorded with its reason.

    Raises:
      ValueError: ``out`` exists.
      Unwritable: it cannot be written; nothing was measured.
    """
    if out is not None and out.exists():
        raise ValueError(f"--out {out} exists; choose another file")
    left, results = [name for name, _ in cases], []

    def write() -> None:
        if out is not None:
            store.write_json(out, {**about, "environment": store.environment(), "left_out": left, "cases": results})

    write()
    for name, case in cases:
        start = time.monotonic()
        result: dict[str, Any]
        try:
            result = case()
        except Exception as error:  # other cases can still be measured
            result = {"error": f"{type(error).__name__}: {store.reason(error)[:200]}"}
        peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")  # since the call began
        left.remove(name)
        spent = {"seconds_with_compilation": time.monotonic() - start, "peak_bytes": peak}
        results.append({"case": name, **spent, **result})
        write()
        rates = "  ".join(f"{who} {rate:,.0f}" for who, rate in result.get("medians", {}).items())
        print(f"{name}, {result.get('unit', 'steps')}/s: {result.get('error', rates)}", flush=True)
        for ratio, values in result.get("ratios", {}).items():
            print(f"    {ratio} {values['median']:.3f} [{values['min']:.3f}, {values['max']:.3f}]", flush=True)


def config_of(carrier: str, method: str, runs: int, task: str | None = None) -> StudyConfig:
    """A task at the sizes of its preset `quick`.

    None: the toy task with preset `paper`, and for PPO the pendulum with rejax's sizes and without normalisation.
    """
    options: dict[str, Any] = {"methods": f"{carrier}+{method}", "patterns": "abrupt", "seeds": runs}
    if task is not None:
        return Study(task=task, **options).config
    options["preset"] = "paper"
    if carrier != "ppo":
        return Study(task="toy", **options).config
    config = Study(task="pendulum", steps=102_400, **options).config
    sizes = {"rollout": 128, "epochs": 10, "minibatches": 4, "normalise_obs": 0.0, "normalise_reward": False}
    own = config.settings[carrier]
    return dataclasses.replace(config, settings={carrier: dataclasses.replace(own, config={**own.config, **sizes})})


def measured(
    carrier: str, methods: Sequence[str], runs: int, rounds: int, rejax: Any = None, task: str | None = None
) -> dict[str, Any]:
    """Rates of one carrier, with the given number of vmapped runs per method in one program; ``rejax``: `installed`."""
    configs = {method: config_of(carrier, method, runs, task) for method in methods}
    contestants = {method: timed(config) for method, config in configs.items()}
    if carrier in ("sac", "ppo") and rejax is not None:
        contestants["rejax"] = _rejax(rejax, carrier, runs)
    first, *others = methods
    ratios = {f"time_of_{method}_over_{first}": (first, method) for method in others}
    ratios |= {f"{method}_over_rejax": (method, "rejax") for method in methods}
    config = configs[first]
    about = {"carrier": carrier, "task": config.task, "unit": "environment steps" if carrier == "ppo" else "updates"}
    about |= {"runs": runs, "num_envs": config.envs_of(carrier), "config": dict(config.settings[carrier].config)}
    return about | interleaved(contestants, rounds, ratios)


@contextmanager
def installed() -> Iterator[subprocess.Popen]:
    """Start rejax in a temporary virtual environment: a process that reads a JSON case per line and writes a rate.

    Raises:
      ValueError: it could not be installed.
    """
    with tempfile.TemporaryDirectory(prefix="aesjax-bench-", ignore_cleanup_errors=True) as folder:
        python, pins = Path(folder) / "venv" / "bin" / "python", [f"jax=={jax.__version__}", *REJAX]
        print("bench: installing rejax", flush=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
        except subprocess.CalledProcessError as error:
            raise ValueError(f"rejax could not be installed: {error}") from None
        words = [python, Path(__file__).with_name("rejax_worker.py")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            yield process


def _rejax(process: Any, algorithm: str, runs: int) -> Timer:
    """rejax's SAC or PPO at equal sizes, compiled."""
    case = {"algorithm": algorithm, "runs": runs, "width": 64, "batch": 128, "seconds": TARGET_SECONDS}

    def ask() -> float:
        print(json.dumps(case), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise ValueError("the process of rejax stopped; its error is above")
        return float(answer)

    ask()
    return ask

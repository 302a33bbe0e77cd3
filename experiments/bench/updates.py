"""Updates (PPO: environment steps) per second of the methods of a carrier, interleaved with rejax.

A single absolute rate means little on a shared machine, so each round times all contestants one after another and
ratios are taken within a round.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from experiments.bench.timing import TARGET_SECONDS, Timer, interleaved, timed
from experiments.session.study import Study
from experiments.study.config import StudyConfig

REJAX = ("rejax==0.1.3", "gymnax==0.0.9")


def config_of(carrier: str, method: str, runs: int) -> StudyConfig:
    """The toy task at the preset's sizes, and for PPO the pendulum with rejax's sizes and without normalisation."""
    options: dict[str, Any] = {"methods": f"{carrier}+{method}", "patterns": "abrupt", "seeds": runs, "preset": "paper"}
    if carrier != "ppo":
        return Study(task="toy", **options).config
    config = Study(task="pendulum", steps=102_400, **options).config
    sizes = {"rollout": 128, "epochs": 10, "minibatches": 4, "normalise_obs": 0.0, "normalise_reward": False}
    own = config.settings[carrier]
    return dataclasses.replace(config, settings={carrier: dataclasses.replace(own, config={**own.config, **sizes})})


def measured(carrier: str, methods: Sequence[str], runs: int, rounds: int, rejax: Any = None) -> dict[str, Any]:
    """One carrier with so many vmapped runs of each method, a program of its own; ``rejax`` as of `installed`."""
    configs = {method: config_of(carrier, method, runs) for method in methods}
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
    """rejax in a virtual environment of its own: a process that reads a JSON case per line and answers with a rate.

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
    """Its SAC or PPO at equal sizes, compiled."""
    case = {"algorithm": algorithm, "runs": runs, "width": 64, "batch": 128, "seconds": TARGET_SECONDS}

    def ask() -> float:
        print(json.dumps(case), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise ValueError("the process of rejax stopped; its error is above")
        return float(answer)

    ask()
    return ask

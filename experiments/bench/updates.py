"""Updates (PPO: environment steps) per second of every carrier, interleaved with rejax and with matrix products.

A single absolute rate means little on a shared machine, so each round times all contestants one after another and
ratios are taken within a round. Matrix products of the networks' size give the limit of an update's rate.
"""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import Program
from experiments.bench.timing import TARGET_SECONDS, Timer, interleaved, training
from experiments.session.study import Study
from experiments.study.config import StudyConfig
from experiments.study.program import runs_of, share_of

SCHEDULES = ("fixed", "aes", "auto", "aes_r")
#: With adaptations, or after a colon another proxy; compared with the schedule alone.
ADAPTED = ("fixed+recent", "fixed+utd", "aes_r+burst", "aes_r+window", "aes_r+window+refresh+rate", "aes_r:dynamics")
REJAX = ("rejax==0.1.3", "gymnax==0.0.9")
_WIDTH, _BATCH, _EPOCHS = 64, 128, 10


def timed(config: StudyConfig) -> Timer:
    """Training of a study with one carrier: updates per second of all runs, of PPO environment steps."""
    (carrier,) = config.carriers
    share, interval = share_of(config, carrier), config.interval(carrier)
    runs = runs_of(share, {})
    items = [jax.tree.map(lambda leaf, i=i: leaf[i], runs) for i in range(len(share.labels))]
    work = len(items) * interval * (config.envs_of(carrier) if carrier == "ppo" else 1)
    return training(share.program(), items, interval, config.evaluations, work)


def config_of(carrier: str, method: str, runs: int) -> StudyConfig:
    """The toy task at the preset's sizes, and for PPO the pendulum with rejax's sizes and without normalisation."""
    options: dict[str, Any] = {"methods": f"{carrier}+{method.replace(':', ':proxy=')}", "patterns": "abrupt"}
    if carrier != "ppo":
        return Study(task="toy", seeds=runs, preset="paper", **options).config
    config = Study(task="pendulum", seeds=runs, steps=102_400, preset="paper", **options).config
    sizes = {"rollout": 128, "epochs": _EPOCHS, "minibatches": 4, "normalise_obs": 0.0, "normalise_reward": False}
    own = config.settings[carrier]
    return dataclasses.replace(config, settings={carrier: dataclasses.replace(own, config={**own.config, **sizes})})


def _mlp(inputs: int, outputs: int) -> int:
    return inputs * _WIDTH + _WIDTH * _WIDTH + _WIDTH * outputs


#: Floating-point operations of the matrix products in one unit. PPO, an environment step: values and actions once, then
#: forward and backward per epoch. SAC, an update: the actor's target sample, and forward and backward of its loss; for
#: each critic the target forward, forward and backward of its loss (2x forward), and both in the actor's to the action.
_FLOPS = {
    "ppo": 4.0 * _mlp(3, 1) * (1 + 3 * _EPOCHS),
    "sac": 2.0 * _BATCH * ((1 + 3) * _mlp(2, 4) + 2 * (1 + 3 + 2) * _mlp(4, 1)),
}


def _matmul(carrier: str, runs: int) -> Timer:
    """Rate of square products of the networks' width, in the carrier's unit if nothing else were computed."""
    repeats = 100

    def products(x: Any, w: Any, step: Any) -> tuple[Any, dict[str, Any]]:
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=repeats)[0], {}

    program = Program(lambda w: jnp.ones((_BATCH, _WIDTH)), products, lambda x, w, step: {})
    weights = [np.eye(_WIDTH, dtype=np.float32)] * runs
    return training(program, weights, 0, 2, 2.0 * runs * _BATCH * _WIDTH * _WIDTH * repeats / _FLOPS[carrier])


def measured(carrier: str, runs: int, rounds: int, rejax: Any = None) -> dict[str, Any]:
    """One carrier with so many vmapped runs; ``rejax`` as of `installed`."""
    # Every method compiles a program of its own; on other carriers than SAC two show the cost of a schedule.
    methods = (*SCHEDULES, *ADAPTED) if carrier == "sac" else SCHEDULES[:2]
    configs = {method: config_of(carrier, method, runs) for method in methods}
    contestants = {method: timed(config) for method, config in configs.items()}
    if carrier in _FLOPS:
        contestants["matmul_limit"] = _matmul(carrier, runs)
        if rejax is not None:
            contestants["rejax"] = _rejax(rejax, carrier, runs)
    ratios = {f"schedule_cost_{method}": ("fixed", method) for method in ("aes", "aes_r")}
    ratios |= {f"lever_cost_{method}": (re.split("[:+]", method)[0], method) for method in ADAPTED}
    ratios |= {f"{method}_over_rejax": (method, "rejax") for method in ("aes", "fixed")}
    ratios["share_of_matmul_limit"] = ("aes", "matmul_limit")
    config = configs[methods[0]]
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
    case = {"algorithm": algorithm, "runs": runs, "width": _WIDTH, "batch": _BATCH, "seconds": TARGET_SECONDS}

    def ask() -> float:
        print(json.dumps(case), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise ValueError("the process of rejax stopped; its error is above")
        return float(answer)

    ask()
    return ask

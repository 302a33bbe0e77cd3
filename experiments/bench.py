"""`aesjax bench`: agent updates per second, with every contestant taking turns in one session.

A single absolute time means little on a shared machine. Each round times all contestants one after another, so that
what is reported are ratios within a round, and beside them the matrix-multiplication rate of the same minute: the
limit that an update of these networks cannot pass.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax import schedules
from aesjax.lab import store
from aesjax.lab.sweep import (
    Executables,
    Program,
    cache_group,
    compile_program,
    memory_budget,
    plan_waves,
    stack,
    state_bytes,
)
from aesjax.schedules import ScheduleHyper
from agents import sac
from agents.loop import LoopConfig, Run, make_off_policy
from envs.world import World

if TYPE_CHECKING:
    from experiments.cli import Bench

__all__ = ["flops_per_update", "run"]

SIZES = {"small": (64, 128), "large": (256, 256)}  # hidden width (two layers), batch
SCHEDULES = ("fixed", "aes", "auto", "aes_r")
NUM_ENVS, REPLAY = 4, 5000
REJAX = ("rejax==0.1.3", "gymnax==0.0.9")
TARGET_SECONDS = 1.0
Timer = Callable[[], float]  # does a fixed amount of work, returns updates per second


def flops_per_update(width: int, batch: int, obs: int = 2, action: int = 2) -> float:
    """Floating-point operations of the matrix products in one SAC update (2 per multiply-add)."""
    actor = obs * width + width * width + width * 2 * action
    critic = (obs + action) * width + width * width + width
    # Actor: target sample, then forward and backward of its loss. Each of two critics: target forward; forward and
    # backward of its loss (2x forward); in the actor's loss forward and backward to the action only.
    return 2.0 * batch * ((1 + 3) * actor + 2 * (1 + 3 + 2) * critic)


def _executables(program: Program, items: list[Any], devices: list[Any]) -> tuple[Executables, Any]:
    """The program as a study would run it, padded to whole groups; only the runs asked for are counted."""
    devices = devices[: len(items)]
    group = cache_group(devices, state_bytes(program, items[0]))
    waves = plan_waves(program, items[0], len(items), len(devices), memory_budget(devices), group)
    executables = compile_program(program, devices, waves.group)
    return executables, executables.place(stack(items + [items[0]] * (waves.width - len(items))))


def _ours(schedule: str, runs: int, width: int, batch: int, devices: list[Any]) -> Timer:
    chunk = 50
    world = World(envs.make("toy"), 10_000_000)
    carrier = sac.make(world.obs_size, world.action_size, sac.SacConfig((width, width), batch))
    needed = schedules.required_signals((schedule,), "td_quantile", None)
    config = LoopConfig(NUM_ENVS, chunk, 32, REPLAY, fresh="fresh_td_error" in needed)
    loop = make_off_policy(world, carrier, lambda run: schedules.build((schedule,), run.schedule_hyper), config)
    hyper = sac.SacHyper(1e-3, 1e-3, 0.97, 0.01)
    drift = jax.device_get(world.drift("abrupt", 0))
    as_array = lambda tree: jax.tree.map(np.float32, tree)  # noqa: E731
    rule = as_array(ScheduleHyper(base=0.05, target_entropy=-2.0, updates=1e5))
    items = [Run(np.uint32(seed), drift, np.int32(0), rule, as_array(hyper)) for seed in range(runs)]
    executables, data = _executables(loop, items, devices)
    state = executables.init(data)
    done = 0

    def go(count: int) -> float:
        nonlocal state, done
        began = time.perf_counter()
        metrics: Any = None
        for _ in range(count):
            state, metrics = executables.chunk(state, data, jnp.int32(done * chunk))
            done += 1
        jax.block_until_ready(metrics)
        return time.perf_counter() - began

    go(2)
    count = max(1, round(TARGET_SECONDS / go(1)))
    return lambda: runs * chunk * count / go(count)


def _matmul(runs: int, width: int, batch: int, devices: list[Any]) -> Timer:
    """Rate of the products that dominate an update, as updates per second if nothing else were done."""
    repeats = 100

    def chain(x: Any, w: Any, step: Any) -> tuple[Any, dict[str, Any]]:
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=repeats)[0], {}

    program = Program(lambda w: jnp.ones((batch, width)), chain, lambda x, w, step: {})
    executables, weights = _executables(program, [np.eye(width, dtype=np.float32)] * runs, devices)
    x = executables.init(weights)
    flops = 2.0 * runs * batch * width * width * repeats

    def timer() -> float:
        nonlocal x
        began, calls = time.perf_counter(), 0
        while calls < 2 or time.perf_counter() - began < TARGET_SECONDS / 2:
            x, _ = executables.chunk(x, weights, jnp.int32(0))
            jax.block_until_ready(x)
            calls += 1
        return calls * flops / (time.perf_counter() - began) / flops_per_update(width, batch)

    return timer


class _Rejax:
    """rejax's SAC in a process and virtual environment of its own, waiting for its turns."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aesjax-bench-"))
        python = self.folder / "venv" / "bin" / "python"
        print("bench: making an environment for rejax", flush=True)
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        pins = [f"jax=={jax.__version__}", *REJAX]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
        worker = Path(__file__).resolve().parents[1] / "benchmarks" / "rejax_worker.py"
        self.process = subprocess.Popen([python, worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise ValueError("the rejax worker stopped; its error is above")
        return json.loads(answer)

    def timer(self, runs: int, width: int, batch: int) -> Timer:
        self._ask({"prepare": {"runs": runs, "width": width, "batch": batch, "seconds": TARGET_SECONDS}})
        return lambda: self._ask({"time": {"runs": runs, "width": width, "batch": batch}})["updates_per_second"]

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)


def _ratio(rounds: list[dict[str, float]], above: str, below: str) -> dict[str, float]:
    values = [entry[above] / entry[below] for entry in rounds]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def _case(name: str, runs: int, rounds: int, rejax: _Rejax | None) -> dict[str, Any]:
    width, batch = SIZES[name]
    devices = list(jax.local_devices())
    contestants: dict[str, Timer] = {s: _ours(s, runs, width, batch, devices) for s in SCHEDULES}
    contestants["matmul_limit"] = _matmul(runs, width, batch, devices)
    if rejax is not None:
        contestants["rejax"] = rejax.timer(runs, width, batch)
    measured: list[dict[str, float]] = []
    for index in range(rounds):
        names = list(contestants)
        turn = names[index % len(names) :] + names[: index % len(names)]  # nobody is always first
        measured.append({who: contestants[who]() for who in turn})
    ratios = {
        "schedule_cost_aes": _ratio(measured, "fixed", "aes"),
        "schedule_cost_aes_r": _ratio(measured, "fixed", "aes_r"),
        "share_of_matmul_limit": _ratio(measured, "aes", "matmul_limit"),
    }
    if rejax is not None:
        ratios["aes_over_rejax"] = _ratio(measured, "aes", "rejax")
        ratios["auto_over_rejax"] = _ratio(measured, "auto", "rejax")
    medians = {who: statistics.median(entry[who] for entry in measured) for who in contestants}
    return {"size": name, "runs": runs, "medians": medians, "ratios": ratios, "rounds": measured}


def run(arguments: "Bench") -> None:
    """Measure every case, print it, and write the figures if asked.

    Raises:
      ValueError: unknown size, bad number of runs, or the output exists.
    """
    try:
        counts = [int(part) for part in arguments.runs.split(",")]
    except ValueError:
        raise ValueError(f"--runs takes numbers such as 1,5,25,50; got '{arguments.runs}'") from None
    if min(counts) < 1 or arguments.rounds < 1:
        raise ValueError("--runs and --rounds must be at least 1")
    for name in arguments.sizes.split(","):
        if name not in SIZES:
            raise ValueError(f"unknown size '{name}'; known: {', '.join(SIZES)}")
    if arguments.out is not None and arguments.out.exists():
        raise ValueError(f"--out {arguments.out} exists; choose another file")
    rejax = _Rejax() if arguments.rejax else None
    cases = []
    try:
        for name in arguments.sizes.split(","):
            for runs in counts:
                case = _case(name, runs, arguments.rounds, rejax)
                cases.append(case)
                print(_line(case), flush=True)
    finally:
        if rejax is not None:
            rejax.close()
    if arguments.out is not None:
        command = f"aesjax bench --runs {arguments.runs} --sizes {arguments.sizes} --rounds {arguments.rounds}"
        command += " --rejax" if arguments.rejax else ""
        record = {"command": command, "environment": store.environment(), "rejax": REJAX if rejax else None}
        store.write_json(arguments.out, record | {"num_envs": NUM_ENVS, "replay": REPLAY, "cases": cases})
        print(f"bench: written to {arguments.out}")


def _line(case: dict[str, Any]) -> str:
    rates = "  ".join(f"{who} {rate:,.0f}" for who, rate in case["medians"].items())
    ratios = "  ".join(f"{name} {value['median']:.3f}" for name, value in case["ratios"].items())
    return f"{case['size']} x {case['runs']} runs, updates/s: {rates}\n    ratios: {ratios}"

"""What a bridge costs per vector step: the same task inside the program, in torch, in process and in a worker.

Usage: python -m experiments.bench.bridge --out benchmarks/bridge.json
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from envs.bridge import build
from envs.bridge.errors import torch as pytorch
from envs.bridge.host import InProcess, SimEnv
from envs.bridge.phantom import Phantom
from envs.bridge.torch_tasks import TorchVecTask
from envs.world import World
from experiments.bench.timing import Timer, check_record, ratio, take_turns, write_record


@dataclass
class Options:
    """Vector steps per second by number of copies, and what each way through the bridge adds to one step."""

    task: str = "isaac_ant"
    copies: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    steps: int = 50
    rounds: int = 5
    out: Path | None = None


def contestants(task: envs.Task, num: int, steps: int) -> tuple[dict[str, Timer], Any]:
    """Vector steps per second of each way, under the same random actions, and what must be closed."""
    native, bridged = task._replace(env=Phantom(task.env)), build(f"bridge:native:{task.name}", sim_device="cpu")
    random = np.random.default_rng(0)
    actions = random.uniform(-1, 1, (steps, num, task.env.spec.action_size)).astype(np.float32)

    def compiled(which: envs.Task) -> Timer:
        world = World(which, 1000)
        key = jax.random.key(0)

        @jax.jit
        def run(state: Any, actions: Any) -> Any:
            def one(state: Any, action: Any) -> tuple[Any, None]:
                return world.step(key, state, action, which.params)[1], None

            return jax.lax.scan(one, state, actions)[0]

        held = [jax.jit(lambda key: world.reset(key, num, which.params)[1])(key)]

        def timer() -> float:
            start = time.perf_counter()
            held[0] = jax.block_until_ready(run(held[0], actions))
            return steps / (time.perf_counter() - start)

        return timer

    def looped(step: Any, given: Any) -> Timer:
        def timer() -> float:
            start = time.perf_counter()
            for action in given:
                step(action)
            return steps / (time.perf_counter() - start)

        return timer

    alone, torch = TorchVecTask(task, num), pytorch()
    shared = SimEnv(InProcess(TorchVecTask(task, num)))
    shared.reset(0)
    worker = bridged.env._open(num)  # type: ignore
    worker.restart(0)
    ways = {
        "native": compiled(native),
        "torch": looped(alone.step, [torch.from_numpy(a) for a in actions]),
        "in_process": looped(lambda a: jax.block_until_ready(shared.step(a)), [jnp.asarray(a) for a in actions]),
        "worker": looped(worker.step, list(actions)),
        "worker_in_program": compiled(bridged),
    }
    for timer in ways.values():
        timer()
    return ways, (worker, bridged.env)


def measure(options: Options) -> dict[str, Any]:
    """The record: medians of vector steps per second, and the ratios within rounds."""
    task, found = envs.make(options.task), {}
    for num in options.copies:
        ways, opened = contestants(task, num, options.steps)
        rounds = take_turns(ways, options.rounds)
        for simulation in opened:
            simulation.close()
        medians = {name: float(np.median([entry[name] for entry in rounds])) for name in ways}
        found[str(num)] = {
            "vector_steps_per_second": medians,
            "milliseconds_added": {n: 1000 / medians[n] - 1000 / medians["torch"] for n in ways if n != "torch"},
            "of_torch": {name: ratio(rounds, name, "torch") for name in ways if name != "torch"},
        }
    return {"task": options.task, "steps": options.steps, "rounds": options.rounds, "copies": found}


def main() -> None:
    """Measure, print, and write where asked to."""
    options = tyro.cli(Options)
    check_record(options.out)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    record = measure(options)
    for num, entry in record["copies"].items():
        rates = ", ".join(f"{name} {rate:.0f}/s" for name, rate in entry["vector_steps_per_second"].items())
        print(f"{num} copies: {rates}")
    write_record(options.out, "python -m experiments.bench.bridge", record)


if __name__ == "__main__":
    main()

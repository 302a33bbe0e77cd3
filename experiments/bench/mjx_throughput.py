"""Throughput of the MuJoCo and Isaac tasks on MJX: random actions in many environments; stacked SAC runs on Hopper.

python experiments/bench/mjx_throughput.py --out FILE.json [--tasks isaac] [--envs 1024,4096] [--sac-seconds 0]
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

import envs
from envs.core import Task, step_with_keys
from experiments.bench.physics import named
from experiments.bench.timing import build_executables
from experiments.study import store
from experiments.study.build import build_part
from experiments.study.config import make_config
from experiments.study.sweep import step_array

SAC: dict[str, Any] = {
    "task": "hopper",
    "carriers": "sac",
    "schedules": "baseline,aes",
    "patterns": "steady,abrupt",
    "seeds": "1:5",
}


def rolling(task: Task, num: int, steps: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Start of ``num`` copies, each with drift factors of its own, and ``steps`` of them under random actions.

    ``start(key)`` gives their states and parameters, ``roll(state, params, key)`` the states after and, per step, the
    mean reward and the share that terminated; with auto-reset.
    """
    env: Any = task.env

    def start(key):
        key_reset, key_values = jax.random.split(key)
        low, high = (jnp.asarray([getattr(channel, end) for channel in task.channels]) for end in ("low", "high"))
        fraction = jax.random.uniform(key_values, (num, len(task.channels)))
        params = jax.vmap(task.apply_drift, (None, 0))(task.params, low[None] + fraction * (high - low)[None])
        params = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, jnp.float32), (num,)), params)
        return jax.vmap(env.reset)(jax.random.split(key_reset, num), params)[1], params

    def roll(state, params, key):
        def body(state, key):
            key_action, key_step, key_reset = jax.random.split(key, 3)
            action = jax.random.uniform(key_action, (num, env.spec.action_size), minval=-1.0)
            keys = jax.random.split(key_step, num), jax.random.split(key_reset, num)
            _, state, reward, terminated, *_ = jax.vmap(lambda *args: step_with_keys(env, *args))(
                *keys, state, action, params
            )
            return state, (jnp.mean(reward), jnp.mean(terminated))

        return jax.lax.scan(body, state, jax.random.split(key, steps))

    return start, roll


def random_actions(name: str, engine: str, num: int, steps: int, rounds: int) -> dict[str, Any]:
    """Environment steps per second of ``num`` copies, compiled and timed."""
    task = envs.make(name, engine=engine)
    start, roll = rolling(task, num, steps)
    began = time.perf_counter()
    state, params = jax.block_until_ready(jax.jit(start)(jax.random.key(0)))
    first = time.perf_counter() - began
    began = time.perf_counter()
    compiled = jax.jit(roll, donate_argnums=0).lower(state, params, jax.random.key(1)).compile()
    compile_seconds = time.perf_counter() - began
    rates, reward, ends = [], 0.0, 0.0
    for key in jax.random.split(jax.random.key(2), rounds + 1):  # the first round is not counted
        began = time.perf_counter()
        state, (rewards, terminated) = jax.block_until_ready(compiled(state, params, key))
        rates.append(num * steps / (time.perf_counter() - began))
        reward, ends = float(rewards.mean()), float(terminated.mean())
    return {
        "task": name,
        "engine": engine,
        "num_envs": num,
        "steps_per_round": steps,
        "reset_with_compilation_s": first,
        "compile_s": compile_seconds,
        "env_steps_per_s": median(rates[1:]),
        "rounds": rates[1:],
        "mean_reward": reward,
        "terminations_per_step": ends,
        "faults": int(task.env.faults(state)),  # type: ignore
    }


def stacked_sac(engine: str, seconds: float, num_envs: int | None) -> dict[str, Any]:
    """Updates and environment steps per second of 20 stacked SAC runs of the preset ``quick``."""
    config = make_config(**SAC, options={"engine": engine})
    if num_envs is not None:
        own = {**config.settings["sac"], "num_envs": num_envs}
        config = dataclasses.replace(config, settings={**config.settings, "sac": own})
    part = build_part(config, "sac")
    runs = len(part.labels)
    items = [jax.tree.map(lambda leaf, i=i: leaf[i], part.runs) for i in range(runs)]
    executables, data = build_executables(part.program, items, jax.local_devices())
    began = time.perf_counter()
    state = jax.block_until_ready(executables.init(data))
    state, _ = jax.block_until_ready(executables.chunk(state, data, step_array(0)))
    first = time.perf_counter() - began
    chunk, copies, rates, done = config.chunk("sac"), config.envs_of("sac"), [], 1
    while done * chunk * copies < config.warmup:  # until there are updates
        state, _ = executables.chunk(state, data, step_array(done * chunk))
        done += 1
    jax.block_until_ready(state)
    end = time.perf_counter() + seconds
    while not rates or time.perf_counter() < end:
        began = time.perf_counter()
        state, _ = jax.block_until_ready(executables.chunk(state, data, step_array(done * chunk)))
        rates.append(runs * chunk / (time.perf_counter() - began))
        done += 1
    return {
        "engine": engine,
        "study": SAC,
        "runs": runs,
        "num_envs": copies,
        "vector_steps_per_chunk": chunk,
        "config": config.settings["sac"]["config"],
        "first_chunk_with_compilation_s": first,
        "updates_per_s": median(rates),
        "env_steps_per_s": median(rates) * copies,
        "rounds": rates,
    }


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file, written after every measurement")
    parser.add_argument("--tasks", default="all", help="tasks or families: mujoco, isaac, all")
    parser.add_argument("--envs", default="1024,2048,4096,8192", help="numbers of environments")
    parser.add_argument("--steps", type=int, default=50, help="control steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="mjx", choices=("mjx", "mujoco"))
    parser.add_argument("--sac-seconds", type=float, default=30.0, help="0 leaves SAC out")
    parser.add_argument("--sac-num-envs", type=int, default=None, help="environments of a run; default: the preset's")
    given = parser.parse_args()
    options = {key: value for key, value in vars(given).items() if key != "out"}
    record: dict[str, Any] = {"options": options, "environment": store.environment(), "random_actions": [], "sac": None}

    def attempt(function, *args):
        """What failed is recorded (out of memory, say) and the rest goes on."""
        try:
            result = function(*args)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            result = {"arguments": args, "error": type(error).__name__ + ": " + str(error).splitlines()[0][:200]}
        print(result, flush=True)
        return result

    for name in named(given.tasks) if given.tasks else ():
        for num in given.envs.split(","):
            row = attempt(random_actions, name, given.engine, int(num), given.steps, given.rounds)
            record["random_actions"].append(row)
            store.write_json(given.out, record)
    if given.sac_seconds > 0:
        record["sac"] = attempt(stacked_sac, given.engine, given.sac_seconds, given.sac_num_envs)
    store.write_json(given.out, record)


if __name__ == "__main__":
    main()

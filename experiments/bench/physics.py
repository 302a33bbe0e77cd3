"""Environment steps per second of the MuJoCo and Isaac tasks, compiled and in Gymnasium's loop."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax.registry import lookup
from aesjax.types import Program
from envs import isaac, mujoco
from envs.mujoco.model import total_mass_accepted
from envs.world import World
from experiments.bench.timing import Timer, interleaved, until
from experiments.study.run import compile_program

_GYMNASIUM_ENVS = 8
_LENGTH = 50  # control steps per call


def named(tasks: str) -> tuple[str, ...]:
    """Tasks of a comma-separated list; ``mujoco`` and ``isaac`` are families, ``all`` is both.

    Raises:
      UnknownNameError: (a ``KeyError``) neither a task nor a family.
    """
    families = {"mujoco": tuple(mujoco.TASKS), "isaac": tuple(isaac.TASKS), "all": (*mujoco.TASKS, *isaac.TASKS)}
    known = {name: (name,) for name in families["all"]} | families
    return tuple(dict.fromkeys(name for word in tasks.split(",") for name in lookup("physics task", known, word)))


def stepped(name: str, engine: str, num_envs: int) -> Timer:
    """Random actions with auto-reset in a compiled scan, with environments on all devices like runs of a study."""
    devices = jax.local_devices()
    world, each = World(envs.make(name, engine=engine), 1000), num_envs // len(devices)
    params = jax.tree.map(jnp.asarray, world.task.params)

    def start(seed: Any) -> Any:
        return world.reset(jax.random.key(seed), each, params)[1]

    def advance(state: Any, seed: Any, step: Any) -> tuple[Any, dict[str, Any]]:
        def body(state: Any, index: jax.Array) -> tuple[Any, None]:
            key_action, key_step = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
            action = world.random_actions(key_action, each)
            return world.step(key_step, state, action, params)[1], None

        return jax.lax.scan(body, state, step + jnp.arange(_LENGTH))[0], {}

    executables = compile_program(Program(start, advance, lambda state, seed, step: {}), devices)
    seeds = executables.place(np.arange(len(devices), dtype=np.uint32))
    state, done = executables.init(seeds), 0

    def work() -> int:
        nonlocal state, done
        state, _ = executables.chunk(state, seeds, jnp.int32(done))
        jax.block_until_ready(state)
        done += _LENGTH
        return _LENGTH * num_envs

    work()
    return until(work)


def _gymnasium(name: str) -> Timer:
    """Random actions in Gymnasium's own vector loop."""
    import gymnasium

    with total_mass_accepted():
        task = mujoco.TASKS[name].gymnasium_id
        vector = gymnasium.make_vec(task, num_envs=_GYMNASIUM_ENVS, vectorization_mode="sync")
    vector.reset(seed=0)
    actions = [vector.action_space.sample() for _ in range(_LENGTH)]

    def work() -> int:
        for action in actions:
            vector.step(action)
        return _LENGTH * _GYMNASIUM_ENVS

    work()
    return until(work)


def measured(name: str, engines: Sequence[str], num_envs: int, rounds: int) -> dict[str, Any]:
    """Rates of a task with ``num_envs`` environments on every engine and, if Gymnasium has it, in Gymnasium's loop."""
    contestants = {engine: stepped(name, engine, num_envs) for engine in engines}
    if name in mujoco.TASKS:
        contestants["gymnasium"] = _gymnasium(name)
    pairs = [("warp", "mjx"), ("mjx", "mujoco"), ("mujoco", "gymnasium"), ("mjx", "gymnasium"), ("warp", "gymnasium")]
    figures = interleaved(contestants, rounds, {f"{a}_over_{b}": (a, b) for a, b in pairs})
    return {"task": name, "envs": num_envs, **figures}

"""Environment steps per second of the MuJoCo and Isaac tasks: alone and in Gymnasium's loop."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import envs
from aesjax.compiling import jit
from aesjax.registry import lookup
from envs import isaac, mujoco
from envs.mujoco.model import total_mass_accepted
from envs.world import World
from experiments.bench.timing import Timer, interleaved, until

_GYMNASIUM_ENVS = 8
_LENGTH = 50  # control steps per call


def named(tasks: str) -> tuple[str, ...]:
    """The tasks of a comma-separated list in which ``mujoco`` and ``isaac`` are families and ``all`` is both.

    Raises:
      UnknownNameError: (a ``KeyError``) neither a task nor a family.
    """
    families = {"mujoco": tuple(mujoco.TASKS), "isaac": tuple(isaac.TASKS), "all": (*mujoco.TASKS, *isaac.TASKS)}
    known = {name: (name,) for name in families["all"]} | families
    return tuple(dict.fromkeys(name for word in tasks.split(",") for name in lookup("physics task", known, word)))


def stepped(name: str, engine: str, num_envs: int) -> Timer:
    """Random actions in a jitted scan with auto-reset, the environments sharded over all devices."""
    devices = jax.local_devices()
    world = World(envs.make(name, engine=engine), 1000)
    params, each = jax.tree.map(jnp.asarray, world.task.params), num_envs // len(devices)

    def start(words: jax.Array) -> Any:
        return jax.tree.map(lambda x: x[None], world.reset(jax.random.wrap_key_data(words[0]), each, params)[1])

    def scan(state: Any, words: jax.Array) -> Any:
        def body(state: Any, index: jax.Array) -> tuple[Any, None]:
            key_action, key_step = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(words[0]), index))
            action = jax.random.uniform(key_action, (each, world.action_size), minval=-1.0)
            return world.step(key_step, state, action, params)[1], None

        state = jax.lax.scan(body, jax.tree.map(lambda x: x[0], state), jnp.arange(_LENGTH))[0]
        return jax.tree.map(lambda x: x[None], state)

    spec = PartitionSpec("envs")
    layout = {"mesh": Mesh(np.array(devices), ("envs",)), "in_specs": spec, "out_specs": spec, "check_vma": False}
    begin, advance = (jit(jax.shard_map(function, **layout)) for function in (start, scan))
    words = jax.random.key_data(jax.random.split(jax.random.key(0), len(devices)))
    state = begin(words)

    def work() -> int:
        nonlocal state, words
        words = words + 1
        state = jax.block_until_ready(advance(state, words))
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
    """One task with ``num_envs`` environments on every engine and, if it is Gymnasium's, in Gymnasium's loop."""
    contestants = {engine: stepped(name, engine, num_envs) for engine in engines}
    if name in mujoco.TASKS:
        contestants["gymnasium"] = _gymnasium(name)
    pairs = [("warp", "mjx"), ("mjx", "mujoco"), ("mujoco", "gymnasium"), ("mjx", "gymnasium"), ("warp", "gymnasium")]
    figures = interleaved(contestants, rounds, {f"{a}_over_{b}": (a, b) for a, b in pairs})
    return {"task": name, "envs": num_envs, **figures}

"""`aesjax bench --physics`: environment steps per second of the MuJoCo tasks, by themselves and inside training.

The limit is what `mujoco.batch.Batch` steps without anything around it, on as many threads as there are cores.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import envs
from envs.mujoco import ENGINES, TASKS
from envs.mujoco.locomotion import LocomotionTask, healthy
from envs.mujoco.model import total_mass_accepted
from envs.mujoco.table import definition
from envs.physics import Physics
from envs.physics.batch import Engine
from envs.physics.fields import physics_library
from envs.world import World
from experiments.bench.timing import (
    TARGET_SECONDS,
    Timer,
    build_executables,
    check_record,
    ratio,
    take_turns,
    write_record,
)
from experiments.bench.worker import Worker
from experiments.study.build import build_part
from experiments.study.config import make_config

__all__ = ["run"]

SBX = ("torch==2.13.0",), ("sbx-rl", "imageio", "packaging")
GYMNASIUM_ENVS = 8
MJX_ENVS = 16  # of its own on a CPU, where more only take longer
LENGTH = 50  # control steps per call
SEEDS = {"sac": 5, "ppo": 16}  # runs stacked in training


def _until(work: Callable[[], int]) -> Timer:
    """Repeats ``work``, which returns how many steps it made, for the target time."""

    def timer() -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < TARGET_SECONDS:
            steps += work()
        return steps / (time.perf_counter() - began)

    return timer


def _raw(name: str, count: int) -> Timer:
    """`Batch` alone on all cores: controls in, states out, fallen copies put back to a start."""
    task, mujoco = LocomotionTask(TASKS[name]), physics_library()
    engine = Engine(task)
    batch = mujoco.batch.Batch(engine.model, count, 0)
    rng = np.random.default_rng(0)
    noise = rng.uniform(-1.0, 1.0, (count, engine.model.nq + engine.model.nv))
    nominal = engine.params([np.full(count, value) for value in task.params])
    starts = engine.start(noise, nominal)[1][:, : engine.default.size]
    batch.state[:] = starts
    ctrl, physics = batch.bind("ctrl"), Physics(qpos=batch.bind("qpos"), qvel=batch.bind("qvel"))
    actions = rng.uniform(-1.0, 1.0, (LENGTH, count, engine.model.nu))
    controls = task.control(np, physics, None, actions, nominal).ctrl

    def work() -> int:
        for now in controls:
            ctrl[:] = now
            batch.step(nstep=task.substeps)
            fallen = ~healthy(np, task.table, physics)
            if fallen.any():
                batch.state[fallen] = starts[fallen]
        return LENGTH * count

    work()
    return _until(work)


def _jitted(name: str, engine: str, count: int) -> Timer:
    """Random actions in a jitted scan with auto-reset, the copies sharded over all devices."""
    devices = jax.local_devices()
    world = World(envs.make(name, engine=engine), 1000)
    params = jax.tree.map(jnp.asarray, world.task.params)
    each = count // len(devices)

    def start(words: jax.Array) -> Any:
        return jax.tree.map(lambda x: x[None], world.reset(jax.random.wrap_key_data(words[0]), each, params)[1])

    def scan(state: Any, words: jax.Array) -> Any:
        key = jax.random.wrap_key_data(words[0])

        def body(state: Any, index: jax.Array) -> tuple[Any, None]:
            key_action, key_step = jax.random.split(jax.random.fold_in(key, index))
            action = jax.random.uniform(key_action, (each, world.action_size), minval=-1.0)
            return world.step(key_step, state, action, params)[1], None

        state = jax.lax.scan(body, jax.tree.map(lambda x: x[0], state), jnp.arange(LENGTH))[0]
        return jax.tree.map(lambda x: x[None], state)

    mesh, rows = Mesh(np.array(devices), axis_names=("copies",)), PartitionSpec("copies")
    begin = jax.jit(jax.shard_map(start, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False))
    advance = jax.jit(jax.shard_map(scan, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False))
    words = jax.random.key_data(jax.random.split(jax.random.key(0), len(devices)))
    state = begin(words)

    def work() -> int:
        nonlocal state, words
        words = words + 1
        state = jax.block_until_ready(advance(state, words))
        return LENGTH * each * len(devices)

    work()
    return _until(work)


def _gymnasium(name: str) -> Timer:
    """Random actions in Gymnasium's own vector loop."""
    import gymnasium

    with total_mass_accepted():
        vector = gymnasium.make_vec(TASKS[name].gymnasium_id, num_envs=GYMNASIUM_ENVS, vectorization_mode="sync")
    vector.reset(seed=0)
    actions = [vector.action_space.sample() for _ in range(LENGTH)]

    def work() -> int:
        for action in actions:
            vector.step(action)
        return LENGTH * GYMNASIUM_ENVS

    work()
    return _until(work)


def _training(name: str, carrier: str, engine: str) -> Timer:
    """Environment steps per second of stacked AES runs: SBX's default sizes, a rollout in eight copies for PPO."""
    seeds = SEEDS[carrier]
    config = make_config(
        task=name,
        carriers=carrier,
        schedules="aes",
        patterns="abrupt",
        seeds=f"1:{seeds}",
        preset="quick",
        steps=40_960,
        options={"engine": engine},
    )
    own = dict(config.settings[carrier])
    if carrier == "sac":  # one environment, one gradient step per step
        own |= {"num_envs": 1, "config": {"hidden": (256, 256), "batch_size": 256}}
        config = dataclasses.replace(config, evaluations=200, warmup=128, replay_capacity=10_240, settings={"sac": own})
    else:
        own |= {"config": own["config"] | {"rollout": 256, "minibatches": 32}}
        config = dataclasses.replace(config, evaluations=20, settings={"ppo": own})
    part = build_part(config, carrier)
    items = [jax.tree.map(lambda leaf, i=i: leaf[i], part.runs) for i in range(seeds)]
    executables, data = build_executables(part.program, items, jax.local_devices())
    state, chunk = executables.init(data), config.chunk(carrier)
    done = 0

    def work() -> int:
        nonlocal state, done
        state, metrics = executables.chunk(state, data, jnp.int32(done * chunk))
        jax.block_until_ready(metrics)
        done = done % (config.evaluations - 1) + 1  # past the warm-up, within the horizon
        return seeds * chunk * config.envs_of(carrier)

    work()
    work()
    return _until(work)


def _task(
    name: str, engines: Sequence[str], copies: int, rounds: int, training: bool, sbx: Worker | None
) -> dict[str, Any]:
    contestants: dict[str, Timer] = {"raw_batch": _raw(name, copies)}
    for engine in engines:
        small = engine == "mjx" and jax.default_backend() == "cpu"
        contestants[engine] = _jitted(name, engine, MJX_ENVS if small else copies)
        if training and not small:
            for carrier in SEEDS:
                contestants[f"{carrier}_on_{engine}"] = _training(name, carrier, engine)
    contestants["gymnasium"] = _gymnasium(name)
    if sbx is not None:
        for carrier in SEEDS:
            case = {"algorithm": carrier, "task": TASKS[name].gymnasium_id}
            contestants[f"sbx_{carrier}"] = sbx.timer(case, TARGET_SECONDS)
    measured = take_turns(contestants, rounds)
    pairs = [("mujoco", "raw_batch"), ("mujoco", "gymnasium"), ("mjx", "gymnasium"), ("mjx", "mujoco")]
    pairs += [(f"{carrier}_on_mujoco", f"sbx_{carrier}") for carrier in SEEDS]
    ratios = {f"{a}_over_{b}": ratio(measured, a, b) for a, b in pairs if a in contestants and b in contestants}
    medians = {who: statistics.median(entry[who] for entry in measured) for who in contestants}
    for who, rate in medians.items():
        print(f"{name:<12} {who:<16} {rate:>10,.0f} environment steps/s", flush=True)
    print("    ratios: " + "  ".join(f"{k} {v['median']:.2f}" for k, v in ratios.items()), flush=True)
    return {"task": name, "envs": copies, "medians": medians, "ratios": ratios, "rounds": measured}


def run(*, tasks: str, engines: str, copies: int, rounds: int, training: bool, sbx: bool, out: Path | None) -> None:
    """Measure every task, print it, and write the figures if asked.

    Args:
      tasks, engines: comma-separated, as typed; tasks may be ``all``.
      copies: environments stepped together.

    Raises:
      ValueError, UnknownNameError: unknown task or engine, bad number of copies, or the output exists.
    """
    names = tuple(TASKS) if tasks == "all" else tuple(tasks.split(","))
    for name in names:
        definition(name)
    for engine in engines.split(","):
        if engine not in ENGINES[1:]:
            raise ValueError(f"--engines must name some of {', '.join(ENGINES[1:])}; got '{engines}'")
    devices = len(jax.local_devices())
    if copies < devices or copies % devices:
        raise ValueError(f"--envs must be a positive multiple of the {devices} devices; got {copies}")
    if sbx and not training:
        raise ValueError("--sbx compares training; leave out --no-training")
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1; got {rounds}")
    check_record(out)
    worker = Worker("sbx_worker.py", *SBX, [f"jax=={jax.__version__}", "mujoco==3.17.0"]) if sbx else None
    try:
        cases = [_task(name, engines.split(","), copies, rounds, training, worker) for name in names]
    finally:
        if worker is not None:
            worker.close()
    command = f"aesjax bench --physics {tasks} --engines {engines} --envs {copies} --rounds {rounds}"
    command += (" --sbx" if sbx else "") + ("" if training else " --no-training")
    write_record(out, command, {"cases": cases})

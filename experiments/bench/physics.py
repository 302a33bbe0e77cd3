"""`aesjax bench --physics`: environment steps per second of the MuJoCo and Isaac tasks, alone and in training."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import envs
from aesjax.registry import lookup
from envs import isaac, mujoco
from envs.mujoco.model import total_mass_accepted
from envs.physics import ENGINES
from envs.world import World
from experiments.bench.timing import TARGET_SECONDS, Timer, check_record, in_turns, training, until, write_record
from experiments.bench.worker import Worker
from experiments.study.build import build_part
from experiments.study.config import StudyConfig
from experiments.study.options import StudyOptions

_FAMILIES = {"mujoco": tuple(mujoco.TASKS), "isaac": tuple(isaac.TASKS)}
SBX = ("torch==2.13.0",), ("sbx-rl", "imageio", "packaging")
_GYMNASIUM_ENVS = 8
_MJX_ENVS = 16  # of MJX and Warp on a CPU, where more only take longer
_LENGTH = 50  # control steps per call
_SEEDS = {"sac": 5, "ppo": 16}  # runs stacked in training, of MuJoCo tasks


def named(tasks: str) -> tuple[str, ...]:
    """The tasks of a comma-separated list in which ``mujoco`` and ``isaac`` are families and ``all`` is both.

    Raises:
      UnknownNameError: (a ``KeyError``) neither a task nor a family.
    """
    every = sum(_FAMILIES.values(), ())
    known = {name: (name,) for name in every} | _FAMILIES | {"all": every}
    return tuple(dict.fromkeys(name for word in tasks.split(",") for name in lookup("physics task", known, word)))


def jitted(name: str, engine: str | None, copies: int) -> Timer:
    """Random actions in a jitted scan with auto-reset, the copies sharded over as many devices as there are copies.

    Args:
      engine: None: the task has none.
    """
    devices = jax.local_devices()[:copies]
    world = World(envs.make(name, **({} if engine is None else {"engine": engine})), 1000)
    params = jax.tree.map(jnp.asarray, world.task.params)
    each = copies // len(devices)

    def start(words: jax.Array) -> Any:
        return jax.tree.map(lambda x: x[None], world.reset(jax.random.wrap_key_data(words[0]), each, params)[1])

    def scan(state: Any, words: jax.Array) -> Any:
        key = jax.random.wrap_key_data(words[0])

        def body(state: Any, index: jax.Array) -> tuple[Any, None]:
            key_action, key_step = jax.random.split(jax.random.fold_in(key, index))
            action = jax.random.uniform(key_action, (each, world.action_size), minval=-1.0)
            return world.step(key_step, state, action, params)[1], None

        state = jax.lax.scan(body, jax.tree.map(lambda x: x[0], state), jnp.arange(_LENGTH))[0]
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
        return _LENGTH * each * len(devices)

    work()
    return until(work)


def _gymnasium(name: str) -> Timer:
    """Random actions in Gymnasium's own vector loop."""
    import gymnasium

    with total_mass_accepted():
        vector = gymnasium.make_vec(
            mujoco.TASKS[name].gymnasium_id, num_envs=_GYMNASIUM_ENVS, vectorization_mode="sync"
        )
    vector.reset(seed=0)
    actions = [vector.action_space.sample() for _ in range(_LENGTH)]

    def work() -> int:
        for action in actions:
            vector.step(action)
        return _LENGTH * _GYMNASIUM_ENVS

    work()
    return until(work)


def _config(name: str, carrier: str, engine: str) -> StudyConfig:
    """AES runs: on MuJoCo of SBX's default sizes, a rollout in eight copies for PPO; on Isaac the preset as it is."""
    common: dict[str, Any] = {"task": name, "methods": f"{carrier}+aes", "patterns": "abrupt", "engine": engine}
    if name in isaac.TASKS:
        config = StudyOptions(seeds=len(jax.local_devices()), **common).resolve()
        return dataclasses.replace(config, evaluations=100)  # chunks of five rollouts
    config = StudyOptions(seeds=_SEEDS[carrier], steps=40_960, **common).resolve()
    own = dict(config.settings[carrier])
    if carrier == "sac":  # one environment, one gradient step per step
        own |= {"num_envs": 1, "config": {"hidden": (256, 256), "batch_size": 256}}
        return dataclasses.replace(config, evaluations=200, warmup=128, replay_capacity=10_240, settings={"sac": own})
    own |= {"config": own["config"] | {"rollout": 256, "minibatches": 32}}
    return dataclasses.replace(config, evaluations=20, settings={"ppo": own})


def _training(name: str, carrier: str, engine: str) -> Timer:
    """Environment steps per second of stacked runs that learn."""
    config = _config(name, carrier, engine)
    seeds = len(config.seeds)
    part, chunk = build_part(config, carrier), config.chunk(carrier)
    items = [jax.tree.map(lambda leaf, i=i: leaf[i], part.runs) for i in range(seeds)]
    return training(part.program, items, chunk, config.evaluations, seeds * chunk * config.envs_of(carrier))


def measured(
    name: str,
    engines: Sequence[str],
    copies: int,
    rounds: int,
    beside: bool = True,
    learning: bool = True,
    sbx: Worker | None = None,
) -> dict[str, Any]:
    """One task with one number of copies; ``beside``: also what does not depend on that number."""
    contestants: dict[str, Timer] = {}
    carriers = ("ppo",) if name in isaac.TASKS else tuple(_SEEDS)
    for engine in engines:
        small = engine != "mujoco" and jax.default_backend() == "cpu"
        if beside or not small:
            contestants[engine] = jitted(name, engine, _MJX_ENVS if small else copies)
        if beside and learning and not small:
            for carrier in carriers:
                contestants[f"{carrier}_on_{engine}"] = _training(name, carrier, engine)
    if beside and name in mujoco.TASKS:
        contestants["gymnasium"] = _gymnasium(name)
    if beside and sbx is not None and name in mujoco.TASKS:
        for carrier in carriers:
            case = {"algorithm": carrier, "task": mujoco.TASKS[name].gymnasium_id}
            contestants[f"sbx_{carrier}"] = sbx.timer(case, TARGET_SECONDS)
    pairs = [("warp", "mjx"), ("mjx", "mujoco"), ("mujoco", "gymnasium"), ("mjx", "gymnasium")]
    pairs += [(f"{carrier}_on_mujoco", f"sbx_{carrier}") for carrier in _SEEDS]
    figures = in_turns(contestants, rounds, {f"{a}_over_{b}": (a, b) for a, b in pairs})
    for who, rate in figures["medians"].items():
        print(f"{name:<20} {copies:>6} {who:<16} {rate:>10,.0f} environment steps/s", flush=True)
    print("    ratios: " + "  ".join(f"{k} {v['median']:.2f}" for k, v in figures["ratios"].items()), flush=True)
    return {"task": name, "envs": copies, **figures}


def _copies(text: str) -> tuple[int, ...]:
    devices = len(jax.local_devices())
    words = text.split(",")
    numbers = tuple(int(word) for word in words if word.strip().isdecimal())
    if len(numbers) < len(words) or any(number < devices or number % devices for number in numbers):
        raise ValueError(f"--envs must list numbers, each a positive multiple of the {devices} devices; got '{text}'")
    return numbers


def run(*, tasks: str, engines: str, copies: str, rounds: int, learning: bool, sbx: bool, out: Path | None) -> None:
    """Measure every task with every number of copies, print it, and write the figures if asked.

    What does not depend on the number of copies (training, Gymnasium, SBX, MJX on a CPU) is measured beside the first.

    Raises:
      ValueError, UnknownNameError: unknown task or engine, bad number of copies, or the output exists.
    """
    names, numbers = named(tasks), _copies(copies)
    for engine in engines.split(","):
        if engine not in ENGINES[1:]:
            raise ValueError(f"--engines must name some of {', '.join(ENGINES[1:])}; got '{engines}'")
    if sbx and not learning:
        raise ValueError("--sbx compares training; leave out --no-training")
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1; got {rounds}")
    check_record(out)
    with ExitStack() as stack:
        pins = [*SBX, [f"jax=={jax.__version__}", "mujoco==3.17.0"]]
        worker = stack.enter_context(closing(Worker("sbx_worker.py", *pins))) if sbx else None
        cases = [
            measured(name, engines.split(","), number, rounds, number == numbers[0], learning, worker)
            for name in names
            for number in numbers
        ]
    command = f"aesjax bench --physics {tasks} --engines {engines} --envs {copies} --rounds {rounds}"
    command += (" --sbx" if sbx else "") + ("" if learning else " --no-training")
    write_record(out, command, {"mjx_envs_on_cpu": _MJX_ENVS, "cases": cases})

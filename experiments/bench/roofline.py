"""How fast an H100 or H200 could be at most, and what it would be held up by: a prediction for the first measurement.

python experiments/bench/roofline.py --out benchmarks/roofline.json

Works on any machine: programs are lowered for CUDA, not run. Takes a quarter of an hour, most of it MJX being traced.
"""

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import envs
from agents import CARRIERS, OnPolicyCarrier
from envs.world import World
from experiments.bench.cost import Cost, cost_of, step_of
from experiments.bench.physics import named
from experiments.bench.timing import check_record
from experiments.study import store
from experiments.study.build import build_part, carrier_of, world_of
from experiments.study.config import StudyConfig, make_config


class Device(NamedTuple):
    """Peaks of an accelerator, from its data sheet; products in dense TensorFloat-32, which is JAX's default there."""

    product_flops: float  # per second
    other_flops: float  # per second, float32 outside the matrix units
    bandwidth: float  # bytes per second, of the device's memory
    cache: float  # bytes, second level
    memory: float  # bytes


# NVIDIA H100 Tensor Core GPU data sheet, SXM5, and NVIDIA H200 Tensor Core GPU data sheet, SXM. Both give 989 TFLOP/s
# of TF32 with sparsity, half of it without. The cache: NVIDIA H100 Tensor Core GPU Architecture (white paper).
DEVICES = {
    "H100": Device(494.7e12, 67e12, 3.35e12, 50e6, 80e9),
    "H200": Device(494.7e12, 67e12, 4.8e12, 50e6, 141e9),
}
# Assumed, not measured. The shortest time from the start of a kernel to that of the next one that reads its result,
# when a graph of kernels is launched at once; and what a kernel costs that the host launches by itself.
SHORTEST_KERNEL, LAUNCHED_KERNEL = 1e-6, 5e-6
RUNS = (1, 5, 25, 50, 100, 200, 400)
COPIES = (1024, 2048, 4096, 8192, 16384)
_TRACED = 64  # runs or copies: costs grow in proportion, to a part in a thousand


class Step(NamedTuple):
    """What one turn of a program's loop costs, per run or per copy."""

    cost: Cost
    touched: float  # bytes of state read and written in each, replay left out
    stored: float  # bytes of state kept, replay included
    units: int  # updates (of a run) or steps (of a copy) in it


class Bound(NamedTuple):
    """Seconds of one turn of the loop for all runs or copies together, and units per second."""

    fastest: float
    limit: str  # of the fastest: "products", "arithmetic" or "memory"
    slowest: float  # every kernel launched by itself, nothing fused
    rates: tuple[float, float]  # units per second, lowest and highest


def bound(step: Step, count: int, device: Device) -> Bound:
    """Between which times ``count`` runs or copies make one turn of the loop.

    The fastest is the longest of three: each product a kernel and nothing else, at the shortest time; all arithmetic
    at its peaks; and reading and writing the state that the second-level cache cannot hold. The slowest, which is no
    bound but what to expect of a first attempt: every kernel launched by itself, and every operand through memory.
    """
    cost = step.cost
    arithmetic = count * (
        cost.product_flops / device.product_flops + (cost.flops - cost.product_flops) / device.other_flops
    )
    memory = 2 * max(0.0, count * step.touched - device.cache) / device.bandwidth
    times = {"products": cost.products * SHORTEST_KERNEL, "arithmetic": arithmetic, "memory": memory}
    limit = max(times, key=lambda name: times[name])
    slowest = cost.kernels * LAUNCHED_KERNEL + max(arithmetic, count * cost.bytes / device.bandwidth)
    units = count * step.units
    return Bound(times[limit], limit, slowest, (units / slowest, units / times[limit]))


def carrier_step(carrier: str) -> Step:
    """An update of one run on the toy task, preset ``paper``, schedule ``aes``; PPO: a rollout and all its updates."""
    config = make_config(task="toy", carriers=carrier, schedules="aes", patterns="abrupt", seeds="1", preset="paper")
    part = build_part(config, carrier)
    runs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((_TRACED, *x.shape[1:]), x.dtype), part.runs)
    state = jax.eval_shape(jax.vmap(part.program.init), runs)
    chunk = jax.make_jaxpr(jax.vmap(part.program.chunk, in_axes=(0, 0, None)))(state, runs, jnp.int32(0))
    _, units = loop_of(config, carrier)
    moving = state._replace(replay=None) if hasattr(state, "replay") else state
    return Step(_per_one(cost_of(step_of(chunk))), _bytes(moving) / _TRACED, _bytes(state) / _TRACED, units)


def loop_of(config: StudyConfig, carrier: str) -> tuple[int, int]:
    """Turns of the loop in a chunk, and updates in a turn."""
    built = carrier_of(config, carrier, world_of(config, carrier))
    if isinstance(built, OnPolicyCarrier):
        return config.chunk(carrier) // built.rollout, built.epochs * built.minibatches
    return config.chunk(carrier), 1


def physics_step(task: str) -> Step:
    """A control step of one copy on MJX with auto-reset, random actions given; MJX's solver counts one iteration."""
    world = World(envs.make(task, engine="mjx"), 1000)
    params = jax.tree.map(jnp.asarray, world.task.params)
    key = jax.random.key(0)
    _, state = jax.eval_shape(lambda: world.reset(key, _TRACED, params))
    action = jax.ShapeDtypeStruct((_TRACED, world.action_size), jnp.float32)
    step = jax.make_jaxpr(lambda state, action: world.step(key, state, action, params))(state, action)
    held = _bytes(state) / _TRACED
    return Step(_per_one(cost_of(step)), held, held, 1)


def _per_one(cost: Cost) -> Cost:
    """Of `_TRACED` runs or copies to that of one; kernels serve all of them."""
    return Cost(*(value / _TRACED for value in cost))._replace(products=cost.products, kernels=cost.kernels)


def _bytes(tree: Any) -> int:
    """Of arrays and keys, by shape alone."""
    plain = jax.eval_shape(lambda tree: jax.tree.map(_words, tree), tree)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(plain))


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _entry(name: str, step: Step, counts: tuple[int, ...]) -> dict[str, Any]:
    """A program's costs and its bounds on every device for every number of runs or copies."""
    bounds = {
        device: {str(count): bound(step, count, peaks)._asdict() for count in counts}
        for device, peaks in DEVICES.items()
    }
    return {"program": name, **step._asdict(), "cost": step.cost._asdict(), "bounds": bounds}


def table(entries: list[dict[str, Any]], counts: tuple[int, ...], device: str = "H100") -> str:
    """Markdown: units per second, lowest and highest, in thousands; the letter says what the highest is limited by."""
    rows = [f"| | {' | '.join(f'{count:,}' for count in counts)} |", "|---|" + "---|" * len(counts)]
    for each in entries:
        cells = []
        for count in counts:
            found = each["bounds"][device][str(count)]
            low, high = (f"{rate / 1000:,.3g}" if rate < 1e6 else f"{rate / 1000:,.0f}" for rate in found["rates"])
            cells.append(f"{low} to {high} {found['limit'][0]}")
        rows.append(f"| {each['program']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Predict what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file; must not exist")
    parser.add_argument("--carriers", default=",".join(CARRIERS), help="comma-separated; empty for none")
    parser.add_argument("--tasks", default="all", help="tasks on MJX or families: mujoco, isaac, all; empty for none")
    given = parser.parse_args()
    check_record(given.out)
    record: dict[str, Any] = {
        "command": f"python experiments/bench/roofline.py --carriers {given.carriers} --tasks {given.tasks}",
        "environment": store.environment(),
        "assumed": {"shortest_kernel_s": SHORTEST_KERNEL, "launched_kernel_s": LAUNCHED_KERNEL},
        "devices": {name: peaks._asdict() for name, peaks in DEVICES.items()},
        "carriers": [],
        "physics": [],
    }
    for kind, names, step_for, counts in (
        ("carriers", given.carriers.split(",") if given.carriers else (), carrier_step, RUNS),
        ("physics", named(given.tasks) if given.tasks else (), physics_step, COPIES),
    ):
        for name in names:
            record[kind].append(_entry(name, step_for(name), counts))
            store.write_json(given.out, record)
        print(table(record[kind], counts), flush=True)


if __name__ == "__main__":
    main()

"""Gradient steps per second of SAC's vmapped runs, and of the bare matrix products of the same shapes.

    taskset -c 0 python benchmarks/learning_step.py --rounds 5 --out benchmarks/learning_step.json

Two layers of 64 units, batches of 128, as many runs as a study trains together on a core. One contestant draws its
normal numbers by `jax.random.normal`, not by `agents.common.draws`. Contestants are interleaved in every round.
`taskset` leaves one core to XLA.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

import aesjax
from agents.common import buffer
from agents.sac import Sac, SacConfig, SacHyper
from experiments.bench.timing import interleaved, measure, until

BATCH, STORED = 128, 25_000
REPEATS = 20  # gradient steps of one call
WEIGHT, HYPER = jnp.float32(0.2), SacHyper()


class Robot(NamedTuple):
    """Sizes of a task."""

    name: str
    obs: int
    actions: int

    @property
    def sac(self) -> Sac:
        return Sac(self.obs, self.actions, SacConfig(hidden=(64, 64), batch_size=BATCH))

    def sampled(self, replay: buffer.Replay, key: jax.Array) -> Any:
        """A batch from a full replay."""
        return buffer.unpack(buffer.sample(replay, key, BATCH, jnp.int32(STORED - 1), 1), self.obs, self.actions)

    def gradient_step(self, state: Any, replay: buffer.Replay, key: jax.Array) -> Any:
        """One gradient step of one run: sampling, critics, actor, target."""
        for_batch, for_noise = jax.random.split(key)
        batch = self.sampled(replay, for_batch)
        return self.sac.update(state, batch, for_noise, jnp.int32(0), entropy_weight=WEIGHT, hyper=HYPER).state


ROBOTS = (Robot("hopper", 11, 3), Robot("walker2d", 17, 6))


def equations(jaxpr: Any) -> Iterator[Any]:
    """All primitive equations, those of inner functions included."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def products(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The matrix products of a function."""
    every = equations(jax.make_jaxpr(function)(*arguments).jaxpr)
    return [equation for equation in every if equation.primitive.name == "dot_general"]


def operations(product: Any) -> float:
    """Floating-point operations of a matrix product: two per multiplication."""
    ((contracted, _), _), left = product.params["dimension_numbers"], product.invars[0].aval
    depth = math.prod(left.shape[axis] for axis in contracted)
    return 2.0 * depth * math.prod(product.outvars[0].aval.shape)


def compiled(step: Callable[..., Any], carry: Any, data: Any) -> Callable[[], None]:
    """A call of `REPEATS` steps ``step(carry, key, data) -> carry``, compiled."""

    def scanned(carry: Any, data: Any) -> Any:
        keys = jax.random.split(jax.random.key(1), REPEATS)
        return jax.lax.scan(lambda now, key: (step(now, key, data), None), carry, keys)[0]

    program = aesjax.jit(scanned)

    def call() -> None:
        jax.block_until_ready(program(carry, data))

    call()
    return call


def repeated(*calls: Callable[[], None]) -> Callable[[], float]:
    """Timer of `REPEATS` steps of every call, one call after another."""

    def work() -> float:
        for call in calls:
            call()
        return REPEATS

    return until(work)


def multiplied(product: Any) -> Callable[[], None]:
    """One matrix product, `REPEATS` times."""
    left, right = (jnp.ones(side.aval.shape) for side in product.invars)

    def multiply(carry: Any, key: jax.Array, right: Any) -> Any:
        left, total = carry
        result = jax.lax.dot_general(left, right, product.params["dimension_numbers"])
        first = result[(0,) * result.ndim]
        # A factor changes with every step, else the compiler would compute the product once.
        return left.at[(0,) * left.ndim].add(1e-9 * first), total + first

    return compiled(multiply, (left, jnp.float32(0.0)), right)


def measured(robot: Robot, runs: int, rounds: int) -> dict[str, Any]:
    """Rates of complete gradient steps, of their products alone, and of the sampling of replays."""
    keys = jax.random.split(jax.random.key(0), runs)
    states = jax.vmap(robot.sac.init)(keys)
    rows = jax.random.normal(jax.random.key(2), (runs, STORED, 2 * robot.obs + robot.actions + 2))
    replays = jax.vmap(buffer.Replay)(rows.at[..., -1].set(0.0))
    steps = jax.vmap(robot.gradient_step)
    found = products(steps, states, replays, keys)

    def learn(states: Any, key: jax.Array, replays: Any) -> Any:
        return steps(states, replays, jax.random.split(key, runs))

    def draw(carry: Any, key: jax.Array, replays: Any) -> Any:
        batch = jax.vmap(robot.sampled)(replays, jax.random.split(key, runs))
        return carry + sum(jnp.sum(leaf) for leaf in batch)

    with mock.patch("agents.sac.standard_normal", jax.random.normal):
        plain = repeated(compiled(learn, states, replays))
    contestants = {
        "gradient step": repeated(compiled(learn, states, replays)),
        "numbers of JAX": plain,
        "matrix products alone": repeated(*map(multiplied, found)),
        "sampling alone": repeated(compiled(draw, jnp.float32(0.0), replays)),
    }
    ratios = {f"time of {name} / gradient step": ("gradient step", name) for name in list(contestants)[1:]}
    about = {"robot": robot.name, "runs": runs, "unit": "gradient steps of all runs"}
    return about | {"operations": sum(map(operations, found))} | interleaved(contestants, rounds, ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = [(f"SAC, {robot.name}", partial(measured, robot, options.runs, options.rounds)) for robot in ROBOTS]
    measure(cases, options.out, {"command": "taskset -c 0 python benchmarks/learning_step.py"})


if __name__ == "__main__":
    main()

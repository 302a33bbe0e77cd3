"""Rows that do not count, in every loop: whatever stands in them, nothing that is learned or reported changes."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import CARRIERS, OnPolicyCarrier
from agents.common import LoopConfig, Run, buffer, make_program, masks
from agents.common.masks import empty, merge
from envs import make
from envs.bridge.phantom import Phantom
from envs.patterns import compiled
from envs.world import World
from tests.programs import chosen, floats
from tests.quick import quick

N, LIMIT = 4, 50  # the toy task's


@dataclass(frozen=True)
class Poisoned(World):
    """Fills rows that do not count with a number for observations and one for rewards."""

    fill: Any = (0.0, 0.0)

    def step(self, key, state, action, params):
        obs, state, reward, terminated, truncated, final = super().step(key, state, action, params)
        mask, (seen, paid) = self.mask(state), self.fill
        return (
            jnp.where(mask.live[:, None], obs, seen),
            state,
            jnp.where(mask.valid, reward, paid),
            jnp.where(mask.valid, terminated, paid > 0),
            truncated,
            jnp.where(mask.valid[:, None], final, seen),
        )


TOY = make("toy")
TASK = TOY._replace(env=Phantom(TOY.env))
ABRUPT = compiled(["abrupt"])


def program(world, carrier):
    spec = CARRIERS[carrier]
    own = {"hidden": (8, 8), "batch_size": 16}
    if carrier == "ppo":
        own = {"hidden": (8, 8), "rollout": 20, "epochs": 2, "minibatches": 4, "normalise_value": True}
    built = spec.make(world.obs_size, world.action_size, spec.config(**own))
    on = isinstance(built, OnPolicyCarrier)
    config = LoopConfig(N, 60, warmup=0 if on else 8, capacity=0 if on else 400, episodes=2, newest=32)
    rules = chosen("aes", source="fresh", base=0.1)
    run = Run(jnp.uint32(0), world.drift("abrupt", 0), rules, floats(spec.hyper()))
    return make_program(world, built, config), run


@pytest.fixture(scope="module", params=["sac", "ppo"])
def both(request):
    """Trained with zeros, and with NaN and a billion, where nothing counts; one program for both."""

    def part(name, fill, *args):
        return getattr(program(Poisoned(TASK, 1000, patterns=ABRUPT, fill=fill), request.param)[0], name)(*args)

    init, chunk, evaluate = (quick(partial(part, name)) for name in ("init", "chunk", "evaluate"))
    run, found = program(World(TASK, 1000, patterns=ABRUPT), request.param)[1], []
    for numbers in ((0.0, 0.0), (jnp.nan, 1e9)):
        fill = jax.tree.map(jnp.float32, numbers)
        state, logs = init(fill, run), []
        for index in range(2):
            state, metrics = chunk(fill, state, run, jnp.int32(60 * index))
            logs.append(metrics)
        found.append((state, logs, evaluate(fill, state, run, jnp.int32(120))))
    return request.param, *found


def test_what_stands_in_rows_that_do_not_count_reaches_nothing(both):
    _, (clean, clean_logs, clean_end), (state, logs, end) = both
    for name, value in clean._asdict().items():
        if name != "obs":  # to act on next: no row yet
            chex.assert_trees_all_equal(value, getattr(state, name))
    chex.assert_trees_all_equal((clean_logs, clean_end), (logs, end))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((state.agent, state.schedule)))


def test_only_rows_that_count_are_counted(both):
    carrier, (state, logs, _), _ = both
    phantoms = 2 * N  # two episodes of 50 steps in 120, each followed by one
    np.testing.assert_allclose(np.mean([m["valid_fraction"] for m in logs]), 1 - phantoms / (120 * N), rtol=1e-6)
    if carrier == "ppo":
        assert float(state.agent.obs_moments.count) == pytest.approx(120 * N - phantoms, abs=0.01)
        assert float(state.agent.return_moments.count) == pytest.approx(120 * N - phantoms, abs=0.01)
        return
    assert int(state.replay.ring.filled) == 400 < int(120 * N - phantoms)
    assert int(state.replay.ring.position) == (120 * N - phantoms) % 400
    rows = buffer.unpack(state.replay.rows, 2, 2)
    assert np.abs(np.asarray(rows.next_obs - rows.obs)).max() < 0.1 + 6 * 0.01  # no step leads to a fresh start
    newest = (int(state.replay.ring.position) - 1 - np.arange(60 * N - N)) % 400  # of the last interval
    online = LIMIT * np.asarray(rows.reward, np.float64)[newest].mean()
    np.testing.assert_allclose(logs[1]["online_return"], online, rtol=1e-6)
    assert int(state.newest.ring.filled) == 32
    assert bool(jnp.all(state.newest.rows != 0.0))


def test_rows_that_count_stand_in_for_the_others_evenly():
    rows = jnp.arange(100.0)
    np.testing.assert_array_equal(masks.compact(rows, None), rows)
    np.testing.assert_array_equal(masks.compact(rows, jnp.ones(100, bool)), rows)
    out = np.asarray(masks.compact(rows, rows >= 20))
    assert set(out) == set(range(20, 100))
    assert np.bincount(out.astype(int))[20:].max() == 2
    np.testing.assert_allclose(np.quantile(out, 0.9), np.quantile(np.arange(20, 100), 0.9), atol=1.0)
    np.testing.assert_array_equal(masks.compact(rows, jnp.zeros(100, bool)), np.zeros(100))


def test_statistics_are_those_of_the_rows_that_count():
    random = np.random.default_rng(1)
    x, valid = random.normal(2.0, 3.0, (50, 3)).astype(np.float32), random.random(50) < 0.5
    poisoned = jnp.where(valid[:, None], x, jnp.nan)
    some, plain = merge(empty((3,)), poisoned, jnp.asarray(valid)), merge(empty((3,)), jnp.asarray(x[valid]))
    chex.assert_trees_all_close(some, plain, rtol=1e-5)
    chex.assert_trees_all_equal(merge(plain, poisoned, jnp.zeros(50, bool)), plain)
    weight = jnp.asarray(valid, jnp.float32)
    np.testing.assert_allclose(masks.mean(jnp.asarray(x[:, 0]), weight), x[valid, 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(masks.std(jnp.asarray(x[:, 0]), weight), x[valid, 0].std(ddof=1), rtol=1e-5)

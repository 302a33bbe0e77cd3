"""Soft Q-learning in the gridworld: what is learned, and what the schedule may and may not touch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import aes_r, fixed, oracle, playback
from aesjax.types import Signals
from experiments.theory.control import ControlConfig, drifting, fresh_quantile, learn
from experiments.theory.gridworld import gridworld, start_at
from experiments.theory.softmdp import soft_return

CONFIG = ControlConfig(restart_probability=0.05, updates_per_check=60)
STRETCHES = 40


@jax.jit
def build(goals, phase):
    mdps = jax.vmap(lambda g: gridworld(g, size=4, discount=0.9, temperature=0.05))(goals)
    start = start_at((0, 0), size=4, uniform=0.5)
    return drifting(mdps, phase, start, start_at((0, 0), size=4))


@pytest.fixture(scope="module")
def worlds():
    """The goal at (3, 3) for ever; and one that jumps to (0, 3) at half time."""
    with jax.enable_x64(True):
        goals = [[3.0, 3.0], [0.0, 3.0]]
        phases = np.zeros(STRETCHES, np.int32), np.repeat(np.arange(2, dtype=np.int32), STRETCHES // 2)
        return tuple(build(jnp.asarray(goals), jnp.asarray(phase)) for phase in phases)


@pytest.fixture(scope="module")
def plain():
    """A compiled learner with a constant weight: (world, weights (K,), forget) -> histories of K x 3 keys."""

    @jax.jit
    def run(world, weights, forget, seeds):

        def one(w, seed):  # common random numbers: every weight makes its own key from the same seed
            return learn(world, fixed(w), jax.random.key(seed), CONFIG, forget=forget)

        return jax.vmap(lambda w: jax.vmap(lambda seed: one(w, seed))(seeds))(weights)

    return run


@pytest.fixture(scope="module")
def steady(worlds, plain):
    with jax.enable_x64(True):
        return plain(worlds[0], jnp.asarray([1.0, 3.0]), jnp.asarray(False), jnp.arange(3))


@pytest.fixture(scope="module")
def jumping(worlds, plain):
    with jax.enable_x64(True):
        weights = jnp.asarray([1.0, 3.0])
        return [plain(worlds[1], weights, jnp.asarray(forget), jnp.arange(3)) for forget in (False, True)]


def test_the_steady_world_is_learned_to_near_its_optimum(worlds, steady, report):
    best = float(worlds[0].solutions.value[0, 0])
    lost = np.asarray(steady.regret)[0]  # weight 1
    report("share of the optimal soft return lost at the end", lost[:, -1].max() / best)
    assert np.all(lost[:, 0] > 0.3 * best)
    assert np.all(lost[:, -5:] < 0.05 * best)
    assert np.all(np.asarray(steady.greedy)[0, :, -1] < 0.02 * best)


def test_a_world_without_reward_teaches_nothing(plain):
    """The first table holds the values of a world that pays nothing: pessimism would trap the actor in what it saw."""
    outside = jnp.full((2, 2), 9.0)  # goals beyond the grid
    world = build(outside, jnp.zeros(STRETCHES, jnp.int32))
    done = plain(world, jnp.asarray([1.0, 3.0]), jnp.asarray(False), jnp.arange(3))
    np.testing.assert_allclose(done.q, 0.9 * 0.05 * np.log(5) / 0.1, rtol=1e-9)
    np.testing.assert_allclose(done.regret, 0.0, atol=1e-9)


def test_random_actions_teach_the_same_values(worlds, steady):
    """Values belong to mu, not to the weight: a nearly uniform actor learns the table of the soft optimum."""
    q, best = np.asarray(steady.q)[1], np.asarray(worlds[0].solutions.q[0])
    assert np.median(np.abs(q - best)) < 0.05 * best.max()
    assert np.all(np.asarray(steady.regret)[1, :, -1] < 0.02 * np.asarray(worlds[0].solutions.value)[0, 0])
    assert np.all(np.asarray(steady.played)[1, :, -1] > 0.5 * np.asarray(worlds[0].solutions.value)[0, 0])


def test_regret_is_exact_for_the_last_table(worlds, steady):
    mdp = jax.tree.map(lambda x: x[0], worlds[0].mdps)
    policy = jax.nn.log_softmax(steady.q[0, 0] / mdp.temperature, axis=-1)
    returns = jax.jit(soft_return)
    lost = returns(mdp, worlds[0].solutions.log_policy[0], worlds[0].judged) - returns(mdp, policy, worlds[0].judged)
    np.testing.assert_allclose(steady.regret[0, 0, -1], lost, rtol=1e-8)


def test_a_jump_of_the_goal_costs_and_emptying_the_table_helps(jumping):
    kept, emptied = (np.asarray(h.regret)[0].mean(0) for h in jumping)
    half = STRETCHES // 2
    np.testing.assert_array_equal(kept[:half], emptied[:half])  # same random numbers until the change
    assert kept[half] > 5 * kept[half - 1]
    assert emptied[half:].mean() < kept[half:].mean()


@pytest.fixture(scope="module")
def schedules(worlds, plain):
    with jax.enable_x64(True):
        updates = STRETCHES * CONFIG.updates_per_check
        run = jax.jit(lambda make, w, seed: learn(w, make(), jax.random.key(seed), CONFIG), static_argnums=0)
        members = {
            "aes_r": lambda: aes_r(fresh_quantile, 0.3, updates, lambda_max=20.0),
            "oracle": lambda: oracle(0.3, updates, lambda_max=20.0),
        }
        done = {name: run(make, worlds[1], 4) for name, make in members.items()}
        replay = jax.jit(lambda w, seed: learn(worlds[1], playback(w), jax.random.key(seed), CONFIG))
        done["replayed"] = replay(done["aes_r"].weight, 4)
        done["constant"] = replay(jnp.full(updates, 0.3), 4)
        same = plain(worlds[1], jnp.full(2, 0.3), jnp.asarray(False), jnp.asarray([4, 5, 6]))
        done["fixed"] = jax.tree.map(lambda x: x[0, 0], same)
        return done


def test_constant_weights_equal_the_schedule_fixed(schedules):
    np.testing.assert_array_equal(schedules["constant"].weight, schedules["fixed"].weight)
    np.testing.assert_allclose(schedules["constant"].regret, schedules["fixed"].regret, rtol=1e-9)
    np.testing.assert_allclose(schedules["constant"].q, schedules["fixed"].q, rtol=1e-9)


def test_recorded_weights_played_back_give_the_same_run(schedules):
    np.testing.assert_array_equal(schedules["replayed"].weight, schedules["aes_r"].weight)
    np.testing.assert_allclose(schedules["replayed"].regret, schedules["aes_r"].regret, rtol=1e-9)


def test_the_oracle_answers_the_change_and_nothing_else(schedules):
    weight = np.asarray(schedules["oracle"].weight)
    change = weight.size // 2
    np.testing.assert_allclose(weight[: change + 1], 0.3, rtol=1e-6)  # the weight lags one update
    assert weight[change + 1] > 1.0
    assert weight[-1] < 0.5


def test_residuals_show_the_change(schedules):
    proxy = np.asarray(schedules["aes_r"].proxy)
    change = proxy.size // 2
    assert proxy[change : change + 200].max() > 3 * proxy[change - 200 : change].mean()
    assert np.all(np.asarray(schedules["aes_r"].weight) >= np.float32(0.3))


def test_fresh_quantile_is_the_quantile_of_absolute_residuals():
    residuals = jnp.asarray([-3.0, 1.0, 2.0, 0.0, -10.0])
    np.testing.assert_allclose(fresh_quantile(Signals(fresh_td_error=residuals)), 7.2, rtol=1e-6)
    with pytest.raises(ValueError, match="fresh_td_error"):
        fresh_quantile(Signals())


@pytest.mark.parametrize(
    ("field", "value"), [("walkers", 0), ("window", 4), ("learning_rate", 0.0), ("restart_probability", 1.5)]
)
def test_bad_configurations_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(ControlConfig(), **{field: value})

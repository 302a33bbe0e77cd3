"""The two schedules without a weight to tune: what exploring may cost, alone and as the floor of tuning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import auto_floor, budget
from aesjax.types import Signals
from tests.quick import quick

UPDATES = 2000


def rewards(seed=0, length=UPDATES, size=4):
    """Log-normal: heavy enough for a mean and a quantile to lie apart."""
    return np.float32(np.random.default_rng(seed).lognormal(0.0, 0.5, (length, size)))


def play(schedule, **signals):
    """Weights (T + 1,), the first one included."""

    def whole(signals):
        def step(state, now):
            state = schedule.update(now, state)
            return state, state.weight

        return jax.lax.scan(step, schedule.init(), signals)[1]

    after = quick(whole)(Signals(**{name: jnp.asarray(x, jnp.float32) for name, x in signals.items()}))
    return np.r_[schedule.init().weight, after]


@pytest.mark.parametrize(("share", "actions"), [(0.1, 2.0), (0.3, 6.0)])
def test_the_weight_is_twice_the_share_of_a_quantile_of_rewards_per_action_dimension(share, actions):
    drawn = rewards()
    weights = play(budget(actions, UPDATES, cost=share), reward=drawn)
    want = 2 * share / actions * np.quantile(drawn, 0.9)
    np.testing.assert_allclose(weights[200:], want, rtol=0.2)
    np.testing.assert_allclose(weights[-500:].mean(), want, rtol=0.05)


@pytest.mark.parametrize("scale", [1e-3, -1e4])
def test_rewards_times_a_constant_are_the_weight_times_its_size(scale):
    plain, scaled = (play(budget(2, UPDATES), reward=rewards(length=300) * by)[1:] for by in (1.0, scale))
    np.testing.assert_allclose(scaled, abs(scale) * plain, rtol=1e-3)


def test_the_first_weight_lasts_until_there_is_a_reward():
    drawn = np.zeros((50, 4), np.float32)
    drawn[30, 2] = 2.0
    weights = play(budget(2, UPDATES, base=0.03), reward=drawn)
    np.testing.assert_array_equal(weights[:31], np.float32(0.03))
    np.testing.assert_allclose(weights[31], 0.2, rtol=1e-6)


def log_probs(*parts):
    """(T, 4) log-densities of policies of the entropies given, each for so many updates."""
    return np.concatenate([np.full((count, 4), -entropy) for entropy, count in parts])


def test_tuning_starts_from_its_floor_and_never_falls_below_it():
    wide = log_probs((1.0, 300))
    none = np.zeros((300, 4), np.float32)
    weights = play(auto_floor(2, UPDATES, -1.0, base=0.04), reward=none, log_prob=wide)
    np.testing.assert_array_equal(weights, np.float32(0.04))  # to the bit: nothing of it is tuned
    moving = rewards(length=300)
    floors, lifted = (
        play(schedule, reward=moving, log_prob=wide) for schedule in (budget(2, UPDATES), auto_floor(2, UPDATES, -1.0))
    )
    assert np.all(lifted >= floors)
    np.testing.assert_allclose(lifted[2:], floors[2:], rtol=0.3)  # it follows down no faster than it is tuned

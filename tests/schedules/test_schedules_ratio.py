"""Promises that `aes_r` and `aes_c` share: the ratio to the base weight, its limits, scale and feedback."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import aes_c, aes_r, auto, value_loss
from aesjax.types import Signals
from tests.programs import played

LOSS = value_loss(source="update")
BOTH = pytest.mark.parametrize("rule", [aes_r, aes_c])


def run(schedule, streams):
    """Final states and weights (N, T) of streams (N, T)."""
    return played(schedule, np.atleast_2d(streams))


def doubled(length=3000):
    """A log-normal stream that doubles in its middle."""
    v = np.random.default_rng(0).lognormal(0, 0.25, length)
    v[length // 2 :] *= 2.0
    return v


@BOTH
def test_multiplying_the_reward_leaves_the_ratio(rule):
    v = doubled()
    _, weights = run(rule(LOSS, 1.0, 3000.0, lambda_max=np.inf), [v, 1024 * v, v / 4096, 1e6 * v, v / 3e5])
    assert weights.max() > 1.2
    np.testing.assert_array_equal(weights[1:3], weights[jnp.array([0, 0])])
    np.testing.assert_allclose(weights[3:], weights[jnp.array([0, 0])], rtol=1e-3)


@BOTH
def test_the_ratio_stays_between_one_and_its_limit_whatever_the_proxy(rule):
    rng = np.random.default_rng(4)
    wild = [10 ** rng.uniform(-30, 30, 3000), np.r_[np.full(1500, 1e-25), np.full(1500, 1e25)] * doubled()]
    quiet = [np.zeros(3000), np.ones(3000), np.full(3000, np.nan), np.full(3000, np.inf)]
    for r_max in (1.0, 3.0):
        state, weights = run(rule(LOSS, 1.0, 3000.0, r_max=r_max, lambda_max=np.inf), [*wild, *quiet])
        assert np.all((weights >= 1.0) & (weights <= r_max * (1 + 1e-6)))
        assert np.all(weights[2:] <= (1.0 if rule is aes_c else 1.02))
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))
    np.testing.assert_allclose(weights[1].max(), 3.0, rtol=1e-6)


@BOTH
def test_the_base_may_be_a_schedule_that_goes_on_while_proxies_are_bad(rule):
    base = auto(-1.0, auto_learning_rate=0.01)
    schedule = rule(LOSS, base, 100.0, margin=0.3) if rule is aes_r else rule(LOSS, base, 100.0)
    state, alone, update = schedule.init(), base.init(), jax.jit(schedule.update)
    for v in (1.0, 1.0, np.nan, 1.0):
        signals = Signals(value_loss=jnp.float32(v), log_prob=jnp.full(4, -3.0))
        state, alone = update(signals, state), base.update(signals, alone)
        np.testing.assert_allclose(state.weight, alone.weight, rtol=1e-6)
        assert state.weight < 1.0
    assert state.count == 3


@BOTH
def test_the_clip_limits_the_raised_part_and_never_the_base(rule):
    v = np.random.default_rng(0).lognormal(0, 0.25, 1000)
    v[500:] *= 40.0
    for base, most in ((0.4, 1.0), (2.5, 2.5)):
        state, weights = run(rule(LOSS, base, 1000.0, lambda_max=1.0), v)
        assert weights.max() == most
        assert state.logs.at_max.max() <= 1.0


@BOTH
@pytest.mark.parametrize("echo", [0.5, 1.0])
def test_a_loop_through_residuals_that_grow_with_the_weight_ends(rule, echo):
    """Residuals contain the entropy term: v = floor + echo * weight, with one change of the floor."""
    length, base = 12_000, 0.2
    schedule = rule(LOSS, base, length, lambda_max=np.inf)
    noise = np.random.default_rng(5).lognormal(0, 0.1, length)
    change = 1 + 3 * ((np.arange(length) > 6000) & (np.arange(length) < 6400))

    def step(state, floor):
        state = schedule.update(Signals(value_loss=floor + echo * state.weight), state)
        return state, state.weight

    floor = jnp.asarray(0.2 * noise * change, jnp.float32)
    ours = np.asarray(jax.lax.scan(step, schedule.init(), floor)[1]) / np.float32(base)
    calm = 0.0 if rule is aes_c else 0.05
    np.testing.assert_allclose(ours[2000:6000], 1.0, atol=calm)
    assert 1.2 < ours[6000:6600].max() < 5.0
    np.testing.assert_allclose(ours[10_000:], 1.0, atol=calm)

"""`trend`: the weight rises while the return falls or stalls, and falls while it improves."""

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import trend
from aesjax.types import Signals
from tests.quick import quick

UPDATES, WINDOW = 10_000, 200  # updates per window
#: Learning, a plateau, a drop, and recovery to the plateau.
LEVEL = np.interp(np.arange(UPDATES), [0, 3000, 6000, 6001, 8500], [0.0, 1.0, 1.0, 0.2, 1.0])


def weights(reward, **options):
    """Weights (T,) over the base 1."""
    schedule = trend(**{"base": 1.0, "updates": UPDATES, "window": WINDOW / UPDATES, "lambda_max": jnp.inf, **options})

    def step(state, now):
        state = schedule.update(Signals(online_reward=jnp.mean(now)), state)
        return state, state.weight

    noise = 0.3 * np.random.default_rng(0).standard_normal((UPDATES, 4))
    return np.asarray(quick(lambda x: jax.lax.scan(step, schedule.init(), x)[1])(jnp.float32(reward[:, None] + noise)))


def test_the_weight_follows_the_trend_of_the_return_with_delays_of_windows():
    found = weights(LEVEL)
    assert np.all(found[: 4 * WINDOW - 1] == 1.0)
    assert found.max() <= 5.0 + 1e-4
    np.testing.assert_allclose(found[2000:3000], 1.0)  # it learns
    assert found[4500:6000].mean() > 3.5  # it stalls
    assert found[6000 + 2 * WINDOW] > 4.5  # it has fallen
    np.testing.assert_allclose(found[8000:8400], 1.0)  # it has recovered for ten windows
    calm = weights(LEVEL, margin=-0.7)
    assert calm[4500:6000].mean() < 2.0
    assert calm[6000 + 3 * WINDOW] > 3.0


def test_the_unit_of_the_reward_does_not_matter_and_the_bound_limits_the_raised_part():
    schedule = trend(base=0.1, updates=400, window=0.02)
    rewards = np.random.default_rng(1).normal(1.0, 1.0, (400, 4)).astype(np.float32)

    def run(schedule, rewards):
        step = lambda state, x: (s := schedule.update(Signals(online_reward=jnp.mean(x)), state), s.weight)  # noqa: E731
        return jax.lax.scan(step, schedule.init(), rewards)[1]

    plain, scaled = (quick(run)(schedule, rewards * by) for by in (1.0, 64.0))
    np.testing.assert_array_equal(plain, scaled)
    assert np.ptp(plain) > 0.2
    low = quick(run)(trend(base=0.1, updates=400, window=0.02, lambda_max=0.2), rewards)
    np.testing.assert_allclose(low, np.minimum(plain, 0.2))

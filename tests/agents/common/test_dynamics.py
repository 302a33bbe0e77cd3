"""The model of reward and dynamics: it learns both, and its error shows a change of either at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.common import dynamics
from agents.common.carrier import Transition

MODEL = dynamics.make(obs_size=3, action_size=2, window=32)
PUSH = jnp.array([[0.3, 0.0], [0.0, 0.2], [0.1, -0.1]])


def rows(key, count, push=1.0, pay=1.0):
    """Transitions of a point that actions push, whose reward is its speed along the first axis."""
    key_obs, key_action = jax.random.split(key)
    obs, action = jax.random.normal(key_obs, (count, 3)), jax.random.uniform(key_action, (count, 2), minval=-1.0)
    moved = push * action @ PUSH.T - 0.1 * obs
    return Transition(obs, action, pay * moved[:, 0], jnp.zeros(count), obs + moved)


@jax.jit
def after(state, keys, push, pay):
    """The state and the errors after one pair of new transitions and batch for every key."""

    def step(state, key):
        key_new, key_batch = jax.random.split(key)
        state = MODEL.observe(state, rows(key_new, 4, push, pay))
        return MODEL.learn(state, rows(key_batch, 64)), state.error

    return jax.lax.scan(step, state, keys)


@pytest.fixture(scope="module")
def learned():
    start = MODEL.init(jax.random.key(0))
    return after(start, jax.random.split(jax.random.key(1), 1500), 1.0, 1.0)


@pytest.mark.parametrize(("push", "pay"), [(0.5, 1.0), (1.0, -1.0)], ids=["body", "reward"])
def test_its_error_falls_with_learning_and_rises_at_once_at_a_change(learned, push, pay):
    state, errors = learned
    calm = float(jnp.max(errors[-200:]))
    assert calm < 0.02
    _, changed = after(state, jax.random.split(jax.random.key(2), 16), push, pay)
    assert float(changed[-1]) > 5 * calm
    assert np.all(np.isfinite(changed))


def test_rows_that_do_not_count_change_nothing(learned):
    state, new = learned[0], rows(jax.random.key(3), 6)
    counts = jnp.array([True, False, True, True, False, True])
    poisoned = jax.tree.map(lambda x: jnp.where(counts.reshape(-1, *[1] * (x.ndim - 1)), x, 1e6), new)
    alone = jax.tree.map(lambda x: x[counts], new)
    for got, want in zip(
        jax.tree.leaves(MODEL.observe(state, poisoned, counts)), jax.tree.leaves(MODEL.observe(state, alone)),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    none = MODEL.observe(state, poisoned, jnp.zeros(6, bool))
    assert float(none.error) == float(state.error)
    assert int(none.count) == int(state.count)

"""Gymnax environments as tasks: their own steps and the drift of a parameter."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.registry import UnknownNameError
from agents import make_train
from envs.adapters.gymnax import from_gymnax

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gymnax():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("gymnax", reason="`make test-all` installs it")


@pytest.mark.filterwarnings("ignore")
def test_steps_are_the_environments_own_and_a_parameter_drifts(gymnax):
    env, params = gymnax.make("Pendulum-v1")
    task = from_gymnax(env, channels={"g": (5.0, 15.0)})
    assert task.env.spec == (3, 1, 200, False)
    drifted = task.apply_drift(task.params, jnp.array([12.0]))
    assert float(drifted.g) == 12.0
    obs, state = task.env.reset(jax.random.key(0), drifted)
    for action in (0.3, -2.0):
        key = jax.random.key(1)
        theirs = env.step_env(key, state, jnp.array([2.0 * max(action, -1.0)]), params.replace(g=12.0))
        obs, state, reward, terminated, truncated, _ = task.env.step(key, state, jnp.array([action]), drifted)
        np.testing.assert_allclose(obs, theirs[0], rtol=1e-6)
        np.testing.assert_allclose(reward, theirs[2], rtol=1e-6)
        assert not terminated
        assert not truncated
    with pytest.raises(UnknownNameError, match="unknown parameter of Pendulum 'gg'; did you mean 'g'"):
        from_gymnax(env, channels={"gg": (0.0, 1.0)})
    trained = jax.eval_shape(make_train(env, "sac", steps=800, evaluations=4), 1)
    assert trained[1]["return_mean"].shape == (5,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("CartPole-v1", (4, 2, 500)), ("Breakout-MinAtar", (400, 3, 1000)), ("FrozenLake-misc", (16, 4, 100))],
)
def test_discrete_actions_and_pictures_are_the_environments_own(gymnax, name, sizes):
    env, params = gymnax.make(name)
    task, key = from_gymnax(env), jax.random.key(0)
    assert task.env.spec == (*sizes, True)
    obs, state = task.env.reset(key, task.params)
    theirs, other = env.reset_env(jax.random.key(0), params)
    for choice in (0, 1, sizes[1] - 1):
        theirs, other, gained, *_ = env.step_env(jax.random.key(1), other, jnp.int32(choice), params)
        action = jax.nn.one_hot(choice, sizes[1])
        obs, state, reward, *_ = task.env.step(jax.random.key(1), state, action, task.params)
        flat = np.eye(16)[theirs] if name == "FrozenLake-misc" else np.float32(theirs).ravel()
        np.testing.assert_array_equal(obs, flat)
        assert obs.dtype == jnp.float32
        assert reward == gained
    trained = jax.eval_shape(make_train(env, "ppo", steps=1600, evaluations=4), 1)
    assert trained[1]["return_mean"].shape == (5,)

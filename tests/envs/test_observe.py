"""`World(observe="drift")`: observations end with the drift in force, on a common scale; the rest is the task's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.core import Channel
from envs.drift import change_points
from envs.world import World

STEPS, N = 10, 2
TASKS = {
    "toy": functools.partial(envs.make, "toy"),
    "hopper": functools.partial(envs.make, "hopper", engine="mujoco"),
}


def run(world):
    """Observations (STEPS, N, S) that a policy acts on, and those (STEPS, N, S) that its steps led to."""
    drift = world.drift("abrupt", 3)
    action = jnp.full((N, world.action_size), 0.1)

    def step(carry, t):
        obs, state = carry
        params = world.params_at(drift, t)
        seen = world.seen(obs, params)
        obs, state, *_, final = world.step(jax.random.fold_in(jax.random.key(1), t), state, action, params)
        return (obs, state), (seen, final)

    begin = world.reset(jax.random.key(0), N, world.params_at(drift, 0))
    return jax.lax.scan(step, begin, jnp.arange(STEPS))[1]


@pytest.mark.parametrize("name", TASKS)
def test_observations_end_with_the_drift_in_force_from_its_change_on(name):
    task = TASKS[name]()
    plain, world = World(task, STEPS), World(task, STEPS, observe="drift")
    size, drifting = plain.obs_size, sum(channel.size for channel in task.channels)
    assert world.obs_size == size + drifting
    seen, final = map(np.asarray, jax.jit(lambda: run(world))())
    own, ends = map(np.asarray, jax.jit(lambda: run(plain))())
    np.testing.assert_allclose(seen[..., :size], own, atol=1e-6)
    np.testing.assert_allclose(final[..., :size], ends, atol=1e-6)
    values = np.asarray(plain.path(plain.drift("abrupt", 3), jnp.arange(STEPS))[0])
    low, high = (
        np.concatenate([np.full(channel.size, getattr(channel, end)) for channel in task.channels])
        for end in ("low", "high")
    )
    expected = 2 * (values - low) / (high - low) - 1
    for rows in (seen, final):  # both sides of a transition are of the world in which it took place
        np.testing.assert_allclose(rows[..., size:], np.repeat(expected[:, None], N, 1), atol=1e-5)
    for at in change_points(STEPS):
        assert np.any(seen[at, :, size:] != seen[at - 1, :, size:])


def test_what_cannot_be_observed_is_refused():
    task = TASKS["toy"]()
    with pytest.raises(ValueError, match="the only thing to observe is drift; got 'goal'"):
        World(task, STEPS, observe="goal")
    for wrong in ({"low": 1.0}, {"nominal": 5.0}, {"low": 0.0, "high": 0.0, "nominal": 0.0}):
        with pytest.raises(ValueError, match="needs low < high and its nominal value between them"):
            World(task._replace(channels=(Channel("target", -0.8, 0.8, 0.0)._replace(**wrong),)), STEPS)
    with pytest.raises(ValueError, match="task 'toy' has no drift channel, so there is no drift to observe"):
        World(task._replace(channels=()), STEPS, observe="drift")

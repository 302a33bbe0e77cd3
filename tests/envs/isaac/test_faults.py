"""A simulation that blows up costs its own copy an episode, is counted, and changes no bit of the others."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs

HURT, OTHERS = 1, np.array([0, 2])
BEFORE, AFTER = 12, 4  # steps; twelve are enough to come down to the floor


def player(task):
    """Steps of three copies under random actions: key, state, number of steps -> state, outputs of every step."""
    one = jax.vmap(partial(envs.autoreset_step, task.env), (0, 0, 0, None))

    @jax.jit
    def step(key, state):
        key_action, key_step = jax.random.split(key)
        action = jax.random.uniform(key_action, (3, task.env.spec.action_size), minval=-1.0)
        obs, state, *rest = one(jax.random.split(key_step, 3), state, action, task.params)
        return state, (obs, *rest)

    def play(seed, state, steps):
        found = []
        for key in jax.random.split(jax.random.key(seed), steps):
            state, outputs = step(key, state)
            found.append(outputs)
        return state, found

    return play


def harmed(task, state, value):
    """``state`` with a velocity of copy `HURT` set to ``value``."""
    rows = np.ascontiguousarray(state.row).view(np.float64).copy()
    rows[HURT, task.env.engine.velocities.start] = value
    return state._replace(row=jnp.asarray(rows.view(np.uint32)))


@pytest.mark.parametrize("name", ["isaac_ant", "isaac_allegro_hand"])
def test_a_copy_that_blows_up_is_alone(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT
    task = envs.make(name, engine="mujoco")
    play = player(task)
    start = jax.jit(jax.vmap(task.env.reset, (0, None)))
    _, state = start(jax.random.split(jax.random.key(0), 3), task.params)
    state, earlier = play(1, state, BEFORE)
    last, expected = earlier[-1][0], play(2, state, AFTER)
    for value in (np.nan, np.inf, 1e14):
        after, found = play(2, harmed(task, state, value), AFTER)
        np.testing.assert_array_equal(after.faults, [0, 1, 0])
        assert int(task.env.faults(after)) == 1
        obs, reward, terminated, truncated, info = found[0]
        assert (reward[HURT], terminated[HURT], truncated[HURT]) == (0.0, False, True)
        np.testing.assert_array_equal(info["final_observation"][HURT], last[HURT])
        assert not np.array_equal(obs[HURT], last[HURT])  # a new episode
        assert after.time[HURT] == AFTER - 1
        for mine, theirs in zip(*map(jax.tree.leaves, ((after, found), expected)), strict=True):
            assert np.isfinite(mine).all()
            np.testing.assert_array_equal(mine[OTHERS], theirs[OTHERS])

"""Pictures of environments while they are stepped: each copy's own episode, under the drift in force."""

import copy

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.adapters.film import WIDTH
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from envs.render import scene_of

MOVE = np.array([[1, 0], [0, 1]], np.float32)


def drawn(env, ways, drift):
    """Pictures of the states in ``ways`` by the task's painter, by environment."""
    task = env._copies.task
    params = jax.device_get(env._copies.program.world.params_of(jnp.asarray(drift)))
    scene = scene_of(task, WIDTH)
    states = [[jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], s) for s in way] for i, way in enumerate(ways)]
    return [scene.draw(way, params) for way in states]


def test_each_copys_picture_is_its_own_episode_under_the_drift_in_force():
    env = DriftingVectorEnv("toy", "abrupt", drift_steps=20, num_envs=2, render_mode="rgb_array")
    env.reset(seed=0)
    states = [env._copies.state]
    for _ in range(6):
        infos = env.step(MOVE)[4]
        states.append(env._copies.state)
    pictures, drift = env.render(), infos["drift"][0]
    assert np.abs(drift).max() > 0.1
    np.testing.assert_array_equal(pictures, drawn(env, [states] * 2, drift))
    assert pictures[0].shape == (WIDTH, WIDTH, 3)
    assert (pictures[0] != pictures[1]).any()
    assert (np.array(drawn(env, [states] * 2, [0.0, 0.0])) != pictures).any()

    env.reset(options={"reset_mask": np.array([True, False])})  # one begins anew, the other goes on
    states.append(env._copies.state)
    np.testing.assert_array_equal(env.render(), drawn(env, [states[-1:], states[:-1]], drift))
    twin = copy.deepcopy(env)
    for _ in range(44):  # the other's fiftieth step ends its episode and begins the next
        infos = env.step(MOVE)[4]
        states.append(env._copies.state)
    assert infos["_final_obs"].tolist() == [False, True]
    np.testing.assert_array_equal(env.render(), drawn(env, [states[-45:], states[-1:]], infos["drift"][0]))
    np.testing.assert_array_equal(twin.render(), drawn(env, [states[7:8], states[:7]], drift))
    env.close()
    assert env.render()[0].shape == (WIDTH, WIDTH, 3)  # and opens again


def test_one_environment_by_id():
    env = gymnasium.make("aesjax/toy-periodic-v0", render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    env.step(MOVE[0])
    assert (first.shape, first.dtype) == ((WIDTH, WIDTH, 3), np.uint8)
    assert (env.render() != first).any()


def test_a_body_is_drawn_where_it_is():
    env = DriftingEnv("hopper", "steady", engine="mujoco", render_mode="rgb_array")
    env.reset(seed=0)
    try:
        first = env.render()
    except ValueError as error:  # a machine without OpenGL
        if "libosmesa6" not in str(error):
            raise
        return
    env.reset(seed=1)
    assert first.shape == (WIDTH * 3 // 4, WIDTH, 3)
    assert (env.render() != first).any()
    assert len(env._copies.film.states) == 1  # nothing is kept that nobody draws
    env.close()


def test_without_pictures_nothing_is_kept_and_asking_for_them_says_why():
    env = DriftingEnv("toy", "steady")
    env.reset(seed=0)
    assert env._copies.film is None
    with pytest.warns(UserWarning, match="made without render_mode='rgb_array'"):
        assert env.render() is None
    with pytest.raises(gymnasium.error.ResetNeeded, match="render"):
        DriftingEnv("toy", "steady", render_mode="rgb_array").render()
    strange = DriftingEnv(envs.make("toy")._replace(name="strange"), "steady", render_mode="rgb_array")
    strange.reset(seed=0)
    strange.step(MOVE[0])  # trains all the same
    with pytest.raises(ValueError, match="nothing can draw task 'strange'"):
        strange.render()

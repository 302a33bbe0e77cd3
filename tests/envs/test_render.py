"""Pictures follow the state and the drift; `render()` of the adapters shows them; missing OpenGL is one sentence."""

import gymnasium
import jax
import numpy as np
import pytest

import envs
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from envs.render import Renderer

MOVE = np.array([[1, 0], [0, 1]], np.float32)
ROBOTS = [("hopper", "mujoco"), ("hopper", "mjx"), ("isaac_ingenuity", "mujoco")]
PLANAR = ["toy", "toy_multigoal_classic", "pendulum", "reacher", "cartpole_swingup", "grid"]


def opened(task, width=160):
    """A renderer; None, after the refusal was checked, on a machine without OpenGL."""
    try:
        return Renderer(task, width)
    except ValueError as error:
        if "libosmesa6" not in str(error):
            raise
        return None


@pytest.mark.parametrize(("name", "engine"), [*((name, None) for name in PLANAR), *ROBOTS])
def test_pictures_follow_the_state(name, engine):
    task = envs.make(name, **({} if engine is None else {"engine": engine}))
    start = jax.device_get(task.env.reset(jax.random.key(0), task.params)[1])
    if engine == "mjx":  # whose step takes long to compile
        later = start._replace(qpos=start.qpos + 0.1)
    else:
        size, discrete = task.env.spec.action_size, task.env.spec.discrete
        action = np.eye(size, dtype=np.float32)[2] if discrete else np.ones(size, np.float32)
        later = jax.device_get(jax.jit(task.env.step)(jax.random.key(1), start, action, task.params)[1])
    if (renderer := opened(task)) is not None:
        first = renderer.draw(start, task.params)
        assert (first.shape, first.dtype) == ((160 if engine is None else 120, 160, 3), np.uint8)
        assert first.std() > 10
        assert (renderer.draw(later, task.params) != first).any()
        assert np.abs(renderer.draw(start, task.params) - first.astype(int)).mean() < 0.01  # of edges
        renderer.close()


def test_goals_that_are_no_part_of_the_model_are_drawn():
    task = envs.make("isaac_allegro_hand", engine="mujoco")
    state = jax.device_get(task.env.reset(jax.random.key(0), task.params)[1])
    row = state.row.copy().view(np.float64)
    row[task.env.engine.default.size :] = 0.5
    if (renderer := opened(task)) is not None:
        pictures = [renderer.draw(s, task.params).astype(int) for s in (state, state._replace(row=row.view(np.uint32)))]
        assert (np.abs(pictures[0] - pictures[1]).max(axis=-1) > 20).mean() > 0.003
        renderer.close()


def test_without_opengl_the_packages_are_named(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(ValueError, match=r"does not work through nonsense .* libosmesa6"):
        Renderer(envs.make("hopper", engine="mujoco"))


def test_an_environment_shows_every_copy_under_the_drift_in_force():
    env = DriftingVectorEnv("toy", "abrupt", drift_steps=20, num_envs=2, render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(6):
        infos = env.step(MOVE)[4]
    assert np.abs(infos["drift"]).max() > 0.1
    pictures, task = env.render(), env._copies.task
    states = jax.device_get(env._copies.state)
    for i, picture in enumerate(pictures):
        drifted = jax.device_get(task.apply_drift(task.params, infos["drift"][i]))
        np.testing.assert_array_equal(
            picture, Renderer(task).draw(jax.tree.map(lambda leaf, i=i: leaf[i], states), drifted)
        )
    assert (pictures[0] != pictures[1]).any()
    env.close()
    np.testing.assert_array_equal(env.render(), pictures)  # opens again


def test_render_by_id_and_its_refusals():
    env = gymnasium.make("aesjax/toy-periodic-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (480, 480, 3)
    with pytest.raises(gymnasium.error.ResetNeeded, match="render"):
        DriftingEnv("toy", "steady", render_mode="rgb_array").render()
    strange = DriftingEnv(envs.make("toy")._replace(name="strange"), "steady", render_mode="rgb_array")
    strange.reset(seed=0)
    with pytest.raises(ValueError, match="task 'strange' cannot be drawn"):
        strange.render()

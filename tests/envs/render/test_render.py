"""Pictures follow the state of a task; where OpenGL does not work, one sentence names the packages that it needs."""

import jax
import numpy as np
import pytest

import envs
from envs.isaac import TASKS as ISAAC
from envs.physics import Marker
from envs.render import renderers, scene_of
from envs.render.view import View, aim

BODIES = ("hopper", "halfcheetah", "walker2d", "ant", "humanoid")


def scene_or_refusal(task, width=160):
    """A scene; None, after a look at the refusal, on a machine without OpenGL."""
    try:
        return scene_of(task, width)
    except ValueError as error:
        if "libosmesa6" not in str(error):
            raise
        return None


def started(task):
    return jax.device_get(task.env.reset(jax.random.key(0), task.params)[1])


def moved(task, state, column, by):
    row = state.row.copy().view(np.float64)
    row[task.env.engine.positions.start + column] += by
    return state._replace(row=row.view(np.uint32))


@pytest.mark.parametrize("name", [*BODIES, *ISAAC])
def test_every_robot_task_is_drawn_and_followed(name):
    task = envs.make(name, engine="mujoco")
    scene, state = scene_or_refusal(task), started(task)
    if scene is None:
        return
    picture = scene.draw([state], task.params).astype(int)
    assert picture.shape == (120, 160, 3)
    assert picture.std() > 10
    assert np.abs(scene.draw([state], task.params) - picture).mean() < 0.01  # of a shadow's edge
    if name in BODIES:
        ahead = scene.draw([moved(task, state, 0, 0.3)], task.params).astype(int)
        higher = scene.draw([moved(task, state, 1 if task.env.engine.model.nq < 12 else 2, 0.3)], task.params)
        assert 0.01 < (np.abs(ahead - picture).max(axis=-1) > 20).mean() < 0.7  # the floor passes, the body stays
        assert (np.abs(higher - picture).max(axis=-1) > 20).mean() > 0.01
        assert scene.rate == pytest.approx({"hopper": 125, "walker2d": 125, "humanoid": 1 / 0.015}.get(name, 20))
    scene.close()


@pytest.mark.parametrize(("name", "seen"), [("isaac_ingenuity", 0.001), ("isaac_allegro_hand", 0.01)])
def test_goals_that_are_no_part_of_the_model_are_drawn(name, seen):
    task = envs.make(name, engine="mujoco")
    scene, physical = scene_or_refusal(task), task.env.engine.task
    if scene is not None:
        with_goal, another = (
            scene.renderer.draw(physical.model.qpos0, physical.markers(np.full(physical.memory_size, x)))
            for x in (0.5, 1)
        )
        assert (np.abs(with_goal.astype(int) - another).max(axis=-1) > 20).mean() > seen


def test_without_opengl_the_packages_are_named(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setattr(renderers, "_PROBE", "raise SystemExit(1)")
    renderers._backend.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"works neither through egl; install .* libosmesa6"):
            scene_of(envs.make("hopper", engine="mujoco"), 160)
    finally:
        renderers._backend.cache_clear()


def test_a_camera_without_a_height_looks_between_torso_and_goal():
    torso, goal = np.array([0.0, 0.0, 1.0]), np.array([2.0, 0.0, 3.0])
    lookat, distance = aim(View(1.0, None, 60.0, -12.0), torso, [Marker("sphere", None, goal, None, None)])
    np.testing.assert_array_equal(lookat, [1.0, 0.0, 2.0])
    assert distance > 1.0 + np.linalg.norm(goal - torso)
    np.testing.assert_array_equal(aim(View(2.0, 0.7, ahead=0.5), np.array([1.0, 2.0, 3.0]), [])[0], [1.5, 2.0, 0.7])


@pytest.mark.parametrize(("name", "size"), [("toy", 2), ("toy_multigoal_classic", 2), ("pendulum", 1)])
def test_the_small_tasks_are_drawn(name, size):
    task = envs.make(name)
    scene, state = scene_of(task, 160), started(task)
    later = jax.device_get(task.env.step(jax.random.key(1), state, np.ones(task.env.spec.action_size), task.params)[1])
    drifted = task.apply_drift(task.params, np.full(size, 0.8 * task.channels[0].high, np.float32))
    start = scene.draw([state], task.params)
    assert start.shape == (160, 160, 3)
    assert start.dtype == np.uint8
    assert (scene.draw([state, later], task.params) != start).any()
    assert (scene.draw([state], drifted) != start).any()
    assert (scene.draw([state], task.params) == start).all()


def test_a_task_that_nothing_draws_is_refused():
    with pytest.raises(ValueError, match=r"nothing can draw task 'other'; tasks that can be drawn: toy, "):
        scene_of(envs.make("toy")._replace(name="other"), 160)

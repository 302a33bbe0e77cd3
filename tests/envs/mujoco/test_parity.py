"""The C engine against Gymnasium's own environments, in double precision."""

import gymnasium
import mujoco
import numpy as np
import pytest

import envs
from envs.mujoco import TASKS, model
from tests.envs.physics.common import engine_of, params_of

ONE = params_of(np.ones((1, 3)))


@pytest.fixture(params=TASKS)
def pair(request):
    """Gymnasium's environment after a reset, and our engine with the same state as a row."""
    task = TASKS[request.param]
    with model.total_mass_accepted():
        theirs = gymnasium.make(task.gymnasium_id).unwrapped
    obs, _ = theirs.reset(seed=3)
    engine = engine_of(request.param)
    yield theirs, engine, obs
    theirs.close()


def row_of(theirs, engine):
    state = np.empty(engine.default.size)
    mujoco.mj_getState(theirs.model, theirs.data, state, engine.spec)
    where = {"qpos": theirs.data.qpos[0], "torso": theirs.data.xpos[1, 0]}
    mass = theirs.model.body_mass
    where["mass_centre"] = mass @ theirs.data.xipos[:, 0] / mass.sum()
    return np.append(state, where[engine.task.table.anchor])[None]


def test_200_random_actions_give_gymnasiums_numbers(pair):
    theirs, engine, _ = pair
    rows, rng, endings = row_of(theirs, engine), np.random.default_rng(0), 0
    for _ in range(200):
        action = rng.uniform(-1, 1, (1, engine.model.nu))
        step = engine.step(rows, action, ONE)
        obs, reward, terminated, _, _ = theirs.step(engine.task.control(np, None, None, action, ONE).ctrl[0])
        np.testing.assert_allclose(step.obs[0], obs, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(step.reward[0], reward, rtol=1e-10, atol=1e-10)
        assert step.terminated[0] == terminated
        assert not step.bad[0]
        rows = step.rows
        if terminated:
            endings += 1
            theirs.reset()
            rows = row_of(theirs, engine)
    assert (endings > 0) == (engine.task.name in ("hopper", "walker2d", "humanoid"))


def test_a_start_is_what_gymnasium_observes_in_that_state(pair):
    theirs, engine, obs = pair
    qpos, qvel = theirs.data.qpos - theirs.init_qpos, theirs.data.qvel - theirs.init_qvel
    noise = np.concatenate([qpos, qvel])[None] / engine.task.table.reset_noise_scale
    ours, rows = engine.start(noise, ONE)
    np.testing.assert_allclose(ours[0], obs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows[0, -1], row_of(theirs, engine)[0, -1], rtol=0, atol=1e-12)


def test_sizes_and_limits_are_those_of_the_registered_environment(pair):
    theirs, engine, _ = pair
    task = envs.make(engine.task.name, engine="mujoco")
    assert task.env.spec.obs_size == theirs.observation_space.shape[0]
    assert task.env.spec.action_size == theirs.action_space.shape[0]
    assert task.env.spec.time_limit == gymnasium.spec(engine.task.table.gymnasium_id).max_episode_steps
    np.testing.assert_allclose(engine.model.actuator_ctrlrange[:, 1], theirs.action_space.high, rtol=1e-6)
    assert engine.task.substeps == theirs.frame_skip


@pytest.mark.filterwarnings("ignore:.*-v4 is out of date:DeprecationWarning")
@pytest.mark.parametrize("name", ["ant", "humanoid"])
def test_the_observation_of_version_4_is_gymnasiums(name):
    theirs = gymnasium.make(f"{name.capitalize()}-v4").unwrapped
    theirs.reset(seed=1)
    engine = engine_of(name, "v4")
    rows, rng = row_of(theirs, engine), np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, (1, engine.model.nu))
        step = engine.step(rows, action, ONE)
        obs, *_ = theirs.step(engine.task.control(np, None, None, action, ONE).ctrl[0])
        np.testing.assert_allclose(step.obs[0], obs, rtol=1e-10, atol=1e-10)
        rows = step.rows


def test_a_start_under_a_drifted_mass_is_what_the_scaled_model_shows():
    engine = engine_of("humanoid")
    noise = np.random.default_rng(5).uniform(-1, 1, (2, engine.model.nq + engine.model.nv))
    obs, rows = engine.start(noise, params_of([[1.3, 1.0, 1.0], [0.7, 1.5, 1.0]]))
    for i, mass in enumerate((1.3, 0.7)):
        heavy = mujoco.MjModel.from_xml_path(str(model.path("humanoid.xml")))
        heavy.body_mass[:] *= mass
        heavy.body_inertia[:] *= mass
        data = mujoco.MjData(heavy)
        mujoco.mj_setConst(heavy, data)
        mujoco.mj_setState(heavy, data, rows[i, :-1], engine.spec)
        mujoco.mj_forward(heavy, data)
        zeros = np.zeros((heavy.nbody - 1) * 6)
        parts = [
            data.qpos[2:],
            data.qvel,
            data.cinert[1:].ravel(),
            data.cvel[1:].ravel(),
            data.qfrc_actuator[6:],
            zeros,
        ]
        np.testing.assert_allclose(obs[i], np.concatenate(parts), rtol=1e-10, atol=1e-10)

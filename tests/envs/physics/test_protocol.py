"""Any task on both engines: an arm that only these tests know, against a loop over MuJoCo written by hand."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.physics import Factor, Field
from envs.physics.batch import Engine
from envs.physics.protocol import check
from tests.envs.physics.arm import GRAVITY, KD, KP, WEIGHT, Arm, ArmParams, arm_xml, as_task

N, STEPS = 3, 6
#: MJX compiles for long; that it gives the numbers of the C engine is always checked on Hopper, in `test_mjx_engine`.
ENGINES = ("mujoco", pytest.param("mjx", marks=pytest.mark.slow))  # Warp runs in the environment of MJX
DRIFTS = [(1.0, 1.0), (0.6, 1.0), (1.0, 2.5), (1.4, 0.5)]  # gravity, joint damping


def params_of(gravity=1.0, damping=1.0, stiffness=1.0, n=N):
    return ArmParams(*(np.full(n, value) for value in (stiffness, damping, gravity)))


def actions(seed=0):
    return np.random.default_rng(seed).uniform(-1.3, 1.3, (STEPS, N, 3)).astype(np.float32)  # some are clipped


def started(engine, params, seed=1):
    return engine.start(np.random.default_rng(seed).uniform(-1, 1, (N, 4)), params)


def by_hand(model, data, action, before, stiffness):
    """One control step on an ``MjData``."""
    for _ in range(Arm.substeps):
        target = 0.5 * (action[:2] + before[:2])
        torque = stiffness * KP * (target - data.qpos[:2]) - KD * data.qvel[:2]
        data.ctrl[:] = [*torque, action[0]]
        data.qfrc_applied[:] = 0.1 * data.qvel
        data.xfrc_applied[3] = (WEIGHT + action[2]) * np.array([0, 0, 1, 0, np.float32(0.01), 0])
        mujoco.mj_step(model, data)
    mujoco.mj_kinematics(model, data)


@pytest.mark.parametrize(("gravity", "damping"), DRIFTS)
def test_every_step_and_every_drift_is_that_of_a_loop_on_a_model_of_scaled_numbers(gravity, damping):
    engine, stiffness = Engine(Arm()), 1.3
    params = params_of(gravity, damping, stiffness)
    model = mujoco.MjModel.from_xml_string(arm_xml(gravity, damping))
    assert model.opt.gravity[2] == GRAVITY * gravity
    _, rows = started(engine, params)
    worlds = []
    for row in rows:
        worlds.append(mujoco.MjData(model))
        worlds[-1].qpos[:], worlds[-1].qvel[:] = row[engine.positions], row[engine.velocities]
    before = np.zeros((N, 3))
    for action in np.float64(actions()):
        step = engine.step(rows, action, params)
        rows, action = step.rows, np.clip(action, -1, 1)
        for i, data in enumerate(worlds):
            by_hand(model, data, action[i], before[i], stiffness)
            expected = [*data.qpos, *data.qvel, *data.xpos[2], *before[i]]
            np.testing.assert_allclose(step.obs[i], expected, rtol=1e-10, atol=1e-10)
            reward = -1e-3 * np.sum(data.ctrl**2) - abs(data.xpos[3, 2] - 1)
            np.testing.assert_allclose(step.reward[i], reward, rtol=1e-10)
        assert not step.bad.any()
        before = action
    np.testing.assert_array_equal(rows[:, engine.default.size :], before)  # the memory


class Limited(Arm):
    """The elbow's servo gives at most 0.5 N m, and asks for more most of the time."""

    def __init__(self):
        super().__init__()
        self.model = mujoco.MjModel.from_xml_string(arm_xml().replace('kp="3"', 'kp="30" forcerange="-0.5 0.5"'))
        assert self.model.actuator_forcelimited.any()


@functools.cache
def copies_of(engine):
    """The task, and N copies of it as compiled reset and auto-resetting step."""
    task = as_task(engine, Limited())
    env = task.env
    reset = jax.jit(jax.vmap(env.reset, (0, 0)))
    step = jax.jit(jax.vmap(lambda key, *rest: envs.autoreset_step(env, key, *rest)))
    return task, reset, lambda seed, *rest: step(jax.random.split(jax.random.key(seed), N), *rest)


def drifted():
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32), params_of(gravity=np.array([0.6, 1.0, 1.1]), damping=2.0)
    )


@pytest.mark.slow
def test_mjx_gives_the_numbers_of_the_c_engine():
    """With a servo at the limit of its force, which does not damp then."""
    params, seen = drifted(), []
    for name in ("mujoco", "mjx"):
        _, reset, step = copies_of(name)
        obs, state = reset(jax.random.split(jax.random.key(5), N), params)
        seen.append([obs])
        for seed, action in enumerate(actions(3)[:4]):
            obs, state, reward, terminated, truncated, info = step(seed, state, action, params)
            seen[-1] += [info["final_observation"], reward, terminated, truncated]
    for ours, theirs in zip(*seen, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_next_episode_starts_without_memory(engine):
    task, reset, step = copies_of(engine)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params_of())
    _, state = reset(jax.random.split(jax.random.key(0), N), params)
    still = jnp.zeros((N, 3)).at[:, 0].set(0.4)
    for time in range(1, task.env.spec.time_limit + 1):
        obs, state, *_, info = step(time, state, still, params)
        np.testing.assert_array_equal(info["final_observation"][:, -3:], still if time > 1 else 0 * still)
    np.testing.assert_array_equal(obs[:, -3:], 0)


@pytest.mark.parametrize("value", [np.nan, 1e14])
def test_a_simulation_that_blows_up_is_truncated_counted_and_alone(value, tmp_path, monkeypatch):
    """On the C engine; `test_mjx_engine` has the other."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT
    task, reset, step = copies_of("mujoco")
    params, action = drifted(), jnp.full((N, 3), 0.2)
    before, state = reset(jax.random.split(jax.random.key(0), N), params)
    rows = np.ascontiguousarray(state.row).view(np.float64).copy()
    rows[1, task.env.engine.velocities] = value
    hurt = state._replace(row=jnp.asarray(rows.view(np.uint32)))
    obs, after, reward, terminated, truncated, info = step(1, hurt, action, params)
    good = step(1, state, action, params)
    np.testing.assert_array_equal(truncated, [False, True, False])
    assert not terminated.any()
    assert reward[1] == 0
    np.testing.assert_array_equal(info["final_observation"][1], before[1])
    np.testing.assert_array_equal(after.faults, [0, 1, 0])
    assert int(task.env.faults(after)) == 1
    assert np.isfinite(obs).all()
    np.testing.assert_array_equal(obs[::2], good[0][::2])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"fields": ("xposs",)}, "unknown data field of task arm 'xposs'; did you mean 'xpos'"),
        ({"start_fields": ("qacc",)}, "unknown data field at the start of task arm 'qacc'"),
        ({"fields": ("xpos", "cfrc_ext")}, "cfrc_ext belong to the last sub-step; fresh must be False"),
        ({"scales": {"gravitas": Factor(())}}, "did you mean 'gravity'"),
        (
            {"scales": dict.fromkeys(("gravity", "stiffness"), Factor((Field("opt.gravity"),)))},
            "gravity and stiffness both scale opt.gravity",
        ),
    ],
)
def test_a_task_that_contradicts_itself_is_refused(change, text):
    task = Arm()
    check(task)
    vars(task).update(change)
    with pytest.raises((ValueError, KeyError), match=text):
        check(task)


DERIVING = {
    name: Factor((Field(field),), True) for name, field in (("gravity", "body_mass"), ("stiffness", "dof_damping"))
}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scales": DERIVING}, "derived constants may follow one parameter; got gravity and stiffness"),
        ({"fields": ("sensordata",)}, "sensors are not computed on MJX"),
    ],
)
def test_mjx_refuses_what_it_cannot_do(change, text):
    task = Arm()
    vars(task).update(change)
    with pytest.raises(ValueError, match=text):
        envs.physics.build(task, "mjx")

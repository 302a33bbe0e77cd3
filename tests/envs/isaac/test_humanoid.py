"""Humanoid against its definition, written down a second time."""

import copy

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import envs
from envs.isaac.humanoid import Humanoid
from tests.envs.isaac.common import mjx_run, noise_of, params_of, random_actions, run, starts
from tests.envs.isaac.walker import physics_of, root_numbers, wrench_of

N = 8
ARM, LEG = ([-90, -90, -90], [70, 70, 50]), ([-45, -60, -120, -160, -50, -50], [15, 35, 45, 2, 50, 50])
LOW = np.deg2rad([-45, -75, -35, *LEG[0], *LEG[0], *ARM[0], *ARM[0]])
HIGH = np.deg2rad([45, 30, 35, *LEG[1], *LEG[1], *ARM[1], *ARM[1]])
MIDDLE = (LOW + HIGH) / 2
GEARS = np.array([67.5] * 3 + [45, 45, 135, 90, 22.5, 22.5] * 2 + [67.5, 67.5, 45] * 2)
DAMPING = np.array([5] * 3 + [5, 5, 5, 0.1, 1, 1] * 2 + [5, 5, 1] * 2)
# The successor's order of the joints of this file.
BY_LEVEL = [0, 1, 15, 16, 18, 19, 2, 17, 20, 3, 5, 4, 9, 11, 10, 6, 12, 7, 8, 13, 14]


@pytest.fixture(scope="module")
def task():
    return Humanoid()


def outcome(task, physics, action=None, before=None):
    action = np.zeros((1, 21)) if action is None else np.asarray(action, float)[None]
    before = physics.qpos[:, :2] if before is None else np.asarray(before, float)[None]
    return task.outcome(np, physics, before, action, None, params_of(1))


def some_state(task, seed=0):
    rng = np.random.default_rng(seed)
    root = (np.array([3.0, -4.0, 1.2]), Rotation.random(random_state=seed), rng.normal(size=3), rng.normal(size=3))
    joints = rng.uniform(LOW, HIGH), rng.normal(size=21)
    return root, joints, rng.uniform(-1.5, 1.5, 21)


def test_every_observed_number_is_the_definitions(task):
    root, (q, qd), action = some_state(task)
    motors, passive = np.arange(27.0), np.linspace(-9, 4, 27)
    feet = {"cfrc_ext": np.zeros((task.model.nbody, 6)), "subtree_com": np.zeros((task.model.nbody, 3))}
    feet = wrench_of(task, "right_foot", [1.0, 2.0, 300.0], [0.1, 0.0, 0.0], **feet)
    feet = wrench_of(task, "left_foot", [0.0, 0.0, 200.0], [0.0, 0.2, 0.0], **feet)
    found = outcome(task, physics_of(task, *root, q, qd, qfrc_actuator=motors, qfrc_passive=passive, **feet), action)
    obs = found.obs[0]
    assert obs.shape == (108,)
    np.testing.assert_allclose(obs[:12], root_numbers(*root, True, 0.25), atol=1e-9)
    np.testing.assert_allclose(obs[12:33], (2 * q - LOW - HIGH) / (HIGH - LOW), atol=1e-12)
    np.testing.assert_allclose(obs[33:54], 0.1 * qd)
    np.testing.assert_allclose(obs[54:75], 0.01 * (motors + passive)[6:])
    np.testing.assert_allclose(obs[75:81], 0.01 * np.array([1, 2, 300, 0, -30, 0.2]), atol=1e-12)
    np.testing.assert_allclose(obs[81:87], 0.01 * np.array([0, 0, 200, 40, 0, 0]), atol=1e-12)
    np.testing.assert_allclose(obs[87:], np.clip(action, -1, 1))


def test_omni_leaves_out_the_joints_forces_and_orders_joints_and_feet_its_way(task):
    omni = Humanoid("omni")
    root, (q, qd), action = some_state(task, 1)
    wrenches = {"cfrc_int": np.zeros((task.model.nbody, 6)), "subtree_com": np.zeros((task.model.nbody, 3))}
    wrenches = wrench_of(omni, "right_foot", [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], **wrenches)
    obs = outcome(omni, physics_of(omni, *root, q, qd, **wrenches), action).obs[0]
    assert obs.shape == (87,)
    np.testing.assert_allclose(obs[12:33], ((2 * q - LOW - HIGH) / (HIGH - LOW))[BY_LEVEL], atol=1e-12)
    np.testing.assert_allclose(obs[33:54], 0.1 * qd[BY_LEVEL])
    np.testing.assert_allclose(obs[54:66], [0] * 6 + [0.01, 0.02, 0.03, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(obs[66:], np.clip(action, -1, 1))
    drive = omni.control(np, None, None, np.linspace(-1, 1, 21)[None], params_of(1))
    np.testing.assert_allclose(drive.ctrl[0][BY_LEVEL], np.linspace(-1, 1, 21))


def test_reward_has_its_golden_values(task):
    assert outcome(task, physics_of(task, q=MIDDLE)).reward[0] == pytest.approx(2.6)
    ahead = outcome(task, physics_of(task, (0.0166, 0.0, 1.0), q=MIDDLE), before=(0.0, 0.0)).reward[0]
    assert ahead == pytest.approx(3.6)
    action, qd = np.linspace(-1, 1, 21), np.linspace(5, -3, 21)
    costs = 0.01 * np.sum(action**2) + 0.05 * np.sum(GEARS / 135 * np.abs(action * 0.1 * qd))
    assert outcome(task, physics_of(task, q=MIDDLE, qd=qd), action).reward[0] == pytest.approx(2.6 - costs)


def test_joint_limits_cost_at_both_ends_as_much_as_the_motor_is_strong(task):
    for end in (LOW, HIGH):
        found = outcome(task, physics_of(task, q=end)).reward[0]
        assert found == pytest.approx(2.6 - 0.25 * np.sum(GEARS) / 135)
    knee = np.where(np.arange(21) == 6, MIDDLE + 0.99 * (HIGH - LOW) / 2, MIDDLE)
    assert outcome(task, physics_of(task, q=knee)).reward[0] == pytest.approx(2.6 - 0.25 * 90 / 135 * 0.5)


@pytest.mark.parametrize(("height", "fallen"), [(0.8, False), (0.7999, True)])
def test_falls_below_its_height_for_minus_one(task, height, fallen):
    found = outcome(task, physics_of(task, (0.0, 0.0, height), q=MIDDLE), before=(-5.0, 0.0))
    assert found.terminated[0] == fallen
    assert (found.reward[0] == -1.0) == fallen


def test_no_start_has_legs_in_each_other_so_zero_action_gains_no_energy(task):
    """MuJoCo parts what overlaps with up to a kilojoule; what remains is the integrator's."""
    model, start = copy.copy(task.model), starts(task, 300)
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data = mujoco.MjData(model)
    first = np.clip(np.clip(0, LOW, HIGH) + 0.2 * noise_of(task, 300, 3)[:, :21], LOW, HIGH)
    overlap = task.gap(np, first) < 0.0
    assert 0.15 < overlap.mean() < 0.3
    np.testing.assert_array_equal(start.qpos[~overlap, 7:], first[~overlap])
    np.testing.assert_allclose(task.gap(jnp, jnp.float32(first)), task.gap(np, first), atol=1e-5)
    for qpos, qvel, drawn in zip(start.qpos, start.qvel, first, strict=True):
        data.qpos[:], data.qpos[7:] = qpos, drawn
        mujoco.mj_forward(model, data)
        nearest = min(mujoco.mj_geomDistance(model, data, *pair, 1.0, None) for pair in task._pairs.T)
        assert task.gap(np, drawn) == pytest.approx(nearest, abs=1e-6)
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(model, data)
        before, energy = sum(data.energy), []
        for _ in range(10):  # in the air
            mujoco.mj_step(model, data)
            mujoco.mj_energyPos(model, data)
            mujoco.mj_energyVel(model, data)
            energy.append(sum(data.energy))
        assert max(energy) - before < 2.0


def test_a_start_whose_draws_all_overlap_is_the_pose_without_noise(task):
    drawn = np.tile(np.where(np.isin(np.arange(21), [3, 9]), 0.2, 0.0), (1, 8, 1))  # both legs inwards
    assert (task.gap(np, drawn) < 0).all()
    np.testing.assert_array_equal(task.choose(np, drawn)[0], np.clip(0.0, LOW, HIGH))
    np.testing.assert_array_equal(task.choose(jnp, jnp.float32(drawn))[0], np.float32(np.clip(0.0, LOW, HIGH)))


@pytest.mark.parametrize("drift", [{"gravity": 1.2}, {"joint_damping": 1.3}])
def test_both_channels_change_the_walk(task, drift):
    actions = random_actions(task, 20, N)
    base = run(task, actions)
    assert np.abs(run(task, actions, **drift).qpos - base.qpos).max() > 1e-3
    assert envs.make("isaac_humanoid").inert == ()


@pytest.mark.slow
def test_mjx_moves_as_the_c_engine(task):
    actions = 0.5 * random_actions(task, 20, N)
    theirs, (obs, reward, terminated) = run(task, actions), mjx_run(task, actions)
    difference = np.abs(obs - theirs.obs)
    assert np.median(difference[:4].max((0, 2))) < 1e-4  # in the air
    assert difference.max() < 5e-2
    assert np.median(np.abs(reward - theirs.reward).max(0)) < 1e-2
    np.testing.assert_array_equal(terminated, theirs.terminated)

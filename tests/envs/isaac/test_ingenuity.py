"""Ingenuity against its definition, written down a second time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import envs
from envs.isaac.ingenuity import Ingenuity
from envs.physics import Physics
from envs.physics.batch import Engine
from tests.envs.isaac.common import mjx_run, noise_of, params_of, random_actions, run

N = 16
TARGETS = 4
HOVER = 0.1396


@pytest.fixture(scope="module")
def task():
    return Ingenuity()


def physics_of(position=(0.0, 0.0, 1.5), rotation=None, linear=(0, 0, 0), angular=(0, 0, 0)):
    """One copy; ``linear`` of the centre of mass and ``angular`` in world axes, SI units."""
    rotation = Rotation.identity() if rotation is None else rotation
    quaternion = np.roll(rotation.as_quat(), 1)
    origin = np.asarray(linear, float) - np.cross(angular, rotation.apply([0, 0, 0.01178006]))
    qvel = np.concatenate([origin, rotation.inv().apply(angular)])
    return Physics(qpos=np.concatenate([position, quaternion])[None], qvel=qvel[None])


def memory_of(*targets, steps=0):
    rows = [targets[min(i, len(targets) - 1)] for i in range(TARGETS)]
    return np.concatenate([*rows, [steps]])[None].astype(float)


def outcome(task, physics, memory, action=None):
    action = np.zeros((1, 6)) if action is None else action
    return task.outcome(np, physics, memory, action, None, params_of(1))


def test_every_observed_number_is_the_definitions(task):
    rotation, target = Rotation.random(random_state=1), np.array([1.0, -2.0, 1.7])
    position, linear, angular = np.array([0.3, 0.6, 2.0]), np.array([0.5, -1.5, 2.5]), np.array([3.0, -6.0, 1.0])
    found = outcome(task, physics_of(position, rotation, linear, angular), memory_of(target)).obs[0]
    np.testing.assert_allclose(found[0:3], (target - position) / 3)
    np.testing.assert_allclose(found[3:7], rotation.as_quat())  # x, y, z, w
    np.testing.assert_allclose(found[7:10], linear / 2, atol=1e-6)  # of the centre of mass
    np.testing.assert_allclose(found[10:13], angular / np.pi)
    omni = outcome(Ingenuity("omni"), physics_of(position, rotation, linear, angular), memory_of(target)).obs[0]
    np.testing.assert_allclose(omni[3:7], np.roll(rotation.as_quat(), 1))  # w first


def test_mass_inertia_and_hover(task):
    model = task.model
    assert model.body_mass.sum() == pytest.approx(1.5001, abs=1e-3)
    np.testing.assert_allclose(model.body_ipos[1], [0, 0, 0.01178], atol=1e-5)
    np.testing.assert_allclose(sorted(model.body_inertia[1]), [0.0084049, 0.0084049, 0.0161117], atol=1e-6)
    action = np.zeros((1, 6))
    action[:, [2, 5]] = HOVER
    drive = task.control(np, physics_of(), memory_of((0, 0, 1)), action, params_of(1))
    force = drive.xfrc_applied[0, 1]
    assert force[2] / model.body_mass[1] + model.opt.gravity[2] == pytest.approx(0.0, abs=2e-3)
    np.testing.assert_allclose(force[[0, 1, 3, 4, 5]], 0.0)


def test_sideways_thrust_is_a_bounded_share_and_turns_with_the_body(task):
    action = np.array([[0.1, -0.7, 0.5, 0.0, 0.3, -1.0]])
    lower, upper = 10.0 * np.array([0.1, -0.2, 1.0]), -20.0 * np.array([0.0, 0.2, 1.0])
    com, rotation = task.model.body_ipos[1], Rotation.random(random_state=2)
    torque = np.cross(-com, lower) + np.cross([0, 0, 0.025] - com, upper)
    found = task.control(np, physics_of(rotation=rotation), memory_of((0, 0, 1)), action, params_of(1)).xfrc_applied
    np.testing.assert_allclose(found[0, 1, :3], rotation.apply(lower + upper), atol=1e-12)
    np.testing.assert_allclose(found[0, 1, 3:], rotation.apply(torque), atol=1e-12)
    np.testing.assert_array_equal(found[0, 0], 0.0)
    omni = Ingenuity("omni").control(np, physics_of(), memory_of((0, 0, 1)), action, params_of(1)).xfrc_applied
    np.testing.assert_allclose(omni[0, 1, 1], 10.0 * -0.14 - 20.0 * 0.06)  # 0.2 of the action, not a bound on it


def test_reward_has_its_golden_values(task):
    on_target = physics_of((1.0, 2.0, 1.5))
    assert outcome(task, on_target, memory_of((1, 2, 1.5))).reward[0] == pytest.approx(7.0)
    assert outcome(Ingenuity("omni"), on_target, memory_of((1, 2, 1.5))).reward[0] == pytest.approx(3.0)
    side = physics_of((1.0, 2.0, 1.5), Rotation.from_euler("x", 90, degrees=True), angular=(5.0, 0.0, 2.0))
    near, upright, still = 1 / (1 + 4.0), 5 / (1 + 1.0), 1 / (1 + 4.0)
    found = outcome(task, side, memory_of((1, 0, 1.5))).reward[0]
    assert found == pytest.approx(near + near * (upright + still))
    near, upright, still = 1 / (1 + 10.0), 1 / (1 + 30.0), 1 / (1 + 40.0)
    found = outcome(Ingenuity("omni"), side, memory_of((1, 0, 1.5))).reward[0]
    assert found == pytest.approx(near * (1 + upright + still))


@pytest.mark.parametrize(("position", "ends"), [((0, 0, 0.5), False), ((0, 0, 0.4999), True), ((8.01, 0, 1), True)])
def test_ends_below_half_a_metre_or_far_from_the_target_and_pays_nothing_for_it(task, position, ends):
    found = outcome(task, physics_of(position), memory_of((0, 0, 1)))
    assert found.terminated[0] == ends
    assert found.reward[0] > 0


def test_a_new_target_comes_with_the_500th_step_and_may_be_out_of_reach(task):
    physics, targets = physics_of((4.0, 4.0, 1.0)), ((4, 4, 1), (-5, -5, 1))
    before = outcome(task, physics, memory_of(*targets, steps=499))
    assert not before.terminated[0]
    assert before.memory[0, -1] == 500
    after = outcome(task, physics, before.memory)
    np.testing.assert_allclose(after.obs[0, :3], [-3, -3, 0])
    assert after.terminated[0]
    assert Ingenuity(time_limit=499).memory_size == 4
    assert Ingenuity(time_limit=500).memory_size == 7
    assert task.start(np, noise_of(task, 1), params_of(1)).memory[0, -1] == 1  # as the reference counts


def test_gravity_changes_the_flight_and_joint_damping_not_a_bit(task):
    actions = random_actions(task, 20, N)
    base = run(task, actions)
    assert np.abs(run(task, actions, gravity=1.2).qpos - base.qpos).max() > 1e-2
    np.testing.assert_array_equal(run(task, actions, joint_damping=1.3).qpos, base.qpos)
    assert envs.make("isaac_ingenuity").inert == ("joint_damping",)


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_a_rotational_drag_slows_the_spin_and_is_what_joint_damping_scales(factor):
    engine, params = Engine(Ingenuity(rotational_drag=0.02)), params_of(1, joint_damping=factor)
    rows = engine.start(noise_of(engine.task, 1), params)[1]
    rows[:, engine.velocities] = [0, 0, 0, 0, 0, 5.0]
    for _ in range(20):
        rows = engine.step(rows, np.zeros((1, 6)), params).rows
    spin = rows[0, engine.velocities][5]
    assert spin == pytest.approx(5.0 * np.exp(-0.02 * factor * 0.2 / 0.0161117), rel=5e-3)


def test_time_runs_out():
    env = envs.make("isaac_ingenuity", time_limit=5).env
    params = envs.make("isaac_ingenuity").params
    obs, state = env.reset(jax.random.key(0), params)
    flags = []
    for _ in range(5):
        _, state, _, terminated, truncated, _ = env.step(jax.random.key(1), state, jnp.full(6, HOVER), params)
        flags.append((bool(terminated), bool(truncated)))
    assert flags == [(False, False)] * 4 + [(False, True)]
    assert obs.shape == (13,)


@pytest.mark.slow
def test_mjx_flies_as_the_c_engine(task):
    actions = random_actions(task, 20, N)
    theirs, (obs, reward, terminated) = run(task, actions), mjx_run(task, actions)
    np.testing.assert_allclose(obs, theirs.obs, atol=1e-4)
    np.testing.assert_allclose(reward, theirs.reward, atol=1e-4)
    np.testing.assert_array_equal(terminated, theirs.terminated)

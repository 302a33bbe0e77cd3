"""Servos at the limit of their force: both engines integrate them alike."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from envs.physics.batch import Engine
from envs.physics.mjx_engine import MjxEnv, MjxState
from tests.envs.physics.arm import Arm, ArmParams, arm_xml


class Limited(Arm):
    """The elbow's servo gives at most 0.5 N m, and asks for more most of the time."""

    def __init__(self):
        super().__init__()
        self.model = mujoco.MjModel.from_xml_string(arm_xml().replace('kp="3"', 'kp="30" forcerange="-0.5 0.5"'))
        assert self.model.actuator_forcelimited.any()


@pytest.mark.slow
def test_a_servo_without_force_to_spare_does_not_damp_on_either_engine():
    task, n, steps = Limited(), 4, 6
    env, engine, params = MjxEnv(task), Engine(task), ArmParams()
    rng, ones = np.random.default_rng(0), ArmParams(*np.ones((3, n)))
    obs, rows = engine.start(rng.uniform(-1, 1, (n, 4)), ones)
    actions = rng.uniform(-1, 1, (steps, n, 3)).astype(np.float32)
    qpos, qvel, memory = rows[:, engine.positions], rows[:, engine.velocities], rows[:, -3:]
    nothing = jnp.zeros(n, jnp.int32)
    state = MjxState(*(jnp.asarray(x, jnp.float32) for x in (qpos, qvel, 0 * qvel, memory, obs)), nothing, nothing)
    step = lambda s, a: jax.vmap(lambda s, a: env.step(None, s, a, params)[:2])(s, a)[::-1]  # noqa: E731
    theirs = np.asarray(jax.jit(lambda s, a: jax.lax.scan(step, s, a)[1])(state, jnp.asarray(actions)))
    for action, expected in zip(actions, theirs, strict=True):
        found = engine.step(rows, action, ones)
        np.testing.assert_allclose(found.obs, expected, atol=1e-4)
        rows = found.rows

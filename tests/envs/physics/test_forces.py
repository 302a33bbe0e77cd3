"""Contact forces on the C engine against MuJoCo's own, one simulation after another."""

from typing import Any, NamedTuple

import mujoco
import numpy as np
import pytest

from envs.physics import Drive, Outcome, PhysicsTask, Start
from envs.physics.batch import Engine

XML = """
<mujoco>
  <option timestep="0.002" integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="box"><joint type="free"/><geom type="box" size=".1 .1 .1" mass="2"/><site name="scale"/></body>
  </worldbody>
  {sensor}
</mujoco>"""
SENSOR = '<sensor><force site="scale"/></sensor>'
PUSH = np.array([1.0, -2.0, 3.0, 0.1, 0.2, -0.3])


class NoParams(NamedTuple):
    unread: Any = np.float32(1.0)


class Box(PhysicsTask):
    """A box that is let go at some height; a positive action pushes it."""

    name = "box"
    obs_size, action_size, time_limit, substeps, held = 12, 1, 10, 3, True
    params, scales = NoParams(), {}

    def __init__(self, integrator, sensor, field):
        self.model = mujoco.MjModel.from_xml_string(XML.format(integrator=integrator, sensor=SENSOR if sensor else ""))
        self.fields = (field,)

    noise = None

    def start(self, xp, noise, params):
        upright = np.broadcast_to([1.0, 0.1, 0.0, 0.0], (*noise.shape[:-1], 4))
        flat = np.zeros((*noise.shape[:-1], 2))
        qpos = np.concatenate([flat, noise, upright], axis=-1)
        return Start(qpos, np.zeros((*noise.shape[:-1], 6)), flat[..., :0])

    def opening(self, xp, physics, memory, params):
        return np.zeros((*memory.shape[:-1], 12)), memory

    def control(self, xp, physics, memory, action, params):
        push = np.maximum(action, 0.0)[..., None, :] * np.stack([0 * PUSH, PUSH])
        return Drive(action[..., :0], xfrc_applied=push)

    def outcome(self, xp, physics, memory, action, drive, params):
        obs = getattr(physics, self.fields[0]).reshape(-1, 12)
        return Outcome(obs, obs[:, 0], obs[:, 0] < -np.inf, memory)


@pytest.mark.parametrize(
    ("integrator", "sensor", "field"),
    [
        ("Euler", False, "cfrc_ext"),
        ("Euler", True, "cfrc_ext"),
        ("RK4", True, "cfrc_ext"),  # sensors are of the first stage, forces of the last
        ("Euler", False, "cfrc_int"),
    ],
)
def test_forces_are_those_of_the_end_of_a_step_for_who_lies_falls_and_is_pushed(integrator, sensor, field):
    engine = Engine(Box(integrator, sensor, field))
    heights, action = np.array([[0.105], [3.0], [2.0], [0.1]]), np.array([[0.0], [1.0], [-1.0], [1.0]])
    params = engine.params([np.ones(4)])
    _, rows = engine.start(heights, params)
    worlds = [mujoco.MjData(engine.model) for _ in heights]
    for row, data in zip(rows, worlds, strict=True):
        mujoco.mj_setState(engine.model, data, row, engine.spec)
    for _ in range(8):
        step = engine.step(rows, action, params)
        for i, data in enumerate(worlds):
            data.xfrc_applied[1] = max(action[i, 0], 0.0) * PUSH
            mujoco.mj_step(engine.model, data, engine.task.substeps)
            mujoco.mj_rnePostConstraint(engine.model, data)
            np.testing.assert_array_equal(step.obs[i], getattr(data, field).ravel())
        rows = step.rows
    assert [data.ncon > 0 for data in worlds] == [True, False, False, True]
    assert [data.cfrc_ext.any() for data in worlds] == [True, True, False, True]

"""The limit of the physics bench: a recorded rollout is the task's own physics and nothing else."""

from itertools import pairwise

import mujoco.batch
import numpy as np
import pytest

import envs
from envs.physics.batch import Engine
from experiments.bench import raw


@pytest.mark.parametrize("name", ["hopper", "isaac_ingenuity"])
def test_batch_alone_goes_where_the_task_goes(name):
    engine = Engine(envs.make(name, engine="mujoco").env.task)
    steps = raw._rollout(engine, 6, 30)
    batch = mujoco.batch.Batch(engine.model, 6, 1)
    carried, begun = batch.state[:, : engine.default.size], 0
    for (rows, drive), (following, _) in pairwise(steps):
        carried[:] = rows
        for field in ("ctrl", "xfrc_applied"):
            if getattr(drive, field) is not None:
                batch.bind(field)[:] = getattr(drive, field)
        batch.step(nstep=engine.task.substeps)
        anew = following[:, 0] < rows[:, 0]  # the first number of a state is its time
        begun += anew.sum()
        # Ingenuity's thrust turns with its body between the sub-steps, which a call of all of them leaves out.
        tolerance = 0.0 if engine.task.held else 1e-3
        for part in (engine.positions, engine.velocities):
            np.testing.assert_allclose(carried[~anew, part], following[~anew, part], rtol=0, atol=tolerance)
    assert begun


def test_more_copies_than_are_recorded_repeat_them(monkeypatch):
    engine = Engine(envs.make("hopper", engine="mujoco").env.task)
    few = raw._rollout(engine, 4, 3)
    monkeypatch.setattr(raw, "RECORDED", 4)
    for (rows, drive), (more, repeated) in zip(few, raw._rollout(engine, 10, 3), strict=True):
        np.testing.assert_array_equal(more, rows[np.arange(10) % 4])
        np.testing.assert_array_equal(repeated.ctrl, drive.ctrl[np.arange(10) % 4])

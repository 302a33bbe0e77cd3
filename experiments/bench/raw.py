"""What MuJoCo's C engine steps without anything around it: the limit of every program that runs a task on it.

`mujoco.batch.Batch` on all cores is given the states and controls of a recorded rollout, control step by control step,
and makes all sub-steps of each in one call. So its physics is that of the task, falls and new starts included, and
nothing of the task is computed. What a task does between sub-steps (controls that follow a joint, a bound on a speed)
is no part of the limit and counts as a cost of the task.
"""

from typing import Any

import jax
import numpy as np

from envs import Task
from envs.physics import Drive, Physics
from envs.physics.batch import Engine
from envs.physics.fields import physics_library
from envs.physics.host import usable_cores
from experiments.bench.timing import Timer, until

RECORDED = 256  # copies of the rollout, at most; where more are stepped, they repeat these


def raw(task: Task, copies: int, length: int) -> Timer:
    """Control steps per second of ``copies`` of a C-engine task; ``length`` of them are recorded and repeated."""
    env: Any = task.env
    engine, mujoco = Engine(env.task, usable_cores()), physics_library()
    batch = mujoco.batch.Batch(engine.model, copies, usable_cores())
    applied = {field: batch.bind(field) for field in Drive._fields}
    steps, carried = _rollout(engine, copies, length), batch.state[:, : engine.default.size]

    def work() -> int:
        for rows, drive in steps:
            carried[:] = rows
            for field, values in drive._asdict().items():
                if values is not None:
                    applied[field][:] = values
            batch.step(nstep=engine.task.substeps)
        return length * copies

    work()
    return until(work)


def _rollout(engine: Engine, copies: int, length: int) -> list[tuple[np.ndarray, Drive]]:
    """State rows and first drives of ``length`` control steps under random actions.

    As many go before, so that copies have fallen and begun anew by then. Who is done goes back to its start.
    """
    task, rng, steps = engine.task, np.random.default_rng(0), []
    recorded, size = min(copies, RECORDED), engine.default.size
    params = engine.params([np.full(recorded, value) for value in task.params])
    noise = jax.jit(jax.vmap(task.noise))(jax.random.split(jax.random.key(0), recorded))
    rows = starts = engine.start(np.asarray(noise), params)[1]
    for step in range(2 * length):
        action = rng.uniform(-1.0, 1.0, (recorded, task.action_size))
        if step >= length:
            now = Physics(qpos=rows[:, engine.positions], qvel=rows[:, engine.velocities])
            drive = task.control(np, now, rows[:, size:], action, params)
            drive = Drive(*(None if each is None else np.resize(each, (copies, *each.shape[1:])) for each in drive))
            steps.append((np.resize(rows[:, :size], (copies, size)), drive))
        after = engine.step(rows, action, params)
        rows = np.where((after.terminated | after.bad)[:, None], starts, after.rows)
    return steps

"""The library of poses from which an episode of the hand starts: `python -m envs.isaac.settle` writes it anew.

The joints by the reference's law, the cube let go above the palm, the hand's posture held. Where the cube lies still
near the goal's place three seconds later, and stays there for another 120 control steps, the pose is kept.
"""

from typing import Any

import numpy as np

from envs.isaac.allegro_hand import CUBE, GOAL, LIBRARY, AllegroHand, orientation
from envs.physics.fields import physics_library

_ABOVE = np.array([0.0, 0.0, 0.06])  # where the cube is let go, from where the reference has it, metres
STEPS, LONGER = 360, 480  # physics steps of settling and of the proof
NEAR, STILL = 0.1, 0.02  # metres from the goal's place; rad/s and m/s


def library(count: int, seed: int = 0) -> np.ndarray:
    """(count, 23) float32 positions: joints, the cube's place, its orientation."""
    task, rng, found = AllegroHand(), np.random.default_rng(seed), []
    while len(found) < count:
        pose = _settle(task, rng)
        if pose is not None:
            found.append(pose)
    return np.array(found, np.float32)


def _settle(task: AllegroHand, rng: np.random.Generator) -> np.ndarray | None:
    mujoco = physics_library()
    data = mujoco.MjData(task.model)
    data.ctrl[:] = data.qpos[:16] = 0.2 * rng.uniform(task.low, task.high)
    data.qpos[16:19] = CUBE + _ABOVE + rng.uniform(-0.01, 0.01, 3)
    data.qpos[19:] = orientation(np, rng.uniform(-1, 1, 2))
    if not _still(mujoco, task, data, STEPS):
        return None
    pose = data.qpos.copy()
    data.qvel[:], data.ctrl[:] = 0.0, np.clip(pose[:16], task.low, task.high)  # what an agent can ask for
    return pose if _still(mujoco, task, data, LONGER) else None


def _still(mujoco: Any, task: AllegroHand, data: Any, steps: int) -> bool:
    """Whether the cube lies still on the hand after so many physics steps."""
    mujoco.mj_step(task.model, data, steps)
    return bool(np.linalg.norm(data.qpos[16:19] - GOAL) < NEAR and np.abs(data.qvel).max() < STILL)


if __name__ == "__main__":
    np.save(LIBRARY, library(1024))

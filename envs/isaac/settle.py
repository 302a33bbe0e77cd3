"""Library of start poses of the hand; `python -m envs.isaac.settle` writes it.

Joints follow the reference's distribution, and the cube is released above the palm of the held hand. A pose is stored
if the cube rests near the goal's position three seconds later and stays there for another 120 control steps.
"""

import numpy as np

from envs.isaac.allegro_hand import CUBE, GOAL, LIBRARY, AllegroHand, orientation
from envs.physics.fields import physics_library

_ABOVE = np.array([0.0, 0.0, 0.06])  # metres, offset of the cube at release from its position in the reference
_STEPS = 360, 480  # physics steps of settling and of the check
_NEAR, _STILL = 0.1, 0.02  # metres from the goal's position; rad/s and m/s


def settled(task: AllegroHand, rng: np.random.Generator) -> np.ndarray | None:
    """(23,) joints, position and orientation of the cube in one trial; None if the cube does not come to rest."""
    mujoco = physics_library()
    data = mujoco.MjData(task.model)
    data.ctrl[:] = data.qpos[:16] = 0.2 * rng.uniform(task.low, task.high)
    data.qpos[16:19] = CUBE + _ABOVE + rng.uniform(-0.01, 0.01, 3)
    data.qpos[19:] = orientation(np, rng.uniform(-1, 1, 2))

    def still(steps: int) -> bool:
        mujoco.mj_step(task.model, data, steps)
        return bool(np.linalg.norm(data.qpos[16:19] - GOAL) < _NEAR and np.abs(data.qvel).max() < _STILL)

    if not still(_STEPS[0]):
        return None
    pose = data.qpos.copy()
    data.qvel[:], data.ctrl[:] = 0.0, np.clip(pose[:16], task.low, task.high)  # while an agent acts
    return pose if still(_STEPS[1]) else None


if __name__ == "__main__":
    hand, rng, poses = AllegroHand(), np.random.default_rng(0), []
    while len(poses) < 1024:
        if (pose := settled(hand, rng)) is not None:
            poses.append(pose)
    np.save(LIBRARY, np.array(poses, np.float32))

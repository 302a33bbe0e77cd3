"""An Allegro hand turns a cube to a sequence of orientations: Isaac Gym's ``AllegroHand``.

The reference starts an episode with the cube up to 2 cm inside the fingers and relies on PhysX to push them apart;
MuJoCo throws the cube off the hand. Episodes here start from poses at rest (`envs.isaac.settle`); the variant
``gym_faithful`` has the reference's start distribution.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from envs.isaac import frames
from envs.isaac.base import IsaacParams, IsaacTask
from envs.physics import Drive, Marker, Outcome, Physics, Start

CUBE, GOAL = np.array([0.0, -0.2, 0.56]), np.array([0.0, -0.2, 0.52])  # position of the cube at reset, and its target
LIBRARY = Path(__file__).parent / "assets" / "allegro_hand_settled.npy"
#: Goals drawn for an episode. Each success advances to the next goal; good agents of the reference reach about forty.
#: After the last goal the first is used again.
GOALS = 64
_SHOWN = CUBE + np.array([-0.11, 0.07, 0.14])  # position of the goal in pictures
_SPEED = 6.283  # largest of the joints, rad/s
_TOLERANCE = 0.1  # angle to the goal that counts as success, rad
_FALL = 0.24  # distance from the goal's place at which the cube counts as dropped, metres
SIZES = {"full_state": 88, "full": 72, "full_no_vel": 50}


class AllegroTable(NamedTuple):
    """Constants of a variant."""

    timestep: float = 0.008335  # seconds of a sub-step
    observation: str = "full_state"  # one of `SIZES`
    scalar_last: bool = True  # order of the observed quaternions
    settled: bool = True  # start from the library instead of the reference's distribution


@cache
def settled() -> np.ndarray:
    """(n, 23) positions in which the cube lies still on the hand."""
    return np.load(LIBRARY).astype(np.float64)


def orientation(xp: ModuleType, turns: Any) -> Any:
    """(..., 4) the rotation about y by ``pi turns[..., 1]`` followed by that about x by ``pi turns[..., 0]``."""
    half = 0.5 * np.pi * turns
    c, s = xp.cos(half), xp.sin(half)
    nothing = xp.zeros_like(c[..., 0])
    about_x = xp.stack([c[..., 0], s[..., 0], nothing, nothing], axis=-1)
    about_y = xp.stack([c[..., 1], nothing, s[..., 1], nothing], axis=-1)
    return frames.multiply(xp, about_x, about_y)


class AllegroHand(IsaacTask):
    """Observation (88,) by default, clipped to +-5: joints, cube, goal, the rotation between them, and the action.

    Entries 32:48 are the reference's joint force sensors, which the reference never enables: zeros. A success pays and
    sets a new goal, first visible in the next observation.
    """

    name = "isaac_allegro_hand"
    xml = "allegro_hand.xml"
    description = "an Allegro hand turns a cube to given orientations"
    constants: Mapping[str, AllegroTable] = {
        "gym": AllegroTable(),
        "gym_faithful": AllegroTable(settled=False),
        "omni": AllegroTable(timestep=1 / 120, observation="full", scalar_last=False),
    }
    own = MappingProxyType({"observation": tuple(SIZES)})
    table: AllegroTable
    action_size, substeps, length, resets_first = 16, 4, 600, True
    memory_size = 2 * GOALS + 1  # goals as pairs of turns, and the number of goals reached

    draws = 21 + 2 * GOALS  # cube position and turns, joints, goals

    def prepare(self) -> None:
        self.obs_size = SIZES[self.table.observation]
        self.low, self.high = self.model.jnt_range[:16].T
        self.limit_speeds(_SPEED)

    def start(self, xp: ModuleType, noise: Any, params: IsaacParams) -> Start:
        """At rest, from a pose of the library or the reference's distribution."""
        lead = noise.shape[:-1]
        if self.table.settled:
            library = xp.asarray(settled(), noise.dtype)
            index = xp.floor(0.5 * (noise[..., 0] + 1.0) * len(library)).astype(np.int32)
            qpos = library[xp.clip(index, 0, len(library) - 1)]
        else:
            q = 0.2 * frames.scale(noise[..., 5:21], self.low, self.high)
            qpos = xp.concatenate([q, CUBE + 0.01 * noise[..., :3], orientation(xp, noise[..., 3:5])], axis=-1)
        memory = xp.concatenate([noise[..., 21:], xp.zeros((*lead, 1), noise.dtype)], axis=-1)
        return Start(qpos, xp.zeros((*lead, 22), noise.dtype), memory)

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: IsaacParams) -> Drive:
        """Targets of servos that follow the joint angles of the action."""
        target = frames.scale(xp.clip(action, -1.0, 1.0), self.low, self.high)
        return Drive(self.pursue(xp, physics.qpos[..., :16], target, params))

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: IsaacParams
    ) -> Outcome:
        """Reward for nearness to the goal and for reaching it; the cube's fall ends the episode."""
        action, goal = xp.clip(action, -1.0, 1.0), self.goal(xp, memory)
        cube = physics.qpos[..., 16:19]
        distance = xp.sqrt(xp.sum((cube - GOAL) ** 2, axis=-1))
        angle = self.angle(xp, physics.qpos[..., 19:], goal)
        reached = angle <= _TOLERANCE
        reward = -10.0 * distance + 1.0 / (angle + 0.1) - 0.0002 * xp.sum(action**2, axis=-1)
        reward = xp.where(reached, reward + 250.0, reward)
        count = memory[..., -1] + reached
        after = xp.concatenate([memory[..., :-1], count[..., None]], axis=-1)
        return Outcome(self.observe(xp, physics, memory, action, goal), reward, distance >= _FALL, after)

    def goal(self, xp: ModuleType, memory: Any) -> Any:
        """(..., 4) current goal orientation."""
        turns = xp.reshape(memory[..., :-1], (*memory.shape[:-1], GOALS, 2))
        at = (memory[..., -1] % GOALS).astype(np.int32)
        return orientation(xp, xp.take_along_axis(turns, at[..., None, None], axis=-2)[..., 0, :])

    def angle(self, xp: ModuleType, q: Any, goal: Any) -> Any:
        """(...,) between the cube and the goal, rad, in [0, pi]."""
        vector = frames.multiply(xp, q, frames.conjugate(xp, goal))[..., 1:]
        return 2.0 * xp.arcsin(xp.minimum(xp.sqrt(xp.sum(vector**2, axis=-1)), 1.0))

    def markers(self, memory: Any) -> Sequence[Marker]:
        """The goal, drawn as a second cube at the side of the hand."""
        model, goal = self.model, self.goal(np, memory)
        rotation = np.stack([frames.rotate(np, goal, axis) for axis in np.eye(3)], axis=-1)
        cubes = np.flatnonzero(model.geom_bodyid == model.body("cube").id)
        return [
            Marker("box", model.geom_size[i], _SHOWN + rotation @ model.geom_pos[i], rotation, model.geom_rgba[i, :3])
            for i in cubes
        ]

    def observe(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, goal: Any = None) -> Any:
        goal = self.goal(xp, memory) if goal is None else goal
        layout, qpos, qvel = self.table.observation, physics.qpos, physics.qvel
        q, moves = qpos[..., 19:], layout != "full_no_vel"
        shown = partial(frames.to_xyzw, xp) if self.table.scalar_last else xp.asarray
        parts = [frames.unscale(qpos[..., :16], self.low, self.high)]
        if moves:
            parts += [0.2 * qvel[..., :16]]
        if layout == "full_state":
            parts += [xp.zeros_like(action)]
        parts += [qpos[..., 16:19], shown(q)]
        if moves:
            parts += [qvel[..., 16:19], 0.2 * frames.rotate(xp, q, qvel[..., 19:])]
        place = xp.broadcast_to(np.asarray(GOAL, qpos.dtype), (*qpos.shape[:-1], 3))
        between = frames.multiply(xp, q, frames.conjugate(xp, goal))
        parts += [place, shown(goal), shown(between), action]
        return xp.clip(xp.concatenate(parts, axis=-1), -5.0, 5.0)

"""Task ``reacher``: a planar arm of two links whose lengths, payload and joint friction drift. Not in the paper."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task
from envs.toy.mechanics import rk4

_Array = jax.Array


class ReacherParams(NamedTuple):
    """Constants of the task, SI units; the arm moves in a horizontal plane, so gravity does no work."""

    lengths: Any  # (2,) of the links, the drift channels upper_length and lower_length
    masses: Any  # (2,) points at the elbow and at the tip; the second is the drift channel payload
    friction: Any  # () torque per angular speed of each joint, the drift channel joint_friction
    max_torque: Any  # (2,) of shoulder and elbow
    max_speed: Any  # () of a joint's angle per second
    target: Any  # (2,) position that the tip shall hold
    width: Any  # () distance of the tip from the target at which half the reward is paid
    start_spread: Any  # () half width of the start angles
    time_step: Any  # () seconds


PARAMS = ReacherParams(
    lengths=np.array([0.5, 0.5], np.float32),
    masses=np.array([1.0, 1.0], np.float32),
    friction=np.float32(0.5),
    max_torque=np.array([4.0, 2.0], np.float32),
    max_speed=np.float32(10.0),
    target=np.array([0.0, 0.6], np.float32),
    width=np.float32(0.15),
    start_spread=np.float32(0.5),
    time_step=np.float32(0.05),
)


class ReacherState(NamedTuple):
    """One episode."""

    angles: _Array  # (2,) float32, shoulder from the x axis, elbow relative to the upper link
    speeds: _Array  # (2,) float32
    time: _Array  # () int32, steps of this episode


def tip(angles: _Array, params: ReacherParams) -> _Array:
    """Position (2,) of the tip."""
    directions = jnp.cumsum(angles)
    return jnp.stack([params.lengths @ jnp.cos(directions), params.lengths @ jnp.sin(directions)])


def inertia(angles: _Array, params: ReacherParams) -> _Array:
    """Mass matrix (2, 2); the kinetic energy is ``speeds @ inertia @ speeds / 2``."""
    (l1, l2), (m1, m2) = params.lengths, params.masses
    both = m2 * l1 * l2 * jnp.cos(angles[1])
    lower = m2 * l2**2
    return jnp.array([[(m1 + m2) * l1**2 + lower + 2.0 * both, lower + both], [lower + both, lower]])


def accelerations(angles: _Array, speeds: _Array, torques: _Array, params: ReacherParams) -> _Array:
    """Second derivatives (2,) of the angles under ``torques`` (2,) and friction."""
    couple = params.masses[1] * params.lengths[0] * params.lengths[1] * jnp.sin(angles[1])
    coriolis = couple * jnp.stack([-speeds[1] * (2.0 * speeds[0] + speeds[1]), speeds[0] ** 2])
    right = torques - params.friction * speeds - coriolis
    (a, b), (_, c) = inertia(angles, params)
    return jnp.stack([c * right[0] - b * right[1], a * right[1] - b * right[0]]) / (a * c - b * b)


class Reacher:
    """Hold the tip at a fixed target: observation ``(cos, sin)`` of both angles and both speeds, never the tip.

    Reward ``1 / (1 + |tip - target|^2 / width^2)``, 100 steps, truncated and never terminated. Under other lengths
    the target lies at other angles, which the observation does not tell.
    """

    spec = EnvSpec(obs_size=6, action_size=2, time_limit=100)

    def reset(self, key: _Array, params: ReacherParams) -> tuple[_Array, ReacherState]:
        """Angles about zero, the arm stretched along the x axis and at rest."""
        angles = params.start_spread * jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = ReacherState(angles, jnp.zeros(2, jnp.float32), jnp.zeros((), jnp.int32))
        return _observe(state), state

    def step(self, key: _Array, state: ReacherState, action: _Array, params: ReacherParams) -> Step:
        """One step; ``action`` (2,) in [-1, 1] is a share of the largest torques."""
        del key
        torques = params.max_torque * jnp.clip(action, -1.0, 1.0)

        def slope(x: _Array) -> _Array:
            return jnp.concatenate([x[2:], accelerations(x[:2], x[2:], torques, params)])

        after = rk4(slope, jnp.concatenate([state.angles, state.speeds]), params.time_step, substeps=2)
        speeds = jnp.clip(after[2:], -params.max_speed, params.max_speed)
        state = ReacherState(after[:2], speeds, state.time + 1)
        away = tip(state.angles, params) - params.target
        reward = 1.0 / (1.0 + jnp.sum(away**2) / params.width**2)
        return _observe(state), state, reward, jnp.zeros((), bool), state.time >= self.spec.time_limit, {}


def _observe(state: ReacherState) -> _Array:
    return jnp.concatenate([jnp.cos(state.angles), jnp.sin(state.angles), state.speeds / 5.0])


TASK = Task(
    name="reacher",
    family="toy",
    env=Reacher(),
    params=PARAMS,
    channels=(
        Channel("upper_length", 0.35, 0.65, 0.5),
        Channel("lower_length", 0.35, 0.65, 0.5),
        Channel("payload", 0.5, 1.5, 1.0),
        Channel("joint_friction", 0.2, 0.8, 0.5),
    ),
    apply_drift=lambda params, values: params._replace(
        lengths=values[:2], masses=jnp.stack([params.masses[0], values[2]]), friction=values[3]
    ),
    negative_returns=False,
    description="planar two-link arm; link lengths, payload and joint friction drift",
)

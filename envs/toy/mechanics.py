"""Small mechanical tasks, not in the paper: ``pendulum``, ``reacher`` and ``cartpole_swingup``; SI units.

Each takes an action (A,) in [-1, 1] as shares of the largest torques or forces. Episodes are truncated, never
terminated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task

_Array = jax.Array


def rk4(slope: Callable[[_Array], _Array], state: _Array, time_step: _Array, substeps: int) -> _Array:
    """``state`` (S,) after ``time_step`` seconds of ``d state / dt = slope(state)``, by Runge-Kutta of order 4."""
    h = time_step / substeps

    def one(_: int, x: _Array) -> _Array:
        k1 = slope(x)
        k2 = slope(x + h / 2 * k1)
        k3 = slope(x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + h * k3))

    return jax.lax.fori_loop(0, substeps, one, state, unroll=True)


class PendulumParams(NamedTuple):
    """Constants of ``pendulum``, () each."""

    gravity: Any = np.float32(10.0)  # a drift channel
    mass: Any = np.float32(1.0)
    length: Any = np.float32(1.0)
    max_speed: Any = np.float32(8.0)  # of the angle per second
    max_torque: Any = np.float32(2.0)
    time_step: Any = np.float32(0.05)


class PendulumState(NamedTuple):
    """One episode."""

    angle: _Array  # () float32, 0 upright
    speed: _Array  # () float32
    time: _Array  # () int32, steps of this episode


class Pendulum:
    """Gymnasium's Pendulum-v1: swing up and balance, observation ``(cos, sin, speed)``.

    Reward ``-(angle^2 + 0.1 speed^2 + 0.001 torque^2)``; returns lie between about -1900 and 0.
    """

    spec = EnvSpec(obs_size=3, action_size=1, time_limit=200)

    def reset(self, key: _Array, params: PendulumParams) -> tuple[_Array, PendulumState]:
        """Any angle, speed within 1."""
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = PendulumState(angle * jnp.pi, speed, jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def step(self, key: _Array, state: PendulumState, action: _Array, params: PendulumParams) -> Step:
        """One step of semi-implicit Euler."""
        torque = params.max_torque * jnp.clip(action[0], -1.0, 1.0)
        angle = jnp.mod(state.angle + jnp.pi, 2 * jnp.pi) - jnp.pi
        reward = -(angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2)
        pull = 1.5 * params.gravity / params.length * jnp.sin(state.angle)
        speed = state.speed + (pull + 3.0 / (params.mass * params.length**2) * torque) * params.time_step
        speed = jnp.clip(speed, -params.max_speed, params.max_speed)
        state = PendulumState(state.angle + speed * params.time_step, speed, state.time + 1)
        return self._observe(state), state, reward, jnp.zeros((), bool), state.time >= self.spec.time_limit, {}

    def _observe(self, state: PendulumState) -> _Array:
        return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])


class ReacherParams(NamedTuple):
    """Constants of ``reacher``; the arm moves in a horizontal plane, so gravity does no work."""

    lengths: Any = np.array([0.5, 0.5], np.float32)  # (2,) of the links, drift channels upper_length and lower_length
    masses: Any = np.array([1.0, 1.0], np.float32)  # (2,) points at elbow and tip; the second is the channel payload
    friction: Any = np.float32(0.5)  # () torque per angular speed of each joint, the drift channel joint_friction
    max_torque: Any = np.array([4.0, 2.0], np.float32)  # (2,) of shoulder and elbow
    max_speed: Any = np.float32(10.0)  # () of a joint's angle per second
    target: Any = np.array([0.0, 0.6], np.float32)  # (2,) position that the tip must hold
    width: Any = np.float32(0.15)  # () distance of the tip from the target at which the reward is one half
    start_spread: Any = np.float32(0.5)  # () half width of the start angles
    time_step: Any = np.float32(0.05)  # () seconds


class ReacherState(NamedTuple):
    """One episode."""

    angles: _Array  # (2,) float32, shoulder from the x axis, elbow relative to the upper link
    speeds: _Array  # (2,) float32
    time: _Array  # () int32, steps of this episode


def inertia(angles: _Array, params: ReacherParams) -> _Array:
    """Mass matrix (2, 2) of the arm; the kinetic energy is ``speeds @ inertia @ speeds / 2``."""
    (l1, l2), (m1, m2) = params.lengths, params.masses
    both = m2 * l1 * l2 * jnp.cos(angles[1])
    lower = m2 * l2**2
    return jnp.array([[(m1 + m2) * l1**2 + lower + 2.0 * both, lower + both], [lower + both, lower]])


class Reacher:
    """Hold the tip at a fixed target: observation ``(cos, sin)`` of both angles and both speeds, never the tip.

    Reward ``1 / (1 + |tip - target|^2 / width^2)``. Under other lengths the target is at other angles, which are not
    observed.
    """

    spec = EnvSpec(obs_size=6, action_size=2, time_limit=100)

    def reset(self, key: _Array, params: ReacherParams) -> tuple[_Array, ReacherState]:
        """The arm stretched along the x axis with small random angles, at rest."""
        angles = params.start_spread * jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = ReacherState(angles, jnp.zeros(2, jnp.float32), jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def step(self, key: _Array, state: ReacherState, action: _Array, params: ReacherParams) -> Step:
        """One step under torques at both joints."""
        torques = params.max_torque * jnp.clip(action, -1.0, 1.0)

        def slope(x: _Array) -> _Array:
            angles, speeds = x[:2], x[2:]
            couple = params.masses[1] * params.lengths[0] * params.lengths[1] * jnp.sin(angles[1])
            coriolis = couple * jnp.stack([-speeds[1] * (2.0 * speeds[0] + speeds[1]), speeds[0] ** 2])
            right = torques - params.friction * speeds - coriolis
            (a, b), (_, c) = inertia(angles, params)
            turns = jnp.stack([c * right[0] - b * right[1], a * right[1] - b * right[0]]) / (a * c - b * b)
            return jnp.concatenate([speeds, turns])

        after = rk4(slope, jnp.concatenate([state.angles, state.speeds]), params.time_step, substeps=2)
        speeds = jnp.clip(after[2:], -params.max_speed, params.max_speed)
        state = ReacherState(after[:2], speeds, state.time + 1)
        links = jnp.cumsum(state.angles)
        tip = jnp.stack([params.lengths @ jnp.cos(links), params.lengths @ jnp.sin(links)])
        reward = 1.0 / (1.0 + jnp.sum((tip - params.target) ** 2) / params.width**2)
        return self._observe(state), state, reward, jnp.zeros((), bool), state.time >= self.spec.time_limit, {}

    def _observe(self, state: ReacherState) -> _Array:
        return jnp.concatenate([jnp.cos(state.angles), jnp.sin(state.angles), state.speeds / 5.0])


class CartPoleParams(NamedTuple):
    """Constants of ``cartpole_swingup``, () each."""

    length: Any = np.float32(0.5)  # of the massless rod, a drift channel
    pole_mass: Any = np.float32(0.2)  # a point at its end, a drift channel
    track_friction: Any = np.float32(0.5)  # force per speed of the cart, a drift channel
    slope: Any = np.float32(0.0)  # radians by which the track rises to the right, a drift channel
    cart_mass: Any = np.float32(1.0)
    gravity: Any = np.float32(9.81)
    max_force: Any = np.float32(12.0)
    half_track: Any = np.float32(2.0)  # the cart stops at its ends
    time_step: Any = np.float32(0.05)


class CartPoleState(NamedTuple):
    """One episode."""

    place: _Array  # () float32, of the cart along the track
    angle: _Array  # () float32, 0 upright, positive to the right
    speed: _Array  # () float32, of the cart
    spin: _Array  # () float32, of the angle
    time: _Array  # () int32, steps of this episode


class CartPole:
    """Swing the pole up and balance it near the middle: observation ``(place, cos, sin, speed, spin)``, scaled.

    Reward ``(1 + cos angle) / 2 * exp(-place^2 / 2)``.
    """

    spec = EnvSpec(obs_size=5, action_size=1, time_limit=100)

    def reset(self, key: _Array, params: CartPoleParams) -> tuple[_Array, CartPoleState]:
        """Hanging, up to 0.1 off the middle and off the vertical, at rest."""
        place, angle = jax.random.uniform(key, (2,), jnp.float32, -0.1, 0.1)
        state = CartPoleState(place, angle + jnp.pi, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def step(self, key: _Array, state: CartPoleState, action: _Array, params: CartPoleParams) -> Step:
        """One step under a force on the cart: Lagrange's equations with friction along the track."""
        force = params.max_force * jnp.clip(action[0], -1.0, 1.0)
        both, arm = params.cart_mass + params.pole_mass, params.pole_mass * params.length

        def slope(x: _Array) -> _Array:
            _, angle, speed, spin = x
            tilted = angle + params.slope
            pull = force - params.track_friction * speed - both * params.gravity * jnp.sin(params.slope)
            pull = pull + arm * jnp.sin(tilted) * spin**2
            weight = params.gravity * jnp.sin(angle)
            share = params.pole_mass * jnp.cos(tilted)
            cart = (pull - share * weight) / (both - params.pole_mass * jnp.cos(tilted) ** 2)
            return jnp.stack([speed, spin, cart, (weight - jnp.cos(tilted) * cart) / params.length])

        place, angle, speed, spin = rk4(slope, jnp.stack(state[:4]), params.time_step, substeps=2)
        inside = jnp.abs(place) < params.half_track
        place = jnp.clip(place, -params.half_track, params.half_track)
        angle = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
        state = CartPoleState(place, angle, jnp.where(inside, speed, 0.0), jnp.clip(spin, -20.0, 20.0), state.time + 1)
        reward = (1.0 + jnp.cos(angle)) / 2.0 * jnp.exp(-(place**2) / 2.0)
        return self._observe(state), state, reward, jnp.zeros((), bool), state.time >= self.spec.time_limit, {}

    def _observe(self, state: CartPoleState) -> _Array:
        return jnp.stack([state.place, jnp.cos(state.angle), jnp.sin(state.angle), state.speed / 2.0, state.spin / 5.0])


PENDULUM = Task(
    name="pendulum",
    family="toy",
    env=Pendulum(),
    params=PendulumParams(),
    channels=(Channel("gravity", 5.0, 15.0, 10.0),),
    apply_drift=lambda params, values: params._replace(gravity=values[0]),
    description="Gymnasium's Pendulum-v1 with drifting gravity; not in the paper",
)

REACHER = Task(
    name="reacher",
    family="toy",
    env=Reacher(),
    params=ReacherParams(),
    channels=(
        Channel("upper_length", 0.35, 0.65, 0.5),
        Channel("lower_length", 0.35, 0.65, 0.5),
        Channel("payload", 0.5, 1.5, 1.0),
        Channel("joint_friction", 0.2, 0.8, 0.5),
    ),
    apply_drift=lambda params, values: params._replace(
        lengths=values[:2], masses=jnp.stack([params.masses[0], values[2]]), friction=values[3]
    ),
    description="planar two-link arm; link lengths, payload and joint friction drift",
)

CARTPOLE = Task(
    name="cartpole_swingup",
    family="toy",
    env=CartPole(),
    params=CartPoleParams(),
    channels=(
        Channel("pole_length", 0.25, 0.75, 0.5),
        Channel("pole_mass", 0.1, 0.5, 0.2),
        Channel("track_friction", 0.0, 2.0, 0.5),
        Channel("track_slope", -0.3, 0.3, 0.0),
    ),
    apply_drift=lambda params, values: params._replace(
        length=values[0], pole_mass=values[1], track_friction=values[2], slope=values[3]
    ),
    description="cart-pole swing-up; pole length and mass, track friction and slope drift",
)

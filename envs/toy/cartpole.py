"""Task ``cartpole_swingup``: pole length and mass, track friction and track slope drift. Not in the paper."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task
from envs.toy.mechanics import rk4

_Array = jax.Array


class CartPoleParams(NamedTuple):
    """Constants of the task, SI units."""

    length: Any  # () of the massless rod, a drift channel
    pole_mass: Any  # () point at its end, a drift channel
    track_friction: Any  # () force per speed of the cart, a drift channel
    slope: Any  # () radians by which the track rises to the right, a drift channel
    cart_mass: Any  # ()
    gravity: Any  # ()
    max_force: Any  # ()
    half_track: Any  # () the cart stops at its ends
    time_step: Any  # () seconds


PARAMS = CartPoleParams(*(np.float32(x) for x in (0.5, 0.2, 0.5, 0.0, 1.0, 9.81, 12.0, 2.0, 0.05)))


class CartPoleState(NamedTuple):
    """One episode."""

    place: _Array  # () float32, of the cart along the track
    angle: _Array  # () float32, 0 upright, positive to the right
    speed: _Array  # () float32, of the cart
    spin: _Array  # () float32, of the angle
    time: _Array  # () int32, steps of this episode


def _accelerations(x: _Array, force: _Array, params: CartPoleParams) -> _Array:
    """Of cart and angle, (2,): Lagrange's equations with force and friction along the track."""
    _, angle, speed, spin = x
    both, arm = params.cart_mass + params.pole_mass, params.pole_mass * params.length
    tilted = angle + params.slope
    pull = force - params.track_friction * speed - both * params.gravity * jnp.sin(params.slope)
    pull = pull + arm * jnp.sin(tilted) * spin**2
    weight = params.gravity * jnp.sin(angle)
    cart = (pull - params.pole_mass * jnp.cos(tilted) * weight) / (both - params.pole_mass * jnp.cos(tilted) ** 2)
    return jnp.stack([cart, (weight - jnp.cos(tilted) * cart) / params.length])


class CartPole:
    """Swing the pole up and balance it near the middle: observation ``(place, cos, sin, speed, spin)``, scaled.

    Reward ``(1 + cos angle) / 2 * exp(-place^2 / 2)``, 100 steps, truncated and never terminated.
    """

    spec = EnvSpec(obs_size=5, action_size=1, time_limit=100)

    def reset(self, key: _Array, params: CartPoleParams) -> tuple[_Array, CartPoleState]:
        """Hanging, up to 0.1 off the middle and off the vertical, at rest."""
        place, angle = jax.random.uniform(key, (2,), jnp.float32, -0.1, 0.1)
        state = CartPoleState(place, angle + jnp.pi, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return _observe(state), state

    def step(self, key: _Array, state: CartPoleState, action: _Array, params: CartPoleParams) -> Step:
        """One step; ``action`` (1,) in [-1, 1] is a share of the largest force."""
        del key
        force = params.max_force * jnp.clip(action[0], -1.0, 1.0)

        def slope(x: _Array) -> _Array:
            return jnp.concatenate([x[2:], _accelerations(x, force, params)])

        place, angle, speed, spin = rk4(slope, jnp.stack(state[:4]), params.time_step, substeps=2)
        inside = jnp.abs(place) < params.half_track
        place = jnp.clip(place, -params.half_track, params.half_track)
        angle = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
        state = CartPoleState(place, angle, jnp.where(inside, speed, 0.0), jnp.clip(spin, -20.0, 20.0), state.time + 1)
        reward = (1.0 + jnp.cos(angle)) / 2.0 * jnp.exp(-(place**2) / 2.0)
        return _observe(state), state, reward, jnp.zeros((), bool), state.time >= self.spec.time_limit, {}


def _observe(state: CartPoleState) -> _Array:
    return jnp.stack([state.place, jnp.cos(state.angle), jnp.sin(state.angle), state.speed / 2.0, state.spin / 5.0])


TASK = Task(
    name="cartpole_swingup",
    family="toy",
    env=CartPole(),
    params=PARAMS,
    channels=(
        Channel("pole_length", 0.25, 0.75, 0.5),
        Channel("pole_mass", 0.1, 0.5, 0.2),
        Channel("track_friction", 0.0, 2.0, 0.5),
        Channel("track_slope", -0.3, 0.3, 0.0),
    ),
    apply_drift=lambda params, values: params._replace(
        length=values[0], pole_mass=values[1], track_friction=values[2], slope=values[3]
    ),
    negative_returns=False,
    description="cart-pole swing-up; pole length and mass, track friction and slope drift",
)

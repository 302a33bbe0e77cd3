"""Task ``pendulum``: Gymnasium's Pendulum-v1 with drifting gravity. Not in the paper; what speed is compared on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task

_Array = jax.Array


class PendulumParams(NamedTuple):
    """Constants of the task, SI units."""

    gravity: Any  # () the drift channel
    mass: Any  # ()
    length: Any  # ()
    max_speed: Any  # () of the angle per second
    max_torque: Any  # ()
    time_step: Any  # () seconds


PARAMS = PendulumParams(*(np.float32(x) for x in (10.0, 1.0, 1.0, 8.0, 2.0, 0.05)))


class PendulumState(NamedTuple):
    """One episode."""

    angle: _Array  # () float32, 0 upright
    speed: _Array  # () float32
    time: _Array  # () int32, steps of this episode


class Pendulum:
    """Swing up and balance: observation ``(cos, sin, speed)``, reward ``-(angle^2 + 0.1 speed^2 + 0.001 torque^2)``.

    200 steps, truncated and never terminated; returns lie between about -1900 and 0.
    """

    spec = EnvSpec(obs_size=3, action_size=1, time_limit=200)

    def reset(self, key: _Array, params: PendulumParams) -> tuple[_Array, PendulumState]:
        """Any angle, speed within 1."""
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = PendulumState(angle * jnp.pi, speed, jnp.zeros((), jnp.int32))
        return _observe(state), state

    def step(self, key: _Array, state: PendulumState, action: _Array, params: PendulumParams) -> Step:
        """One step of semi-implicit Euler; ``action`` (1,) in [-1, 1] is a share of the largest torque."""
        del key
        torque = params.max_torque * jnp.clip(action[0], -1.0, 1.0)
        angle = jnp.mod(state.angle + jnp.pi, 2 * jnp.pi) - jnp.pi
        reward = -(angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2)
        pull = 1.5 * params.gravity / params.length * jnp.sin(state.angle)
        speed = state.speed + (pull + 3.0 / (params.mass * params.length**2) * torque) * params.time_step
        speed = jnp.clip(speed, -params.max_speed, params.max_speed)
        state = PendulumState(state.angle + speed * params.time_step, speed, state.time + 1)
        return _observe(state), state, reward, jnp.zeros((), bool), state.time >= self.spec.time_limit, {}


def _observe(state: PendulumState) -> _Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])


TASK = Task(
    name="pendulum",
    family="toy",
    env=Pendulum(),
    params=PARAMS,
    channels=(Channel("gravity", 5.0, 15.0, 10.0),),
    apply_drift=lambda params, values: params._replace(gravity=values[0]),
    negative_returns=True,
    description="Gymnasium's Pendulum-v1 with drifting gravity; not in the paper",
)

"""Tasks ``toy`` (four hidden goals, one with double reward) and ``toy_multigoal_classic``; drift shifts the goals."""

import math
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task

Array = jax.Array


class MultiGoalParams(NamedTuple):
    """Constants of the task; lengths in normalised coordinates, where the arena is [-1, 1]^2."""

    goals: Any = np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.5], [0.0, -0.5]], np.float32)  # (4, 2) without drift
    weights: Any = np.array([1.0, 0.5, 0.5, 0.5], np.float32)  # (4,) reward at the centre of each goal
    goal_offset: Any = np.zeros(2, np.float32)  # (2,) shift of all goals: the drift channel
    width: Any = np.float32(0.2)  # () standard deviation of a goal's bump
    step_size: Any = np.float32(0.1)  # () length moved per unit of action
    process_noise: Any = np.float32(0.01)  # () standard deviation of the noise on each coordinate of a move
    start_std: Any = np.float32(0.05)  # () standard deviation of each coordinate of the start
    control_cost: Any = np.float32(0.01)  # () reward lost per unit of |a|^2


PARAMS = MultiGoalParams()


class PointState(NamedTuple):
    """One episode."""

    position: Array  # (2,) float32 in the arena
    time: Array  # () int32, steps of this episode


def goal_reward(position: Array, params: MultiGoalParams) -> Array:
    """Reward () at ``position`` (2,): ``max_i w_i exp(-|p - g_i|^2 / (2 width^2))``, >= 0."""
    away = position[None, :] - (params.goals + params.goal_offset[None, :])
    return jnp.max(params.weights * jnp.exp(-jnp.sum(away**2, axis=1) / (2.0 * params.width**2)))


class MultiGoal:
    """``p' = clip(p + 0.1 a + 0.01 n, -1, 1)``, observation ``p``, 50 steps; the goals are not observed.

    Reward ``goal_reward(p') - 0.01 |a|^2``. Episodes are truncated, never terminated. An optimal policy
    with known goals earns about 47.8 of at most 50 without drift.
    """

    spec = EnvSpec(obs_size=2, action_size=2, time_limit=50)

    def reset(self, key: Array, params: MultiGoalParams) -> tuple[Array, PointState]:
        """Start at ``N(0, start_std^2 I)``."""
        position = params.start_std * jax.random.normal(key, (2,), jnp.float32)
        return position, PointState(position, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: PointState, action: Array, params: MultiGoalParams) -> Step:
        """One move; ``action`` (2,) in [-1, 1]."""
        action = jnp.clip(action, -1.0, 1.0)
        noise = params.process_noise * jax.random.normal(key, (2,), jnp.float32)
        position = jnp.clip(state.position + params.step_size * action + noise, -1.0, 1.0)
        reward = goal_reward(position, params) - params.control_cost * jnp.sum(action**2)
        time = state.time + 1
        terminated = jnp.zeros((), bool)
        return position, PointState(position, time), reward, terminated, time >= self.spec.time_limit, {}


TASK = Task(
    name="toy",
    family="toy",
    env=MultiGoal(),
    params=PARAMS,
    channels=(Channel("goal_offset", -0.5, 0.5, 0.0, size=2, kind="planar"),),
    apply_drift=lambda params, values: params._replace(goal_offset=values),
    description="2-D multi-goal: four hidden goals, one worth double; drift moves them together",
)


class ClassicParams(NamedTuple):
    """Constants of the task; lengths in the source's coordinates, where the arena is [-7, 7]^2."""

    goals: Any = np.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0], [0.0, -5.0]], np.float32)  # (4, 2) without drift
    goal_offset: Any = np.zeros(2, np.float32)  # (2,) shift of all goals: the drift channel
    bound: Any = np.float32(7.0)  # () half width of the arena
    start_std: Any = np.float32(0.1)  # () standard deviation of each coordinate of the start
    action_cost: Any = np.float32(30.0)  # () reward lost per unit of |a|^2
    distance_cost: Any = np.float32(1.0)  # () reward lost per unit of squared distance to the nearest goal
    goal_bonus: Any = np.float32(10.0)  # () reward for arriving
    goal_radius: Any = np.float32(1.0)  # () distance that counts as arrival


class ClassicMultiGoal(MultiGoal):
    """The landscape of soft Q-learning, to compare with its figures: ``p' = clip(p + a, -7, 7)``, fully observed.

    Haarnoja et al. 2017, "Reinforcement Learning with Deep Energy-Based Policies", section 5.1 and its example.
    Reward ``-30 |a|^2 - min_i |p' - g_i|^2``, plus 10 and the end of the episode within distance 1 of a goal;
    at most ``time_limit`` steps.
    """

    def __init__(self, time_limit: int):
        self.spec = EnvSpec(obs_size=2, action_size=2, time_limit=time_limit)

    def step(self, key: Array, state: PointState, action: Array, params: ClassicParams) -> Step:
        """One move without noise."""
        action = jnp.clip(action, -1.0, 1.0)
        position = jnp.clip(state.position + action, -params.bound, params.bound)
        away = position[None, :] - (params.goals + params.goal_offset[None, :])
        nearest = jnp.min(jnp.sum(away**2, axis=1))
        terminated = nearest < params.goal_radius**2
        cost = params.action_cost * jnp.sum(action**2) + params.distance_cost * nearest
        reward = jnp.where(terminated, params.goal_bonus, 0.0) - cost
        time = state.time + 1
        truncated = (time >= self.spec.time_limit) & ~terminated
        return position, PointState(position, time), reward, terminated, truncated, {}


@cache
def build_classic(goal_shift: float = 3.5, time_limit: int = 30) -> Task:
    """Task ``toy_multigoal_classic``.

    Args:
      goal_shift: length of a relocation; by default 0.5 in normalised coordinates; 0.5 here in the authors' code.
      time_limit: steps of an episode; 1000 in the authors' code.

    Raises:
      ValueError: an option out of range.
    """
    if not (0.0 < goal_shift < math.inf and isinstance(time_limit, int) and time_limit >= 1):
        text = "goal_shift must be positive and finite, time_limit a whole number, at least 1"
        raise ValueError(f"{text}; got {goal_shift!r} and {time_limit!r}")
    return Task(
        name="toy_multigoal_classic",
        family="toy",
        env=ClassicMultiGoal(time_limit),
        params=ClassicParams(),
        channels=(Channel("goal_offset", -goal_shift, goal_shift, 0.0, size=2, kind="planar"),),
        apply_drift=lambda params, values: params._replace(goal_offset=values),
        description="soft Q-learning's multi-goal task: positions in [-7, 7], negative returns, ends at a goal",
        options={"goal_shift": goal_shift, "time_limit": time_limit},
    )

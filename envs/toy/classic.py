"""Task ``toy_multigoal_classic``: the multi-goal landscape of soft Q-learning, to compare with its figures.

Haarnoja et al. 2017, "Reinforcement Learning with Deep Energy-Based Policies", section 5.1 and its published
example.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task

Array = jax.Array


class ClassicParams(NamedTuple):
    """Constants of the task; lengths in the source's coordinates, where the arena is [-7, 7]^2."""

    goals: Any  # (4, 2) goal positions without drift
    goal_offset: Any  # (2,) shift of all goals: the drift channel
    bound: Any  # () half width of the arena
    start_std: Any  # () standard deviation of each coordinate of the start
    action_cost: Any  # () reward lost per unit of |a|^2
    distance_cost: Any  # () reward lost per unit of squared distance to the nearest goal
    goal_bonus: Any  # () reward for arriving
    goal_radius: Any  # () distance that counts as arrival


PARAMS = ClassicParams(
    goals=np.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0], [0.0, -5.0]], np.float32),
    goal_offset=np.zeros(2, np.float32),
    bound=np.float32(7.0),
    start_std=np.float32(0.1),
    action_cost=np.float32(30.0),
    distance_cost=np.float32(1.0),
    goal_bonus=np.float32(10.0),
    goal_radius=np.float32(1.0),
)


class ClassicState(NamedTuple):
    """One episode."""

    position: Array  # (2,) float32 in [-7, 7]
    time: Array  # () int32, steps of this episode


class ClassicMultiGoal:
    """``p' = clip(p + a, -7, 7)`` without noise; action = velocity in [-1, 1]^2, observation ``p`` as it is.

    Reward ``-30 |a|^2 - min_i |p' - g_i|^2``, plus 10 and the end of the episode within distance 1 of a goal;
    at most ``time_limit`` steps.
    """

    def __init__(self, time_limit: int):
        self.spec = EnvSpec(obs_size=2, action_size=2, time_limit=time_limit)

    def reset(self, key: Array, params: ClassicParams) -> tuple[Array, ClassicState]:
        """Start at ``N(0, start_std^2 I)``."""
        position = params.start_std * jax.random.normal(key, (2,), jnp.float32)
        return position, ClassicState(position, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: ClassicState, action: Array, params: ClassicParams) -> Step:
        """One move; ``key`` is not used, the task has no noise."""
        del key
        action = jnp.clip(action, -1.0, 1.0)
        position = jnp.clip(state.position + action, -params.bound, params.bound)
        away = position[None, :] - (params.goals + params.goal_offset[None, :])
        nearest = jnp.min(jnp.sum(away**2, axis=1))
        terminated = nearest < params.goal_radius**2
        cost = params.action_cost * jnp.sum(action**2) + params.distance_cost * nearest
        reward = jnp.where(terminated, params.goal_bonus, 0.0) - cost
        time = state.time + 1
        truncated = (time >= self.spec.time_limit) & ~terminated
        return position, ClassicState(position, time), reward, terminated, truncated, {}


@cache
def build(goal_shift: float = 3.5, time_limit: int = 30) -> Task:
    """The task.

    Args:
      goal_shift: length of a relocation; by default 0.5 in normalised coordinates; the authors' code has 0.5 in these.
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
        params=PARAMS,
        channels=(Channel("goal_offset", -goal_shift, goal_shift, 0.0, size=2, kind="planar"),),
        apply_drift=lambda params, values: params._replace(goal_offset=values),
        negative_returns=True,
        description="soft Q-learning's multi-goal task: positions in [-7, 7], negative returns, ends at a goal",
        # No drift_surrogate: which moves end the episode changes with the goals, so Delta^P is 2 for any drift.
        options={"goal_shift": goal_shift, "time_limit": time_limit},
    )

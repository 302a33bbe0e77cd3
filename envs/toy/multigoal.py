"""Task ``toy``: a point in a square, four hidden goals one of which pays double, and a shift of them all."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task

Array = jax.Array


class MultiGoalParams(NamedTuple):
    """Constants of the task; lengths in normalised coordinates, where the arena is [-1, 1]^2."""

    goals: Any  # (4, 2) goal positions without drift
    weights: Any  # (4,) reward at the centre of each goal
    goal_offset: Any  # (2,) shift of all goals: the drift channel
    width: Any  # () standard deviation of a goal's bump
    step_size: Any  # () length moved per unit of action
    process_noise: Any  # () standard deviation of the noise on each coordinate of a move
    start_std: Any  # () standard deviation of each coordinate of the start
    control_cost: Any  # () reward lost per unit of |a|^2


PARAMS = MultiGoalParams(
    goals=np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.5], [0.0, -0.5]], np.float32),
    weights=np.array([1.0, 0.5, 0.5, 0.5], np.float32),
    goal_offset=np.zeros(2, np.float32),
    width=np.float32(0.2),
    step_size=np.float32(0.1),
    process_noise=np.float32(0.01),
    start_std=np.float32(0.05),
    control_cost=np.float32(0.01),
)


class MultiGoalState(NamedTuple):
    """One episode."""

    position: Array  # (2,) float32 in [-1, 1]
    time: Array  # () int32, steps of this episode


def goal_reward(position: Array, params: MultiGoalParams) -> Array:
    """Reward () of being at ``position`` (2,): ``max_i w_i exp(-|p - g_i|^2 / (2 width^2))``, >= 0."""
    away = position[None, :] - (params.goals + params.goal_offset[None, :])
    return jnp.max(params.weights * jnp.exp(-jnp.sum(away**2, axis=1) / (2.0 * params.width**2)))


class MultiGoal:
    """``p' = clip(p + 0.1 a + 0.01 n, -1, 1)``, observation ``p``, 50 steps; the goals are not observed.

    Reward ``goal_reward(p') - 0.01 |a|^2``. Episodes are truncated, never terminated. An optimal policy that
    knows the goals earns about 47.8 of at most 50 without drift.
    """

    spec = EnvSpec(obs_size=2, action_size=2, time_limit=50)

    def reset(self, key: Array, params: MultiGoalParams) -> tuple[Array, MultiGoalState]:
        """Start at ``N(0, start_std^2 I)``."""
        position = params.start_std * jax.random.normal(key, (2,), jnp.float32)
        return position, MultiGoalState(position, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: MultiGoalState, action: Array, params: MultiGoalParams) -> Step:
        """One move; ``action`` (2,) in [-1, 1]."""
        action = jnp.clip(action, -1.0, 1.0)
        noise = params.process_noise * jax.random.normal(key, (2,), jnp.float32)
        position = jnp.clip(state.position + params.step_size * action + noise, -1.0, 1.0)
        reward = goal_reward(position, params) - params.control_cost * jnp.sum(action**2)
        time = state.time + 1
        terminated = jnp.zeros((), bool)
        return position, MultiGoalState(position, time), reward, terminated, time >= self.spec.time_limit, {}


def drift_surrogate(before: MultiGoalParams, after: MultiGoalParams, gamma: Any = None) -> Array:
    """The exact one-step drift ``b_t`` between two positions of the goals, () reward units.

    ``b_t = Delta^r + gamma * V_max * Delta^P`` (AES paper, Eq. bt-def). Moving the goals leaves the
    transitions alone, so ``Delta^P = 0``, ``gamma`` does not enter, and ``b_t = sup |r_t - r_{t-1}|`` over
    next positions in the arena (the control cost cancels). The reward is that of the realised next position;
    averaging it over the process noise first would lower the supremum by less than 1 %. Only ``goal_offset``
    may differ between the two.

    The supremum is searched on a grid that is refined around its best places. Bump differences
    go through ``expm1``, so a drift of 1e-6 per step is as accurate as a jump.
    """
    del gamma
    goals = before.goals + before.goal_offset[None, :]
    shift = (after.goal_offset - before.goal_offset)[None, :]

    def gap(position):
        away = position[None, :] - goals
        exponent = jnp.sum(shift * (2.0 * away - shift), axis=1) / (2.0 * before.width**2)  # log(after / before)
        old = before.weights * jnp.exp(-jnp.sum(away**2, axis=1) / (2.0 * before.width**2))
        change = old * jnp.expm1(exponent)
        new = old + change
        was, now = jnp.max(old), jnp.max(new)
        # A maximum changes at least as much as its old winner and at most as its new one: exact where they agree.
        least = jnp.max(jnp.where(old == was, change, -jnp.inf))
        most = jnp.min(jnp.where(new == now, change, jnp.inf))
        return jnp.abs(jnp.clip(now - was, least, most))

    def search(centre, size):
        points = jnp.clip(centre[None, :] + _square(size), -1.0, 1.0)
        gaps = jax.vmap(gap)(points)
        best = jnp.argmax(gaps)
        return points[best], gaps[best]

    # The best node of each of 8 x 8 blocks; the best blocks are refined, because several tops may be nearly level.
    blocks = jnp.asarray(_BLOCK_CENTRES)
    near, gaps = jax.vmap(lambda centre: search(centre, _BLOCK))(blocks)
    found, order = jax.lax.top_k(gaps, 8)
    near, size = near[order], _BLOCK
    for _ in range(6):
        size = size / 2.5
        near, closer = jax.vmap(lambda centre, size=size: search(centre, size))(near)
        found = jnp.maximum(found, closer)
    return jnp.max(found)


_BLOCK = 0.125  # half width
_BLOCK_CENTRES = np.stack(np.meshgrid(*[np.arange(-0.875, 1.0, 0.25, dtype=np.float32)] * 2), axis=-1).reshape(-1, 2)


def _square(half: float) -> Array:
    """7 x 7 points of a square of half width ``half`` about 0, (49, 2)."""
    line = np.linspace(-half, half, 7, dtype=np.float32)
    return jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2))


TASK = Task(
    name="toy",
    family="toy",
    env=MultiGoal(),
    params=PARAMS,
    channels=(Channel("goal_offset", -0.5, 0.5, 0.0, size=2, kind="planar"),),
    apply_drift=lambda params, values: params._replace(goal_offset=values),
    negative_returns=False,
    description="2-D multi-goal: four hidden goals, one worth double; drift moves them together",
    drift_surrogate=drift_surrogate,
)

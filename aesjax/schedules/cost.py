"""`budget`: a weight that nobody tunes, from what exploring may cost."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from aesjax.factory import POSITIVE_SHARE
from aesjax.schedules.rule import float32, held, read_signal, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, ScheduleLogs, ScheduleState, Signals

TINY = float(np.finfo(np.float32).tiny)
_LEVEL = 0.9  # of the running quantile
# The quantile's logarithm moves by min(_LARGEST_STEP, _GAIN / t) at most per update, from the share _MEMORY of the
# updates on no slower.
_GAIN, _LARGEST_STEP, _MEMORY = 4.0, 0.5, 0.25


class _BudgetMemory(NamedTuple):
    """Memory of `budget`."""

    unit: Array  # () float32, the first reward that is not zero; 0 before it
    log_scale: Array  # () float32, running quantile of log(|reward| / unit)


COST = POSITIVE_SHARE._replace(text="in (0, 1], a share of the reward")


@as_schedule(
    summary="the cost of exploring is a share of the reward: no weight to tune",
    needs=("reward",),
    ranges={"cost": COST},
)
def budget(
    action_size: Array | float,
    updates: Array | float,
    *,
    cost: Array | float = 0.1,
    base: Array | float = 0.2,
) -> EntropySchedule:
    r"""The weight at which exploring costs ``cost`` of the reward, ``2 cost / A * scale of the reward``.

    Not in the paper. A maximum-entropy policy is ``exp(Q / lam)``. About its best action Q falls off as a quadratic
    form, and then, whatever that form is, its A coordinates cost ``lam / 2`` each (equipartition): the policy gives
    away ``lam A / 2`` of value in every step against its own mode. A weight is that cost in disguise, so it can be said
    as a share of what a step earns. The scale is the running 0.9-quantile of absolute rewards, in logarithms:
    multiplying all rewards by c multiplies the weight by c. It is no drift detector and hardly falls where a change
    costs reward: for a factor of e it takes more than half a run. Adaptations are for that.

    Rewards with a large constant part (a bonus for being alive, a distance that never vanishes) make the weight too
    large by that; a reward that is almost always zero leaves the first weight until it is not.

    Args:
      action_size: () A, action dimensions.
      updates: () planned number of updates.
      cost: () share of the reward, at most 1.
      base: () reward per nat, the weight before the first reward that is not zero.

    >>> schedule = budget(action_size=2, updates=100, cost=0.1)
    >>> print(schedule.update(Signals(reward=jnp.full(4, -3.0)), schedule.init()).weight)
    0.3
    """
    factor = 2.0 * float32(cost) / float32(action_size)
    longest = jnp.maximum(_MEMORY * float32(updates), 1.0)

    def init() -> ScheduleState:
        return start(base, _BudgetMemory(float32(0.0), float32(0.0)))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old = state.inner
        reward = jnp.abs(read_signal("schedule 'budget'", signals, "reward"))
        first = jnp.max(reward)
        unknown = old.unit == 0.0
        unit = jnp.where(unknown, first, old.unit)
        # Steps are counted from that reward on: what was zero before said nothing.
        count = state.count + jnp.where(unknown & (first == 0.0), 0, 1)
        logs = jnp.log(jnp.maximum(reward / jnp.maximum(unit, TINY), TINY))
        step = jnp.minimum(_LARGEST_STEP, _GAIN / jnp.minimum(jnp.maximum(count, 1).astype(jnp.float32), longest))
        above = jnp.mean(float32(logs > old.log_scale))
        log_scale = jnp.where(unknown, 0.0, old.log_scale + step * (above - (1.0 - _LEVEL)))
        scale = unit * jnp.exp(log_scale)
        weight = jnp.where(unit > 0.0, factor * scale, state.weight)
        shown = ScheduleLogs(jnp.mean(reward), scale, weight, float32(0.0), float32(0.0))
        return held(jnp.isfinite(first), ScheduleState(weight, count, _BudgetMemory(unit, log_scale), shown), state)

    return EntropySchedule(init, update)

"""`auto_floor`: SAC's temperature tuning over a floor, from which it starts and below which it never falls."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from aesjax.factory import POSITIVE
from aesjax.schedules.cost import COST, budget
from aesjax.schedules.rule import base_init, base_update, held, read_signal, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, ScheduleState, Signals

TINY = 1e-12  # reward per nat; a floor of zero has no logarithm


class _FloorMemory(NamedTuple):
    """Memory of `auto_floor`."""

    log_alpha: Array  # () float32
    adam: optax.OptState
    floor: Any  # state of the floor's schedule, None for a number


@as_schedule(
    label="auto-F",
    summary="auto over budget: never below it",
    needs=("log_prob", "reward"),
    ranges={"cost": COST, "auto_learning_rate": POSITIVE},
)
def auto_floor(
    action_size: Array | float,
    updates: Array | float,
    target_entropy: Array | float,
    *,
    cost: Array | float = 0.1,
    base: Array | float = 0.2,
    auto_learning_rate: Array | float = 1e-3,
) -> EntropySchedule:
    """`tuned_above` the weight of `budget`; arguments as there."""
    floor = budget.make(action_size, updates, cost=cost, base=base)
    return tuned_above(floor, target_entropy, auto_learning_rate=auto_learning_rate)


def tuned_above(
    floor: Array | float | EntropySchedule, target_entropy: Array | float, *, auto_learning_rate: Array | float = 1e-3
) -> EntropySchedule:
    """`auto`, whose weight is never below ``floor`` and is that to begin with.

    Not in the paper. Tuning alone starts from a number in units of reward, and on tasks whose best policies are wider
    than its target it lets the weight fall to nothing, from where an exponential takes long to come back when the
    environment changes. Here the tuned logarithm itself is lifted to the floor and rises from there at once.

    Args:
      floor: () reward per nat, or a schedule such as `budget`.
      target_entropy: () nats, as in `auto`.
      auto_learning_rate: () Adam step in log weight.

    >>> schedule = tuned_above(0.05, target_entropy=-1.0)
    >>> print(schedule.update(Signals(log_prob=jnp.array([-2.0])), schedule.init()).weight)  # entropy 2 > -1
    0.05
    """
    adam = optax.adam(jnp.asarray(auto_learning_rate, jnp.float32), eps=1e-8)
    target_entropy = jnp.asarray(target_entropy, jnp.float32)

    def init() -> ScheduleState:
        weight, floor_state = base_init(floor)
        log_alpha = jnp.log(jnp.maximum(weight, TINY))
        return start(weight, _FloorMemory(log_alpha, adam.init(log_alpha), floor_state))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old = state.inner
        lowest, floor_state = base_update(floor, signals, old.floor)
        gap = jnp.mean(read_signal("schedule 'auto_floor'", signals, "log_prob", 1)) + target_entropy
        # Before the first update there may have been no scale yet: the tuning starts from the first floor there is.
        before: Any = jnp.where(state.count == 0, jnp.log(jnp.maximum(lowest, TINY)), old.log_alpha)
        change, opt_state = adam.update(-jnp.exp(before) * gap, old.adam)
        tuned = before + change
        log_alpha = jnp.maximum(tuned, jnp.log(jnp.maximum(lowest, TINY)))
        weight = jnp.maximum(jnp.exp(log_alpha), lowest)  # to the bit where the floor holds
        shown = state.logs if floor_state is None else floor_state.logs
        shown = shown._replace(weight_raw=jnp.exp(tuned), at_min=(tuned < log_alpha).astype(jnp.float32))
        new = ScheduleState(weight, state.count + 1, _FloorMemory(log_alpha, opt_state, floor_state), shown)
        return held(jnp.isfinite(gap) & jnp.isfinite(lowest), new, state)

    return EntropySchedule(init, update)

"""`auto_floor`: SAC's temperature tuning over a floor, from which it starts and below which it never falls."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from aesjax.factory import POSITIVE
from aesjax.schedules.cost import COST, budget
from aesjax.schedules.rule import float32, held, read_signal, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, ScheduleState, Signals

TINY = 1e-12  # reward per nat; a floor of zero has no logarithm


class _FloorMemory(NamedTuple):
    """Memory of `auto_floor`."""

    log_alpha: Array  # () float32
    adam: optax.OptState
    floor: ScheduleState  # of `budget`


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
    """`auto`, whose weight is never below that of `budget` and is that to begin with; arguments as there.

    Not in the paper. Tuning alone starts from a number in units of reward, and on tasks whose best policies are wider
    than its target it lets the weight fall to nothing, from where an exponential takes long to come back when the
    environment changes. Here the tuned logarithm itself is lifted to the floor and rises from there at once.
    """
    floor = budget.make(action_size, updates, cost=cost, base=base)
    adam, target_entropy = optax.adam(float32(auto_learning_rate), eps=1e-8), float32(target_entropy)

    def init() -> ScheduleState:
        below = floor.init()
        log_alpha = jnp.log(jnp.maximum(below.weight, TINY))
        return start(below.weight, _FloorMemory(log_alpha, adam.init(log_alpha), below))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old = state.inner
        below = floor.update(signals, old.floor)
        lowest = jnp.maximum(below.weight, TINY)
        gap = jnp.mean(read_signal("schedule 'auto_floor'", signals, "log_prob")) + target_entropy
        # Before the first update there may have been no scale yet: the tuning starts from the first floor there is.
        before: Any = jnp.where(state.count == 0, jnp.log(lowest), old.log_alpha)
        change, opt_state = adam.update(-jnp.exp(before) * gap, old.adam)
        tuned = before + change
        log_alpha = jnp.maximum(tuned, jnp.log(lowest))
        weight = jnp.maximum(jnp.exp(log_alpha), below.weight)  # to the bit where the floor holds
        logs = below.logs._replace(weight_raw=jnp.exp(tuned), at_min=float32(tuned < log_alpha))
        new = ScheduleState(weight, state.count + 1, _FloorMemory(log_alpha, opt_state, below), logs)
        return held(jnp.isfinite(gap) & jnp.isfinite(below.weight), new, state)

    return EntropySchedule(init, update)

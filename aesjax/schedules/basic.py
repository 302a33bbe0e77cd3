"""Schedules that accumulate no drift: a constant, SAC's tuning, the paper's linear heuristic, and a reward budget."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from aesjax.factory import NOT_NEGATIVE, POSITIVE, POSITIVE_SHARE
from aesjax.schedules.rule import Mean, bounded, float32, held, read_signal, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleLogs, ScheduleState, Signals

_TINY = float(np.finfo(np.float32).tiny)
_COST = POSITIVE_SHARE._replace(text="in (0, 1], a share of the reward")
_LEVEL = 0.9  # of the running quantile of `budget`
# The quantile's logarithm moves by at most min(_LARGEST_STEP, _GAIN / t) per update, with t at most _MEMORY times the
# planned number of updates.
_GAIN, _LARGEST_STEP, _MEMORY = 4.0, 0.5, 0.25
_LEAST_FLOOR = 1e-12  # reward per nat; a floor of zero has no logarithm


@as_schedule
def fixed(base: Array | float) -> EntropySchedule:
    """Hold the weight constant.

    () reward per nat, without a clip.

    >>> print(fixed(0.2).init().weight)
    0.2
    """
    weight = float32(base)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return state._replace(weight=weight, count=state.count + 1)

    return EntropySchedule(lambda: start(weight), update)


class _AutoMemory(NamedTuple):
    """Memory of `auto`."""

    log_alpha: Array  # () float32
    adam: optax.OptState


@as_schedule(needs=("log_prob",), ranges={"auto_learning_rate": POSITIVE, "auto_initial": POSITIVE})
def auto(
    target_entropy: Array | float,
    *,
    auto_learning_rate: Array | float = 1e-3,
    auto_initial: Array | float = 1.0,
) -> EntropySchedule:
    """Tune the weight towards a target entropy, as SAC does.

    A schedule for every carrier that reports ``log_prob``. Minimises ``-exp(log_alpha) * mean(log_prob +
    target_entropy)`` by Adam (eps 1e-8); weight ``exp(log_alpha)``, () reward per nat, no clip. Deviation from the
    reference: one temperature step per update of the schedule, and a non-finite ``log_prob`` keeps the state.

    Args:
      target_entropy: () nats; usual are minus the number of action dimensions, and 0.5 to 0.98 log A for A choices.
      auto_learning_rate: () Adam step in log weight.
      auto_initial: () reward per nat, first weight.

    >>> import jax.numpy as jnp
    >>> schedule = auto(target_entropy=-1.0)
    >>> state = schedule.update(Signals(log_prob=jnp.array([-2.0])), schedule.init())  # entropy 2 > -1
    >>> bool(state.weight < 1.0)
    True
    """
    adam, target_entropy = optax.adam(float32(auto_learning_rate), eps=1e-8), float32(target_entropy)

    def init() -> ScheduleState:
        log_alpha = jnp.log(float32(auto_initial))
        return start(jnp.exp(log_alpha), _AutoMemory(log_alpha, adam.init(log_alpha)))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        log_alpha, opt_state = state.inner
        gap = jnp.mean(read_signal("schedule 'auto'", signals, "log_prob")) + target_entropy
        gradient = -jnp.exp(log_alpha) * gap
        change, opt_state = adam.update(gradient, opt_state)
        log_alpha = log_alpha + change
        weight = jnp.exp(log_alpha)
        logs = state.logs._replace(weight_raw=weight)
        new = ScheduleState(weight, state.count + 1, _AutoMemory(log_alpha, opt_state), logs)
        return held(jnp.isfinite(gap), new, state)

    return EntropySchedule(init, update)


@as_schedule(ranges={"slope": NOT_NEGATIVE})
def linear(
    proxy: Proxy,
    *,
    base: Array | float = 0.2,
    slope: Array | float = 0.1,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """The paper's heuristic: base + slope * proxy.

    ``clip(base + slope * v)`` of the raw proxy, () reward per nat. AES paper Eq. (heuristic-linear). Deviation: none;
    the paper gives no value for ``slope`` (its k), 0.1 is ours.

    Args:
      proxy: drift proxy; a non-finite value keeps the state.
      base: () reward per nat, weight at zero drift and before the first update.
      slope: () reward per nat per unit of the proxy.
      lambda_min, lambda_max: () reward per nat.
    """
    base, slope = float32(base), float32(slope)

    def init() -> ScheduleState:
        return start(jnp.clip(base, lambda_min, lambda_max), raw=base)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        v = proxy(signals)
        weight, logs = bounded(base + slope * v, lambda_min, lambda_max, v, v)
        return held(jnp.isfinite(v), ScheduleState(weight, state.count + 1, (), logs), state)

    return EntropySchedule(init, update)


class _BudgetMemory(NamedTuple):
    """Memory of `budget`."""

    unit: Array  # () float32, the first reward that is not zero; 0 before it
    log_scale: Mean  # () running quantile of log(|reward| / unit)


@as_schedule(needs=("reward",), ranges={"cost": _COST})
def budget(
    action_size: Array | float,
    updates: Array | float,
    *,
    cost: Array | float = 0.1,
    base: Array | float = 0.2,
) -> EntropySchedule:
    """Set the weight so that exploration costs a fixed share of the reward.

    The weight is ``2 cost / A * scale``, with the running 0.9-quantile of absolute rewards as scale. Not in the paper.
    Where Q is quadratic about its best action, the policy ``exp(Q / lam)`` loses ``lam / 2`` of value per action
    dimension and step (equipartition). Multiplying all rewards by c multiplies the weight by c. Rewards with a large
    constant part make the weight too large. It is not a drift detector.

    Args:
      action_size: () A, action dimensions; 2 log A for A discrete actions, whose softmax loses at most lam log A.
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
        return start(base, _BudgetMemory(float32(0.0), Mean.zero()))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old = state.inner
        reward = jnp.abs(read_signal("schedule 'budget'", signals, "reward"))
        first = jnp.max(reward)
        unknown = old.unit == 0.0
        unit = jnp.where(unknown, first, old.unit)
        # Steps are counted from the first nonzero reward.
        count = state.count + jnp.where(unknown & (first == 0.0), 0, 1)
        logs = jnp.log(jnp.maximum(reward / jnp.maximum(unit, _TINY), _TINY))
        step = jnp.minimum(_LARGEST_STEP, _GAIN / jnp.minimum(jnp.maximum(count, 1).astype(jnp.float32), longest))
        above = jnp.mean(float32(logs > old.log_scale.value))
        log_scale = old.log_scale.moved(jnp.where(unknown, 0.0, step * (above - (1.0 - _LEVEL))))
        scale = unit * jnp.exp(log_scale.value)
        weight = jnp.where(unit > 0.0, factor * scale, state.weight)
        shown = ScheduleLogs(jnp.mean(reward), scale, weight, float32(0.0), float32(0.0))
        return held(jnp.isfinite(first), ScheduleState(weight, count, _BudgetMemory(unit, log_scale), shown), state)

    return EntropySchedule(init, update)


class _FloorMemory(NamedTuple):
    """Memory of `auto_floor`."""

    log_alpha: Array  # () float32
    adam: optax.OptState
    floor: ScheduleState  # of `budget`


@as_schedule(
    label="auto-F",
    needs=("log_prob", "reward"),
    ranges={"cost": _COST, "auto_learning_rate": POSITIVE},
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
    """Tune the weight as `auto` does, with the weight of `budget` as lower bound.

    Not in the paper. The first weight is that of `budget`; arguments as there. Tuning alone may let the weight vanish,
    from where an exponential takes long to return. Here the tuned logarithm itself is lifted to the floor.
    """
    floor = budget.make(action_size, updates, cost=cost, base=base)
    adam, target_entropy = optax.adam(float32(auto_learning_rate), eps=1e-8), float32(target_entropy)

    def init() -> ScheduleState:
        below = floor.init()
        log_alpha = jnp.log(jnp.maximum(below.weight, _LEAST_FLOOR))
        return start(below.weight, _FloorMemory(log_alpha, adam.init(log_alpha), below))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old = state.inner
        below = floor.update(signals, old.floor)
        lowest = jnp.maximum(below.weight, _LEAST_FLOOR)
        gap = jnp.mean(read_signal("schedule 'auto_floor'", signals, "log_prob")) + target_entropy
        # The scale may be unknown at first: the tuning starts from the first floor.
        before: Any = jnp.where(state.count == 0, jnp.log(lowest), old.log_alpha)
        change, opt_state = adam.update(-jnp.exp(before) * gap, old.adam)
        tuned = before + change
        log_alpha = jnp.maximum(tuned, jnp.log(lowest))
        weight = jnp.maximum(jnp.exp(log_alpha), below.weight)  # bit-identical at the floor
        logs = below.logs._replace(weight_raw=jnp.exp(tuned), at_min=float32(tuned < log_alpha))
        new = ScheduleState(weight, state.count + 1, _FloorMemory(log_alpha, opt_state, below), logs)
        return held(jnp.isfinite(gap) & jnp.isfinite(below.weight), new, state)

    return EntropySchedule(init, update)

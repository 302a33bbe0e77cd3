"""Schedules that need no accumulated drift: a constant, SAC's temperature tuning, and the paper's linear heuristic."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from aesjax.factory import NOT_NEGATIVE, POSITIVE
from aesjax.schedules.rule import bounded, float32, held, read_signal, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals


@as_schedule(summary="the carrier's constant weight")
def fixed(base: Array | float) -> EntropySchedule:
    """A constant weight, () reward per nat, bit for bit; no clip.

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


@as_schedule(
    summary="SAC's tuning towards a target entropy",
    needs=("log_prob",),
    ranges={"auto_learning_rate": POSITIVE, "auto_initial": POSITIVE},
)
def auto(
    target_entropy: Array | float,
    *,
    auto_learning_rate: Array | float = 1e-3,
    auto_initial: Array | float = 1.0,
) -> EntropySchedule:
    """SAC's automatic temperature as a schedule for every carrier that reports ``log_prob``.

    Minimises ``-exp(log_alpha) * mean(log_prob + target_entropy)`` by Adam (eps 1e-8); weight ``exp(log_alpha)``,
    () reward per nat, no clip. Deviation from the reference: one temperature step per update of the schedule, and a
    non-finite ``log_prob`` keeps the state.

    Args:
      target_entropy: () nats; the usual choice is minus the number of action dimensions.
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


@as_schedule(summary="paper's heuristic: base + slope * proxy", ranges={"slope": NOT_NEGATIVE})
def linear(
    proxy: Proxy,
    *,
    base: Array | float = 0.2,
    slope: Array | float = 0.1,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """The paper's reactive heuristic, ``clip(base + slope * v)`` of the raw proxy, () reward per nat.

    AES paper Eq. (heuristic-linear). Deviation: none; the paper gives no value for ``slope`` (its k), 0.1 is ours.

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

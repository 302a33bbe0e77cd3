"""Schedules that need no accumulated drift: a constant, SAC's temperature tuning, and the paper's linear heuristic."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from aesjax.schedules.rule import bounded, held, read_signal, start
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals


def fixed(weight: Array | float) -> EntropySchedule:
    """A constant weight, () reward per nat, bit for bit; no clip.

    >>> print(fixed(0.2).init().weight)
    0.2
    """
    weight = jnp.asarray(weight, jnp.float32)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return state._replace(weight=weight, count=state.count + 1)

    return EntropySchedule(lambda: start(weight), update)


class _AutoMemory(NamedTuple):
    """Memory of `auto`."""

    log_alpha: Array  # () float32
    adam: optax.OptState


def auto(
    target_entropy: Array | float, *, learning_rate: Array | float = 1e-3, initial: Array | float = 1.0
) -> EntropySchedule:
    """SAC's automatic temperature as a schedule for every carrier that reports ``log_prob``.

    Minimises ``-exp(log_alpha) * mean(log_prob + target_entropy)`` by Adam (eps 1e-8); weight ``exp(log_alpha)``,
    () reward per nat, no clip. Deviation from the reference: one temperature step per update of the schedule, and a
    non-finite ``log_prob`` keeps the state.

    Args:
      target_entropy: () nats; the usual choice is minus the number of action dimensions.
      learning_rate: () Adam step in log weight.
      initial: () reward per nat, first weight.

    >>> import jax.numpy as jnp
    >>> schedule = auto(target_entropy=-1.0)
    >>> state = schedule.update(Signals(log_prob=jnp.array([-2.0])), schedule.init())  # entropy 2 > -1
    >>> bool(state.weight < 1.0)
    True
    """
    adam = optax.adam(jnp.asarray(learning_rate, jnp.float32), eps=1e-8)
    target_entropy = jnp.asarray(target_entropy, jnp.float32)

    def init() -> ScheduleState:
        log_alpha = jnp.log(jnp.asarray(initial, jnp.float32))
        return start(jnp.exp(log_alpha), _AutoMemory(log_alpha, adam.init(log_alpha)))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        log_alpha, opt_state = state.inner
        gap = jnp.mean(read_signal("schedule 'auto'", signals, "log_prob", 1)) + target_entropy
        gradient = -jnp.exp(log_alpha) * gap
        change, opt_state = adam.update(gradient, opt_state)
        log_alpha = log_alpha + change
        weight = jnp.exp(log_alpha)
        new = ScheduleState(
            weight, state.count + 1, _AutoMemory(log_alpha, opt_state), state.logs._replace(weight_raw=weight)
        )
        return held(jnp.isfinite(gap), new, state)

    return EntropySchedule(init, update)


def linear(
    proxy: Proxy,
    *,
    weight0: Array | float = 0.2,
    slope: Array | float = 0.1,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """The paper's reactive heuristic, ``clip(weight0 + slope * v)`` of the raw proxy, () reward per nat.

    AES paper Eq. (heuristic-linear). Deviation: none; the paper gives no value for ``slope`` (its k), 0.1 is ours.

    Args:
      proxy: drift proxy; a non-finite value keeps the state.
      weight0: () reward per nat, weight at zero drift and before the first update.
      slope: () reward per nat per unit of the proxy.
      lambda_min, lambda_max: () reward per nat.
    """
    weight0, slope = jnp.asarray(weight0, jnp.float32), jnp.asarray(slope, jnp.float32)

    def init() -> ScheduleState:
        zero = jnp.zeros((), jnp.float32)
        return start(bounded(weight0, lambda_min, lambda_max, zero, zero)[0], raw=weight0)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        v = proxy(signals)
        weight, logs = bounded(weight0 + slope * v, lambda_min, lambda_max, v, v)
        return held(jnp.isfinite(v), ScheduleState(weight, state.count + 1, (), logs), state)

    return EntropySchedule(init, update)

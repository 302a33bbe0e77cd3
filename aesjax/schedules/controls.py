"""Controls: the weights of a recorded run, played back with their timing destroyed."""

import jax
import jax.numpy as jnp

from aesjax.schedules.basic import fixed
from aesjax.schedules.rule import float32
from aesjax.types import Array, EntropySchedule, ScheduleState, Signals


def playback(weights: Array) -> EntropySchedule:
    """The recorded (T,) weights in their order, () reward per nat; the last weight is held after T steps.

    Entry t is the weight in force at step t, as a carrier records it. Reads no signal.
    """
    return overridden(fixed.make(0.0), _recorded("playback", weights), jnp.int32(1), jnp.int32(1))


def constant_at_mean(weights: Array) -> EntropySchedule:
    """The mean of the recorded (T,) weights, held: same average entropy bonus, no timing at all."""
    return fixed.make(jnp.mean(_recorded("constant_at_mean", weights)))


def permuted(weights: Array, key: Array, *, blocks: int = 20) -> EntropySchedule:
    """The recorded (T,) weights with blocks of time in random order: same distribution, wrong timing.

    Weights inside a block keep their order. The static number of ``blocks`` is at most T.
    """
    weights = _recorded("permuted", weights)
    return playback(weights[block_order(key, weights.shape[0], blocks)])


def block_order(key: Array, length: int, blocks: int) -> Array:
    """Positions (length,) of the steps of a record whose ``blocks`` of time are in random order."""
    if not 1 <= blocks <= length:
        raise ValueError(f"permuted: blocks must lie in [1, {length}], the number of weights; got {blocks}.")
    block = jnp.arange(length) * blocks // length
    # Stable, so that the steps of one block stay together and in order.
    return jnp.argsort(jax.random.permutation(key, blocks)[block], stable=True)


def overridden(schedule: EntropySchedule, weights: Array, stride: Array, on: Array) -> EntropySchedule:
    """``schedule``, or where () ``on`` > 0 the recorded weights (T,), each in force for () ``stride`` updates."""

    def shown(state: ScheduleState) -> ScheduleState:
        played = weights[jnp.minimum(state.count // stride, weights.shape[0] - 1)]
        weight = jnp.where(on > 0, played, state.weight)
        raw = jnp.where(on > 0, played, state.logs.weight_raw)
        return state._replace(weight=weight, logs=state.logs._replace(weight_raw=raw))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return shown(schedule.update(signals, state))

    return EntropySchedule(lambda: shown(schedule.init()), update, schedule.measure)


def _recorded(name: str, weights: Array) -> Array:
    weights = float32(weights)
    if weights.ndim != 1 or weights.shape[0] == 0:
        raise ValueError(f"{name} needs recorded weights of shape (T,), T >= 1; got {weights.shape}.")
    return weights

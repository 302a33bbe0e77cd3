"""`switch`: which schedule runs, as data, so that one compiled program trains runs of different methods."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.core import Tracer

from aesjax.types import Array, EntropySchedule, ScheduleState, Signals


def switch(schedules: Sequence[EntropySchedule], index: Array | int) -> EntropySchedule:
    """The schedule at ``index``, () int32, which may be traced and mapped over; equal to that schedule alone.

    All members advance at every step, so every signal that any of them reads must be reported. The index is part of
    the run: changing it half-way hands over a weight, but no member's logs.

    Of each member only the counter and the inner memory are kept, to stay cheap; the weight and logs that a member is
    shown are those of the selected one. A member must therefore compute its weight from its inner memory, its counter
    and the signals, as all schedules of this package do.

    >>> import jax.numpy as jnp
    >>> from aesjax.schedules.basic import fixed
    >>> print(switch((fixed(0.1), fixed(0.5)), jnp.int32(1)).init().weight)
    0.5
    """
    schedules = tuple(schedules)
    if not schedules:
        raise ValueError("switch needs at least one schedule; got none.")
    if not isinstance(index, Tracer) and not 0 <= int(index) < len(schedules):
        raise ValueError(f"switch: index must lie in [0, {len(schedules) - 1}]; got {int(index)}.")
    index = jnp.asarray(index, jnp.int32)

    def select(states: tuple[ScheduleState, ...]) -> ScheduleState:
        shown = [(state.weight, state.count, state.logs) for state in states]
        # Selects fuse with the arithmetic before them; a gather from a stack would be an array of its own.
        weight, count, logs = functools.reduce(
            lambda best, i: jax.tree.map(lambda a, b: jnp.where(index == i, b, a), best, shown[i]),
            range(1, len(shown)),
            shown[0],
        )
        inner = tuple((state.count, state.inner) for state in states)
        return ScheduleState(weight, count, inner, logs)

    def init() -> ScheduleState:
        return select(tuple(s.init() for s in schedules))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        states = tuple(
            schedule.update(signals, ScheduleState(state.weight, count, inner, state.logs))
            for schedule, (count, inner) in zip(schedules, state.inner, strict=True)
        )
        return select(states)

    return EntropySchedule(init, update)

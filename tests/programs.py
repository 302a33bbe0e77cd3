"""Schedules by name with complete options, as the runs of a study carry them."""

import functools

import jax
import jax.numpy as jnp

from aesjax.schedules import PROXIES, SCHEDULES, together
from aesjax.types import Signals

RUN = {"base": 0.2, "target_entropy": -1.0, "action_size": 1.0, "updates": 64.0}


def floats(tree):
    return jax.tree.map(jnp.float32, tree)


def chosen(names, proxy="td_quantile", source=None, *, q=0.9, **numbers):
    """One name or several as schedules with the numbers given, those of `RUN`, and their defaults."""
    read = PROXIES[proxy](q, source)
    return [
        floats(SCHEDULES[name]().filled(RUN | numbers, read)) for name in ([names] if isinstance(names, str) else names)
    ]


def built(names, *, proxy="td_quantile", source=None, index=0, **numbers):
    """`together` of these schedules."""
    return together(chosen(names, proxy, source, **numbers), index)


@functools.cache
def _player(schedule, many):
    def run(stream):
        def step(state, v):
            state = schedule.update(Signals(value_loss=v), state)
            return state, state.weight

        return jax.lax.scan(step, schedule.init(), stream)

    return jax.jit(jax.vmap(run) if many else run)


def played(schedule, losses):
    """Final states, and weights (T,) or (N, T) after value losses of that shape; one program per schedule and shape."""
    losses = jnp.asarray(losses, jnp.float32)
    return _player(schedule, losses.ndim == 2)(losses)

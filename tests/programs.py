"""Registered schedules by name, as the program of a study builds them, and what its runs hold of them as data."""

import jax
import jax.numpy as jnp

from aesjax.schedules import Choice, ScheduleData, build

RUN = {"base": 0.2, "target_entropy": -1.0, "action_size": 1.0, "updates": 64.0}


def floats(tree):
    return jax.tree.map(jnp.float32, tree)


def chosen(names, proxy="td_quantile", source=None):
    """One name or several as choices, all with the same proxy."""
    return [Choice(name, proxy, source) for name in ([names] if isinstance(names, str) else names)]


def data_of(choices, *, index=0, q=0.9, **numbers):
    """The numbers given, those of `RUN`, and each schedule's defaults."""
    options = {choice.schedule: choice.factory.filled(RUN, numbers) for choice in choices}
    return ScheduleData(jnp.int32(index), *floats((q, options)))


def built(names, *, proxy="td_quantile", source=None, **numbers):
    """`build` of these schedules."""
    choices = chosen(names, proxy, source)
    return build(choices, data_of(choices, **numbers))

"""Helpers of the theory tests: compare two sides of an inequality, run a schedule on proxies."""

import jax
import numpy as np

from aesjax.types import Signals
from tests.experiments.theory.generators import proxies

SLACK = 1e-9


def at_most(left, right, name, report):
    """Asserts ``left <= right`` up to rounding and reports the largest ratio."""
    left, right = np.asarray(left), np.asarray(right)
    report(f"{name}: max LHS/RHS", np.max(left / np.where(right > 0, right, np.inf)))
    assert np.all(left <= right + SLACK * (1 + np.abs(right)))


def played(schedule, rows):
    """(N, T) weights of the schedule after each of the proxies ``rows`` (N, T), as float64."""

    def run(row):
        def step(state, v):
            state = schedule.update(Signals(true_drift=v), state)
            return state, state.weight

        return jax.lax.scan(step, schedule.init(), row)[1]

    return np.float64(jax.jit(jax.vmap(run))(np.float32(rows)))


def long_streams(length):
    """(N, length) proxies: all families from three seeds and late spikes, as float32 schedules will read them."""
    rows = [row for seed in range(3) for row in proxies(np.random.default_rng(seed), length).values()]
    late = 2.0 * np.eye(length)[[1, 19, 199]]
    return np.float64(np.float32(np.concatenate([rows, late])))

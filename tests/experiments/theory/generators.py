"""Random instances that the tests of the theory share, and the comparison of two sides of an inequality."""

import jax
import numpy as np

from aesjax.types import Signals


def simplex_points(rng, count, size):
    """(count, size) points, from near a vertex to near uniform: Dirichlet with concentration 10**U(-1.5, 1)."""
    concentration = 10.0 ** rng.uniform(-1.5, 1.0, (count, 1))
    draws = np.maximum(rng.gamma(concentration, size=(count, size)), 1e-300)
    return draws / draws.sum(-1, keepdims=True)


def proxies(rng, steps):
    """Name -> (steps,) drift proxies in [0, 2] of every family the schedules must survive."""
    t = np.arange(1, steps + 1)
    spike = np.zeros(steps)
    spike[0] = 2.0
    bursts = (rng.random(-(-steps // 20)) < 0.2).repeat(20)[:steps] * rng.uniform(0, 2, steps)
    return {
        "iid": rng.uniform(0, 2, steps),
        "sparse": (rng.random(steps) < 0.02) * rng.uniform(0, 2, steps),
        "spike at the start": spike,
        "spike at the end": spike[::-1].copy(),
        "ramp up": 2.0 * t / steps,
        "ramp down": 2.0 - 2.0 * t / steps,
        "bursts": bursts,
        "one over t": 1.0 / t,
        "zero": np.zeros(steps),
        "six decades": 10.0 ** rng.uniform(-6, 0, steps),
    }


def played(schedule, rows):
    """(N, T) weights of the schedule after each of the proxies ``rows`` (N, T), as float64."""

    def run(row):
        def step(state, v):
            state = schedule.update(Signals(true_drift=v), state)
            return state, state.weight

        return jax.lax.scan(step, schedule.init(), row)[1]

    return np.float64(jax.jit(jax.vmap(run))(np.float32(rows)))


def at_most(left, right, least=None):
    """Asserts ``left <= right`` up to rounding, and that their largest ratio is at least ``least``."""
    left, right = np.broadcast_arrays(np.asarray(left, np.float64), np.asarray(right, np.float64))
    assert np.all(left <= right + 1e-9 * (1 + np.abs(right))), np.max(left - right)
    sized = right > 1e-7
    assert least is None or np.max(left[sized] / right[sized]) >= least

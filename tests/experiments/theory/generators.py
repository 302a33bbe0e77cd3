"""Random instances that the tests of the theory share; all take a NumPy generator."""

import numpy as np


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

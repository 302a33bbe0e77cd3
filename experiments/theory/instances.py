"""Random soft MDPs, on which claims are tested and the exact solver is timed."""

import numpy as np

from experiments.theory.softmdp import SoftMDP


def random_mdps(
    rng: np.random.Generator, count: int, states: int, actions: int, live: np.ndarray | None = None
) -> SoftMDP:
    """``count`` stacked MDPs: rewards U(-1, 1), kernels Dirichlet(0.3), the discount U(0.3, 0.99), the temperature
    10**U(-2, 0.5); NumPy, float64.

    With ``live`` (count,), only so many states differ. The others are copies of them that no action leads to, which
    changes neither values nor largest drifts: MDPs of every size share one compiled program.
    """
    live = np.full(count, states) if live is None else live
    reward = rng.uniform(-1.0, 1.0, (count, states, actions))
    kernel = np.maximum(rng.gamma(0.3, size=(count, states, actions, states)), 1e-300)
    kernel = np.where(np.arange(states) < live[:, None, None, None], kernel, 0.0)
    original = (np.arange(states) % live[:, None])[:, :, None]
    reward = np.take_along_axis(reward, original, axis=1)
    kernel = np.take_along_axis(kernel, original[..., None], axis=1)
    instance = (
        reward,
        kernel / kernel.sum(-1, keepdims=True),
        rng.uniform(0.3, 0.99, count),
        10.0 ** rng.uniform(-2.0, 0.5, count),
    )
    return SoftMDP(*instance)  # type: ignore[arg-type]

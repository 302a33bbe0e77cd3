"""The integrator that the small mechanical tasks share."""

from collections.abc import Callable

import jax

_Array = jax.Array


def rk4(slope: Callable[[_Array], _Array], state: _Array, time_step: _Array, substeps: int) -> _Array:
    """``state`` (S,) after ``time_step`` seconds of ``d state / dt = slope(state)``, by Runge-Kutta of order 4."""
    h = time_step / substeps

    def one(_: int, x: _Array) -> _Array:
        k1 = slope(x)
        k2 = slope(x + h / 2 * k1)
        k3 = slope(x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + h * k3))

    return jax.lax.fori_loop(0, substeps, one, state, unroll=True)

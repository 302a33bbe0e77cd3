"""Constants that MuJoCo derives from a model (`mj_setConst`), as traced functions of the factor they depend on."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.physics.fields import Factor, nominal, physics_library, scaled_fields

Array = jax.Array

#: Derived constants that an MJX step reads: the regularisation of contacts and of joint limits.
DERIVED = ("body_invweight0", "dof_invweight0")


class Derived:
    """The constants `DERIVED` as functions of one factor, such as that on all masses.

    Each is ``nominal + t q(t)`` with ``t = log(factor) / log(LIMIT)`` and a Chebyshev series ``q``, so that a factor of
    1 gives the nominal value exactly. Beyond ``[1 / LIMIT, LIMIT]`` they stay at the edge's values.
    """

    LIMIT = 4.0
    NODES = 14  # even, so that no node is at t = 0

    def __init__(self, compiled: Any, factor: Factor) -> None:
        mujoco = physics_library()
        t = np.polynomial.chebyshev.chebpts1(self.NODES)
        self.nominal = {name: np.array(getattr(compiled, name)) for name in DERIVED}
        at_nodes = {name: np.empty((self.NODES, value.size)) for name, value in self.nominal.items()}
        scaled = copy.deepcopy(compiled)
        data = mujoco.MjData(scaled)
        for i, value in enumerate(self.LIMIT**t):
            for field, values in scaled_fields(compiled, factor, np.float64(value)).items():
                nominal(scaled, field)[:] = values
            mujoco.mj_setConst(scaled, data)
            for name, values in at_nodes.items():
                values[i] = (getattr(scaled, name) - self.nominal[name]).ravel() / t[i]
        self.series = {
            name: np.polynomial.chebyshev.chebfit(t, values, self.NODES - 1).astype(np.float32)
            for name, values in at_nodes.items()
        }

    def __call__(self, factor: Array) -> dict[str, Array]:
        """Field name -> values under a factor ()."""
        t = jnp.clip(jnp.log(factor) / np.float32(np.log(self.LIMIT)), -1.0, 1.0)
        fields = {}
        for name, series in self.series.items():
            last = beyond = jnp.zeros(series.shape[1], jnp.float32)
            for coefficients in series[:0:-1]:  # Clenshaw's recurrence
                last, beyond = coefficients + 2.0 * t * last - beyond, last
            q = series[0] + t * last - beyond
            fields[name] = self.nominal[name].astype(np.float32) + t * q.reshape(self.nominal[name].shape)
        return fields

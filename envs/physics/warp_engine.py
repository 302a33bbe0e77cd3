"""Control steps of a physics task on MuJoCo Warp (`impl="warp"` of MJX), for all copies in one call.

Warp's kernels process all worlds together and share one contact buffer. So the physics of a step is a function of
complete batches: `jax.vmap` over runs and environments flattens into its leading axis. The functions of a task
(observation, reward, forces) remain functions of one copy.
"""

import copy
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.physics.fields import physics_library, subtrees
from envs.physics.host import for_batches
from envs.physics.mjx_engine import MjxEnv, field_of
from envs.physics.protocol import FORCES, PhysicsTask

Array = jax.Array

#: Bits of Warp's overflow flags: constraint rows, their entries, pairs and contacts. Others concern the solver's steps.
_NO_ROOM = 0b1111


class Sizes(NamedTuple):
    """Room in Warp's buffers, per world."""

    contacts: int
    rows: int  # of constraints


def measured_sizes(model: Any) -> Sizes:
    """Twice the largest number of contacts and constraint rows in the C engine under random controls, plus 16."""
    mujoco = physics_library()
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
    limited = model.actuator_ctrllimited.astype(bool)
    low, high = (np.where(limited, model.actuator_ctrlrange[:, i], sign) for i, sign in enumerate((-1.0, 1.0)))
    contacts = rows = 0
    for start in range(4):
        mujoco.mj_resetData(model, data)
        data.qvel[:] = 0.1 * start * rng.standard_normal(model.nv)
        for step in range(1000):  # long enough for a fall
            if step % 5 == 0:
                data.ctrl[:] = rng.uniform(low, high)
            mujoco.mj_step(model, data)
            contacts, rows = max(contacts, data.ncon), max(rows, data.nefc)
    return Sizes(2 * contacts + 16, 2 * rows + 16)


class WarpEnv(MjxEnv):
    """`MjxEnv` with the physics of a step on MuJoCo Warp; initial states are computed by MJX.

    Args:
      sizes: room for contacts and constraints per world; by default measured.

    Raises:
      ModuleNotFoundError: Warp is not installed; the text names the package.
    """

    def __init__(self, task: PhysicsTask, sizes: Sizes | None = None) -> None:
        try:
            import warp  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"engine 'warp' needs '{error.name}', which is not installed: pip install '.[warp]' in a clone",
                name=error.name,
            ) from None
        warp.config.log_level = warp.LOG_ERROR  # Warp warns if there is no CUDA driver
        super().__init__(task)
        self.sizes = measured_sizes(task.model) if sizes is None else sizes
        self._exact = copy.copy(self.compiled)
        self._exact.opt.ls_iterations = task.model.opt.ls_iterations
        modes = warp.JaxCallableGraphMode
        # Warp's own CUDA graphs are captured once per set of buffers: a scan passes equal buffers in every step.
        mode = modes.JAX if jax.default_backend() == "cpu" else modes.WARP
        self.about = {"engine": "warp", "graph_mode": mode.name}
        model = jax.device_get(self.mjx.io.put_model(self._exact, impl="warp", graph_mode=mode))
        forces = any(name in FORCES for name in task.fields)
        # Kernels print warnings; their flags are read instead.
        options = {"run_rne_postconstraint": forces, "warn_overflow": 0}
        self._warp = model.tree_replace({f"opt._impl.{name}": value for name, value in options.items()})
        self._subtree = subtrees(self.compiled.body_parentid)

    def scaled_fields(self, params: Any) -> dict[str, Array]:
        """`MjxEnv.scaled_fields`, and the subtree mass of each body, which Warp reads."""
        fields = super().scaled_fields(params)
        if "body_mass" in fields:
            fields["body_subtreemass"] = jnp.asarray(self._subtree) @ fields["body_mass"]
        return fields

    def run(self, substeps: int, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """`MjxEnv.run` of all copies in one call."""
        out = for_batches(partial(self._worlds, substeps))(jax.tree.map(lambda x: x[None], inputs))
        return jax.tree.map(lambda x: x[0], out)

    def _worlds(self, substeps: int, inputs: Any) -> Any:
        """MuJoCo's ``substeps`` of n worlds under their forces; every leaf has the leading axis n."""
        n = inputs[0].shape[0]
        sizes = {"naconmax": n * self.sizes.contacts, "njmax": self.sizes.rows}
        blank = jax.device_get(self.mjx.io.make_data(self._exact, impl="warp", **sizes))
        model = jax.tree.map(jnp.asarray, self._warp)

        def world(inputs: Any) -> Any:
            qpos, qvel, warmstart, forces, fields = inputs
            d = jax.tree.map(jnp.asarray, blank)
            d = d.replace(qpos=qpos, qvel=qvel, qacc_warmstart=warmstart, **forces)
            m = model.tree_replace(fields) if fields else model

            def step(_: Any, carry: Any) -> Any:
                d = self.mjx.forward.step(m, carry[0])
                return d, carry[1] | (d._impl.overflow & _NO_ROOM != 0)

            d, full = jax.lax.fori_loop(0, substeps, step, (d, jnp.bool_(False)))
            seen = {} if self.task.fresh else {name: field_of(d, name) for name in self.task.fields}
            return d.qpos, d.qvel, d.qacc_warmstart, full, seen

        return jax.vmap(world)(inputs)

"""MuJoCo's physics inside the compiled program: a physics task on MJX, without a host callback.

From equal states, one control step of random actions on Gymnasium's locomotion tasks differs from the C engine's by at
most 2e-4 of 1 + |observation|; on Humanoid, which has another solver, by 6e-3. Integrators, contacts and the solver's
tolerance are those of the compiled model. Differences from the C engine:

* float32, and no PGS solver. A model with PGS uses Newton, which has the same optimum: on Gymnasium's Humanoid 2e-5
  from PGS after one control step, closer than CG (6e-5).
* A line search makes at most 10 steps instead of 50, because all of them are computed under ``vmap``. On HalfCheetah 8
  steps give the numbers of 50 in half the time; on Humanoid 10 steps do not change the difference from the C engine.
* MJX regularises with ``body_invweight0`` and ``dof_invweight0`` (see `Derived`), and scales its tolerance
  by the mass matrix in force; it reads no other derived constant.
"""

import contextlib
import copy
import dataclasses
import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.core import EnvSpec, Step
from envs.physics.fields import Factor, nominal, physics_library, scaled_fields
from envs.physics.protocol import FORCES, Drive, Physics, PhysicsTask, check, expect, lasting

Array = jax.Array

_TOO_LARGE = 1e10  # MuJoCo's mjMAXVAL, beyond which its C engine calls a position, velocity or acceleration bad
_LINE_SEARCH = 10  # steps of the solver's line search

# Classical Runge-Kutta scheme: advance of each stage from the start of the step, and its weight in the sum.
_STRIDES = np.array([0.5, 0.5, 1.0, 0.0], np.float32)
_SHARES = np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6], np.float32)


def _library() -> Any:
    """MJX's modules, with the parts of a step, which are not public API; pyproject.toml pins the version."""
    physics_library()
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints a note if the optional Warp is missing
        for part in ("constraint", "forward", "io", "smooth", "solver", "types"):
            importlib.import_module(f"mujoco.mjx._src.{part}")
        return importlib.import_module("mujoco.mjx._src")


@contextmanager
def _as_mjx_needs() -> Iterator[None]:
    """Allow rank promotion, which MJX needs, and full float32 matrix products, which GPUs do not use by default."""
    with jax.numpy_rank_promotion("allow"), jax.default_matmul_precision("highest"):
        yield


#: Derived constants that an MJX step reads: the regularisation of contacts and of joint limits.
DERIVED = ("body_invweight0", "dof_invweight0")


class Derived:
    """The constants `DERIVED` as functions of one factor, such as the factor on all masses.

    Each is ``nominal + t q(t)`` with ``t = log(factor) / log(LIMIT)`` and a Chebyshev series ``q``, so that a factor of
    1 gives the nominal value exactly. Outside ``[1 / LIMIT, LIMIT]`` they are constant.
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


class MjxState(NamedTuple):
    """State of one episode, with a fault count that outlives it; much smaller than MJX's ``Data``."""

    qpos: Array  # (nq,) metres and radians, about the task's origin (`PhysicsTask.recentred`)
    qvel: Array  # (nv,)
    warmstart: Array  # (nv,) accelerations, initial point of the solver
    memory: Array  # (M,) memory of the task
    obs: Array  # (S,) float32, the newest observation
    time: Array  # () int32, control steps of this episode
    faults: Array  # () int32, failed simulations of this copy, across resets


class MjxEnv:
    """A physics task on MJX, behind the interface of `envs.core.Env`; float32.

    A copy with a number that is not finite (or beyond MuJoCo's own limit) ends its episode by truncation with reward 0
    and its last good observation as successor; ``state.faults`` counts it.
    """

    def __init__(self, task: PhysicsTask) -> None:
        check(task)
        self.task = task
        self.spec = EnvSpec(task.obs_size, task.action_size, task.time_limit)
        self.about = {"engine": "mjx"}  # for a study's manifest
        self.mjx = _library()
        mujoco = physics_library()
        self.compiled = compiled = copy.deepcopy(task.model)
        if compiled.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            compiled.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        compiled.opt.ls_iterations = min(_LINE_SEARCH, compiled.opt.ls_iterations)
        if compiled.na:
            raise ValueError(f"{task.name}: actuators with a state are not supported on MJX")
        if "sensordata" in task.fields:
            raise ValueError(f"{task.name}: sensors are not computed on MJX; read the data fields they are made of")
        deriving = {name: factor for name, factor in task.scales.items() if factor.derives}
        if len(deriving) > 1:
            both = " and ".join(deriving)
            raise ValueError(f"{task.name}: on MJX derived constants may follow one parameter; got {both}")
        self.derived = {name: Derived(compiled, factor) for name, factor in deriving.items()}
        self.spatial = bool((compiled.jnt_type == mujoco.mjtJoint.mjJNT_FREE).any())
        forward, kind = self.mjx.forward, mujoco.mjtIntegrator
        known = {kind.mjINT_EULER: forward.euler, kind.mjINT_IMPLICITFAST: forward.implicit, kind.mjINT_RK4: None}
        if compiled.opt.integrator not in known:
            names = ", ".join(each.name for each in known)
            raise ValueError(f"{task.name}: MJX integrates by {names}; got {kind(compiled.opt.integrator).name}")
        self.integrator = known[kind(compiled.opt.integrator)]
        # On the host, so that programs on any device embed them as constants.
        self._model = jax.device_get(self.mjx.io.put_model(compiled, impl="jax"))
        self._blank = jax.device_get(self.mjx.io.make_data(compiled, impl="jax"))

    def reset(self, key: Array, params: Any) -> tuple[Array, MjxState]:
        task, params = self.task, _float32(params)
        qpos, qvel, memory = task.start(jnp, task.noise(key), params)
        with _as_mjx_needs():
            physics = self._at_rest(qpos, qvel)
        obs, memory = task.opening(jnp, physics, memory, params)
        expect(task, "opening", (), obs, memory)
        return obs, MjxState(qpos, qvel, jnp.zeros_like(qvel), memory, obs, jnp.int32(0), jnp.int32(0))

    def step(self, key: Array, state: MjxState, action: Array, params: Any) -> Step:
        """One control step under ``action`` (A,) in [-1, 1]."""
        del key  # the physics has no noise
        chex.assert_shape(action, (self.spec.action_size,))
        task, params = self.task, _float32(params)
        with _as_mjx_needs():
            physics, drive, warmstart, full = self._advance(state, action, params)
        obs, reward, terminated, memory = task.outcome(jnp, physics, state.memory, action, drive, params)
        expect(task, "outcome", (), obs, memory)
        numbers = jnp.concatenate([physics.qpos, physics.qvel, warmstart])
        good = jnp.all(jnp.abs(numbers) < _TOO_LARGE) & jnp.all(jnp.isfinite(obs)) & jnp.isfinite(reward)
        good &= ~full
        qpos, memory = task.recentred(jnp, physics.qpos, memory)
        time = state.time + 1
        after = MjxState(qpos, physics.qvel, warmstart, memory, obs, time, state.faults)
        state = jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state)
        state = state._replace(time=time, faults=state.faults + ~good)
        terminated = good & terminated
        truncated = ~terminated & (~good | (time >= task.time_limit))
        reward = jnp.where(good, reward, 0.0)
        return state.obs, state, reward, terminated, truncated, {"final_observation": state.obs}

    def autoreset(self, key_step: Array, key_reset: Array, state: MjxState, action: Array, params: Any) -> Step:
        """`envs.core.autoreset_step` that preserves the fault count."""
        _, state, reward, terminated, truncated, info = self.step(key_step, state, action, params)
        _, fresh = self.reset(key_reset, params)
        fresh = fresh._replace(faults=state.faults)
        state = jax.tree.map(lambda new, old: jnp.where(terminated | truncated, new, old), fresh, state)
        return state.obs, state, reward, terminated, truncated, info

    def faults(self, state: MjxState) -> Array:
        """() int32, failed simulations, over all copies in ``state``."""
        return jnp.sum(state.faults)

    def scaled_fields(self, params: Any) -> dict[str, Array]:
        """Fields of the model that the drift in force changes."""
        fields: dict[str, Any] = {}
        for name, derived in self.derived.items():
            fields |= derived(getattr(params, name))
        for name, factor in self.task.scales.items():
            fields |= scaled_fields(self.compiled, factor, getattr(params, name))
        return fields

    def scaled(self, fields: dict[str, Array]) -> Any:
        """MJX's model with ``fields`` replaced."""
        model = jax.tree.map(jnp.asarray, self._model)
        return model.tree_replace(fields) if fields else model

    def _data(self, **fields: Array) -> Any:
        return jax.tree.map(jnp.asarray, self._blank).replace(**fields)

    def _at_rest(self, qpos: Array, qvel: Array) -> Physics:
        """Physics of the unscaled model at the start of an episode."""
        if not self.task.start_fields:
            return Physics(qpos=qpos, qvel=qvel)
        smooth, m = self.mjx.smooth, jax.tree.map(jnp.asarray, self._model)
        d = smooth.kinematics(m, self._data(qpos=qpos, qvel=qvel))
        d = smooth.com_vel(m, smooth.com_pos(m, d))
        return Physics(qpos=qpos, qvel=qvel, **{name: field_of(d, name) for name in self.task.start_fields})

    def _advance(self, state: MjxState, action: Array, params: Any) -> tuple[Physics, Drive, Array, Array]:
        """One control step: its physics, its last drive, the solver's next starting point (nv,), and ``full``.

        ``full``: () bool, the engine's buffers were too small for a contact or constraint.
        """
        task, once, fields = self.task, lasting(self.task), self.scaled_fields(params)

        def control(qpos: Array, qvel: Array) -> Drive:
            return task.control(jnp, Physics(qpos=qpos, qvel=qvel), state.memory, action, params)

        def substep(_: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            qpos, qvel, warmstart, full, _, _ = carry
            drive = control(qpos, qvel)
            forces = {name: jnp.asarray(x, jnp.float32) for name, x in drive._asdict().items() if x is not None}
            inputs = qpos, qvel, warmstart, forces, fields
            qpos, qvel, warmstart, more, seen = self.run(task.substeps if once else 1, inputs)
            return qpos, task.settle(jnp, qpos, qvel), warmstart, full | more, seen, drive

        blank = self._data()
        seen = {} if task.fresh else {name: field_of(blank, name) for name in task.fields}
        carry = *state[:3], jnp.bool_(False), seen, control(state.qpos, state.qvel)
        carry = substep(0, carry) if once else jax.lax.fori_loop(0, task.substeps, substep, carry)
        qpos, qvel, warmstart, full, seen, drive = carry
        if task.fresh:
            m = self.scaled(fields)
            d = self.mjx.forward.fwd_velocity(m, self._placed(m, self._data(qpos=qpos, qvel=qvel)))
            seen = {name: field_of(d, name) for name in task.fields}
        return Physics(qpos=qpos, qvel=qvel, **seen), drive, warmstart, full

    def run(self, substeps: int, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """MuJoCo's ``substeps``: positions, velocities, the solver's next start, ``full`` and the task's fields.

        ``inputs``: positions, velocities, the solver's start, applied forces, fields of the model.
        """
        qpos, qvel, warmstart, forces, fields = inputs
        m = self.scaled(fields)
        d = self._integrated(m, self._data(qpos=qpos, qvel=qvel, qacc_warmstart=warmstart, **forces), substeps)
        if any(name in FORCES for name in self.task.fields):
            d = self.mjx.smooth.rne_postconstraint(m, d)
        seen = {} if self.task.fresh else {name: field_of(d, name) for name in self.task.fields}
        return d.qpos, d.qvel, d.qacc_warmstart, jnp.bool_(False), seen

    def _integrated(self, m: Any, d: Any, substeps: int) -> Any:
        """Advance ``d`` by MuJoCo's ``substeps``."""
        if self.integrator is None:
            return self._runge_kutta(m, d, substeps)

        def step(_: Any, d: Any) -> Any:
            d = self._forward(m, d)
            return self.integrator(self._saturated(m, d), d)

        return jax.lax.fori_loop(0, substeps, step, d) if substeps > 1 else step(0, d)

    def _saturated(self, m: Any, d: Any) -> Any:
        """``m`` in which actuators at the limit of their force have no velocity gain, for the integrator.

        Their force does not depend on the velocity. The C engine's implicit integrator uses this, MJX's does not.
        """
        limited = self.compiled.actuator_forcelimited.astype(bool)
        if not limited.any():
            return m
        low, high = m.actuator_forcerange[:, 0], m.actuator_forcerange[:, 1]
        free = ~(limited & ((d.actuator_force <= low) | (d.actuator_force >= high)))
        bias, gain = (field.at[:, 2].multiply(free) for field in (m.actuator_biasprm, m.actuator_gainprm))
        return m.tree_replace({"actuator_biasprm": bias, "actuator_gainprm": gain})

    def _placed(self, m: Any, d: Any) -> Any:
        d = self.mjx.forward.fwd_position(m, d)
        return self._realigned(m, d) if self.spatial and d._impl.contact.dist.shape[0] else d

    def _forward(self, m: Any, d: Any) -> Any:
        """MJX's ``forward``, with friction as in the C engine."""
        forward, d = self.mjx.forward, self._placed(m, d)
        d = forward.fwd_actuation(m, forward.fwd_velocity(m, d))
        d = forward.fwd_acceleration(m, d)
        if not d._impl.efc_J.size:  # without possible contacts or limits MJX's solver does not run
            return d.replace(qacc=d.qacc_smooth)
        return self.mjx.solver.solve(m, d)

    def _realigned(self, m: Any, d: Any) -> Any:
        """``d`` with the C engine's friction between a capsule and the floor.

        The friction pyramid is aligned with the capsule. MJX rotates it to a fixed direction if the capsule is steeper
        than 60 degrees; the C engine and this function do not. The rotation changes Ant's observations by up to 1 in
        a step. Planar models need no correction, because both directions are along the floor.
        """
        contact = d._impl.contact
        types = jnp.asarray(m.geom_type)[contact.geom]
        plane, capsule = self.mjx.types.GeomType.PLANE, self.mjx.types.GeomType.CAPSULE
        lying = (types[:, 0] == plane) & (types[:, 1] == capsule)
        normal, axis = contact.frame[:, 0], d.geom_xmat[contact.geom[:, 1], :, 2]
        along = axis - normal * jnp.sum(normal * axis, axis=-1, keepdims=True)
        length = jnp.linalg.norm(along, axis=-1, keepdims=True)
        along = along / jnp.maximum(length, 1e-6)
        frame = jnp.stack([normal, along, jnp.cross(normal, along)], axis=1)
        frame = jnp.where((lying & (length[:, 0] > 1e-6))[:, None, None], frame, contact.frame)
        return self.mjx.constraint.make_constraint(m, d.tree_replace({"_impl.contact": contact.replace(frame=frame)}))

    def _runge_kutta(self, m: Any, d: Any, substeps: int) -> Any:
        """MJX's ``substeps`` as one loop over their stages.

        MJX unrolls the stages, so that a program has four copies of the physics and takes minutes longer to compile on
        two cores.
        """
        move, dt = self.mjx.forward._integrate_pos, m.opt.timestep

        def stage(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            d, qpos, qvel, speed, acceleration = carry
            d = self._forward(m, d)
            last, share, stride = i % 4 == 3, jnp.asarray(_SHARES)[i % 4], jnp.asarray(_STRIDES)[i % 4]
            speed, acceleration = speed + share * d.qvel, acceleration + share * d.qacc
            next_qpos = move(m.jnt_type, qpos, jnp.where(last, speed, stride * d.qvel), dt)
            next_qvel = qvel + dt * jnp.where(last, acceleration, stride * d.qacc)
            d = d.replace(qpos=next_qpos, qvel=next_qvel, qacc_warmstart=jnp.where(last, d.qacc, d.qacc_warmstart))
            qpos, qvel = jnp.where(last, next_qpos, qpos), jnp.where(last, next_qvel, qvel)
            return d, qpos, qvel, jnp.where(last, 0.0, speed), jnp.where(last, 0.0, acceleration)

        nothing = jnp.zeros_like(d.qvel)
        return jax.lax.fori_loop(0, 4 * substeps, stage, (d, d.qpos, d.qvel, nothing, nothing))[0]


def _float32(params: Any) -> Any:
    return jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), params)


def field_of(d: Any, name: str) -> Array:
    """Data field by MuJoCo's name; MJX stores some of them in a part per engine."""
    public = {field.name for field in dataclasses.fields(d)}
    return getattr(d if name in public else d._impl, name)

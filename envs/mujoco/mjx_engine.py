"""MuJoCo's physics inside the compiled program itself: the locomotion tasks on MJX, without a host callback.

Integrators, contacts and the solver's tolerance are those of Gymnasium's models. What differs from the C engine:

* float32. From equal states, one control step of random actions differs by at most 7e-6 (Hopper), 2e-4 (HalfCheetah),
  4e-5 (Walker2d), 1e-4 (Ant) and 6e-3 (Humanoid, whose solver is another) of 1 + |observation|, and after 20 steps on
  its own by 7e-6, 6e-2, 6e-5, 1.4e-4 and 6e-3. HalfCheetah amplifies any rounding: the C engine itself, with its state
  rounded to float32, differs by 6e-4 by then, and MJX's own step by 5e-3.
* Humanoid asks for the PGS solver, which MJX lacks, and gets Newton: the same optimum, on the C engine 2e-5 from PGS
  after one control step, closer than CG (6e-5).
* A line search makes at most 10 steps, not 50: under ``vmap`` all of them are computed always. 8 already give the very
  numbers of 50 on HalfCheetah, in half the time; 10 leave Humanoid's differences from the C engine as they are.
* MJX regularises with ``body_invweight0`` and ``dof_invweight0`` (see `Derived`), and scales its tolerance by the mass
  matrix in force; it reads no other derived constant.
"""

import contextlib
import copy
import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import EnvSpec, Step
from envs.mujoco import locomotion, model
from envs.mujoco.locomotion import Locomotion, Physics
from envs.mujoco.params import MujocoParams, reset_noise

__all__ = ["DERIVED", "Derived", "MjxEnv", "MjxState"]

Array = jax.Array

#: Constants derived from masses that an MJX step reads: the regularisation of contacts and of joint limits.
DERIVED = ("body_invweight0", "dof_invweight0")
LINE_SEARCH = 10  # steps of the solver's line search
TOO_LARGE = 1e10  # MuJoCo's mjMAXVAL, beyond which its C engine calls a position, velocity or acceleration bad

# Runge and Kutta's classical scheme: how far each stage advances from the start of the step, and its share in the sum.
_STRIDES = np.array([0.5, 0.5, 1.0, 0.0], np.float32)
_SHARES = np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6], np.float32)


def _library() -> Any:
    """MJX's modules. The parts of a step are not exported; pyproject.toml pins the version they belong to."""
    model.physics_library()
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that the optional Warp is not there
        for part in ("constraint", "forward", "io", "smooth", "solver", "types"):
            importlib.import_module(f"mujoco.mjx._src.{part}")
        return importlib.import_module("mujoco.mjx._src")


@contextmanager
def _as_mjx_needs() -> Iterator[None]:
    """MJX broadcasts between ranks, and GPUs multiply float32 matrices with 10 bits unless asked not to."""
    with jax.numpy_rank_promotion("allow"), jax.default_matmul_precision("highest"):
        yield


class Derived:
    """Constants that MuJoCo derives from masses (`mj_setConst`), as functions of the mass factor.

    Each is ``nominal + t q(t)`` with ``t = log(factor) / log(LIMIT)`` and a Chebyshev series ``q``, so that a factor of
    1 gives the nominal value exactly. Beyond ``[1 / LIMIT, LIMIT]`` they stay at the edge's values.
    """

    LIMIT = 4.0
    NODES = 14  # even, so that no node is at t = 0

    def __init__(self, compiled: Any) -> None:
        mujoco = model.physics_library()
        t = np.polynomial.chebyshev.chebpts1(self.NODES)
        self.nominal = {name: np.array(getattr(compiled, name)) for name in DERIVED}
        at_nodes = {name: np.empty((self.NODES, value.size)) for name, value in self.nominal.items()}
        scaled = copy.deepcopy(compiled)
        data = mujoco.MjData(scaled)
        for i, factor in enumerate(self.LIMIT**t):
            for field, value in model.scaled_fields(compiled, "body_mass", np.float64(factor)).items():
                getattr(scaled, field)[:] = value
            mujoco.mj_setConst(scaled, data)
            for name, values in at_nodes.items():
                values[i] = (getattr(scaled, name) - self.nominal[name]).ravel() / t[i]
        self.series = {
            name: np.polynomial.chebyshev.chebfit(t, values, self.NODES - 1).astype(np.float32)
            for name, values in at_nodes.items()
        }

    def __call__(self, factor: Array) -> dict[str, Array]:
        """Field name -> values under a mass factor ()."""
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
    """One episode, and what outlives it: all that MJX needs to go on, which is far less than its ``Data``."""

    qpos: Array  # (nq,) metres and radians; the origin moves along with the body
    qvel: Array  # (nv,)
    warmstart: Array  # (nv,) accelerations, where the solver starts
    anchor: Array  # () metres, see `locomotion.anchor`
    obs: Array  # (S,) float32, the newest observation
    time: Array  # () int32, control steps of this episode
    faults: Array  # () int32, times the simulation of this copy was given up since it was created; survives resets


class MjxEnv:
    """A Gymnasium locomotion task on MJX, behind the interface of `envs.core.Env`; float32.

    A copy with a number that is not finite (or beyond MuJoCo's own limit) ends its episode by truncation with reward 0
    and its last good observation as successor; ``state.faults`` counts it.
    """

    def __init__(self, task: Locomotion, version: str = "v5", tracks: bool = False) -> None:
        self.task, self.version, self.tracks = task, version, tracks
        self.mjx = _library()
        mujoco = model.physics_library()
        self.compiled = compiled = copy.deepcopy(model.load(task.xml))
        if compiled.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            compiled.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        compiled.opt.ls_iterations = LINE_SEARCH
        if compiled.na:
            raise ValueError(f"{task.name}: actuators with a state are not carried from step to step")
        self.spatial = bool((compiled.jnt_type == mujoco.mjtJoint.mjJNT_FREE).any())
        self.rk4 = compiled.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
        # On the host, so that a program on any device takes them in as constants of its own.
        self._model = jax.device_get(self.mjx.io.put_model(compiled, impl="jax"))
        self._blank = jax.device_get(self.mjx.io.make_data(compiled, impl="jax"))
        self.derived = Derived(compiled)
        self.low, self.high = compiled.actuator_ctrlrange.T.astype(np.float32)
        size = locomotion.observation_size(task, version, compiled.nq, compiled.nv, compiled.nbody)
        self.spec = EnvSpec(size, compiled.nu, task.time_limit)

    def reset(self, key: Array, params: MujocoParams) -> tuple[Array, MjxState]:
        """A new episode with Gymnasium's reset noise."""
        compiled = self.compiled
        noise = reset_noise(key, self.task, compiled)
        qpos, qvel = locomotion.start(jnp, self.task, compiled.qpos0.astype(np.float32), noise)
        rows = (compiled.nbody, 3), (compiled.nbody, 6)
        # Contact forces are not computed at a reset, as in Gymnasium; of the positions only the torso's x is read.
        physics = Physics(qpos, qvel, xpos=jnp.full(rows[0], qpos[0]), cfrc_ext=jnp.zeros(rows[1]))
        if self.task.forward_at_reset:
            with _as_mjx_needs():
                physics = self._at_rest(physics, params)
        here = locomotion.anchor(jnp, self.task, self._masses, physics)
        obs = locomotion.observe(jnp, self.task, self.version, physics)
        return obs, MjxState(qpos, qvel, jnp.zeros_like(qvel), here, obs, jnp.int32(0), jnp.int32(0))

    def step(self, key: Array, state: MjxState, action: Array, params: MujocoParams) -> Step:
        """One control step; ``action`` (A,) in [-1, 1] spans the actuators' range."""
        del key  # the physics has no noise
        ctrl = locomotion.control(jnp, self.low, self.high, action)
        with _as_mjx_needs():
            physics, warmstart = self._advance(state, ctrl, params)
        result = locomotion.outcome(
            jnp,
            self.task,
            self.version,
            physics,
            before=state.anchor,
            ctrl=ctrl,
            body_mass=self._masses,
            timestep=self.compiled.opt.timestep,
            target_speed=params.target_velocity if self.tracks else None,
        )
        numbers = jnp.concatenate([physics.qpos, physics.qvel, warmstart])
        good = jnp.all(jnp.abs(numbers) < TOO_LARGE) & jnp.all(jnp.isfinite(result.obs)) & jnp.isfinite(result.reward)
        # Nobody sees where the body is, only how far it gets: with the origin at the body, float32 resolves its speed
        # as well at the end of an episode as at its start.
        hidden = jnp.arange(physics.qpos.shape[0]) < self.task.hidden
        time = state.time + 1
        after = MjxState(
            qpos=jnp.where(hidden, 0.0, physics.qpos),
            qvel=physics.qvel,
            warmstart=warmstart,
            anchor=result.anchor - physics.qpos[0],
            obs=result.obs,
            time=time,
            faults=state.faults,
        )
        state = jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state)
        state = state._replace(time=time, faults=state.faults + ~good)
        terminated = good & result.terminated
        truncated = ~terminated & (~good | (time >= self.task.time_limit))
        reward = jnp.where(good, result.reward, 0.0)
        return state.obs, state, reward, terminated, truncated, {"final_observation": state.obs}

    def autoreset(
        self, key_step: Array, key_reset: Array, state: MjxState, action: Array, params: MujocoParams
    ) -> Step:
        """`envs.core.autoreset_step` that keeps the count of faults."""
        _, state, reward, terminated, truncated, info = self.step(key_step, state, action, params)
        _, fresh = self.reset(key_reset, params)
        fresh = fresh._replace(faults=state.faults)
        state = jax.tree.map(lambda new, old: jnp.where(terminated | truncated, new, old), fresh, state)
        return state.obs, state, reward, terminated, truncated, info

    def faults(self, state: MjxState) -> Array:
        """() int32, simulations that were given up, over all copies in ``state``."""
        return jnp.sum(state.faults)

    @property
    def _masses(self) -> np.ndarray:
        """(nbody,) nominal; a centre of mass does not depend on a common factor."""
        return self.compiled.body_mass.astype(np.float32)

    # Everything below traces MJX and runs inside `_as_mjx_needs`.

    def _scaled(self, params: MujocoParams) -> Any:
        """MJX's model under the drift in force."""
        fields: dict[str, Any] = self.derived(jnp.asarray(params.body_mass, jnp.float32))
        for factor in model.FACTORS:
            fields |= model.scaled_fields(self.compiled, factor, jnp.asarray(getattr(params, factor), jnp.float32))
        return jax.tree.map(jnp.asarray, self._model).replace(**fields)

    def _data(self, **fields: Array) -> Any:
        return jax.tree.map(jnp.asarray, self._blank).replace(**fields)

    def _at_rest(self, physics: Physics, params: MujocoParams) -> Physics:
        """What an observation reads of a new state; nothing drives the actuators yet."""
        smooth, m = self.mjx.smooth, self._scaled(params)
        d = smooth.kinematics(m, self._data(qpos=physics.qpos, qvel=physics.qvel))
        d = smooth.com_vel(m, smooth.com_pos(m, d))
        return physics._replace(
            xipos=d.xipos, cinert=d._impl.cinert, cvel=d.cvel, qfrc_actuator=jnp.zeros_like(physics.qvel)
        )

    def _advance(self, state: MjxState, ctrl: Array, params: MujocoParams) -> tuple[Physics, Array]:
        """The physics of one control step and the solver's next starting point (nv,)."""
        m = self._scaled(params)
        d = self._data(qpos=state.qpos, qvel=state.qvel, qacc_warmstart=state.warmstart, ctrl=ctrl)
        if self.rk4:
            d = self._runge_kutta(m, d)
        else:
            step = lambda _, d: self.mjx.forward.euler(m, self._forward(m, d))  # noqa: E731
            d = jax.lax.fori_loop(0, self.task.frame_skip, step, d)
        fields: dict[str, Array] = {}
        for name in self.task.fields:
            if name == "cfrc_ext":
                fields[name] = self.mjx.smooth.rne_postconstraint(m, d)._impl.cfrc_ext
            else:
                fields[name] = d._impl.cinert if name == "cinert" else getattr(d, name)
        return Physics(d.qpos, d.qvel, **fields), d.qacc_warmstart

    def _forward(self, m: Any, d: Any) -> Any:
        """MJX's ``forward``, with friction as in the C engine."""
        forward = self.mjx.forward
        d = forward.fwd_position(m, d)
        if self.spatial:
            d = self._realigned(m, d)
        d = forward.fwd_actuation(m, forward.fwd_velocity(m, d))
        return self.mjx.solver.solve(m, forward.fwd_acceleration(m, d))

    def _realigned(self, m: Any, d: Any) -> Any:
        """``d`` with the C engine's friction between a capsule and the floor.

        The pyramid of friction stands along the capsule. MJX turns it to a fixed direction where the capsule is
        steeper than 60 degrees; the C engine, and this, never do. It moves Ant's observations by up to 1 in a step.
        In a plane either direction is along the floor, and nothing needs to be turned.
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

    def _runge_kutta(self, m: Any, d: Any) -> Any:
        """``frame_skip`` of MJX's steps as one loop over their stages.

        MJX writes each stage out. A program then holds four copies of the physics and takes as much longer to
        compile, which on two cores is minutes.
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
        return jax.lax.fori_loop(0, 4 * self.task.frame_skip, stage, (d, d.qpos, d.qvel, nothing, nothing))[0]

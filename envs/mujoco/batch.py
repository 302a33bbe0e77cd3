"""Many copies of a MuJoCo task on the C engine, in double precision and plain NumPy.

`Engine` is a pure function of its arguments although a `mujoco.batch.Batch` is not: state rows go in and come out,
and which Batch serves a call changes nothing but speed. Nothing here touches JAX, because it runs inside callbacks of
JAX, and a callback that waits for a computation may wait for the one that waits for it.
"""

import threading
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from envs.mujoco import locomotion, model
from envs.mujoco.locomotion import Locomotion, Physics

__all__ = ["Engine", "Transition64"]

FACTORS = tuple(model.FACTORS)


class Transition64(NamedTuple):
    """A control step of n copies in double precision; `bad` ones carry no meaning but that."""

    obs: np.ndarray  # (n, S)
    reward: np.ndarray  # (n,)
    terminated: np.ndarray  # (n,) bool
    rows: np.ndarray  # (n, R)
    bad: np.ndarray  # (n,) bool


class _Simulations:
    """One Batch of ``n`` simulations with its views; serves one call at a time."""

    def __init__(self, task: Locomotion, compiled: Any, n: int, threads: int) -> None:
        mujoco = model.physics_library()
        self.task, self.compiled = task, compiled
        # Contact forces are not part of a step: they are computed from each simulation's own data afterwards.
        self.contacts = "cfrc_ext" in task.fields
        self.batch = mujoco.batch.Batch(compiled, n, min(threads, n), persistent=self.contacts)
        self.data = mujoco.MjData(compiled)
        self.fields = {name: self.batch.expand(name) for names in model.FACTORS.values() for name in names}
        self.factors = np.ones((n, len(FACTORS)))
        self.batch.set_const()
        bound = [name for name in task.fields if name != "cfrc_ext"]
        self.views = {name: self.batch.bind(name) for name in ("qpos", "qvel", *bound)}
        self.ctrl = self.batch.bind("ctrl")
        first, last = mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADCTRL
        self.alarms = self.batch.warning[:, int(first) : int(last) + 1, 1]
        self.post_constraint = mujoco.mj_rnePostConstraint
        self.error = mujoco.batch.SimulationError

    def scale(self, factors: np.ndarray) -> None:
        """Put the factors (n, 3) in force; derived constants follow where a mass changed."""
        before, self.factors = self.factors, np.full_like(factors, np.nan)  # unknown, should something below fail
        for at, name in enumerate(FACTORS):
            changed = np.flatnonzero(factors[:, at] != before[:, at])
            if not changed.size:
                continue
            for field, value in model.scaled_fields(self.compiled, name, factors[changed, at]).items():
                self.fields[field][changed] = value
            if name == "body_mass":
                self.batch.set_const(changed)
        self.factors = factors.copy()

    def step(self, rows: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
        """Advance all by one control step; returns which ones (n,) MuJoCo reported as bad."""
        self.batch.state[:] = rows
        self.ctrl[:] = ctrl
        bad = np.zeros(rows.shape[0], bool)
        try:
            self.batch.step(nstep=self.task.frame_skip)
        except self.error as error:  # the others ran to completion
            bad[error.ids] = True
        if self.alarms.any():
            # MuJoCo puts a simulation that blew up back to its start and goes on; that is not a step anybody took.
            bad |= self.alarms.any(axis=1)
            self.alarms[:] = 0
        if not np.isfinite(self.batch.state).all():
            bad |= ~np.isfinite(self.batch.state).all(axis=1)
        return bad

    def physics(self) -> Physics:
        """Views of what the newest call left; contact forces are not among them."""
        return Physics(**self.views)

    def contact_forces(self) -> np.ndarray:
        """(n, nbody, 6)."""
        forces = np.empty((self.batch.nsim, self.compiled.nbody, 6))
        for i in range(self.batch.nsim):
            self.batch.get_data(i, self.data)
            self.post_constraint(self.compiled, self.data)
            forces[i] = self.data.cfrc_ext
        return forces


class Engine:
    """Control steps and starts of many copies in double precision; plain NumPy, pure, callable from any thread."""

    def __init__(self, task: Locomotion, version: str, tracks: bool, threads: int = 1) -> None:
        mujoco = model.physics_library()
        self.task, self.version, self.tracks, self.threads = task, version, tracks, threads
        self.model = compiled = model.load(task.xml)
        data = mujoco.MjData(compiled)
        self.spec = mujoco.mjtState.mjSTATE_INTEGRATION
        self.default = np.empty(mujoco.mj_stateSize(compiled, self.spec))
        mujoco.mj_getState(compiled, data, self.default, self.spec)
        self.positions, self.velocities = self._columns("qpos"), self._columns("qvel")
        self.qpos0 = np.array(data.qpos)
        self.row_size = self.default.size + 1
        self.low, self.high = compiled.actuator_ctrlrange.T
        self.obs_size = locomotion.observation_size(task, version, compiled.nq, compiled.nv, compiled.nbody)
        self._free: dict[int, list[_Simulations]] = {}
        self._lock = threading.Lock()

    def _columns(self, name: str) -> slice:
        """Where a field stands in a state row."""
        mujoco = model.physics_library()
        probe, row = mujoco.MjData(self.model), np.empty_like(self.default)
        getattr(probe, name)[:] = np.nan
        mujoco.mj_getState(self.model, probe, row, self.spec)
        at = np.flatnonzero(np.isnan(row))
        return slice(at[0], at[-1] + 1)

    @contextmanager
    def _simulations(self, n: int, factors: np.ndarray):
        """A Batch nobody else is using, if possible one that has these factors in force already."""
        with self._lock:
            free = self._free.setdefault(n, [])
            at = next((i for i, sims in enumerate(free) if np.array_equal(sims.factors, factors)), 0)
            sims = free.pop(at) if free else None
        if sims is None:
            sims = _Simulations(self.task, self.model, n, self.threads)
        try:
            if not np.array_equal(sims.factors, factors):
                sims.scale(factors)
            yield sims
        finally:
            with self._lock:
                self._free[n].append(sims)

    def control(self, action: np.ndarray) -> np.ndarray:
        """Controls of the model (n, A) from actions in [-1, 1]; what lies outside is clipped."""
        return locomotion.control(np, self.low, self.high, np.asarray(action, np.float64))

    def row(self, state: np.ndarray, anchor: np.ndarray) -> np.ndarray:
        """Rows (n, R) from MuJoCo's integration states (n, R - 1) and anchors (n,)."""
        return np.concatenate([state, np.asarray(anchor)[:, None]], axis=1)

    def start(self, noise: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations (n, S) and rows (n, R) of new episodes; see `locomotion.start` for the noise (n, nq + nv)."""
        n = noise.shape[0]
        rows = np.repeat(self.default[None], n, axis=0)
        qpos, qvel = locomotion.start(np, self.task, self.qpos0, np.asarray(noise, np.float64))
        rows[:, self.positions], rows[:, self.velocities] = qpos, qvel
        bodies = (n, self.model.nbody)
        # Neither contact nor actuator forces are computed at a reset.
        physics = Physics(qpos, qvel, xpos=np.zeros((*bodies, 3)), cfrc_ext=np.zeros((*bodies, 6)))
        physics.xpos[:, 1, 0] = qpos[:, 0]
        if self.task.forward_at_reset:
            physics = self._at_rest(physics, factors[:, FACTORS.index("body_mass")])
        here = locomotion.anchor(np, self.task, self.model.body_mass, physics)
        return locomotion.observe(np, self.task, self.version, physics), self.row(rows, here)

    def _at_rest(self, physics: Physics, mass: np.ndarray) -> Physics:
        """``physics`` with what follows from positions and velocities alone; inertia scales with ``mass`` (n,)."""
        mujoco = model.physics_library()
        data, bodies = mujoco.MjData(self.model), physics.xpos.shape[:2]
        xipos, cinert, cvel = (np.empty((*bodies, width)) for width in (3, 10, 6))
        for i in range(bodies[0]):
            data.qpos[:], data.qvel[:] = physics.qpos[i], physics.qvel[i]
            mujoco.mj_kinematics(self.model, data)
            mujoco.mj_comPos(self.model, data)
            mujoco.mj_comVel(self.model, data)
            xipos[i], cinert[i], cvel[i] = data.xipos, data.cinert * mass[i], data.cvel
        return physics._replace(xipos=xipos, cinert=cinert, cvel=cvel, qfrc_actuator=np.zeros_like(physics.qvel))

    def step(self, rows: np.ndarray, action: np.ndarray, factors: np.ndarray, target: np.ndarray) -> Transition64:
        """One control step without resets.

        Args:
          rows: (n, R). action: (n, A) in [-1, 1].
          factors: (n, 3), in the order of `model.FACTORS`. target: (n,) m/s, read where the task tracks one.
        """
        ctrl = self.control(action)
        with self._simulations(rows.shape[0], factors) as sims:
            bad = sims.step(rows[:, :-1], ctrl)
            physics = sims.physics()
            if sims.contacts:
                physics = physics._replace(cfrc_ext=sims.contact_forces())
            obs, reward, terminated, here = locomotion.outcome(
                np,
                self.task,
                self.version,
                physics,
                before=rows[:, -1],
                ctrl=ctrl,
                body_mass=self.model.body_mass,
                timestep=self.model.opt.timestep,
                target_speed=target if self.tracks else None,
            )
            return Transition64(obs, reward, terminated, self.row(sims.batch.state, here), bad)

"""Many copies of a physics task on MuJoCo's C engine, in double precision and plain NumPy.

`Engine` is a pure function of its arguments although a `mujoco.batch.Batch` is not: state rows go in and come out, and
the choice of the Batch affects only speed. This module does not use JAX: it runs inside callbacks of JAX, and a
callback that waits for a JAX computation may deadlock.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from envs.physics.fields import physics_library, scaled_fields
from envs.physics.protocol import FORCES, Drive, Physics, PhysicsTask, check, expect, lasting


class Transition64(NamedTuple):
    """A control step of n copies in double precision; other fields of `bad` copies are meaningless."""

    obs: np.ndarray  # (n, S)
    reward: np.ndarray  # (n,)
    terminated: np.ndarray  # (n,) bool
    rows: np.ndarray  # (n, R)
    bad: np.ndarray  # (n,) bool


class _Simulations:
    """One Batch of ``n`` simulations with its views; not thread-safe."""

    def __init__(self, task: PhysicsTask, n: int, threads: int, size: int) -> None:
        mujoco = physics_library()
        self.task = task
        # Some forces are not part of a step. They are computed afterwards, one simulation at a time.
        self.forces = [] if _computes_forces(task.model) else [name for name in task.fields if name in FORCES]
        # External forces are zero without contacts and applied forces; such simulations are skipped.
        self.outer = self.forces == ["cfrc_ext"] and not task.model.neq
        self.batch = mujoco.batch.Batch(task.model, n, min(threads, n), persistent=bool(self.forces))
        self.state = self.batch.state[:, :size]
        self.data = mujoco.MjData(task.model)
        self.fields = {name: self.batch.expand(name) for factor in task.scales.values() for name, _ in factor.fields}
        self.factors = np.ones((n, len(task.scales)))
        self.acting: np.ndarray | None = None  # those that the last step advanced; None: all
        if any(factor.derives for factor in task.scales.values()):
            self.batch.set_const()
        self.now = Physics(qpos=self.batch.bind("qpos"), qvel=self.batch.bind("qvel"))
        bound = {name: _shaped(name, self.batch.bind(name)) for name in task.fields if name not in self.forces}
        self.views = vars(self.now) | bound
        self.applied = {name: self.batch.bind(name) for name in Drive._fields}  # slices of a state row
        self.contacts = self.batch.bind("ncon")
        self.velocity_stage = mujoco.mjtStage.mjSTAGE_VEL
        first, last = mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADCTRL
        self.alarms = self.batch.warning[:, int(first) : int(last) + 1, 1]
        self.post_constraint = mujoco.mj_rnePostConstraint
        self.error = mujoco.batch.SimulationError

    def scale(self, factors: np.ndarray) -> None:
        """Set the factors (n, F); derived constants are updated where their inputs changed."""
        before, self.factors = self.factors, np.full_like(factors, np.nan)  # unknown if an error follows
        for at, factor in enumerate(self.task.scales.values()):
            changed = np.flatnonzero(factors[:, at] != before[:, at])
            if not changed.size:
                continue
            for field, value in scaled_fields(self.task.model, factor, factors[changed, at]).items():
                self.fields[field][changed] = value
            if factor.derives:
                self.batch.set_const(changed)
        self.factors = factors.copy()

    def step(
        self, rows: np.ndarray, control: Callable[[Physics], Drive], acting: np.ndarray | None
    ) -> tuple[Drive, np.ndarray]:
        """Advance those in ``acting`` by one control step, all if None.

        Returns the last drive and a mask (n,) of those MuJoCo reported as bad.
        """
        task, bad = self.task, np.zeros(rows.shape[0], bool)
        self.state[:], self.acting = rows, acting
        once = lasting(task)
        for _ in range(1 if once else task.substeps):
            drive = control(self.now)
            for name, value in zip(Drive._fields, drive, strict=True):
                if value is not None:
                    self.applied[name][:] = value
            self._call(bad, self.batch.step, ids=acting, nstep=task.substeps if once else 1)
            if not once:
                self.now.qvel[:] = task.settle(np, self.now.qpos, self.now.qvel)
        if task.fresh:
            self._call(bad, self.batch.forward, ids=acting, stage=self.velocity_stage)
        if self.alarms.any():
            # MuJoCo resets a diverged simulation to its start and continues, so its step is invalid.
            bad |= self.alarms.any(axis=1)
            self.alarms[:] = 0
        return drive, bad | ~np.isfinite(self.state).all(axis=1)

    def _call(self, bad: np.ndarray, function: Callable[..., Any], **options: Any) -> None:
        try:
            function(**options)
        except self.error as error:  # the others ran to completion
            bad[error.ids] = True

    def physics(self) -> Physics:
        """Views of the state after the last call, with its forces."""
        if not self.forces:
            return Physics(**self.views)
        batch, data, model = self.batch, self.data, self.task.model
        found = {name: np.zeros((batch.nsim, *getattr(data, name).shape)) for name in self.forces}
        acting = np.arange(batch.nsim) if self.acting is None else self.acting
        if self.outer:
            acting = acting[((self.contacts > 0) | self.applied["xfrc_applied"].any(axis=(1, 2)))[acting]]
        for i in acting:
            batch.get_data(i, data)
            self.post_constraint(model, data)
            for name, values in found.items():
                values[i] = getattr(data, name)
        return Physics(**self.views, **found)


def _computes_forces(model: Any) -> bool:
    """Whether a step of ``model`` computes `FORCES`, which MuJoCo does for sensors that use them.

    Not under the Runge-Kutta integrator, whose sensors belong to its first stage and other results to its last.
    """
    mujoco = physics_library()
    names = ("ACCELEROMETER", "FORCE", "TORQUE", "FRAMELINACC", "FRAMEANGACC")
    kinds = [getattr(mujoco.mjtSensor, f"mjSENS_{name}") for name in names]
    return model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4 and bool(np.isin(model.sensor_type, kinds).any())


def _shaped(name: str, values: np.ndarray) -> np.ndarray:
    """Reshape rotation matrices from rows of nine, as in MuJoCo's C arrays, to (3, 3), as in MJX."""
    return values.reshape(*values.shape[:-1], 3, 3) if name.endswith("mat") else values


class Engine:
    """Control steps and starts of many copies in double precision; plain NumPy, pure, callable from any thread.

    Parameters are a NamedTuple of ``task.params``' kind with arrays (n,) float64.
    """

    def __init__(self, task: PhysicsTask, threads: int = 1) -> None:
        """Raises as `envs.physics.protocol.check`."""
        check(task)
        mujoco = physics_library()
        self.task, self.threads = task, threads
        self.model = compiled = task.model
        data = mujoco.MjData(compiled)
        # The part of a row that a step changes. Inputs follow it, set by a drive or the model.
        self.spec = int(mujoco.mjtState.mjSTATE_INTEGRATION) & ~int(mujoco.mjtState.mjSTATE_USER)
        self.default = np.empty(mujoco.mj_stateSize(compiled, self.spec))
        mujoco.mj_getState(compiled, data, self.default, self.spec)
        nq, nv = compiled.nq, compiled.nv  # offset 1: the first number of a row is the time
        self.positions, self.velocities = slice(1, 1 + nq), slice(1 + nq, 1 + nq + nv)
        self.row_size = self.default.size + task.memory_size
        self._free: dict[int, list[_Simulations]] = {}
        self._scratch = [data]
        self._lock = threading.Lock()

    def params(self, columns: Sequence[np.ndarray] | np.ndarray) -> Any:
        """The task's parameters of columns (P, n), in the order of their names."""
        return type(self.task.params)(*np.asarray(columns, np.float64))

    @contextmanager
    def _simulations(self, n: int, params: Any):
        """A free Batch, preferably one with these factors in force."""
        factors = np.array([getattr(params, name) for name in self.task.scales]).reshape(-1, n).T
        with self._lock:
            free = self._free.setdefault(n, [])
            at = next((i for i, sims in enumerate(free) if np.array_equal(sims.factors, factors)), 0)
            sims = free.pop(at) if free else None
        if sims is None:
            sims = _Simulations(self.task, n, self.threads, self.default.size)
        try:
            if not np.array_equal(sims.factors, factors):
                sims.scale(factors)
            yield sims
        finally:
            with self._lock:
                self._free[n].append(sims)

    def start(self, noise: np.ndarray, params: Any) -> tuple[np.ndarray, np.ndarray]:
        """Observations (n, S) and rows (n, R) of new episodes from ``noise`` (n, K)."""
        task, n = self.task, noise.shape[0]
        rows = np.repeat(self.default[None], n, axis=0)
        qpos, qvel, memory = task.start(np, np.asarray(noise, np.float64), params)
        rows[:, self.positions], rows[:, self.velocities] = qpos, qvel
        physics = Physics(qpos=qpos, qvel=qvel, **self._at_rest(qpos, qvel))
        obs, memory = task.opening(np, physics, memory, params)
        expect(task, "opening", (n,), obs, memory)
        return obs, np.concatenate([rows, memory], axis=1)

    def _at_rest(self, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, np.ndarray]:
        """Quantities that follow from positions and velocities."""
        if not self.task.start_fields:
            return {}
        mujoco, model = physics_library(), self.model
        # Creating an MjData takes as long as hundreds of starts. Popping from a list is thread-safe.
        try:
            data = self._scratch.pop()
        except IndexError:
            data = mujoco.MjData(model)
        found = {name: np.empty((len(qpos), *getattr(data, name).shape)) for name in self.task.start_fields}
        for i in range(len(qpos)):
            data.qpos[:], data.qvel[:] = qpos[i], qvel[i]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            for name, values in found.items():
                values[i] = getattr(data, name)
        self._scratch.append(data)
        return {name: _shaped(name, values) for name, values in found.items()}

    def step(self, rows: np.ndarray, action: np.ndarray, params: Any, acting: np.ndarray | None = None) -> Transition64:
        """One control step of ``rows`` (n, R) without resets; ``action`` (n, A) in [-1, 1].

        Args:
          acting: indices of the copies that are simulated, None: all. Results of others are meaningless.
        """
        task, n, size = self.task, rows.shape[0], self.default.size
        action, memory = np.asarray(action, np.float64), rows[:, size:]
        with self._simulations(n, params) as sims:
            drive, bad = sims.step(rows[:, :size], lambda now: task.control(np, now, memory, action, params), acting)
            obs, reward, terminated, after = task.outcome(np, sims.physics(), memory, action, drive, params)
            expect(task, "outcome", (n,), obs, after)
            rows = np.concatenate([sims.state, after], axis=1)
            # Copies, because a task may return views that the next call overwrites.
            return Transition64(np.array(obs), np.array(reward), np.array(terminated), rows, bad)

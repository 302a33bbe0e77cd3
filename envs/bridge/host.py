"""A torch simulator in this process: JAX arrays in, JAX arrays out, for loops of one's own on the host.

>>> env = SimEnv(InProcess(torch_env))
>>> obs = env.reset(seed=0)
>>> rows = env.step(actions)
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from envs.bridge import errors
from envs.bridge.tensors import Mode, check_tensor, to_jax, to_torch
from envs.bridge.transport import Rows, check_finite, raise_non_finite


class InProcess:
    """A torch environment in this process, on the surface of Isaac Gym or Isaac Lab.

    ``step_tensors`` takes and returns tensors; ``step`` takes and returns NumPy, like a worker. The rows it hands out
    are clones, of which it keeps the newest two alive.
    """

    def __init__(self, env: Any, task: str = "", on_inert: str = "warn", **options: Any) -> None:
        """See `envs.bridge.worker.simulators`; ``task`` is the simulator's own name for it."""
        self.torch = errors.torch()
        from envs.bridge.worker import simulators

        self.simulators = simulators
        self.simulation = self._calling(simulators.surface, env, task, **options)
        self.about: Any = self._calling(simulators.describe, self.simulation, on_inert)
        self.sequence = 0
        self._drift: dict[str, float] = {}
        self._kept: deque[Any] = deque(maxlen=2)

    def drift(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Put factors in force before the next step, and read them back; does nothing where they are already."""
        if values != self._drift:
            self._calling(self.simulation.drift.apply, values, self.simulation.ending())
            self._drift = dict(values)
        return self._drift

    def restart_tensors(self, seed: int, sequence: int = 0) -> tuple[Any, Any]:
        """Observation (N, O) of fresh episodes and live (N,)."""
        out = self._calling(self.simulation.restart, seed)
        self.sequence = sequence
        self._kept.append(out)
        return out

    def step_tensors(self, actions: Any, finite: bool = True) -> Rows:
        """One step under ``actions`` (N, A) float32 on the simulator's device.

        Raises:
          SimBridgeError: of the class that fits.
        """
        n, s, a = self.about["num"], self.about["obs_size"], self.about["action_size"]
        check_tensor(actions, "actions", (n, a))
        torch, step = self.torch, self.sequence + 1
        if finite and not bool(torch.isfinite(actions).all()):
            raise_non_finite("action", ~np.isfinite(actions.cpu().numpy()).all(axis=1), step)
        rows = Rows(*self._calling(self.simulation.step, actions))
        check_tensor(rows.obs, "observation", (n, s))
        check_tensor(rows.reward, "reward", (n,))
        numbers = [x for x in (rows.obs, rows.reward, rows.final) if x is not None]
        if finite and not all(bool(torch.isfinite(x).all()) for x in numbers):
            check_finite(self._numpy(rows), step)
        self.sequence = step
        self._kept.append(rows)
        return rows

    def restart(self, seed: int, sequence: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """`restart_tensors` in NumPy."""
        obs, live = self.restart_tensors(seed, sequence)
        return obs.cpu().numpy(), live.cpu().numpy()

    def step(self, actions: np.ndarray) -> Rows:
        """`step_tensors` in NumPy."""
        return self._numpy(self.step_tensors(self.torch.from_numpy(actions.copy()).to(self.about["device"])))

    def close(self) -> None:
        """Nothing: the environment is its owner's."""

    @staticmethod
    def _numpy(rows: Rows) -> Rows:
        return Rows(*(None if value is None else value.cpu().numpy() for value in rows))

    def _calling(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except self.simulators.Fault as fault:
            raise errors.raised(fault.kind, str(fault)) from None


class SimStep(NamedTuple):
    """Result of one step of N parallel environments; JAX arrays."""

    obs: jax.Array  # (N, O) float32, to act on next
    next_obs: jax.Array  # (N, O) the successor, before any reset; where it is lost, where the step began
    reward: jax.Array  # (N,) float32, 0 where the step does not count
    terminated: jax.Array  # (N,) bool
    truncated: jax.Array  # (N,) bool
    valid: jax.Array  # (N,) bool, the step took place
    stored: jax.Array  # (N,) bool, and `next_obs` is the true successor
    live: jax.Array  # (N,) bool, the next step will take place


class SimEnv:
    """A host loop's view of a simulator in this process, with tensors shared through DLPack.

    Args:
      mode: ``zero_copy``, ``staging`` (through the host), or ``auto``, which shares where that is possible.
      sync: wait for both sides after every step. The numbers must not depend on it.
      debug: give the simulator a private copy of the actions and refuse one that writes to it, or that hands out
        the memory of an earlier step again.
    """

    def __init__(self, simulation: InProcess, mode: Mode = "auto", sync: bool = False, debug: bool = False) -> None:
        self.simulation, self.sync, self.debug = simulation, sync, debug
        self.mode: Mode = mode
        self.about = simulation.about
        self._obs: Any = None
        self._exported: deque[Any] = deque(maxlen=2)  # actions that torch may still be reading
        self._pointers: dict[str, int] = {}

    def drift(self, gravity: float = 1.0, joint_damping: float = 1.0, **own: float) -> None:
        """Factors in force from the next step on, or the values of all channels of an environment of one's own."""
        self.simulation.drift(own or {"gravity": gravity, "joint_damping": joint_damping})

    def reset(self, seed: int = 0) -> jax.Array:
        """Observations (N, O) of fresh episodes in all copies."""
        obs, _ = self.simulation.restart_tensors(seed)
        self._obs, self._pointers = to_jax(obs, "observation", self.mode), {}
        return self._obs

    def step(self, action: Any) -> SimStep:
        """One step under ``action`` (N, A) float32 in [-1, 1].

        Raises:
          SimBridgeError: of the class that fits.
        """
        if self._obs is None:
            raise errors.SimBridgeError("step was called before the first reset")
        if not isinstance(action, Tracer):
            action = self._checked(action)
        tensor = to_torch(action, "actions", self.mode, private=self.debug, device=self.about["device"])
        self._exported.append((action, tensor))
        rows = self.simulation.step_tensors(tensor)
        if self.debug:
            self._check_aliases(action, tensor, rows)
        given = zip(Rows._fields, rows, strict=True)
        out = self.finished(*(to_jax(value, name, self.mode) for name, value in given if value is not None))
        if self.sync:
            jax.block_until_ready(out)
            if rows.obs.is_cuda:
                self.simulation.torch.cuda.synchronize()
        self._obs = out.obs
        return out

    def finished(
        self,
        obs: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        valid: Any,
        live: Any,
        final: Any = None,
        before: Any = None,
    ) -> SimStep:
        """The learner's view of `Rows`; ``before`` (N, O) are the observations acted on, by default the newest."""
        final, stored = obs if final is None else final, valid
        if self.about["lost"]:
            done = terminated | truncated
            final = jnp.where(done[:, None], self._obs if before is None else before, obs)
            stored = valid & ~truncated
        reward = jnp.where(valid, reward, 0.0)
        return SimStep(obs, final, reward, terminated, truncated, valid, stored, live)

    def _checked(self, action: Any) -> jax.Array:
        shape = (self.about["num"], self.about["action_size"])
        if np.shape(action) != shape:
            raise errors.ShapeMismatchError(f"actions must have shape {shape}; got {np.shape(action)}")
        if getattr(action, "dtype", None) != np.float32:
            got = getattr(action, "dtype", type(action).__name__)
            raise errors.DtypeError(f"actions must be float32, as there is no silent cast; got {got}")
        return jnp.asarray(action)

    def _check_aliases(self, action: Any, tensor: Any, rows: Rows) -> None:
        if not self.simulation.torch.equal(tensor.cpu(), self.simulation.torch.from_numpy(np.array(action))):
            raise errors.AliasingError("the simulator wrote to the actions it was given; they must stay as they are")
        for field in ("obs", "reward"):
            pointer = getattr(rows, field).data_ptr()
            if self._pointers.get(field) == pointer:
                raise errors.AliasingError(
                    f"two steps in a row returned '{field}' in the same memory, which the second one wrote to; "
                    "clone it before it is shared"
                )
            self._pointers[field] = pointer

"""A torch simulator in this process, with JAX arrays in and out, for custom loops on the host.

>>> env = SimEnv(InProcess(torch_env))  # doctest: +SKIP
>>> obs = env.reset(seed=0)  # doctest: +SKIP
>>> rows = env.step(actions)  # doctest: +SKIP
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.registry import listed
from envs.bridge import errors
from envs.bridge.tensors import Mode, check_tensor, to_jax, to_torch
from envs.bridge.transport import Rows, check_finite, learned, raise_non_finite


class InProcess:
    """A torch environment in this process, with the interface of Isaac Gym or Isaac Lab.

    ``step_tensors`` takes and returns tensors; ``step`` takes and returns NumPy arrays, like a worker. Returned rows
    are clones, and the newest two stay referenced.
    """

    def __init__(self, env: Any, task: str = "", **options: Any) -> None:
        """``task`` is the simulator's name for the task; see `envs.bridge.worker.simulators`."""
        self.torch = errors.torch()
        from envs.bridge.worker import simulators

        self.simulators = simulators
        self.simulation = self._calling(simulators.surface, env, task, **options)
        self.about: Any = self._calling(simulators.describe, self.simulation)
        self.sequence = 0
        self._drift: dict[str, float] = {}
        self._kept: deque[Any] = deque(maxlen=2)

    def drift(self, values: Mapping[str, float]) -> None:
        """Set factors before the next step and read them back; no-op if they equal the last ones."""
        if values != self._drift:
            self._calling(self.simulation.drift.apply, values)
            self._drift = dict(values)

    def restart_tensors(self, seed: int, sequence: int = 0) -> tuple[Any, Any]:
        """Observations (N, O) of new episodes, and live (N,)."""
        out = self._calling(self.simulation.restart, seed)
        check_tensor(out[0], "observation", (self.about["num"], self.about["obs_size"]))
        self.sequence = sequence
        self._kept.append(out)
        return out

    def step_tensors(self, actions: Any) -> Rows:
        """One step under ``actions`` (N, A) float32 on the simulator's device.

        Raises:
          SimBridgeError: invalid actions or a failure of the simulator.
        """
        n, s, a = self.about["num"], self.about["obs_size"], self.about["action_size"]
        check_tensor(actions, "actions", (n, a))
        torch, step = self.torch, self.sequence + 1
        if not bool(torch.isfinite(actions).all()):
            raise_non_finite("action", ~np.isfinite(actions.cpu().numpy()).all(axis=1), step)
        rows = Rows(*self._calling(self.simulation.step, actions))
        check_tensor(rows.obs, "observation", (n, s))
        check_tensor(rows.reward, "reward", (n,))
        if not all(bool(torch.isfinite(x).all()) for x in (rows.obs, rows.reward, rows.final) if x is not None):
            check_finite(self._numpy(rows), step)
        self.sequence = step
        self._kept.append(rows)
        return rows

    def restart(self, seed: int, sequence: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """`restart_tensors`, in NumPy."""
        obs, live = self.restart_tensors(seed, sequence)
        return obs.cpu().numpy(), live.cpu().numpy()

    def step(self, actions: np.ndarray) -> Rows:
        """`step_tensors`, in NumPy."""
        return self._numpy(self.step_tensors(self.torch.from_numpy(actions.copy()).to(self.about["device"])))

    def close(self) -> None:
        """No-op, because the caller owns the environment."""

    @staticmethod
    def _numpy(rows: Rows) -> Rows:
        return Rows(*(None if value is None else value.cpu().numpy() for value in rows))

    def _calling(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except self.simulators.Fault as fault:
            raise errors.SimBridgeError(str(fault)) from None


class SimStep(NamedTuple):
    """Results of one step of N environments; JAX arrays."""

    obs: jax.Array  # (N, O) float32, observations for the next action
    next_obs: jax.Array  # (N, O) successor before any reset; if it is lost, the observation before the step
    reward: jax.Array  # (N,) float32, 0 where the step is invalid
    terminated: jax.Array  # (N,) bool
    truncated: jax.Array  # (N,) bool
    valid: jax.Array  # (N,) bool, the step took place
    stored: jax.Array  # (N,) bool, the step is valid and `next_obs` is the true successor
    live: jax.Array  # (N,) bool, the next step will be valid


class SimEnv:
    """A simulator in this process for host loops, with tensors shared through DLPack.

    Args:
      mode: ``zero_copy``, ``staging`` (through the host), or ``auto``, which shares if possible.
    """

    def __init__(self, simulation: InProcess, mode: Mode = "auto") -> None:
        self.simulation, self.about = simulation, simulation.about
        self.mode: Mode = mode
        self._obs: Any = None
        self._exported: deque[Any] = deque(maxlen=2)  # actions that torch may still be reading

    def drift(self, gravity: float | None = None, joint_damping: float | None = None, **own: float) -> None:
        """Set factors for the following steps, or values of a custom environment's channels; others become nominal.

        Raises:
          SimBridgeError: the environment has no such channel.
        """
        channels = self.about["channels"]
        values = {name: 1.0 if channels is None else channels[name][1] for name in self.about["nominal"]}
        given = {"gravity": gravity, "joint_damping": joint_damping} | own
        for name, value in given.items():
            if value is not None:
                if name not in values:
                    raise errors.SimBridgeError(f"'{name}' does not drift here; channels: {listed(values)}")
                values[name] = value
        self.simulation.drift(values)

    def reset(self, seed: int = 0) -> jax.Array:
        """Observations (N, O) of new episodes in all copies."""
        obs, _ = self.simulation.restart_tensors(seed)
        self._obs = to_jax(obs, "observation", self.mode)
        return self._obs

    def step(self, action: Any) -> SimStep:
        """One step under ``action`` (N, A) float32 in [-1, 1].

        Raises:
          SimBridgeError: invalid actions or a failure of the simulator.
        """
        if self._obs is None:
            raise errors.SimBridgeError("step was called before the first reset")
        if getattr(action, "dtype", None) != np.float32:
            got = getattr(action, "dtype", type(action).__name__)
            raise errors.SimBridgeError(f"actions must be float32, as there is no silent cast; got {got}")
        action = jnp.asarray(action)
        tensor = to_torch(action, "actions", self.mode, device=self.about["device"])
        self._exported.append((action, tensor))
        given = zip(Rows._fields, self.simulation.step_tensors(tensor), strict=True)
        rows = Rows(*(None if value is None else to_jax(value, name, self.mode) for name, value in given))
        next_obs, reward, stored = learned(jnp, rows, self._obs, self.about["lost"])
        self._obs = rows.obs
        return SimStep(
            rows.obs, next_obs, reward, rows.terminated, rows.truncated, rows.valid, stored=stored, live=rows.live
        )

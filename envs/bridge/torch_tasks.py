"""Our tasks as torch environments with the interface of Isaac Gym; tensors are on the CPU."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box

from aesjax.compiling import jit
from envs import make
from envs.bridge import errors
from envs.bridge.phantom import Phantom, seeded_step
from envs.bridge.tensors import check_tensor
from envs.core import Task, check_continuous, check_unmasked
from envs.isaac import CHANNELS


class TorchVecTask:
    """N copies of a task with the interface and the defects of Isaac Gym's `VecTask`.

    One defect is corrected: a failure in the step of the time limit is not among ``extras["time_outs"]``. It drifts
    like a custom environment.

    ``step(actions)`` returns ``(obs_dict, rew, reset, extras)``: observations (N, O) float32, rewards (N,) float32,
    resets (N,) int64. An episode's last observation is returned with ``reset = 1``, and the next step is a phantom:
    its action is ignored and its reward is meaningless. ``reset()`` resets nothing and returns zeros; the first step is
    a phantom. Results are copies; a reset is requested through ``reset_buf``.

    Args:
      task: a name of `envs.TASKS`, or a Task.
    """

    def __init__(self, task: str | Task = "isaac_ant", num_envs: int = 16, seed: int = 0) -> None:
        torch = self.torch = errors.torch()
        self.native = make(task) if isinstance(task, str) else task
        check_unmasked(self.native, "Isaac Gym's interface")
        check_continuous(self.native, "Isaac Gym's interface")
        spec, physics = self.native.env.spec, getattr(self.native.env, "task", None)
        self.core = Phantom(self.native.env, "before" if getattr(physics, "resets_first", False) else "after")
        self.num_envs, self.num_obs, self.num_acts, self.num_states = num_envs, spec.obs_size, spec.action_size, 0
        self.max_episode_length = spec.time_limit + 1
        self.device = self.rl_device = "cpu"
        self.observation_space, self.action_space = (
            Box(-bound, bound, (size,), np.float32) for size, bound in ((self.num_obs, np.inf), (self.num_acts, 1.0))
        )
        self._params = self.native.params
        known = {n: each for n, each in CHANNELS.items() if n in getattr(self._params, "_fields", ())}
        if known:
            self.drift_channels = {n: (each.low, each.nominal, each.high) for n, each in known.items()}
            self.apply_drift = self._drift
        self.obs_dict, self.extras = {}, {}
        self.obs_buf = torch.zeros((num_envs, self.num_obs))
        self.rew_buf = torch.zeros(num_envs)
        self.reset_buf = torch.ones(num_envs, dtype=torch.int64)
        self.progress_buf = torch.zeros(num_envs, dtype=torch.int64)
        self._step = jit(partial(seeded_step, self.core))
        self.seed(seed)
        keys = jax.random.split(jax.random.key(self._seed), num_envs)
        self._state = jit(jax.vmap(self.core.reset, (0, None)))(keys, self._params)[1]

    def seed(self, seed: int) -> None:
        """Restart the random numbers; the state is unchanged."""
        self._seed, self._clock = jnp.uint32(seed), 0

    def reset(self) -> dict[str, Any]:
        """Return the observation buffer without a reset: zeros before the first step."""
        self.obs_dict = {"obs": self.obs_buf.clone()}
        return self.obs_dict

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, dict[str, Any]]:
        """One step under ``actions`` (N, A) float32, clipped to +-1 here."""
        torch = self.torch
        pending = self.reset_buf != 0
        actions = actions.detach().contiguous()
        check_tensor(actions, "actions", (self.num_envs, self.num_acts))
        actions = jnp.asarray(actions.clamp(-1.0, 1.0).numpy())
        # Callers request a reset through `reset_buf`.
        requested = self._state.pending | jnp.asarray(pending.numpy())
        state = self._state._replace(pending=requested)
        obs, self._state, reward, _, truncated, _ = self._step(
            self._seed, jnp.int32(self._clock), state, actions, self._params
        )
        self._clock += 1
        self.obs_buf = torch.tensor(np.asarray(obs))
        self.rew_buf.copy_(torch.from_numpy(np.array(reward)))
        self.reset_buf.copy_(torch.from_numpy(np.array(self._state.pending)))
        self.progress_buf = torch.where(pending, 0, self.progress_buf + 1)
        self.extras = {"time_outs": torch.from_numpy(np.array(truncated))}
        return self.reset(), self.rew_buf.clone(), self.reset_buf.clone(), self.extras

    def zero_actions(self) -> Any:
        return self.torch.zeros((self.num_envs, self.num_acts))

    def set_train_info(self, env_frames: int, *args: Any, **kwargs: Any) -> None:
        """No-op, as in most tasks."""

    def get_env_state(self) -> None:
        """None, as in most tasks."""

    def set_env_state(self, env_state: Any) -> None:
        """No-op, as in most tasks."""

    def _drift(self, values: Mapping[str, float]) -> None:
        """Set factors for the following steps."""
        self._params = self._params._replace(**{name: np.float32(value) for name, value in values.items()})

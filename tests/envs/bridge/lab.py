"""Our own tasks with the interface of Isaac Lab, as a test double."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box

from envs import make
from envs.bridge import errors
from envs.core import Task, step_with_keys


class TorchLabTask:
    """N copies of a task as Isaac Lab's ``DirectRLEnv`` shows them: five values, reset within the step.

    ``step(actions)`` returns ``(obs_dict, rew, terminated, truncated, extras)`` with ``obs_dict["policy"]`` (N, O),
    which after an episode's end is the next one's first: the last observation is lost.
    """

    def __init__(
        self,
        task: str | Task = "isaac_ant",
        num_envs: int = 16,
        seed: int = 0,
        actuator: str = "ImplicitActuator",
        version: int = 2,
        deaf: bool = False,
    ) -> None:
        torch = self.torch = errors.torch()
        self.native = make(task) if isinstance(task, str) else task
        spec = self.native.env.spec
        self.num_envs, self.device, self.max_episode_length = num_envs, "cpu", spec.time_limit
        self.single_observation_space = {"policy": Box(-np.inf, np.inf, (spec.obs_size,), np.float32)}
        self.single_action_space = Box(-np.inf, np.inf, (spec.action_size,), np.float32)
        gain = torch.full((num_envs, spec.action_size), 0.1)
        self.explicit, self.deaf = actuator != "ImplicitActuator", deaf
        self.gravity, self.damping = [0.0, 0.0, -9.81], 0.0 * gain if self.explicit else gain.clone()
        self.legs: Any = type(actuator, (), {})()
        self.legs.damping = gain.clone()
        proxy = (
            SimpleNamespace if version == 3 else lambda torch: torch
        )  # data of version 3 have tensors, and no clone()
        robot = SimpleNamespace(
            data=SimpleNamespace(
                joint_damping=proxy(torch=self.damping.clone()), default_joint_damping=proxy(torch=gain)
            ),
            actuators={"legs": self.legs},
        )
        view = SimpleNamespace(get_dof_dampings=lambda: self.damping)
        if version == 3:
            robot.write_joint_damping_to_sim_index, robot.root_view = self._set_damping, view
        else:
            robot.write_joint_damping_to_sim, robot.root_physx_view = self._set_damping, view
        self.scene = SimpleNamespace(articulations={"robot": robot})
        view = SimpleNamespace(set_gravity=self._set_gravity, get_gravity=lambda: list(self.gravity))
        self.sim = SimpleNamespace(cfg=SimpleNamespace(gravity=tuple(self.gravity)), physics_sim_view=view)
        self._start, self._step = jax.jit(self._traced_start), jax.jit(self._traced_step)
        self.seed(seed)

    @property
    def unwrapped(self) -> "TorchLabTask":
        """Itself: there is no wrapper."""
        return self

    def seed(self, seed: int) -> None:
        """Begin the random numbers again; the state stays."""
        self._seed, self._clock = jnp.uint32(seed), 0

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Fresh episodes in all copies."""
        if seed is not None:
            self.seed(seed)
        self._observed, self._state = self._start(self._seed, self._params())
        self._reset_idx(self.torch.arange(self.num_envs))
        return self._get_observations(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """One step under ``action`` (N, A) float32, which is not clipped here."""
        out = self._step(self._seed, jnp.int32(self._clock), self._state, jnp.asarray(action.numpy()), self._params())
        obs, self._state, *rest, final = out
        self._clock += 1
        reward, terminated, truncated = (self.torch.from_numpy(np.array(x)) for x in rest)
        ended = (terminated | truncated).nonzero().flatten()
        self._observed = final
        if len(ended):
            self._reset_idx(ended)
        self._observed = obs
        return self._get_observations(), reward, terminated, truncated, {}

    def _get_observations(self) -> dict[str, Any]:
        return {"policy": self.torch.from_numpy(np.array(self._observed))}

    def _reset_idx(self, env_ids: Any) -> None:
        """Where Isaac Lab resets these copies; here that has happened, and is about to be observed."""

    def _set_gravity(self, gravity: Any) -> None:
        self.gravity = list(gravity)

    def _set_damping(self, damping: Any) -> None:
        if not self.deaf:
            self.damping = damping

    def _params(self) -> Any:
        damping = float(self.damping[0, 0]) + self.explicit * float(self.legs.damping[0, 0])
        factors = self.gravity[2] / -9.81, damping / float(np.float32(0.1))
        return self.native.params._replace(gravity=np.float32(factors[0]), joint_damping=np.float32(factors[1]))

    def _traced_start(self, seed: Any, params: Any) -> tuple[Any, Any]:
        return jax.vmap(self.native.env.reset, (0, None))(jax.random.split(jax.random.key(seed), self.num_envs), params)

    def _traced_step(self, seed: Any, clock: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        keys = jax.random.bits(jax.random.fold_in(jax.random.key(seed), clock), (self.num_envs, 2, 2), jnp.uint32)

        def one(words: Any, state: Any, action: Any) -> Any:
            key_step, key_reset = jax.random.wrap_key_data(words)
            return step_with_keys(self.native.env, key_step, key_reset, state, action, params)

        *out, info = jax.vmap(one)(keys, state, action)
        return *out, info["final_observation"]

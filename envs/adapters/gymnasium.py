"""Drifting tasks as Gymnasium environments: one at a time, many at once, and by id.

The drift clock counts steps from the first reset. The end of an episode and a plain ``reset()`` leave it alone;
``reset(seed=...)`` begins a new run, clock included, so that a seed fixes everything that follows. The option
``restart_drift`` overrides that: ``True`` restarts the clock without a seed, ``False`` keeps it with one. Past
``total_steps`` the drift stays where it ended.

Infos carry the drift in force, which is for reports and references; a learner must not see it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envs import PATTERNS, TASKS, make
from envs.core import Task, autoreset_step
from envs.drifting import Drifting, DriftState

__all__ = ["DriftingEnv", "DriftingVectorEnv", "register"]


class _Run:
    """N copies on the device with their key and clock, as one compiled step; NumPy on the outside."""

    def __init__(self, drifting: Drifting, autoreset: bool) -> None:
        self.drifting = drifting
        self.key: Any = None  # None until the first reset
        self.state: Any = None  # DriftState
        self.obs: Any = None  # (N, S), the newest observations
        self._start = jax.jit(self._traced_start)
        self._step = jax.jit(partial(self._traced_step, autoreset))

    def _drift(self, clock: Any) -> dict[str, Any]:
        values, n = self.drifting.truth_at(clock).values, self.drifting.num_envs
        return {"drift": jnp.tile(values[None], (n, 1)), "drift_step": jnp.full((n,), clock)}

    def _traced_start(self, key, clock):
        key, key_start = jax.random.split(key)
        starts = jax.random.split(key_start, self.drifting.num_envs)
        reset = jax.vmap(self.drifting.task.env.reset, in_axes=(0, None))
        obs, state = reset(starts, self.drifting.params_at(clock))
        return key, obs, DriftState(state, clock), self._drift(clock)

    def _traced_step(self, autoreset, key, state, action):
        key, key_step = jax.random.split(key)
        env, params = self.drifting.task.env, self.drifting.params_at(state.clock)
        move = partial(autoreset_step, env) if autoreset else env.step
        keys = jax.random.split(key_step, self.drifting.num_envs)
        obs, after, *outcome, info = jax.vmap(move, in_axes=(0, 0, 0, None))(keys, state.env, action, params)
        return key, obs, DriftState(after, state.clock + 1), *outcome, info, self._drift(state.clock)

    def reset(self, rng: np.random.Generator, reseed: bool, options: Mapping[str, Any] | None) -> tuple[Any, ...]:
        """Observations (N, S), drift, and which copies were reset (N,)."""
        options = options or {}
        if not set(options) <= {"restart_drift", "reset_mask"}:
            raise ValueError(f"reset has the options restart_drift and reset_mask; got {', '.join(options)}")
        mask = _reset_mask(options.get("reset_mask"), self.drifting.num_envs)
        first = self.key is None
        if first and not mask.all():
            raise gymnasium.error.ResetNeeded("the first reset must reset every environment; got a partial reset_mask")
        if reseed or first:
            self.key = jax.random.key(rng.integers(2**32, dtype=np.uint32))
        restart = first or options.get("restart_drift", reseed)
        clock = jnp.zeros((), jnp.int32) if restart else self.state.clock
        self.key, *fresh, drift = self._start(self.key, clock)
        if not mask.all():
            (obs, state), select = fresh, jax.vmap(lambda m, new, old: jax.tree.map(partial(jnp.where, m), new, old))
            obs, inner = select(jnp.asarray(mask), (obs, state.env), (self.obs, self.state.env))
            fresh = obs, DriftState(inner, clock)
        self.obs, self.state = fresh
        return np.array(self.obs), drift, mask

    def step(self, action: Any) -> tuple[Any, ...]:
        """Observations (N, S), reward, terminated, truncated (N,), the task's info, drift; all NumPy arrays."""
        if self.key is None:
            raise gymnasium.error.ResetNeeded("step was called before the first reset")
        action = np.asarray(action, np.float32)
        shape = (self.drifting.num_envs, self.drifting.task.env.spec.action_size)
        if action.shape != shape:
            raise ValueError(f"an action of this environment has shape {shape} (copies, actuators); got {action.shape}")
        self.key, self.obs, self.state, *rest = self._step(self.key, self.state, action)
        return tuple(jax.tree.map(np.array, (self.obs, *rest)))  # copies: what JAX hands out is read-only


def _reset_mask(mask: Any, n: int) -> np.ndarray:
    if mask is None:
        return np.ones(n, bool)
    if not isinstance(mask, np.ndarray) or mask.shape != (n,) or mask.dtype != bool or not mask.any():
        raise ValueError(f"reset_mask must be a bool array of shape ({n},) with at least one True; got {mask!r}")
    return mask


def _drifting(task: str | Task, options: dict[str, Any], **rest: Any) -> Drifting:
    if isinstance(task, str):
        task = make(task, **options)
    elif options:
        raise ValueError(f"options are those of a task given by name; got a Task and {', '.join(options)}")
    return Drifting(task, **rest)


def _spaces(task: Task) -> tuple[Box, Box]:
    """Of one copy: observations (S,) without bounds, actions (A,) in [-1, 1]."""
    spec = task.env.spec
    return Box(-np.inf, np.inf, (spec.obs_size,), np.float32), Box(-1.0, 1.0, (spec.action_size,), np.float32)


def _masked(info: Mapping[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Gymnasium's infos: entries of the copies in ``mask`` (N,), zero elsewhere, and under ``_name`` the mask."""
    infos: dict[str, Any] = {}
    if mask.any():
        for name, value in info.items():
            if isinstance(value, Mapping):
                infos[name] = _masked(value, mask)
            else:
                infos[name] = np.array(value)
                infos[name][~mask] = 0
            infos[f"_{name}"] = mask.copy()
    return infos


class DriftingVectorEnv(gymnasium.vector.VectorEnv):
    """``num_envs`` copies of a drifting task, reset in the step that ends their episode (``SAME_STEP``).

    Infos: ``drift`` (N, D) float32, the values in force during the step (at a reset: that the start was drawn
    under), ``drift_step`` (N,) int32, the vector step they belong to, whatever the task itself reports, and where
    an episode ended ``final_obs`` (N,) of arrays (S,) or None and ``final_info``; each with its mask ``_name``.
    """

    def __init__(
        self,
        task: str | Task,
        pattern: str,
        total_steps: int,
        num_envs: int = 1,
        drift_seed: int = 0,
        segments: int = 5,
        **options: Any,
    ) -> None:
        """Compiles nothing yet; the first reset and the first step do.

        Args:
          task: name, built with ``options`` by `envs.make`, or a Task.
          total_steps: horizon of the drift in steps summed over copies; a multiple of ``num_envs * segments``.

        Raises:
          UnknownNameError, ValueError: a task, pattern, option or number that does not exist or fit.
        """
        drifting = _drifting(
            task,
            options,
            pattern=pattern,
            total_steps=total_steps,
            drift_seed=drift_seed,
            segments=segments,
            num_envs=num_envs,
        )
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(drifting.task)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._run = _Run(drifting, autoreset=True)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observations (N, S) of new episodes; a seed begins a new run.

        Options: ``restart_drift`` (bool) as in the head of this module; ``reset_mask`` (N,) bool, which copies.
        """
        super().reset(seed=seed)
        obs, drift, mask = self._run.reset(self.np_random, seed is not None, options)
        return obs, _masked(drift, mask)

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Observations (N, S) float32, rewards (N,) float64, both flags (N,) bool, and infos."""
        obs, reward, terminated, truncated, info, drift = self._run.step(actions)
        final = info.pop("final_observation")
        ended = terminated | truncated
        infos = _masked(drift, np.ones_like(ended)) | _masked(info, ~ended)
        if ended.any():
            infos["final_obs"] = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                infos["final_obs"][i] = final[i].copy()
            infos |= {"_final_obs": ended.copy()} | _masked({"final_info": drift | info}, ended)
        return obs, reward.astype(np.float64), terminated, truncated, infos


class DriftingEnv(gymnasium.Env):
    """One copy of a drifting task; the caller resets it when its episode ends.

    Info: ``drift`` (D,) float32 and ``drift_step`` as in `DriftingVectorEnv`, and what the task itself reports.
    """

    def __init__(
        self, task: str | Task, pattern: str, total_steps: int, drift_seed: int = 0, segments: int = 5, **options: Any
    ) -> None:
        """As `DriftingVectorEnv`; ``total_steps`` is a multiple of ``segments``."""
        rest = {"pattern": pattern, "total_steps": total_steps, "drift_seed": drift_seed, "segments": segments}
        drifting = _drifting(task, options, **rest)
        self.metadata = {"render_modes": []}
        self.observation_space, self.action_space = _spaces(drifting.task)
        self._run = _Run(drifting, autoreset=False)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observation (S,) of a new episode; a seed begins a new run, and so does the option ``restart_drift``."""
        super().reset(seed=seed)
        obs, drift, _ = self._run.reset(self.np_random, seed is not None, options)
        return obs[0], _first(drift)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step with ``action`` (A,) in [-1, 1]."""
        obs, reward, terminated, truncated, info, drift = self._run.step(np.asarray(action)[None])
        info.pop("final_observation", None)  # without auto-reset it is the observation
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(drift | info)


def _first(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info of the only copy; numbers become Python's, arrays are copied."""
    only = jax.tree.map(lambda value: np.array(value)[0], dict(info))
    return jax.tree.map(lambda value: value.item() if np.ndim(value) == 0 else value.copy(), only)


def register() -> list[str]:
    """Make ``aesjax/<task>-<pattern>-v0`` known to ``gymnasium.make`` and ``make_vec``; returns these ids.

    Calling it again adds only what is new. Keyword arguments of ``make`` are those of `DriftingEnv`,
    ``total_steps`` among them always; ``make_vec`` builds a `DriftingVectorEnv`.
    """
    ids = []
    for task in TASKS:
        for pattern in PATTERNS:
            ids.append(f"aesjax/{task}-{pattern}-v0")
            if ids[-1] not in gymnasium.registry:
                gymnasium.register(
                    ids[-1],
                    entry_point=f"{__name__}:DriftingEnv",
                    vector_entry_point=f"{__name__}:DriftingVectorEnv",
                    kwargs={"task": task, "pattern": pattern},
                )
    return ids

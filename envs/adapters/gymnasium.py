"""Drifting tasks as Gymnasium environments: single, vectorised, and by id; see `docs/elsewhere.md`.

The end of an episode and a plain ``reset()`` do not change the drift clock; ``reset(seed=...)`` restarts it, so that a
seed determines all that follows. The option ``restart_drift`` overrides this: ``True`` restarts the clock without a
seed, ``False`` continues it with a seed. Importing this module registers its ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envs import PATTERNS, PROTOCOLS, TASKS
from envs.adapters.copies import DRIFT_STEPS, Compared, Copies, Parallel, copies_of, spaces_of
from envs.core import Task
from envs.timeline import EVEN

_METADATA = {"render_modes": ["rgb_array"], "render_fps": 30}


def _masked(info: Mapping[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Infos of Gymnasium: entries of the copies in ``mask`` (N,), zero elsewhere, and the mask under ``_name``."""
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


class DriftingVectorEnv(Parallel, gymnasium.vector.VectorEnv):
    """``num_envs`` copies of a drifting task under one drift clock.

    Infos: ``drift`` (N, D) float32, the values in force during the step or reset, ``drift_step`` (N,) int32, their
    vector step, and the infos of the task. In mode ``SAME_STEP``, at the end of an episode, also ``final_obs`` (N,) of
    arrays (S,) or None and ``final_info``. Each has its mask ``_name``.
    """

    metadata = _METADATA

    def __init__(
        self,
        task: str | Task,
        pattern: str,
        drift_steps: int = DRIFT_STEPS,
        num_envs: int = 1,
        drift_seed: int = 0,
        segments: int = 5,
        onset: float = 0.0,
        changes: str = EVEN,
        drift: Sequence[float] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        """Nothing is compiled before the first reset and the first step.

        Args:
          task: name, built with ``options`` by `envs.make`, or a Task.
          drift_steps: horizon of the drift in vector steps, a multiple of ``segments``.
          onset, changes: begin of the drift and lengths of its segments, see `envs.timeline.Timeline`.
          drift: constant values (D,) instead of the pattern, for evaluations.
          autoreset_mode: Gymnasium's. ``SAME_STEP`` resets a copy in the step that ends its episode, ``NEXT_STEP`` in
            place of the step after, ``DISABLED`` leaves it to ``reset(options={"reset_mask": ...})``.
          render_mode: None or ``rgb_array``.

        Raises:
          UnknownNameError, ValueError: an unknown task, pattern or option, or an invalid number.
        """
        known = [mode.value for mode in AutoresetMode]
        if not isinstance(autoreset_mode, AutoresetMode) and autoreset_mode not in known:
            raise ValueError(f"autoreset_mode must be one of {', '.join(known)}; got {autoreset_mode!r}")
        options |= {"drift_seed": drift_seed, "segments": segments, "onset": onset, "changes": changes}
        options |= {"drift": drift, "render_mode": render_mode}
        self._around(copies_of(task, pattern, drift_steps, num_envs, AutoresetMode(autoreset_mode), **options))

    def _around(self, copies: Copies) -> Self:
        self.num_envs = copies.num_envs
        self.metadata = {**_METADATA, "autoreset_mode": copies.mode}
        self.single_observation_space, self.single_action_space = spaces_of(copies.task)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        return super()._around(copies)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observations (N, S) of new episodes; a seed begins a new run.

        Options: ``restart_drift`` (bool) as in the head of this module; ``reset_mask`` (N,) bool, which copies.
        """
        super().reset(seed=seed)
        obs, drift, mask = self._copies.reset(self.np_random, seed is not None, options)
        return obs, _masked(drift, mask)

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Observations (N, S) float32, rewards (N,) float64, both flags (N,) bool, and infos."""
        obs, reward, terminated, truncated, final, info, drift, idle = self._copies.step(actions)
        ended = (terminated | truncated) & (self._copies.mode is AutoresetMode.SAME_STEP)
        infos = _masked(drift, np.ones_like(ended)) | _masked(info, ~ended & ~idle)
        if ended.any():
            infos["final_obs"] = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                infos["final_obs"][i] = final[i].copy()
            infos |= {"_final_obs": ended} | _masked({"final_info": drift | info}, ended)
        return obs, reward.astype(np.float64), terminated, truncated, infos

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore
        """Pictures (height, width, 3) uint8, one per environment, by `envs.render.Renderer`."""
        return self._copies.pictures()

    def close_extras(self, **kwargs: Any) -> None:
        self._copies.close()


class DriftingEnv(Compared, gymnasium.Env):
    """One copy of a drifting task; the caller resets it when its episode ends.

    Info: ``drift`` (D,) float32 and ``drift_step`` as in `DriftingVectorEnv`, and the info of the task.
    """

    metadata = _METADATA

    def __init__(self, task: str | Task, pattern: str, drift_steps: int = DRIFT_STEPS, **options: Any) -> None:
        self._around(copies_of(task, pattern, drift_steps, 1, None, **options))

    def _around(self, copies: Copies) -> "DriftingEnv":
        self._copies, self.render_mode = copies, copies.render_mode
        self.observation_space, self.action_space = spaces_of(copies.task)
        return self

    def evaluation(self, drift: Sequence[float] | None = None) -> "DriftingEnv":
        """An environment for evaluation, as `DriftingVectorEnv.evaluation`."""
        return type(self).__new__(type(self))._around(self._copies.evaluation(1, drift))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observation (S,) of a new episode; a seed begins a new run, and so does the option ``restart_drift``."""
        super().reset(seed=seed)
        obs, drift, _ = self._copies.reset(self.np_random, seed is not None, options)
        return obs[0], _first(drift)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step with ``action`` (A,) in [-1, 1], or the number of a discrete action."""
        obs, reward, terminated, truncated, _, info, drift, _ = self._copies.step(np.asarray(action)[None])
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(drift | info)

    def render(self) -> np.ndarray | None:  # type: ignore
        """Picture (height, width, 3) uint8, by `envs.render.Renderer`."""
        pictures = self._copies.pictures()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        self._copies.close()


def _first(info: Mapping[str, Any]) -> dict[str, Any]:
    """Info of the only copy; numbers become Python numbers, arrays are copied."""
    only = jax.tree.map(lambda value: np.array(value)[0], dict(info))
    return jax.tree.map(lambda value: value.item() if np.ndim(value) == 0 else value.copy(), only)


def register() -> list[str]:
    """Register ``aesjax/<task>-<pattern>-v0`` and ``aesjax/<protocol>``; returns these ids.

    Importing this module calls it; a later call adds new tasks, patterns and protocols. Keyword arguments of ``make``
    are those of `DriftingEnv`; ``make_vec`` builds a `DriftingVectorEnv`.
    """
    ids = {f"aesjax/{name}": protocol.environment for name, protocol in PROTOCOLS.items()}
    for task in TASKS:
        for pattern in PATTERNS:
            ids[f"aesjax/{task}-{pattern}-v0"] = {"task": task, "pattern": pattern}
    for name, arguments in ids.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{__name__}:DriftingEnv",
                vector_entry_point=f"{__name__}:DriftingVectorEnv",
                kwargs=arguments,
            )
    return list(ids)


register()

"""Drifting tasks as a vector environment for Stable-Baselines3 and libraries with its interface (SBX).

Clock, seeds and options are those of `envs.adapters.gymnasium`. Importing this module needs Stable-Baselines3,
which needs PyTorch.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Self

import jax
import numpy as np
from gymnasium.vector import AutoresetMode

from envs.adapters.copies import DRIFT_STEPS, Copies, Parallel, copies_of, spaces_of
from envs.core import Task

try:
    from stable_baselines3.common.vec_env import VecEnv  # type: ignore
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"envs.adapters.sb3 needs Stable-Baselines3 ({error}): pip install '.[sb3]' in a clone", name=error.name
    ) from None


class DriftingVecEnv(Parallel, VecEnv):
    """``num_envs`` copies of a drifting task under one drift clock, as one compiled step.

    The first ``reset``, and the first after ``seed``, begin a new run; other resets and repeated calls of ``learn``
    continue the clock. Info of a copy: ``drift`` (D,) and ``drift_step``, not for the learner, the info of the task,
    ``TimeLimit.truncated``, and at the end of an episode ``terminal_observation``.

    >>> env = DriftingVecEnv("toy", "abrupt", drift_steps=1000, num_envs=4)
    >>> env.reset().shape
    (4, 2)
    """

    def __init__(
        self, task: str | Task, pattern: str, drift_steps: int = DRIFT_STEPS, num_envs: int = 1, **options: Any
    ) -> None:
        """As `envs.adapters.gymnasium.DriftingVectorEnv`.

        ``learn`` counts steps over copies: the complete drift takes ``total_timesteps = drift_steps * num_envs``.
        """
        self._around(copies_of(task, pattern, drift_steps, num_envs, AutoresetMode.SAME_STEP, **options))

    def _around(self, copies: Copies) -> Self:
        self._actions: np.ndarray | None = None
        super()._around(copies)
        VecEnv.__init__(self, copies.num_envs, *spaces_of(copies.task))
        return self

    def reset(self) -> np.ndarray:
        """Observations (N, S) of new episodes, under the seed and the options set before (those of the first copy)."""
        seed, options = self._seeds[0], self._options[0]
        obs, drift, _ = self._copies.reset(np.random.default_rng(seed), seed is not None, options)
        self.reset_infos = self._split(drift)
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Store actions (N, A) in [-1, 1], or (N,) numbers of discrete actions, for `step_wait`."""
        self._actions = np.array(actions)  # which the caller may change before `step_wait`

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Observations (N, S), of the new episode where one ended, rewards (N,) float32, ends (N,) bool, infos."""
        step = self._copies.step(self._actions)
        infos, done = self._split(step.drift | step.info), step.terminated | step.truncated
        for i, info in enumerate(infos):
            info["TimeLimit.truncated"] = bool(step.truncated[i])
            if done[i]:
                info["terminal_observation"] = step.final[i]
        return step.obs, step.reward, done, infos

    def _split(self, info: dict[str, Any]) -> list[dict[str, Any]]:
        return [jax.tree.map(itemgetter(i), info) for i in range(self.num_envs)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Pictures (height, width, 3) uint8, one per environment, by `envs.render.Renderer`."""
        return self._copies.pictures() or [None] * self.num_envs

    def close(self) -> None:
        self._copies.close()

    # The parallel environments are one object, so a call for several is made once.

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Attribute of this environment, repeated for each requested index."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set the attribute of this environment, for all copies."""
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call the method of this environment once; its result is repeated for each requested index."""
        result = getattr(self, method_name)(*method_args, **method_kwargs)
        return [result] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """False for each requested index."""
        return [False] * len(list(self._get_indices(indices)))

"""Pictures of copies of a task while they are stepped."""

import copy
import weakref
from collections import deque
from operator import itemgetter
from typing import Any

import jax
import numpy as np

from envs.core import Task
from envs.render import scene_of

WIDTH = 480  # pixels


class Film:
    """The newest episode of each of N copies, as far as a painter looks back."""

    def __init__(self, task: Task, num_envs: int) -> None:
        self.task, self.ages = task, np.zeros(num_envs, int)  # steps of each copy's episode
        # Of a body only the newest state is drawn, of the small tasks the way so far.
        length = 1 if hasattr(task.env, "engine") else task.env.spec.time_limit + 1
        self.states: deque[Any] = deque(maxlen=length)  # of all copies; the newest last
        self.scene: Any = None  # opened by the first picture

    def __deepcopy__(self, memo: dict[int, Any]) -> "Film":
        memo[id(self)] = twin = copy.copy(self)
        twin.states, twin.ages, twin.scene = self.states.copy(), self.ages.copy(), None
        return twin

    def begin(self, state: Any, fresh: np.ndarray) -> None:
        """The moment of the newest state, with new episodes where ``fresh`` (N,)."""
        if self.states:
            self.states.pop()
        self.states.append(state)
        self.ages[fresh] = 0

    def add(self, state: Any, fresh: np.ndarray) -> None:
        """One step later, with new episodes where ``fresh`` (N,)."""
        self.states.append(state)
        self.ages = np.where(fresh, 0, self.ages + 1)

    def pictures(self, params: Any) -> tuple[np.ndarray, ...]:
        """(height, width, 3) uint8 of each copy under ``params``.

        Raises:
          ValueError: a task that nothing can draw.
        """
        if self.scene is None:
            self.scene = scene_of(self.task, WIDTH)
            # At Python's exit, should nobody have done it: later OpenGL would find its own modules gone, and say so.
            self._close = weakref.finalize(self, self.scene.close)
        states, params = jax.device_get((list(self.states), params))
        episodes = [[jax.tree.map(itemgetter(i), s) for s in states[-1 - age :]] for i, age in enumerate(self.ages)]
        return tuple(np.array(self.scene.draw(episode, params)) for episode in episodes)

    def close(self) -> None:
        """Give back what the painter holds."""
        if self.scene is not None:
            self._close()
        self.scene = None

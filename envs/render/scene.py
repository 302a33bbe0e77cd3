"""Pictures of a task's states, for people to look at: `scene_of` finds the painter of a task."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from envs.core import Task
from envs.physics import Marker
from envs.render.plane import PAINTERS
from envs.render.renderers import Renderer
from envs.render.view import view_of


class Scene(Protocol):
    """Draws one task."""

    rate: float | None  # steps per second of the simulated world; None where a step has no duration

    def draw(self, states: Sequence[Any], params: Any) -> np.ndarray:
        """Picture (height, width, 3) uint8 of an episode so far.

        Args:
          states: of the environment, without a batch axis, on the host; the newest last.
          params: those in force.
        """
        ...

    def legend(self, state: Any) -> list[tuple[tuple[int, int, int], str]]:
        """Colour and meaning of what is drawn beside the agent's body, and of the agent where it is a mere point."""
        ...

    def close(self) -> None:
        """Give back what the painter holds."""
        ...


def scene_of(task: Task, width: int) -> Scene:
    """The painter of ``task``.

    Args:
      width: pixels; MuJoCo tasks are 4:3, the others square.

    Raises:
      ValueError: a task that nothing can draw, or MuJoCo's on a machine without OpenGL.
    """
    if hasattr(task.env, "engine"):  # MuJoCo's C engine, whose states hold positions
        return _Body(task, width)
    if task.name not in PAINTERS:
        drawn = ", ".join([*PAINTERS, "and MuJoCo's tasks on the engine mujoco"])
        raise ValueError(f"nothing can draw task '{task.name}'; tasks that can be drawn: {drawn}")
    return PAINTERS[task.name](width)


class _Body:
    """A MuJoCo model."""

    def __init__(self, task: Task, width: int) -> None:
        self.engine: Any = task.env.engine  # type: ignore
        model = self.engine.model
        self.rate = 1.0 / (model.opt.timestep * self.engine.task.substeps)
        self.renderer = Renderer(model, width, width * 3 // 4, view_of(task.name, model))

    def draw(self, states: Sequence[Any], params: Any) -> np.ndarray:
        """The newest state alone."""
        return self.renderer.draw(self._row(states[-1])[self.engine.positions], self._markers(states[-1]))

    def legend(self, state: Any) -> list[tuple[tuple[int, int, int], str]]:
        """The task's markers by name."""
        named = {m.name: m.colour for m in self._markers(state) if m.name}
        return [(_bytes(colour), name) for name, colour in named.items()]

    def _row(self, state: Any) -> np.ndarray:
        return np.ascontiguousarray(state.row).view(np.float64)

    def _markers(self, state: Any) -> Sequence[Marker]:
        return self.engine.task.markers(self._row(state)[self.engine.default.size :])

    def close(self) -> None:
        """Give back what the renderer holds."""
        self.renderer.close()


def _bytes(colour: Any) -> tuple[int, int, int]:
    red, green, blue = (round(255 * float(part)) for part in colour)
    return red, green, blue

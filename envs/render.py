"""Pictures of a task's states: MuJoCo's own renderer for robots, matplotlib for the planar tasks."""

import atexit
import copy
import os
from collections.abc import Callable
from ctypes.util import find_library
from importlib import import_module
from typing import Any

import numpy as np

from envs.core import Task
from envs.physics.fields import physics_library
from envs.toy.grid import CELLS

_GREY, _GOLD, _BLUE, _RED = "#a5aaaf", "#f0b232", "#2662a8", "#a83434"
_Lines = list[tuple[Any, dict[str, Any]]]  # points (n, 2) or (2,), and keyword arguments of matplotlib's `plot`


class Renderer:
    """Draws one task. Attribute ``rate``: steps per second of the simulated world, 10 for tasks without physical time.

    Args:
      width: pixels; pictures of robots are 4:3, others square.

    Raises:
      ValueError: a task that cannot be drawn, or a robot without OpenGL.
    """

    def __init__(self, task: Task, width: int = 480) -> None:
        env: Any = task.env
        if hasattr(env, "task"):  # a physics task, on any engine
            model = env.task.model
            self.rate = 1.0 / (model.opt.timestep * env.task.substeps)
            self._draw, self.close = _robot(env, width)
        elif task.name in _PLANAR:
            half, shapes = _PLANAR[task.name]
            self.rate = 1.0 / float(getattr(task.params, "time_step", 0.1))
            self._draw, self.close = _planar(half, shapes, width), lambda: None
        else:
            raise ValueError(f"task '{task.name}' cannot be drawn; of the planar tasks can {', '.join(_PLANAR)}")

    def draw(self, state: Any, params: Any) -> np.ndarray:
        """Picture (height, width, 3) uint8 of one environment's state under ``params``, as host arrays."""
        return self._draw(state, params)


def _robot(env: Any, width: int) -> tuple[Callable[..., np.ndarray], Callable[[], None]]:
    mujoco = physics_library()
    from mujoco.rendering.classic import gl_context

    model = copy.copy(env.task.model)  # the size of the frame buffer is a field of the model
    model.vis.global_.offwidth, model.vis.global_.offheight = width, width * 3 // 4
    # By default MuJoCo chooses a backend at import that needs a display.
    backend = os.environ.get("MUJOCO_GL") or ("egl" if find_library("EGL") else "osmesa")
    try:
        gl_context.GLContext = import_module(f"mujoco.{backend}").GLContext
        renderer = mujoco.Renderer(model, width * 3 // 4, width)
    except Exception as error:  # PyOpenGL raises many types
        raise ValueError(
            f"robots cannot be drawn here, because OpenGL does not work through {backend} ({error}); install libegl1 "
            "or libosmesa6 (Debian's packages), or name another backend in MUJOCO_GL"
        ) from None
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False  # five times as fast without a graphics card
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    mujoco.mj_forward(model, data)
    torso = min(1, model.nbody - 1)
    solid = model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE  # the floor of some models is finite
    reach = np.linalg.norm(data.geom_xpos - data.xpos[torso], axis=1)[solid].max(initial=0.0)
    distance = min(camera.distance, 3.0 * reach)

    def draw(state: Any, params: Any) -> np.ndarray:
        del params  # not visible
        if hasattr(state, "row"):  # of the C engine
            row = np.ascontiguousarray(state.row).view(np.float64)
            data.qpos[:], memory = row[env.engine.positions], row[env.engine.default.size :]
        else:
            data.qpos[:], memory = state.qpos, np.asarray(state.memory)
        mujoco.mj_forward(model, data)
        markers = env.task.markers(memory)
        places = np.array([data.xpos[torso], *(marker.place for marker in markers)])
        camera.lookat, camera.distance = places.mean(axis=0), distance + 1.5 * np.linalg.norm(np.ptp(places, axis=0))
        renderer.update_scene(data, camera)
        scene = renderer.scene
        for kind, size, place, rotation, colour in markers:
            geom = getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")
            rgba = np.array([*colour, 1], np.float32)
            mujoco.mjv_initGeom(scene.geoms[scene.ngeom], geom, np.asarray(size), place, np.ravel(rotation), rgba)
            scene.ngeom += 1
        return renderer.render()

    def close() -> None:
        renderer.close()
        atexit.unregister(close)

    atexit.register(close)  # before OpenGL shuts down
    return draw, close


def _planar(half: float, shapes: Callable[[Any, Any], _Lines], width: int) -> Callable[..., np.ndarray]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(width / 100, width / 100), dpi=100))
    axes = canvas.figure.add_axes((0.01, 0.01, 0.98, 0.98))

    def draw(state: Any, params: Any) -> np.ndarray:
        axes.clear()
        axes.set(xlim=(-half, half), ylim=(-half, half), xticks=[], yticks=[])
        for points, style in shapes(state, params):
            axes.plot(*np.atleast_2d(points).T, **{"color": _BLUE, "marker": "o", "lw": 5 * width / 480} | style)
        canvas.draw()
        return np.array(canvas.buffer_rgba())[..., :3]

    return draw


def _goals(state: Any, params: Any) -> _Lines:
    """The goals, in grey without drift, the best goal large, and the point."""
    goals, weights = params.goals + params.goal_offset, getattr(params, "weights", np.ones(len(params.goals)))
    lines: _Lines = [(params.goals, {"color": _GREY, "marker": "+", "lw": 0})]
    lines += [(goal, {"color": _GOLD, "ms": 30 * weight}) for goal, weight in zip(goals, weights, strict=True)]
    return [*lines, (state.position, {"ms": 9})]


def _chain(lengths: Any, angles: Any, start: Any = (0.0, 0.0)) -> np.ndarray:
    """Joints (n + 1, 2) of links with ``angles`` from the x axis."""
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.cumsum([start, *np.asarray(lengths)[:, None] * directions], axis=0)


def _pendulum(state: Any, params: Any) -> _Lines:
    """Shapes of the pendulum."""
    return [(_chain([params.length], [np.pi / 2 + state.angle]), {})]


def _reacher(state: Any, params: Any) -> _Lines:
    """Shapes of the target and the arm."""
    return [(params.target, {"color": _GOLD, "ms": 25}), (_chain(params.lengths, np.cumsum(state.angles)), {})]


def _cartpole(state: Any, params: Any) -> _Lines:
    """Shapes of the track, the cart and the pole."""
    end, cart = (_chain([at], [params.slope])[1] for at in (params.half_track, state.place))
    pole = _chain([params.length], [np.pi / 2 - state.angle], cart)
    return [([-end, end], {"color": _GREY, "marker": ""}), (cart, {"color": _RED, "marker": "s", "ms": 22}), (pole, {})]


def _grid(state: Any, params: Any) -> _Lines:
    """The cells, the goal and the walker."""
    marks: _Lines = [(CELLS, {"color": _GREY, "marker": "+", "lw": 0}), (params.goal, {"color": _GOLD, "ms": 25})]
    return [*marks, (CELLS[int(state.cell)], {"ms": 9})]


#: Planar task -> half the picture's width in the task's units, and the function from state and parameters to shapes.
_PLANAR: dict[str, tuple[float, Callable[[Any, Any], _Lines]]] = {
    "toy": (1.05, _goals),
    "toy_multigoal_classic": (7.3, _goals),
    "pendulum": (1.3, _pendulum),
    "reacher": (1.1, _reacher),
    "cartpole_swingup": (2.2, _cartpole),
    "grid": (1.1, _grid),
}

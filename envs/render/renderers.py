"""Pictures of MuJoCo models by MuJoCo's own renderer, through EGL or OSMesa; the camera follows the torso."""

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from envs.physics import Marker
from envs.physics.fields import physics_library
from envs.render.view import FOVY, View, aim


class Renderer:
    """``mujoco.Renderer`` of a model (an ``MjModel``) at ``width`` x ``height`` pixels.

    Raises:
      ValueError: OpenGL does not work here; one sentence that names the packages that it needs.
    """

    def __init__(self, model: Any, width: int, height: int, view: View):
        mujoco = physics_library()
        from mujoco.rendering.classic import gl_context

        # MuJoCo chooses the backend of OpenGL when it is imported, which may be long past.
        gl_context.GLContext = import_module(f"mujoco.{_backend()}").GLContext
        self.model = copy.copy(model)  # the size of the frame buffer stands in the model
        self.model.vis.global_.offwidth, self.model.vis.global_.offheight = width, height
        self.model.vis.global_.fovy = FOVY
        self.lit = 6 * view.distance  # metres from the middle of the picture; beyond, the light casts no shadow
        self.model.vis.map.shadowclip = self.lit / self.model.stat.extent
        self.mujoco, self.view, self.data = mujoco, view, mujoco.MjData(self.model)
        self.camera = mujoco.MjvCamera()
        self.camera.azimuth, self.camera.elevation = view.azimuth, view.elevation
        self.renderer = mujoco.Renderer(self.model, height, width)

    def draw(self, qpos: np.ndarray, markers: Sequence[Marker] = ()) -> np.ndarray:
        """Picture (height, width, 3) uint8 of the model at positions (nq,), and of ``markers``."""
        model, data = self.model, self.data
        data.qpos[:] = qpos
        self.mujoco.mj_forward(model, data)
        lookat, self.camera.distance = aim(self.view, data.xpos[min(1, model.nbody - 1)], markers)
        self.camera.lookat[:] = lookat
        far = model.light_type == self.mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        data.light_xpos[far] = lookat - self.lit * data.light_xdir[far]  # its shadows go where the model goes
        self.renderer.update_scene(data, self.camera)
        scene = self.renderer.scene
        for kind, size, place, rotation, colour, _ in markers:
            geom = getattr(self.mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")
            rgba = np.array([*colour, 1], np.float32)
            self.mujoco.mjv_initGeom(scene.geoms[scene.ngeom], geom, np.asarray(size), place, np.ravel(rotation), rgba)
            scene.ngeom += 1
        return self.renderer.render()

    def close(self) -> None:
        """Release the GL context."""
        self.renderer.close()


_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light pos='0 0 2'/><geom size='.3'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    raise SystemExit(0 if renderer.render().std() > 0 else 1)
"""


@cache
def _backend() -> str:
    """The first backend of OpenGL that draws, tried in a process of its own: a bad driver may end its process.

    Raises:
      ValueError: none of them does.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    tried = [chosen] if chosen in ("egl", "osmesa", "glfw") else ["egl", "osmesa"]
    for backend in tried:
        try:
            with warnings.catch_warnings():
                # JAX fears that a fork of its threads goes on as a Python process; this one becomes another program.
                warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
                result = subprocess.run(
                    [sys.executable, "-c", _PROBE],
                    env={**os.environ, "MUJOCO_GL": backend},
                    capture_output=True,
                    timeout=60,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if result.returncode == 0:
            return backend
    raise ValueError(
        f"MuJoCo cannot draw here: OpenGL works neither through {' nor '.join(tried)}; install libegl1 with a graphics "
        "driver, or libosmesa6 (Debian's packages)"
    )

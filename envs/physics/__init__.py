"""MuJoCo for any task: what a physics task is, and two engines that run one without knowing it.

A task is a `PhysicsTask`: a compiled model, named parameters, and a few functions on arrays, written once for NumPy and
for JAX. ``envs.physics.c_engine.CEnv`` runs it on MuJoCo's C engine, ``envs.physics.mjx_engine.MjxEnv`` on MJX; `build`
takes the one that suits the device. Importing this package imports neither.
"""

from typing import Any

from envs.physics.fields import FACTORS, Factor, Field
from envs.physics.protocol import Drive, Marker, Outcome, Physics, PhysicsTask, Start

__all__ = [
    "ENGINES",
    "FACTORS",
    "Drive",
    "Factor",
    "Field",
    "Marker",
    "Outcome",
    "Physics",
    "PhysicsTask",
    "Start",
    "build",
    "engine_name",
]

ENGINES = ("auto", "mujoco", "mjx")


def engine_name(name: str) -> str:
    """``auto`` is ``mujoco``, the C engine, where JAX computes on a CPU, and ``mjx`` on an accelerator.

    Raises:
      ValueError: not one of `ENGINES`.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got '{name}'")
    if name != "auto":
        return name
    import jax

    return "mujoco" if jax.default_backend() == "cpu" else "mjx"


def build(task: PhysicsTask, engine: str = "auto") -> Any:
    """An `envs.core.Env` of ``task`` on one of `ENGINES`; its ``params`` are ``task.params`` and the like.

    Raises:
      ValueError, KeyError: an unknown engine, or a task that contradicts itself (`envs.physics.protocol.check`).
      ModuleNotFoundError: MuJoCo is not installed.
    """
    if engine_name(engine) == "mjx":
        from envs.physics.mjx_engine import MjxEnv

        return MjxEnv(task)
    from envs.physics.c_engine import CEnv

    return CEnv(task)

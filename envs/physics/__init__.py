"""MuJoCo for any task: the definition of a physics task, and engines that run it.

Importing this package imports no engine.
"""

import warnings
from importlib.util import find_spec
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

ENGINES = ("auto", "mujoco", "mjx", "warp")


def engine_name(name: str) -> str:
    """Resolve ``auto`` to an engine for this machine; other names are returned unchanged.

    ``mujoco``, the C engine, on a CPU; on a CUDA device ``warp`` if Warp is installed, else ``mjx`` with a warning that
    names the package to install; ``mjx`` on other accelerators.

    Raises:
      ValueError: not one of `ENGINES`.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got '{name}'")
    if name != "auto":
        return name
    import jax

    if jax.default_backend() == "cpu":
        return "mujoco"
    if "cuda" not in jax.devices()[0].client.platform_version.lower():
        return "mjx"
    if find_spec("warp") is None:
        warnings.warn("engine mjx; warp is faster on CUDA devices: pip install '.[warp]' in a clone", stacklevel=2)
        return "mjx"
    return "warp"


def build(task: PhysicsTask, engine: str = "auto") -> Any:
    """Build an `envs.core.Env` of ``task`` on one of `ENGINES`; its parameters have the structure of ``task.params``.

    Raises:
      ValueError, KeyError: an unknown engine, or an inconsistent task (`envs.physics.protocol.check`).
      ModuleNotFoundError: MuJoCo, or for ``warp`` Warp, is not installed; the text names the package.
    """
    name = engine_name(engine)
    if name == "mjx":
        from envs.physics.mjx_engine import MjxEnv as Engine
    elif name == "warp":
        from envs.physics.warp_engine import WarpEnv as Engine
    else:
        from envs.physics.c_engine import CEnv as Engine
    return Engine(task)

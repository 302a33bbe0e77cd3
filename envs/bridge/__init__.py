"""Isaac Gym and Isaac Lab under JAX, and our own tasks as torch environments; see `docs/bridge.md`.

Importing this imports neither PyTorch nor a simulator.

>>> from envs.bridge import build
>>> task = build("bridge:Ant", python="~/isaacgym/bin/python")  # doctest: +SKIP
"""

import os
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from aesjax.registry import hint, listed
from envs.bridge import errors
from envs.bridge.env import BridgeEnv
from envs.bridge.names import GYM_TASKS, LAB_TASKS, NATIVE, PREFIX, PYTHON, native_of
from envs.bridge.transport import Worker
from envs.core import Task
from envs.isaac import CHANNELS
from envs.physics.channels import Range, channels_of, chosen, set_by_name

__all__ = ["GYM_TASKS", "LAB_TASKS", "NATIVE", "build", "native_of"]


def build(
    name: str,
    channels: Sequence[str] | None = None,
    python: str | None = None,
    sim_device: str = "cuda:0",
    mode: str = "immediate",
    quantum: float = 0.005,
    timeout: float = 120.0,
    final: bool = False,
) -> Task:
    """Task of a simulator that runs in a separate process.

    ``name`` is ``bridge:`` and a name of `GYM_TASKS`, an id of Isaac Lab (``Isaac-...``), ``native:`` and one of our
    tasks, or ``MODULE:FUNCTION`` of the simulator's interpreter that takes ``num_envs`` and ``seed`` and returns an
    environment with the interface of either simulator. The simulation is started and stepped once to read its sizes.

    Args:
      channels: drifting parameters, of gravity and joint_damping, or of ``drift_channels``; by default all.
      python: the simulator's interpreter; by default that of the environment variable ``AESJAX_ISAAC_PYTHON``, else
        the current one.
      sim_device: torch's name of the simulator's device.
      mode: change joint damping immediately (``immediate``) or in each copy at its reset (``on_reset``).
      quantum: smallest change of the damping factor that is applied.
      timeout: seconds allowed for a step.
      final: compute the last observation of an episode before the reset in Isaac Lab. Observations are then computed
        twice in steps in which an episode ends.

    Raises:
      SimBridgeError: the simulator cannot be started or used.
    """
    if not 0.0 < timeout < float("inf"):
        raise errors.SimBridgeError(f"timeout must be a positive number of seconds; got {timeout:g}")
    simulator = {"sim_device": sim_device, "mode": mode, "quantum": quantum, "timeout": timeout, "final": final}
    interpreter = os.path.expanduser(python or os.environ.get(PYTHON) or sys.executable)
    return _build(name, None if channels is None else tuple(channels), python=interpreter, **simulator)


@cache
def _started(
    name: str, python: str, sim_device: str, timeout: float, **surface: Any
) -> tuple[Callable[[int], Worker], dict[str, Any], str]:
    """Function from a number of environments to a started simulation, its description, and its name for the task."""
    target, label, options = _target(name.removeprefix(PREFIX), sim_device)
    start = partial(Worker, target, label=label, python=python, options=options, simulation=surface, timeout=timeout)
    first = start(2)
    try:
        first.drift({channel: ends[1] for channel, ends in (first.about["channels"] or {}).items()})
        first.restart(0)
        first.step(np.zeros((2, first.about["action_size"]), np.float32))
    finally:
        first.close()
    return start, first.about, label


@cache
def _build(name: str, channels: tuple[str, ...] | None, **simulator: Any) -> Task:
    start, about, label = _started(name, **simulator)
    own = about["channels"]
    known = CHANNELS if own is None else {n: Range(low, high, at, low, high) for n, (low, at, high) in own.items()}
    channels = chosen(channels or tuple(known), known) if channels or known else ()
    drifting = channels_of(name, channels, known)
    return Task(
        name=name,
        family="isaac",
        env=BridgeEnv(start, about),
        params=namedtuple("BridgeParams", known)(*(np.float32(each.nominal) for each in known.values())),
        channels=drifting,
        apply_drift=set_by_name(drifting),
        description=f"{label} in a simulator of a separate process",
        options={"channels": channels} | {name: value for name, value in simulator.items() if name != "python"},
        inert=tuple(channel.name for channel in drifting if channel.name in about["inert"]),
    )


def _target(inner: str, device: str) -> tuple[str, str, dict[str, Any]]:
    """Task for the worker, its name in the simulator, and options."""
    if inner.startswith(NATIVE):
        task = inner.removeprefix(NATIVE)
        label = next((gym for gym, own in GYM_TASKS.items() if own == task), task)
        return "envs.bridge.torch_tasks:TorchVecTask", label, {"task": task}
    if ":" in inner:
        return inner, inner, {}
    if inner in GYM_TASKS or inner.startswith("Isaac-"):
        return inner, inner, {"sim_device": device}
    meant = hint(inner, [*GYM_TASKS, *LAB_TASKS])
    raise errors.SimBridgeError(
        f"unknown simulator task '{inner}'{meant} of Isaac Gym: {listed(GYM_TASKS)}; "
        f"of Isaac Lab any id, such as {LAB_TASKS[0]}; native:TASK; MODULE:FUNCTION"
    )

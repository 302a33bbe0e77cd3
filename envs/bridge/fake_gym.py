"""A simulator's handles, implemented on one of our own tasks: gravity, joint properties and state tensors.

Numbers are kept in double precision, in which a factor is recovered exactly from a nominal value and its product.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.bridge import errors

#: Task -> gravity and joint damping as the reference has them; what is not here has the Earth's and 0.1.
_NOMINAL = {
    "isaac_ingenuity": (-3.721, 0.0),
    "isaac_anymal": (-9.81, 2.0),
    "isaac_franka_cabinet": (-9.81, 80.0),
}
_DOF = np.dtype([("stiffness", "f8"), ("damping", "f8")])


@dataclass
class Vec3:
    """Three numbers by name."""

    x: float
    y: float
    z: float


@dataclass
class _SimParams:
    """The part of the simulator's parameters that drifts."""

    gravity: Vec3


@dataclass
class FakeSim:
    """One simulation: nominal values and what was set. Its state says nothing of the task's."""

    task: str
    num: int
    joints: int
    deaf: float = 0.0  # a fault: read-backs are off by this share
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nominal = _NOMINAL.get(self.task, (-9.81, 0.1))
        self.gravity = Vec3(0.0, 0.0, self.nominal[0])
        self.props = np.zeros((self.num, self.joints), _DOF)
        self.props["damping"] = self.nominal[1]
        self.root, self.dof = np.zeros((self.num, 1)), np.zeros((self.num, self.joints))

    def factors(self) -> tuple[float, float]:
        """Gravity and joint damping in force, as factors."""
        damping = self.nominal[1]
        return self.gravity.z / self.nominal[0], float(self.props["damping"][0, 0]) / damping if damping else 1.0


class FakeGym:
    """The functions of Isaac Gym's API that the bridge calls, by their names there."""

    def get_sim_params(self, sim: FakeSim) -> _SimParams:
        """A copy, as the simulator gives."""
        g, off = sim.gravity, 1.0 + sim.deaf
        return _SimParams(Vec3(g.x, g.y, off * g.z) if sim.calls else Vec3(g.x, g.y, g.z))

    def set_sim_params(self, sim: FakeSim, params: _SimParams) -> None:
        """Gravity of the whole scene."""
        sim.gravity = params.gravity
        sim.calls.append(("set_sim_params", params.gravity.z))

    def get_actor_count(self, env: Any) -> int:
        """The robot, and a marker without joints."""
        return 2

    def get_actor_handle(self, env: Any, index: int) -> int:
        """Handles are numbers."""
        return index

    def get_actor_name(self, env: Any, handle: int) -> str:
        """As the reference names them, roughly."""
        return ("robot", "marker")[handle]

    def get_actor_dof_count(self, env: tuple[FakeSim, int], handle: int) -> int:
        """Joints of an actor."""
        return 0 if handle else env[0].joints

    def get_actor_dof_properties(self, env: tuple[FakeSim, int], handle: int) -> np.ndarray:
        """A copy (joints,) of the structured array."""
        sim, copy = env
        props = sim.props[copy].copy()
        if sim.calls:
            props["damping"] *= 1.0 + sim.deaf
        return props

    def set_actor_dof_properties(self, env: tuple[FakeSim, int], handle: int, props: np.ndarray) -> None:
        """Joints of one actor in one copy."""
        sim, copy = env
        sim.props[copy] = props
        sim.calls.append(("set_actor_dof_properties", (copy, float(props["damping"][0]))))

    def refresh_actor_root_state_tensor(self, sim: FakeSim) -> None:
        """Nothing: acquired tensors are always new."""

    refresh_dof_state_tensor = refresh_actor_root_state_tensor

    def acquire_actor_root_state_tensor(self, sim: FakeSim) -> Any:
        """(N, 1)."""
        return errors.torch().from_numpy(sim.root.copy())

    def acquire_dof_state_tensor(self, sim: FakeSim) -> Any:
        """(N, joints)."""
        return errors.torch().from_numpy(sim.dof.copy())

    def set_actor_root_state_tensor(self, sim: FakeSim, tensor: Any) -> None:
        """Write it back."""
        sim.calls.append(("set_actor_root_state_tensor", None))
        sim.root[:] = tensor.numpy()

    def set_dof_state_tensor(self, sim: FakeSim, tensor: Any) -> None:
        """Write it back."""
        sim.calls.append(("set_dof_state_tensor", None))
        sim.dof[:] = tensor.numpy()

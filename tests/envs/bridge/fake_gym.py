"""A simulator's handles on one of our own tasks, as a test double: gravity, joint properties and state tensors.

Numbers are kept in double precision, in which a factor is recovered exactly from a nominal value and its product.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from envs.bridge.torch_tasks import TorchVecTask

#: Task -> gravity and joint damping as the reference has them; what is not here has the Earth's and 0.1.
NOMINAL = {"isaac_ingenuity": (-3.721, 0.0)}
DOF = np.dtype([("stiffness", "f8"), ("damping", "f8")])


@dataclass
class Vec3:
    x: float
    y: float
    z: float


class FakeSim:
    """One simulation: nominal values and what was set. Its state says nothing of the task's."""

    def __init__(self, task, num, joints):
        self.nominal = NOMINAL.get(task, (-9.81, 0.1))
        self.gravity, self.joints, self.calls = Vec3(0.0, 0.0, self.nominal[0]), joints, []
        self.deaf = 0.0  # a fault: read-backs are off by this share
        self.props = np.zeros((num, joints), DOF)
        self.props["damping"] = self.nominal[1]
        self.root, self.dof = np.zeros((num, 1)), np.zeros((num, joints))

    def factors(self):
        """Gravity and joint damping in force, as factors."""
        damping = self.nominal[1]
        return self.gravity.z / self.nominal[0], float(self.props["damping"][0, 0]) / damping if damping else 1.0


class FakeGym:
    """The functions of Isaac Gym's API that the bridge calls, by their names there; the second actor has no joints."""

    def get_sim_params(self, sim):
        g, off = sim.gravity, 1.0 + sim.deaf
        return SimpleNamespace(gravity=Vec3(g.x, g.y, off * g.z) if sim.calls else Vec3(g.x, g.y, g.z))

    def set_sim_params(self, sim, params):
        sim.gravity = params.gravity
        sim.calls.append(("set_sim_params", params.gravity.z))

    def get_actor_count(self, env):
        return 2

    def get_actor_handle(self, env, index):
        return index

    def get_actor_name(self, env, handle):
        return ("robot", "marker")[handle]

    def get_actor_dof_count(self, env, handle):
        return 0 if handle else env[0].joints

    def get_actor_dof_properties(self, env, handle):
        sim, copy = env
        props = sim.props[copy].copy()
        if sim.calls:
            props["damping"] *= 1.0 + sim.deaf
        return props

    def set_actor_dof_properties(self, env, handle, props):
        sim, copy = env
        sim.props[copy] = props
        sim.calls.append(("set_actor_dof_properties", (copy, float(props["damping"][0]))))

    def refresh_actor_root_state_tensor(self, sim):
        """Acquired tensors are always new."""

    refresh_dof_state_tensor = refresh_actor_root_state_tensor

    def acquire_actor_root_state_tensor(self, sim):
        return torch.from_numpy(sim.root.copy())

    def acquire_dof_state_tensor(self, sim):
        return torch.from_numpy(sim.dof.copy())

    def set_actor_root_state_tensor(self, sim, tensor):
        sim.calls.append(("set_actor_root_state_tensor", None))
        sim.root[:] = tensor.numpy()

    def set_dof_state_tensor(self, sim, tensor):
        sim.calls.append(("set_dof_state_tensor", None))
        sim.dof[:] = tensor.numpy()


class Handled(TorchVecTask):
    """Drifts by these handles."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        del self.apply_drift, self.drift_channels
        self.gym, self.sim = FakeGym(), FakeSim(self.native.name, self.num_envs, self.num_acts)
        self.envs = [(self.sim, i) for i in range(self.num_envs)]

    def step(self, actions):
        self._drift(dict(zip(("gravity", "joint_damping"), self.sim.factors(), strict=True)))
        return super().step(actions)

"""Drifting parameters of a running simulator: gravity and joint damping, as factors of their initial values.

For Python 3.7 and later, with NumPy, and with PyTorch for simulators.
"""

import sys

import numpy as np

try:
    import torch
except ImportError:  # NumPy environments do not need it
    torch = None

QUANTUM = 0.005  # smallest change of the damping factor that is applied
READ_BACK = 1e-4  # allowed relative error of values read back from a simulator
DISTURBED, LOST = 1e-5, 1e-3  # largest accepted change of the state, also after it was written back
NOISE = 10.0  # a change must exceed the difference of two equal steps by this factor


class Fault(Exception):
    """A failure with an explanation."""


def _gymtorch(name, value):
    module = sys.modules.get("isaacgym.gymtorch")
    return value if module is None else getattr(module, name)(value)


class GymDrift:
    """Gravity and joint damping of one simulation as factors of their values at its start."""

    def __init__(self, env, mode="immediate", quantum=QUANTUM):
        if mode not in ("immediate", "on_reset"):
            raise Fault("damping mode must be immediate or on_reset; got '%s'" % mode)
        self.gym, self.sim, self.envs, self.mode, self.quantum = env.gym, env.sim, env.envs, mode, quantum
        gravity = self.gym.get_sim_params(self.sim).gravity
        self.gravity = (gravity.x, gravity.y, gravity.z)
        self.actors = []  # (name, nominal properties, a handle for every copy)
        first = self.envs[0]
        for i in range(self.gym.get_actor_count(first)):
            handle = self.gym.get_actor_handle(first, i)
            if self.gym.get_actor_dof_count(first, handle) > 0:
                nominal = self.gym.get_actor_dof_properties(first, handle).copy()
                handles = [self.gym.get_actor_handle(e, i) for e in self.envs]
                self.actors.append((self.gym.get_actor_name(first, handle), nominal, handles))
        largest = max([float(np.abs(a[1]["damping"]).max()) for a in self.actors] or [0.0])
        self.nominal = {"gravity": self.gravity[2], "joint_damping": largest}
        self.scale = {"gravity": 1.0, "joint_damping": 1.0}
        self.applied = np.ones(len(self.envs))  # factor of the damping in each copy
        self.wanted = 1.0  # newest factor of the damping

    def apply(self, values):
        """Set factors; in mode on_reset the damping waits for `begin`."""
        if values["gravity"] != self.scale["gravity"]:
            self._set_gravity(values["gravity"])
        self.wanted = values["joint_damping"]
        if self.mode == "immediate":
            self._damp(np.ones(len(self.envs), bool))
        return dict(self.scale)

    def begin(self, resetting):
        """In mode on_reset, set the damping of the copies (N,) bool that begin an episode with the next step."""
        if self.mode == "on_reset":
            self._damp(torch.as_tensor(resetting).cpu().numpy())

    def _damp(self, copies):
        due = copies & (np.abs(self.applied - self.wanted) > self.quantum)
        if self.nominal["joint_damping"] and due.any():
            self._guarded(lambda: self._set_damping(self.wanted, np.flatnonzero(due)))
            self.scale["joint_damping"] = self.wanted

    def _set_gravity(self, scale):
        params = self.gym.get_sim_params(self.sim)
        wanted = [scale * g for g in self.gravity]
        params.gravity = type(params.gravity)(*wanted)
        self.gym.set_sim_params(self.sim, params)
        got = self.gym.get_sim_params(self.sim).gravity
        for want, have in zip(wanted, (got.x, got.y, got.z)):
            _check_read_back("gravity", want, have)
        self.scale["gravity"] = scale

    def _set_damping(self, scale, copies):
        for _, nominal, handles in self.actors:
            props = nominal.copy()
            props["damping"] = scale * nominal["damping"]
            for i in copies:
                self.gym.set_actor_dof_properties(self.envs[i], handles[i], props)
            got = self.gym.get_actor_dof_properties(self.envs[copies[0]], handles[copies[0]])["damping"]
            for want, have in zip(props["damping"], got):
                _check_read_back("joint_damping", want, have)
        self.applied[copies] = scale

    def state(self):
        """Current root and joint states."""
        self.gym.refresh_actor_root_state_tensor(self.sim)
        self.gym.refresh_dof_state_tensor(self.sim)
        root = self.gym.acquire_actor_root_state_tensor(self.sim)
        joints = self.gym.acquire_dof_state_tensor(self.sim)
        return [_gymtorch("wrap_tensor", t).clone() for t in (root, joints)]

    def _write(self, state):
        self.gym.set_actor_root_state_tensor(self.sim, _gymtorch("unwrap_tensor", state[0]))
        self.gym.set_dof_state_tensor(self.sim, _gymtorch("unwrap_tensor", state[1]))

    def _guarded(self, change):
        before = self.state()
        change()
        if _gap(before, self.state()) > DISTURBED:
            self._write(before)
            left = _gap(before, self.state())
            if not left <= LOST:
                names = ", ".join(actor[0] for actor in self.actors)
                text = "setting the joint damping of %s moved the state, by %g after it was written back; allowed: %g. "
                raise Fault((text + "Use mode on_reset") % (names, left, LOST))

    def disturbs(self, step):
        """Whether setting the damping moves the state, immediately or in the following step.

        `step` makes one step without action and returns the copies (N,) that continue. Each step begins in the same
        state and is compared with a step before which nothing was set. The damping is set to its value and to one per
        cent less and more, whose effects are opposite, whereas a disturbance is the same in both.
        """
        if not self.nominal["joint_damping"]:
            return False
        everyone, start, going = np.arange(len(self.envs)), self.state(), []

        def stepped(scale):
            self._write(start)
            if scale is not None:
                self._set_damping(scale, everyone)
            going.append(step())
            return [part.reshape(len(everyone), part.numel() // len(everyone)) for part in self.state()]

        self._set_damping(1.0, everyone)
        at_once = _gap(start, self.state())
        control, again, same, less, more = [stepped(scale) for scale in (None, None, 1.0, 0.99, 1.01)]
        self._set_damping(1.0, everyone)
        on = torch.stack(going).all(dim=0)

        def apart(state):
            return _gap([part[on] for part in state], [part[on] for part in control])

        noise = NOISE * apart(again)
        effect = _gap([part[on] for part in less], [part[on] for part in more])
        between = apart([(a + b) / 2.0 for a, b in zip(less, more)])
        return bool(at_once > DISTURBED or apart(same) > max(DISTURBED, noise) or between > max(LOST, noise, effect))


def _gap(before, after):
    return max([float((a - b).abs().max()) for a, b in zip(before, after) if a.numel()] or [0.0])


def _check_read_back(channel, wanted, got):
    if not abs(wanted - got) <= READ_BACK * max(abs(wanted), 1e-9):
        text = "%s was set to %g and reads back as %g; allowed: a relative difference of %g"
        raise Fault(text % (channel, wanted, got, READ_BACK))


class OwnDrift:
    """Channels of a custom environment: ``drift_channels`` and ``apply_drift``, or none."""

    def __init__(self, env):
        self.set, channels = getattr(env, "apply_drift", None), dict(getattr(env, "drift_channels", {}))
        self.channels = {name: list(ends) for name, ends in channels.items()}
        for name, ends in self.channels.items():
            if not (name.isidentifier() and len(ends) == 3 and ends[0] <= ends[1] <= ends[2] and ends[0] < ends[2]):
                text = "drift_channels maps names to (lowest, nominal, highest); got %r: %r" % (name, ends)
                raise Fault(text)
        if callable(self.set) != bool(self.channels):
            raise Fault("apply_drift and drift_channels go together; one of them is missing")
        self.nominal = {name: float(ends[1]) for name, ends in self.channels.items()}

    def apply(self, values):
        """Pass all values to the environment."""
        if self.channels:
            self.set(dict(values))
        return dict(values)

    def begin(self, resetting):
        """No-op, because all changes are immediate."""


class LabDrift:
    """Gravity and joint damping of Isaac Lab; explicit actuators drift in gain, as their joints have no damping."""

    def __init__(self, env):
        self.sim, self.assets = env.sim, dict(env.scene.articulations)
        self.gravity = tuple(float(g) for g in env.sim.cfg.gravity)
        self.damping = {name: _tensor(a.data.joint_damping).clone() for name, a in self.assets.items()}
        every = [actuator for a in self.assets.values() for actuator in a.actuators.values()]
        self.learned = [actuator for actuator in every if "Net" in type(actuator).__name__]
        self.actuators = [(actuator, actuator.damping.clone()) for actuator in every]
        nominal = list(self.damping.values()) + [pair[1] for pair in self.actuators]
        largest = max([float(d.abs().max()) for d in nominal if d.numel()] or [0.0])
        self.nominal = {"gravity": self.gravity[2], "joint_damping": largest}
        self.scale = {"gravity": 1.0, "joint_damping": 1.0}

    def apply(self, values):
        """As `GymDrift.apply`; all values are set immediately."""
        if values["gravity"] != self.scale["gravity"]:
            wanted = [values["gravity"] * g for g in self.gravity]
            carb = sys.modules.get("carb")
            view = self.sim.physics_sim_view
            view.set_gravity(wanted if carb is None else carb.Float3(*wanted))
            for want, have in zip(wanted, list(view.get_gravity())):
                _check_read_back("gravity", want, have)
            self.scale["gravity"] = values["gravity"]
        if values["joint_damping"] != self.scale["joint_damping"]:
            for actuator in self.learned:
                text = "joint_damping: the learned actuator %s has no damping to scale; nominal %g"
                raise Fault(text % (type(actuator).__name__, self.nominal["joint_damping"]))
            self.set_damping(values["joint_damping"])
            self.scale["joint_damping"] = values["joint_damping"]
        return dict(self.scale)

    def set_damping(self, scale):
        """Set the joint damping to ``scale`` times its initial value and read back simulator and actuators."""
        for name, asset in self.assets.items():
            write = getattr(asset, "write_joint_damping_to_sim_index", None) or asset.write_joint_damping_to_sim
            write(damping=scale * self.damping[name])
            view = getattr(asset, "root_view", None) or asset.root_physx_view
            held = view.get_dof_dampings().numpy() if hasattr(view, "get_dof_dampings") else asset.data.joint_damping
            have = torch.as_tensor(_tensor(held)).cpu().sort(dim=1)[0]  # the view may have another joint order
            _check_tensors((scale * self.damping[name]).cpu().sort(dim=1)[0], have)
        for actuator, nominal in self.actuators:
            # In place, because Isaac Lab 3 reads returned tensors; implicit actuators use the simulator's.
            actuator.damping[:] = scale * nominal
            _check_tensors(scale * nominal, actuator.damping)


def _tensor(value):
    """Tensor of an array of Isaac Lab, which is the array itself before version 3."""
    return getattr(value, "torch", value)


def _check_tensors(wanted, got):
    if wanted.numel():
        i = int(((wanted - got).abs() / wanted.abs().clamp(min=1e-9)).argmax())
        _check_read_back("joint_damping", float(wanted.flatten()[i]), float(got.flatten()[i]))

"""A running simulator as rows that a learner may trust: which steps count, how they ended, and what drifts.

For Python 3.7 and later, with NumPy and PyTorch. `VecTask` is the surface of Isaac Gym, `Lab` that of Isaac Lab.
"""

import random
import sys

import numpy as np
import torch

QUANTUM = 0.005  # joint damping is set again when its factor has moved by more than this
READ_BACK = 1e-4  # relative error of what a simulator says it has
DISTURBED, LOST = 1e-5, 1e-3  # largest change of the state that is left alone, and that writing it back may leave

# Where the last observation tells a failure from the time limit, it decides; a reference reports the time limit.
FAILED = {
    "Ant": lambda o: o[:, 0] < 0.31,
    "Humanoid": lambda o: o[:, 0] < 0.8,
    "Ingenuity": lambda o: 3.0 * o[:, :3].norm(dim=1) > 8.0,
    "AllegroHand": lambda o: (o[:, 48:51] - o[:, 61:64]).norm(dim=1) >= 0.24,
    "FrankaCabinet": lambda o: o[:, 21] > 0.39,
}
# Channels that change nothing although their nominal value is not 0: the arm has gravity off, the drawer is level.
INERT = {"FrankaCabinet": ("gravity",)}


class Fault(Exception):
    """A failure that the other side raises as its class `kind`."""

    def __init__(self, kind, text):
        Exception.__init__(self, text)
        self.kind = kind


def _clone(tensor):
    return tensor.clone()


def _seed(env, seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if hasattr(env, "seed"):
        env.seed(seed)


def _gymtorch(name, value):
    module = sys.modules.get("isaacgym.gymtorch")
    return value if module is None else getattr(module, name)(value)


class GymDrift:
    """Gravity and joint damping of one simulation as factors of what was read when it started."""

    def __init__(self, env, mode="immediate", quantum=QUANTUM):
        if mode not in ("immediate", "on_reset"):
            raise Fault("SimBridgeError", "damping mode must be immediate or on_reset; got '%s'" % mode)
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

    def apply(self, values, resetting):
        """Put factors in force; `resetting` (N,) bool, the copies that begin an episode with the next step."""
        if np.ndim(values["gravity"]) or np.ndim(values["joint_damping"]):
            text = "factors differ between the copies (%s), but gravity is the scene's; allowed: one number each"
            raise Fault("DriftNotSupportedError", text % values)
        if values["gravity"] != self.scale["gravity"]:
            self._set_gravity(values["gravity"])
        wanted = values["joint_damping"]
        due = np.abs(self.applied - wanted) > self.quantum
        if self.mode == "on_reset":
            due &= resetting
        if self.nominal["joint_damping"] and due.any():
            self._guarded(lambda: self._set_damping(wanted, np.flatnonzero(due)))
            self.scale["joint_damping"] = wanted
        return dict(self.scale)

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
        """Root and joint states, as they are now."""
        self.gym.refresh_actor_root_state_tensor(self.sim)
        self.gym.refresh_dof_state_tensor(self.sim)
        root = self.gym.acquire_actor_root_state_tensor(self.sim)
        joints = self.gym.acquire_dof_state_tensor(self.sim)
        return [_gymtorch("wrap_tensor", t).clone() for t in (root, joints)]

    def _guarded(self, change):
        before = self.state()
        change()
        if _gap(before, self.state()) > DISTURBED:
            self.gym.set_actor_root_state_tensor(self.sim, _gymtorch("unwrap_tensor", before[0]))
            self.gym.set_dof_state_tensor(self.sim, _gymtorch("unwrap_tensor", before[1]))
            left = _gap(before, self.state())
            if not left <= LOST:
                names = ", ".join(actor[0] for actor in self.actors)
                text = "setting the joint damping of %s moved the state, by %g after it was written back; allowed: %g. "
                raise Fault("StateDisturbedError", (text + "Use mode on_reset") % (names, left, LOST))

    def disturbs(self):
        """Whether setting the damping to what it is moves the state."""
        before = self.state()
        self._set_damping(1.0, np.arange(len(self.envs)))
        moved = _gap(before, self.state())
        if moved > DISTURBED:
            self._guarded(lambda: None)
        return bool(moved > DISTURBED)


def _gap(before, after):
    return max([float((a - b).abs().max()) for a, b in zip(before, after) if a.numel()] or [0.0])


def _check_read_back(channel, wanted, got):
    if not abs(wanted - got) <= READ_BACK * max(abs(wanted), 1e-9):
        text = "%s was set to %g and reads back as %g; allowed: a relative difference of %g"
        raise Fault("DriftNotAppliedError", text % (channel, wanted, got, READ_BACK))


class LabDrift:
    """The same for Isaac Lab: joints by a method of each articulation, and its explicit actuators as well."""

    def __init__(self, env):
        self.sim, self.assets = env.sim, dict(env.scene.articulations)
        self.gravity = tuple(float(g) for g in env.sim.cfg.gravity)
        self.damping = {name: a.data.default_joint_damping.clone() for name, a in self.assets.items()}
        self.actuators = {}
        for asset in self.assets.values():
            for actuator in asset.actuators.values():
                self.actuators[id(actuator)] = (actuator, actuator.damping.clone())
        nominal = list(self.damping.values()) + [pair[1] for pair in self.actuators.values()]
        largest = max([float(d.abs().max()) for d in nominal if d.numel()] or [0.0])
        self.nominal = {"gravity": self.gravity[2], "joint_damping": largest}
        self.scale = {"gravity": 1.0, "joint_damping": 1.0}

    def apply(self, values, resetting):
        """As `GymDrift.apply`; everything is set at once."""
        if values["gravity"] != self.scale["gravity"]:
            wanted = [values["gravity"] * g for g in self.gravity]
            carb = sys.modules.get("carb")
            view = self.sim.physics_sim_view
            view.set_gravity(wanted if carb is None else carb.Float3(*wanted))
            for want, have in zip(wanted, list(view.get_gravity())):
                _check_read_back("gravity", want, have)
            self.scale["gravity"] = values["gravity"]
        scale = values["joint_damping"]
        if scale != self.scale["joint_damping"]:
            for actuator, nominal in self.actuators.values():
                if "Net" in type(actuator).__name__:
                    text = "joint_damping: the learned actuator %s has no damping to scale; nominal %g"
                    raise Fault("DriftNotSupportedError", text % (type(actuator).__name__, float(nominal.abs().max())))
                actuator.damping = scale * nominal
            for name, asset in self.assets.items():
                asset.write_joint_damping_to_sim(scale * self.damping[name])
            self.scale["joint_damping"] = scale
        return dict(self.scale)

    def disturbs(self):
        """Nothing is known to."""
        return False


class VecTask:
    """An Isaac Gym task. The observation of a last step is the true one; the step after it is a phantom."""

    lost = False

    def __init__(self, env, task="", mode="immediate", quantum=QUANTUM):
        self.env, self.task = env, task
        self.num, self.obs_size, self.action_size = env.num_envs, env.num_obs, env.num_acts
        self.time_limit, self.device = int(env.max_episode_length), str(env.rl_device)
        self.drift = GymDrift(env, mode, quantum)
        self.pending = torch.ones(self.num, dtype=torch.bool, device=env.rl_device)
        self.zero = torch.zeros((self.num, self.action_size), device=env.rl_device)

    def restart(self, seed):
        """Observation (N, O) of fresh episodes, and live (N,); by a phantom step, as there is no other way to begin."""
        _seed(self.env, seed)
        self.env.reset_buf[:] = 1
        observations, _, reset, _ = self.env.step(self.zero)
        self.pending = reset != 0
        return _clone(observations["obs"]), ~self.pending

    def step(self, actions):
        """Observation (N, O), reward (N,), and (N,) bool: terminated, truncated, valid, live; all clones.

        Live are the copies whose next step will count.
        """
        observations, reward, reset, extras = self.env.step(actions)
        obs, done, valid = _clone(observations["obs"]), reset != 0, ~self.pending
        truncated = done & extras["time_outs"].bool() if "time_outs" in extras else torch.zeros_like(done)
        if self.task in FAILED:
            truncated = truncated & ~FAILED[self.task](obs)
        self.pending = done.clone()
        return obs, _clone(reward), done & ~truncated & valid, truncated & valid, valid, ~done

    def ending(self):
        """Copies (N,) that begin an episode with the next step, for `GymDrift.apply`."""
        return self.pending.cpu().numpy()


class Lab:
    """An Isaac Lab task. It resets within the step and the observation of a last step is lost."""

    lost = True

    def __init__(self, env, task=""):
        self.env, inner = env, getattr(env, "unwrapped", env)
        self.task, self.num, self.device = task, inner.num_envs, str(inner.device)
        self.obs_size = int(inner.single_observation_space["policy"].shape[-1])
        self.action_size = int(inner.single_action_space.shape[-1])
        self.time_limit, self.drift = int(inner.max_episode_length), LabDrift(inner)

    def restart(self, seed):
        """As `VecTask.restart`."""
        _seed(getattr(self.env, "unwrapped", self.env), seed)
        obs = _clone(self.env.reset()[0]["policy"])
        return obs, torch.ones(self.num, dtype=torch.bool, device=obs.device)

    def step(self, actions):
        """As `VecTask.step`, where all rows are valid."""
        observations, reward, terminated, truncated, _ = self.env.step(actions.clamp(-1.0, 1.0))
        terminated, truncated = terminated != 0, truncated != 0
        terminated, valid = terminated.clone(), torch.ones_like(terminated)
        return _clone(observations["policy"]), _clone(reward), terminated, truncated & ~terminated, valid, valid

    def ending(self):
        """None: whatever changes, changes at once."""
        return np.ones(self.num, bool)


def describe(simulation, on_inert="warn"):
    """What the other side must know of a simulation before it uses it."""
    drift, task = simulation.drift, simulation.task
    inert = [c for c in sorted(drift.nominal) if not drift.nominal[c] or c in INERT.get(task, ())]
    if inert and on_inert == "error":
        text = "%s of task '%s' would change nothing (nominal %g); allow it with on_inert='warn'"
        raise Fault("DriftNotSupportedError", text % (inert[0], task, drift.nominal[inert[0]]))
    names = ("num", "obs_size", "action_size", "time_limit", "device", "lost")
    about = {name: getattr(simulation, name) for name in names}
    actors = [(a[0], len(a[1])) for a in getattr(drift, "actors", [])]
    return dict(about, nominal=drift.nominal, inert=inert, actors=actors, damping_disturbs_state=drift.disturbs())


def surface(env, task="", **options):
    """The simulation that a torch environment is, told by what it has."""
    inner = getattr(env, "unwrapped", env)
    return Lab(env, task) if hasattr(inner, "scene") else VecTask(env, task, **options)

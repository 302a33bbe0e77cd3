"""A running simulator as validated rows: validity of steps, ends of episodes, and drift.

For Python 3.7 and later, with NumPy, and with PyTorch unless the environment uses NumPy. `VecTask` has the interface of
Isaac Gym, `Lab` that of Isaac Lab.
"""

import importlib
import random

import numpy as np

# In the folder of this file, which may be part of a package or started by path.
drifts = importlib.import_module((__package__ + "." if __package__ else "") + "drifts")
Fault, torch = drifts.Fault, drifts.torch

# Failures by the last observation, because in the step of the time limit Isaac Gym reports the time limit alone.
FAILED = {
    "Ant": lambda o: o[:, 0] < 0.31,
    "Humanoid": lambda o: o[:, 0] < 0.8,
    "Ingenuity": lambda o: 3.0 * o[:, :3].norm(dim=1) > 8.0,
    "AllegroHand": lambda o: (o[:, 48:51] - o[:, 61:64]).norm(dim=1) >= 0.24,
    "FrankaCabinet": lambda o: o[:, 21] > 0.39,
}
# Channels without effect although their nominal value is not 0: the arm has gravity off, the drawer is level.
INERT = {"FrankaCabinet": ("gravity",)}


def _clone(tensor):
    return tensor.copy() if isinstance(tensor, np.ndarray) else tensor.clone()


def _flag(value, name, num):
    """Flag as (num,) bool, from a bool or integer tensor or array with one value per copy."""
    if tuple(value.shape) != (num,):
        raise Fault("%s must have shape %s; got %s" % (name, (num,), tuple(value.shape)))
    kind = str(value.dtype).replace("torch.", "")
    if "float" in kind or "complex" in kind:
        raise Fault("%s must be bool or an integer; got %s" % (name, kind))
    return value != 0


def _size(space, name, bounds=None):
    """Length of the vectors in a Box; with `bounds`, the bounds of actions must be +-1 if there are any."""
    if not hasattr(space, "low") or len(space.shape) != 1:
        raise Fault("%s must be a Box of vectors; got %s" % (name, space))
    limits = np.abs([space.low, space.high])
    if bounds and not (np.isinf(limits).all() or (limits == 1).all()):
        raise Fault("%s must have the bounds [-1, 1] of agents, or none; got %s" % (name, space))
    return int(space.shape[0])


def _actions(space):
    """Size of actions, and the first number of discrete ones or None; discrete actions arrive as one-hot rows."""
    if type(space).__name__ == "Discrete":
        return int(space.n), int(getattr(space, "start", 0))
    return _size(space, "action space", True), None


def _seed(env, seed):
    random.seed(seed)
    np.random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    if hasattr(env, "seed"):
        env.seed(seed)


class VecTask:
    """An Isaac Gym task or a custom one. The last observation of an episode is true; the next step is a phantom.

    If `reset_buf` is a NumPy array, actions are arrays too, and results of a step are converted to arrays.
    """

    lost = final = False

    def __init__(self, env, task="", mode="immediate", quantum=drifts.QUANTUM):
        self.env, self.task, self.numpy = env, task, isinstance(env.reset_buf, np.ndarray)
        self.num, self.obs_size, self.action_size = env.num_envs, env.num_obs, env.num_acts
        self.first = None
        if hasattr(env, "action_space"):
            size, self.first = _actions(env.action_space)
            self.action_size = self.action_size if self.first is None else size
        self.discrete = self.first is not None
        self.time_limit, self.device = int(env.max_episode_length), str(getattr(env, "rl_device", "cpu"))
        simulator = hasattr(env, "gym") and not hasattr(env, "apply_drift")
        self.drift = drifts.GymDrift(env, mode, quantum) if simulator else drifts.OwnDrift(env)
        self.zero = self._own(np.zeros((self.num, self.action_size), np.float32))
        self.pending = self._own(np.ones(self.num, bool))

    def _own(self, value):
        """Array for a NumPy environment, else a tensor on the environment's device."""
        return np.asarray(value) if self.numpy else torch.as_tensor(value, device=self.device)

    def restart(self, seed):
        """Observation (N, O) of new episodes, and live (N,); by a phantom step, the only way to begin."""
        _seed(self.env, seed)
        return self._begin()

    def _begin(self):
        self.env.reset_buf[:] = 1
        self.pending[:] = True
        obs, _, self.pending, _ = self._stepped(self.zero)
        return obs, ~self.pending

    def _stepped(self, actions):
        self.drift.begin(self.pending)
        actions = self._own(actions)
        if self.discrete:
            actions = actions.argmax(1) + self.first
        rows = self.env.step(_clone(actions))  # which an environment may change in place
        if not (isinstance(rows, tuple) and len(rows) == 4 and isinstance(rows[0], dict) and "obs" in rows[0]):
            got = [type(row).__name__ for row in rows] if isinstance(rows, tuple) else type(rows).__name__
            text = "step must return ({'obs': observation (N, O)}, reward (N,), reset (N,), extras); got %s"
            raise Fault(text % got)
        obs, reward, done = (self._own(row) for row in (rows[0]["obs"], rows[1], rows[2]))
        return _clone(obs), _clone(reward), _flag(done, "reset", self.num), rows[3]

    def step(self, actions):
        """Observation (N, O), reward (N,), and (N,) bool: terminated, truncated, valid, live; all clones.

        Live copies have a valid next step.
        """
        obs, reward, done, extras = self._stepped(actions)
        valid, late = ~self.pending, self._own(extras.get("time_outs", ~done & done))
        truncated = done & _flag(late, "time_outs", self.num)
        if self.task in FAILED:
            truncated = truncated & ~FAILED[self.task](obs)
        self.pending = done
        return obs, reward, done & ~truncated & valid, truncated & valid, valid, ~done

    def disturbs(self):
        """Whether setting joint damping moves the state; ends all episodes."""
        if isinstance(self.drift, drifts.OwnDrift):
            return False
        self._begin()

        def step():
            self.env.reset_buf[:] = 0  # a reset would write to the state, too
            return self.step(self.zero)[5]

        return self.drift.disturbs(step)


class Lab:
    """An Isaac Lab task, which resets within the step, so that the last observation of an episode is lost.

    With `final` it is read before the reset. The task then computes its observations twice, which may draw other noise
    and advance history buffers.
    """

    def __init__(self, env, task="", final=False):
        self.env, inner = env, getattr(env, "unwrapped", env)
        self.lost, self.final, self._last, self._stepping = not final, final, None, False
        while final and env is not inner:
            if type(env).__name__ not in ("OrderEnforcing", "PassiveEnvChecker"):
                text = "final reads observations past the wrapper %s; leave out one of them"
                raise Fault(text % type(env).__name__)
            env = env.env
        if final:
            self._watch(inner)
        self.numpy, self.task, self.num, self.device = False, task, inner.num_envs, str(inner.device)
        self.obs_size = _size(inner.single_observation_space["policy"], "observation space 'policy'")
        self.action_size, self.first = _actions(inner.single_action_space)
        self.discrete = self.first is not None
        self.time_limit, self.drift = int(inner.max_episode_length), drifts.LabDrift(inner)

    def _watch(self, inner):
        reset = inner._reset_idx

        def watched(copies, *args, **kwargs):
            if self._stepping:  # an environment may have no observation before its first step
                seen = inner._get_observations() if hasattr(inner, "_get_observations") else None
                seen = inner.observation_manager.compute() if seen is None else seen
                self._last = (copies, _clone(seen["policy"][copies]))
            return reset(copies, *args, **kwargs)

        inner._reset_idx = watched

    def restart(self, seed):
        """As `VecTask.restart`."""
        _seed(getattr(self.env, "unwrapped", self.env), seed)
        obs = _clone(self.env.reset()[0]["policy"])
        return obs, torch.ones(self.num, dtype=torch.bool, device=obs.device)

    def step(self, actions):
        """As `VecTask.step`, with all rows valid; with `final`, also the observation (N, O) before resets."""
        self._stepping, self._last = True, None
        actions = actions.to(self.device).clamp(-1.0, 1.0)
        if self.discrete:
            actions = actions.argmax(1, keepdim=True) + self.first  # Lab's tasks read numbers (N, 1)
        observations, reward, *flags, _ = self.env.step(actions)
        self._stepping, obs = False, _clone(observations["policy"])
        if len(flags) != 2:
            raise Fault("step of Isaac Lab returns five values; got %d" % (len(flags) + 3))
        terminated, truncated = (
            _flag(torch.as_tensor(f), n, self.num) for f, n in zip(flags, ("terminated", "truncated"))
        )
        valid = torch.ones_like(terminated)
        rows = obs, _clone(reward), terminated, truncated & ~terminated, valid, valid
        if not self.final:
            return rows
        last = _clone(obs)
        if self._last is not None:
            last[self._last[0]] = self._last[1]
        return (*rows, last)

    def disturbs(self):
        """False; joint damping is set one per cent lower, read back, and restored."""
        for scale in () if self.drift.learned else (0.99, 1.0):
            self.drift.set_damping(scale)
        return False


def describe(simulation):
    """Description of a simulation, which the other side reads before use."""
    drift, task = simulation.drift, simulation.task
    own = getattr(drift, "channels", None)
    inert = [c for c in sorted(drift.nominal) if own is None and (not drift.nominal[c] or c in INERT.get(task, ()))]
    names = ("num", "obs_size", "action_size", "discrete", "time_limit", "device", "lost", "final")
    about = dict({name: getattr(simulation, name) for name in names}, channels=own)
    return dict(about, nominal=drift.nominal, inert=inert, damping_disturbs_state=simulation.disturbs())


def surface(env, task="", final=False, **options):
    """Simulation of a torch environment, by its attributes; `final` is used by Isaac Lab only."""
    inner = getattr(env, "unwrapped", env)
    return Lab(env, task, final) if hasattr(inner, "scene") else VecTask(env, task, **options)

"""A running simulator as rows that a learner may trust: which steps count, how they ended, and what drifts.

For Python 3.7 and later, with NumPy, and with PyTorch unless the environment is of NumPy. `VecTask` is the surface of
Isaac Gym, `Lab` that of Isaac Lab.
"""

import importlib
import random

import numpy as np

# Beside this file, which may be part of a package or started by path.
drifts = importlib.import_module((__package__ + "." if __package__ else "") + "drifts")
Fault, torch = drifts.Fault, drifts.torch

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


def _clone(tensor):
    return tensor.copy() if isinstance(tensor, np.ndarray) else tensor.clone()


def _flag(value, name, num):
    """(num,) bool of a flag, a tensor or an array, which must be bool or integer and have one value for each copy."""
    if tuple(value.shape) != (num,):
        raise Fault("%s must have shape %s; got %s" % (name, (num,), tuple(value.shape)))
    kind = str(value.dtype).replace("torch.", "")
    if "float" in kind or "complex" in kind:
        raise Fault("%s must be bool or an integer; got %s" % (name, kind))
    return value != 0


def _size(space, name, bounds=None):
    """Length of the vectors in a Box; where `bounds` is given, those of actions, if it has any, must be +-1."""
    if not hasattr(space, "low") or len(space.shape) != 1:
        raise Fault("%s must be a Box of vectors; got %s" % (name, space))
    limits = np.abs([space.low, space.high])
    if bounds and not (np.isinf(limits).all() or (limits == 1).all()):
        raise Fault("%s must have the bounds [-1, 1] of agents, or none; got %s" % (name, space))
    return int(space.shape[0])


def _seed(env, seed):
    random.seed(seed)
    np.random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    if hasattr(env, "seed"):
        env.seed(seed)


class VecTask:
    """An Isaac Gym task, or one's own. The observation of a last step is the true one; the next step is a phantom.

    Where `reset_buf` is an array of NumPy, actions are arrays, too, and what a step returns becomes one.
    """

    lost = final = False

    def __init__(self, env, task="", mode="immediate", quantum=drifts.QUANTUM):
        self.env, self.task, self.numpy = env, task, isinstance(env.reset_buf, np.ndarray)
        self.num, self.obs_size, self.action_size = env.num_envs, env.num_obs, env.num_acts
        if hasattr(env, "action_space"):
            _size(env.action_space, "action space", True)
        self.time_limit, self.device = int(env.max_episode_length), str(getattr(env, "rl_device", "cpu"))
        simulator = hasattr(env, "gym") and not hasattr(env, "apply_drift")
        self.drift = drifts.GymDrift(env, mode, quantum) if simulator else drifts.OwnDrift(env)
        self.zero = self._own(np.zeros((self.num, self.action_size), np.float32))
        self.pending = self._own(np.ones(self.num, bool))

    def _own(self, value):
        """An array for an environment of NumPy, else a tensor on its device."""
        return np.asarray(value) if self.numpy else torch.as_tensor(value, device=self.device)

    def restart(self, seed):
        """Observation (N, O) of fresh episodes, and live (N,); by a phantom step, as there is no other way to begin."""
        _seed(self.env, seed)
        return self._begin()

    def _begin(self):
        self.env.reset_buf[:] = 1
        obs, _, self.pending, _ = self._stepped(self.zero)
        return obs, ~self.pending

    def _stepped(self, actions):
        rows = self.env.step(actions)
        if not (isinstance(rows, tuple) and len(rows) == 4 and isinstance(rows[0], dict) and "obs" in rows[0]):
            got = [type(row).__name__ for row in rows] if isinstance(rows, tuple) else type(rows).__name__
            text = "step must return ({'obs': observation (N, O)}, reward (N,), reset (N,), extras); got %s"
            raise Fault(text % got)
        obs, reward, done = (self._own(row) for row in (rows[0]["obs"], rows[1], rows[2]))
        return _clone(obs), _clone(reward), _flag(done, "reset", self.num), rows[3]

    def step(self, actions):
        """Observation (N, O), reward (N,), and (N,) bool: terminated, truncated, valid, live; all clones.

        Live are the copies whose next step will count.
        """
        obs, reward, done, extras = self._stepped(actions)
        valid, late = ~self.pending, self._own(extras.get("time_outs", ~done & done))
        truncated = done & _flag(late, "time_outs", self.num)
        if self.task in FAILED:
            truncated = truncated & ~FAILED[self.task](obs)
        self.pending = done
        return obs, reward, done & ~truncated & valid, truncated & valid, valid, ~done

    def ending(self):
        """Copies (N,) that begin an episode with the next step, for `drifts.GymDrift.apply`."""
        return self.pending if self.numpy else self.pending.cpu().numpy()

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
    """An Isaac Lab task. It resets within the step and the observation of a last step is lost.

    With `final` it is read before the reset: the task computes its observations a second time, which may draw other
    noise and advance what it keeps from observation to observation.
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
        self.action_size = _size(inner.single_action_space, "action space", True)
        self.time_limit, self.drift = int(inner.max_episode_length), drifts.LabDrift(inner)

    def _watch(self, inner):
        reset = inner._reset_idx

        def watched(copies, *args, **kwargs):
            if self._stepping:  # an environment that has never been stepped may have nothing to observe
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
        """As `VecTask.step`, where all rows are valid; with `final`, also the observation (N, O) before resets."""
        self._stepping, self._last = True, None
        observations, reward, *flags, _ = self.env.step(actions.clamp(-1.0, 1.0))
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

    def ending(self):
        """None: whatever changes, changes at once."""
        return np.ones(self.num, bool)

    def disturbs(self):
        """Nothing is known to; joint damping is set a hundredth lower, read back, and set to what it was."""
        for scale in () if self.drift.learned else (0.99, 1.0):
            self.drift.set_damping(scale)
        return False


def describe(simulation):
    """Description of a simulation that the other side needs before it uses it."""
    drift, task = simulation.drift, simulation.task
    own = getattr(drift, "channels", None)
    inert = [c for c in sorted(drift.nominal) if own is None and (not drift.nominal[c] or c in INERT.get(task, ()))]
    names = ("num", "obs_size", "action_size", "time_limit", "device", "lost", "final")
    about = dict({name: getattr(simulation, name) for name in names}, channels=own)
    return dict(about, nominal=drift.nominal, inert=inert, damping_disturbs_state=simulation.disturbs())


def surface(env, task="", final=False, **options):
    """The simulation of a torch environment, recognised by its attributes; `final` matters to Isaac Lab alone."""
    inner = getattr(env, "unwrapped", env)
    return Lab(env, task, final) if hasattr(inner, "scene") else VecTask(env, task, **options)

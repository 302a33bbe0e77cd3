"""Gymnasium environments as drifting tasks in this process, with one callback per vector step for all runs and copies.

Such an environment hides its state, so the host holds one for each copy. Its state in JAX is its number and its step
count, which orders the calls and distinguishes a call repeated by XLA from a new step.
"""

import copy
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import methodcaller
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import (
    Autoreset,
    FlattenObservation,
    PassiveEnvChecker,
    RescaleAction,
    TimeLimit,
    TransformAction,
)

from aesjax.registry import hint, listed
from envs.adopt import trying
from envs.core import Channel, EnvSpec, Step, Task, replaced
from envs.physics.channels import ranges_of, texts_of
from envs.physics.host import Hosted, Packed, on_host

Array = jax.Array
_SETS = 8  # resets of all copies whose environments stay open; the least recently stepped are closed first
_STEPS = 1000  # default time limit of an episode
_READ_BACK = 1e-6  # allowed relative error of an attribute that was set


class GymnasiumError(ValueError):
    """An unsupported request to a Gymnasium environment."""


class CopyState(NamedTuple):
    """One copy; batched along a leading axis."""

    number: Array  # () uint32, number of the environment on the host
    steps: Array  # () int32, since its reset
    obs: Array  # (S,) float32, the newest observation


class _Copy:
    """An environment on the host, its step count, and the record of its last step."""

    def __init__(self, env: gymnasium.Env, steps: int) -> None:
        self.env: Any = env  # None: its only episode is over
        self.steps, self.record = steps, np.zeros(0, np.uint32)

    def close(self) -> None:
        if self.env is not None:
            self.env.close()
        self.env = None


class OneHot(gymnasium.ActionWrapper):
    """Discrete actions as one-hot rows (A,)."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.first, self.action_space = env.action_space.start, Box(0.0, 1.0, (int(env.action_space.n),))

    def action(self, action: Any) -> Any:
        """Number of the chosen action."""
        return self.first + np.argmax(action)


class GymnasiumEnv(Hosted):
    """One copy of a Gymnasium environment as seen by JAX; ``params`` is the flat vector of drift values (D,).

    Args:
      make: makes an environment with flat observations and normalised actions, at each reset, as its state may survive.
      channels: drifting parameters, see `put`.
      code: its innermost class.
      once: whether a copy only plays one episode, as in evaluations.
    """

    note = (
        "a Gymnasium environment keeps its state out of checkpoints: a resumed run begins new episodes and gets other "
        "numbers than an uninterrupted one"
    )

    def __init__(self, make: Callable[[], Any], channels: Sequence[Channel], spec: EnvSpec, code: Any, once=False):
        self.make, self.channels, self.spec, self.code, self.once = make, tuple(channels), spec, code, once
        self.about = {"gymnasium": gymnasium.__version__, "environment": code.__qualname__}  # for a study's manifest
        self._nominal = [(each.name, float(np.float32(each.nominal)), each.nominal) for each in self.channels]
        self._lock, self._sets, self._size = threading.Lock(), _SETS, 0  # copies of the largest reset
        self._copies: OrderedDict[int, _Copy] = OrderedDict()  # by number, most recently stepped last
        # Numbers stored by another process must not match numbers of this one.
        self._first = self._next = int.from_bytes(os.urandom(4), "little") >> 1
        words = 1 + 2 * spec.obs_size + 4
        self._on_reset = on_host(self.guarded(self._host_reset), 1 + spec.obs_size)
        self._on_step = {
            again: on_host(self.guarded(partial(self._host_step, again)), words) for again in (False, True)
        }

    def __reduce__(self) -> Any:
        return GymnasiumEnv, (self.make, self.channels, self.spec, self.code, self.once)

    def reset(self, key: Array, params: Array) -> tuple[Array, CopyState]:
        """Begin an episode in a new environment, seeded by the key."""
        self._sets = max(_SETS, 2 * jax.local_device_count())
        seed = jax.random.bits(key, (1,), jnp.uint32)
        out = self._on_reset(jnp.concatenate([seed, Packed.traced(None, params)])[None])[0]
        obs = Packed.floats_of(out[1:])
        return obs, CopyState(out[0], jnp.int32(0), obs)

    def step(self, key: Array, state: CopyState, action: Array, params: Array) -> Step:
        """One step under ``action`` (A,) in [-1, 1]; the environment draws its own random numbers."""
        return self._advance(False, state, action, params)

    def autoreset(self, key_step: Array, key_reset: Array, state: CopyState, action: Array, params: Array) -> Step:
        """`envs.core.autoreset_step`, with the reset in the callback of the step."""
        return self._advance(True, state, action, params)

    def _advance(self, again: bool, state: CopyState, action: Array, params: Array) -> Step:
        s = self.spec.obs_size
        # A diverged agent returns NaN, which crashes some environments.
        action = jnp.nan_to_num(jnp.clip(action, -1.0, 1.0))
        counted = jnp.stack([state.number, state.steps.astype(jnp.uint32)])
        out = self._on_step[again](jnp.concatenate([counted, Packed.traced(None, params, action)])[None])[0]
        floats = Packed.floats_of(out[1:])
        reward, terminated, truncated, begun = floats[2 * s :]
        final = jnp.where(begun > 0, state.obs, floats[s : 2 * s])
        obs = floats[:s] if again else final
        state = CopyState(out[0], state.steps + 1, obs)
        return obs, state, reward, terminated > 0, truncated > terminated, {"final_observation": final} if again else {}

    def apart(self) -> "GymnasiumEnv":
        """The same task in separate environments, each of which plays one episode."""
        return GymnasiumEnv(self.make, self.channels, self.spec, self.code, once=True)

    def film(self, act: Callable[[np.ndarray], Any], seed: int, drift: np.ndarray) -> tuple[list[Any], list[float]]:
        """Pictures (height, width, 3) uint8 and rewards of one episode in a new environment, from its ``render()``.

        Args:
          act: observation (S,) -> action (A,).
          drift: (D,) values in force.

        Raises:
          GymnasiumError: ``render()`` returns no picture.
        """
        env = self.make()
        try:
            env.unwrapped.render_mode = env.unwrapped.render_mode or "rgb_array"
            self._drift(env, drift)
            obs, pictures, rewards, over = np.array(env.reset(seed=seed)[0], np.float32), [], [], False
            while True:
                with trying(f"{self.code.__qualname__} cannot be drawn"):
                    picture = np.array(env.render())  # a copy, because some environments draw into one array
                if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
                    got = f"{picture.dtype}{list(picture.shape)}"
                    wanted = "a picture (height, width, 3) uint8 in mode 'rgb_array'"
                    raise GymnasiumError(f"render() of {self.code.__qualname__} must return {wanted}; got {got}")
                pictures.append(picture)
                if over:
                    return pictures, rewards
                self._drift(env, drift)
                action = np.clip(np.asarray(act(obs), np.float32), -1.0, 1.0)
                obs, reward, terminated, truncated, _ = env.step(action)
                obs, over = np.array(obs, np.float32), terminated or truncated
                rewards.append(float(reward))
        finally:
            env.close()

    def drop(self, states: CopyState) -> None:
        """Close copies that nothing will step: in a partial reset all copies are made, and some are not used."""
        with self._lock:
            dropped = [self._copies.pop(number) for number in np.asarray(states.number).tolist()]
        for copied in dropped:
            copied.close()

    def close(self) -> None:
        """Close all environments; the next reset makes new ones."""
        super().close()
        with self._lock:
            every, self._copies = [*self._copies.values()], OrderedDict()
        for copied in every:
            copied.close()

    # Host side, (n, words) in and out. A record is a seed, or number and steps; then drift values and the action.

    def _host_reset(self, words: np.ndarray) -> np.ndarray:
        out = np.zeros((len(words), 1 + self.spec.obs_size), np.uint32)
        floats, rows = words[:, 1:].view(np.float32), out[:, 1:].view(np.float32)
        for i, (number, own) in enumerate(self._taken([0] * len(words)).items()):
            out[i, 0], rows[i] = number, self._begun(own, int(words[i, 0]), floats[i])
        return out

    def _host_step(self, again: bool, words: np.ndarray) -> np.ndarray:
        floats, asked = words[:, 2:].view(np.float32), words[:, :2].tolist()
        # A state stored by another process: its episode is lost, and a new one begins.
        lost = [i for i, (number, _) in enumerate(asked) if number not in self._copies]
        if any(self._first <= asked[i][0] < self._next for i in lost):
            most = self._sets * self._size
            raise GymnasiumError(f"a Gymnasium environment has closed this copy: only the newest {most} can be stepped")
        begun = {}
        if lost:
            with self._lock:  # a resumed study steps its copies in several batches, of which none may be closed
                self._size += len(lost)
            begun = dict(zip(lost, self._taken([asked[i][1] for i in lost]).items(), strict=True))
        out = np.zeros((len(words), 1 + 2 * self.spec.obs_size + 4), np.uint32)
        for i, (number, steps) in enumerate(asked):
            if i in begun:
                number, own = begun[i]
                out[i] = self._record(number, own, self._begun(own, number, floats[i]), 0.0, False, True, begun=True)
            else:
                out[i] = self._stepped(number, steps, floats[i], again)
        for number in out[:, 0].tolist():
            self._copies.move_to_end(number)
        return out

    def _taken(self, steps: Sequence[int]) -> dict[int, _Copy]:
        """New environments by number, each with its step count; the oldest are closed."""
        with self._lock:
            self._size = max(self._size, len(steps))
            while len(self._copies) + len(steps) > self._sets * self._size:
                _, oldest = self._copies.popitem(last=False)
                oldest.close()
            first, self._next = self._next, self._next + len(steps)
            hush = getattr(sys.modules.get("mujoco"), "set_mju_user_warning", bool)
            handler = getattr(sys.modules.get("mujoco"), "get_mju_user_warning", bool)()
            hush(lambda text: None)  # the warnings of its compiler, which each copy would repeat
            try:
                made = [_Copy(self.make(), count) for count in steps]
            finally:
                hush(handler or None)
            taken = dict(zip(range(first, self._next), made, strict=True))
            self._copies |= taken
            return taken

    def _begun(self, own: _Copy, seed: int, floats: np.ndarray) -> Any:
        self._drift(own.env, floats)
        return own.env.reset(seed=seed)[0]

    def _drift(self, env: Any, floats: np.ndarray) -> None:
        """Set drift values; at nominal values the environment's own values are restored exactly."""
        if self.channels:
            given = zip(self._nominal, floats.tolist(), strict=False)
            put(env.unwrapped, {name: exact if value == near else value for (name, near, exact), value in given})

    def _stepped(self, number: int, steps: int, floats: np.ndarray, again: bool) -> np.ndarray:
        own = self._copies[number]
        if steps == own.steps - 1:
            return own.record  # a repeated request
        if steps != own.steps:
            raise GymnasiumError(f"step {steps} was requested from a Gymnasium environment at step {own.steps}")
        if own.env is None:
            return self._record(number, own, 0.0, 0.0, True, False)
        self._drift(own.env, floats)
        obs, reward, terminated, truncated, _ = own.env.step(floats[len(self.channels) :])
        ended = bool(terminated or truncated)
        record = self._record(number, own, obs, reward, terminated, truncated)  # before a reset changes them in place
        if ended and self.once:
            own.close()
        elif ended and again:
            record[1 : 1 + self.spec.obs_size].view(np.float32)[:] = own.env.reset()[0]
        return record

    def _record(self, number: int, own: _Copy, obs: Any, *reward_and_flags: Any, begun: bool = False) -> np.ndarray:
        """Copy of a step's results: number, next and last observation, reward, flags; after a reset, no step."""
        s = self.spec.obs_size
        own.steps, own.record = own.steps + 1, np.zeros(1 + 2 * s + 4, np.uint32)
        own.record[0], row = number, own.record[1:].view(np.float32)
        row[:s], row[s : 2 * s], row[2 * s :] = obs, obs, (*reward_and_flags, begun)
        return own.record


def put(env: Any, values: Mapping[str, float]) -> None:
    """Set values in an unwrapped environment, by its ``set_drift(values)`` or as attributes, and read them back.

    The return value of ``set_drift`` is compared with the request, or the attributes if it returns None.

    Raises:
      GymnasiumError: a missing attribute, or one that reads back as another value.
    """
    read = None
    if hasattr(env, "set_drift"):
        read = env.set_drift(dict(values))
    else:
        for name, value in values.items():
            if _value(env, name) != value:
                attribute, _, index = name.partition("[")
                new: Any = np.array(getattr(env, attribute)) if index else value  # environments may share a vector
                if index:
                    new[int(index[:-1])] = value
                setattr(env, attribute, new)
    for name, value in values.items():
        found = _value(env, name) if read is None else read.get(name)
        if found != value and (found is None or not abs(found - value) <= _READ_BACK * abs(value)):
            raise GymnasiumError(f"'{name}' of {type(env).__name__} was set to {value:g} and reads back as {found}")


def _value(env: Any, name: str) -> Any:
    """Attribute, or element of a vector; None if it is missing."""
    attribute, _, index = name.partition("[")
    value = getattr(env, attribute, None)
    if index:
        value = dict(enumerate(value if isinstance(value, np.ndarray | list) else ())).get(int(index[:-1]))
    return value


def channels_in(env: Any, ranges: Mapping[str, Sequence[float]]) -> tuple[Channel, ...]:
    """Drift channels of an unwrapped environment: name -> lowest and highest value, or lowest, nominal, highest.

    Raises:
      GymnasiumError: a missing attribute, or one that reads back as another value.
    """
    kind, channels, rows = type(env).__name__, [], {}
    for name, ends in ranges.items():
        value: Any = getattr(env, name, None)
        rows |= {f"{name}[{i}]": ends for i in range(len(value))} if np.ndim(value) == 1 else {name: ends}
    for name, (low, *middle, high) in rows.items():
        nominal = _value(env, name)
        if nominal is None and not hasattr(env, "set_drift"):
            numbers = [n for n, value in vars(env).items() if isinstance(value, int | float)]
            missing = f"{kind} has no method set_drift and no attribute '{name}'{hint(name, numbers)}"
            raise GymnasiumError(f"{missing} numbers: {listed(numbers)}")
        nominal = middle[0] if middle else nominal
        if isinstance(nominal, bool) or not isinstance(nominal, int | float | np.number):
            raise GymnasiumError(
                f"'{name}' of {kind} must be a number or vector to drift, or give (low, nominal, high); got {nominal!r}"
            )
        if not low <= nominal <= high or not 0.0 < high - low < np.inf:
            raise GymnasiumError(f"the range of '{name}' must contain {nominal:g}, its value; got {low:g} to {high:g}")
        channels.append(Channel(name, low, high, float(nominal)))
    for end in ("low", "high", "nominal"):
        if channels:
            put(env, {each.name: getattr(each, end) for each in channels})
    return tuple(channels)


def from_gymnasium(
    env: Any,
    channels: Mapping[str, Sequence[float]] | Sequence[str] = MappingProxyType({}),
    name: str | None = None,
    time_limit: int | None = None,
) -> Task:
    """A Gymnasium environment with continuous or discrete actions as a task.

    Args:
      env: an id, a class or function that makes one, or an environment, which is copied. No state may be shared.
      channels: drifting parameters: ``{"gain": (0.5, 1.5)}`` or ``["gain=0.5:1.5"]`` sets ``env.unwrapped.gain``, or
        calls ``env.unwrapped.set_drift({"gain": 1.2})``. A third entry in the middle is the value without drift.
        Elements of a vector ``gain`` are the channels ``gain[0]``, ``gain[1]``, ...; its ranges may be arrays.
      name: of the task, part of the seed of its drift; by default the innermost class or ``gymnasium:ID``.
      time_limit: steps of an episode; by default that of its TimeLimit, else 1000. Only an id may get a longer one.

    Raises:
      ValueError: it cannot be made, its spaces are not supported, or a channel cannot drift.

    >>> task = from_gymnasium("Pendulum-v1", channels={"g": (5.0, 15.0)})
    >>> task.channels[0].nominal, task.env.spec
    (10.0, EnvSpec(obs_size=3, action_size=1, time_limit=200, discrete=False))
    """
    texts, entry = texts_of(channels), getattr(env, "func", env)
    kind = entry if isinstance(entry, str) else getattr(entry, "__name__", type(entry).__name__)
    with trying(f"Gymnasium environment '{kind}' cannot be used"):
        make = partial(_adapted, _maker(env, time_limit), time_limit)
        probe: Any = PassiveEnvChecker(make())
        inner = probe.unwrapped
        drifting = channels_in(inner, ranges_of(texts))
        seen = probe.reset(seed=0)[0], probe.step(np.zeros(probe.action_space.shape, np.float32))[0]
        for obs in seen:
            if np.shape(obs) != probe.observation_space.shape:
                raise GymnasiumError(f"its observations must be of {probe.observation_space}; got {np.shape(obs)}")
        if make().unwrapped is inner:
            raise GymnasiumError("its function returns one environment again; it must make a new one at each call")
        limit = min(each._max_episode_steps for each in _wrappers(probe) if isinstance(each, TimeLimit))
        discrete = any(isinstance(each, OneHot) for each in _wrappers(probe))
        spec = EnvSpec(probe.observation_space.shape[0], probe.action_space.shape[0], limit, discrete)
        probe.close()
    return Task(
        name=name or (f"gymnasium:{env}" if isinstance(env, str) else type(inner).__name__.lower()),
        family="gymnasium",
        env=GymnasiumEnv(make, drifting, spec, type(inner)),
        params=np.array([each.nominal for each in drifting], np.float32),
        channels=drifting,
        apply_drift=replaced,
        description=f"Gymnasium environment {kind}",
        options={"channels": texts} | ({} if time_limit is None else {"time_limit": time_limit}),
    )


def named(id: str, channels: Any = (), time_limit: int | None = None) -> Task:
    """Task of a Gymnasium id; equal options return the same task."""
    return _remembered(id, texts_of(channels), time_limit=time_limit)


_remembered = cache(from_gymnasium)


def _maker(env: Any, time_limit: int | None) -> Callable[[], Any]:
    """Function that makes environments, those of an id with the time limit."""
    if isinstance(env, str):
        return partial(gymnasium.make, env, time_limit, disable_env_checker=True)
    if not isinstance(env, gymnasium.Env):
        return env if callable(env) else lambda: env  # raises there
    try:
        return partial(copy.deepcopy, copy.deepcopy(env))  # of a copy, as the caller may go on to use it
    except Exception as error:
        raise GymnasiumError(f"it cannot be copied ({error}); give the function that makes it") from error


def _wrappers(env: Any) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _adapted(make: Callable[[], Any], time_limit: int | None) -> Any:
    """Environment with vector observations, actions in [-1, 1] or one-hot, and a time limit."""
    env = make()
    if not isinstance(env, gymnasium.Env):
        more = ", not a vector of them" if isinstance(env, gymnasium.vector.VectorEnv) else ""
        raise GymnasiumError(f"it must be one gymnasium.Env{more}; got {type(env).__name__}")
    if any(isinstance(each, Autoreset) for each in _wrappers(env)):
        raise GymnasiumError("leave out the wrapper Autoreset, which hides the last observation of an episode")
    for part in (*_wrappers(env), env.unwrapped):
        if any(type(value).__name__ == "RunningMeanStd" for value in vars(part).values()):
            instead = "PPO normalises by itself; TransformReward and RescaleObservation use constants"
            raise GymnasiumError(f"leave out {type(part).__name__}, whose statistics outlive episodes: {instead}")
    limits = [each._max_episode_steps for each in _wrappers(env) if isinstance(each, TimeLimit)]
    wanted = min(limits, default=_STEPS) if time_limit is None else time_limit
    if min(limits, default=wanted) < wanted:
        raise GymnasiumError(f"its TimeLimit ends episodes after {min(limits)} steps; got time_limit {wanted}")
    if wanted not in limits:
        env = TimeLimit(env, wanted)
    env = _acting(env)
    if not isinstance(env.observation_space, Box) or len(env.observation_space.shape) != 1:
        env = FlattenObservation(env)
    if not isinstance(env.observation_space, Box):
        raise GymnasiumError(f"its observations cannot be made one vector; got {env.observation_space}")
    return env


def _acting(env: Any) -> Any:
    """Environment with actions (A,) in [-1, 1] or one-hot."""
    actions = env.action_space
    if isinstance(actions, Discrete):
        return OneHot(env)
    if not isinstance(actions, Box) or not np.issubdtype(actions.dtype, np.floating) or not actions.is_bounded():
        allowed = "Discrete, or a Box of real numbers with finite bounds"
        raise GymnasiumError(f"its actions must be {allowed}; got {actions}")
    if not (actions.low == -1.0).all() or not (actions.high == 1.0).all():
        env = RescaleAction(env, np.float32(-1.0), np.float32(1.0))
    if len(actions.shape) != 1:
        flat = Box(-1.0, 1.0, (int(np.prod(actions.shape)),))
        env = TransformAction(env, methodcaller("reshape", actions.shape), flat)
    return env

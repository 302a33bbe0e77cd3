"""A drifting task: `World` for training loops, with drift as data, and `Drifting` for custom loops."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from aesjax.registry import lookup
from aesjax.typed import require
from envs.core import Mask, Step, Task, random_actions, step_with_keys
from envs.drift import (
    DriftData,
    DriftTruth,
    change_steps,
    draw,
    jump_steps,
    normalised,
    per_coordinate,
    truth,
)
from envs.patterns import PATTERNS, Pattern, compiled
from envs.timeline import EVEN, Timeline

Array = jax.Array


#: Additional observations, a reference and not a method: the drift values in force, or whether they changed just now.
OBSERVED = DRIFT, CHANGE = "drift", "change"
NOTICE = 0.02  # share of the run after a change during which it is observed


class Revealed(NamedTuple):
    """Parameters of a task with the facts of the drift that a learner observes."""

    params: Any
    facts: Array  # (D,) float32, normalised drift values, or (1,), 1 after a change


@dataclass(frozen=True)
class World:
    """The environments of one program: a task, its horizon in vector steps, and the number of drift segments."""

    task: Task
    total: int  # vector steps of a run, a multiple of segments
    segments: int = 5
    observe: str | None = None  # of `OBSERVED`, appended to observations
    patterns: Mapping[str, Pattern] = field(default_factory=lambda: PATTERNS)  # by index in the drift of a run
    onset: float = 0.0  # share of the run before the drift
    changes: str = EVEN  # lengths of the segments, see `Timeline`
    history: int = 1  # observations of an episode, with the actions between them, of which an observation consists
    timeline: Timeline = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        timeline = Timeline(self.total, self.segments, self.onset, self.changes)
        object.__setattr__(self, "timeline", timeline)
        require(isinstance(self.task, Task), "task", "a task such as envs.make('toy')", self.task)
        for channel in self.task.channels:
            if not channel.low <= channel.nominal <= channel.high or channel.low == channel.high:
                raise ValueError(
                    f"channel '{channel.name}' of task '{self.name}' needs low < high and its nominal value between "
                    f"them; got low {channel.low:g}, high {channel.high:g}, nominal {channel.nominal:g}"
                )
        if self.history < 1:
            raise ValueError(f"history must be at least 1 observation; got {self.history}")
        if self.observe not in (None, *OBSERVED):
            raise ValueError(f"observe must be 'drift' or 'change'; got '{self.observe}'")
        if self.observe and not self.task.channels:
            raise ValueError(f"task '{self.name}' has no drift channel, so there is no drift to observe")

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def obs_size(self) -> int:
        facts = {DRIFT: sum(channel.size for channel in self.task.channels), CHANGE: 1}
        return self.own_size + facts.get(self.observe or "", 0)

    @property
    def own_size(self) -> int:
        """Size of an observation without the facts of the drift."""
        return self.history * self.task.env.spec.obs_size + (self.history - 1) * self.action_size

    @property
    def action_size(self) -> int:
        return self.task.env.spec.action_size

    @property
    def discrete(self) -> bool:
        """Whether actions are one-hot rows."""
        return self.task.env.spec.discrete

    @property
    def time_limit(self) -> int:
        return self.task.env.spec.time_limit

    def random_actions(self, key: Array, num: int) -> Array:
        """Uniformly random actions (num, A)."""
        return random_actions(self.task.env.spec, key, num)

    def check_pattern(self, pattern: str) -> None:
        """Raise UnknownNameError for an unknown pattern, ValueError for drift in a task without channels."""
        if lookup("pattern", self.patterns, pattern) != PATTERNS["steady"] and not self.task.channels:
            raise ValueError(f"task '{self.name}' has no drift channel, so its pattern is steady; got '{pattern}'")

    def drift(self, pattern: str, drift_seed: int) -> DriftData:
        """Drift of one run; patterns and methods at one seed share the drift sample."""
        self.check_pattern(pattern)
        return DriftData(self._index(pattern), draw(self.task, drift_seed, self.segments))

    def _index(self, pattern: str) -> Array:
        return jnp.int32(list(self.patterns).index(pattern))

    def held(self, values: Any) -> DriftData:
        """Constant drift at ``values`` (D,), in task units, for evaluations.

        Raises:
          ValueError: not one finite number for each coordinate of the channels.
        """
        names = [channel.name for channel in self.task.channels for _ in range(channel.size)]
        held = np.asarray(values, np.float32)
        if held.shape != (len(names),) or not np.isfinite(held).all():
            raise ValueError(f"drift of task '{self.name}' is {len(names)} numbers ({', '.join(names)}); got {values}")
        # Equal levels in a pattern that depends on them alone.
        levels = jnp.tile(jnp.asarray(held), (self.segments + 1, 1))
        return DriftData(self._index("abrupt"), draw(self.task, 0, self.segments)._replace(levels=levels))

    def truth(self, drift: DriftData, step: Array | int) -> DriftTruth:
        """Drift at vector step ``step`` (), not for learners."""
        return truth(self.task.channels, *drift, step, self.timeline, self.patterns)

    def path(self, drift: DriftData, steps: Array) -> tuple[Array, Array]:
        """Drift values (n, D) in force at vector steps (n,) and the size (n,) of their change, in ranges."""
        chex.assert_rank(steps, 1, custom_message="steps of World.path: (n,) vector steps")
        now = jax.vmap(lambda step: self.truth(drift, step))(steps)
        return now.values, now.change

    def notice(self, drift: DriftData, steps: Array) -> Array | None:
        """1 where the drift jumped at vector steps (n,) or shortly before, for `NOTICE` of the run, else 0; (n, 1).

        None if changes are not observed.
        """
        if self.observe != CHANGE:
            return None
        duration = max(1, round(NOTICE * self.total))

        def noticed(pattern: Pattern) -> Array:
            jumps = jump_steps(self.task.channels, pattern, drift.realisation, self.timeline)
            ago = steps[:, None] - jumps[None]
            return jnp.any((jumps >= 0)[None] & (ago >= 0) & (ago < duration), axis=1, keepdims=True)

        branches = [partial(noticed, pattern) for pattern in self.patterns.values()]
        return jax.lax.switch(drift.pattern, branches).astype(jnp.float32)

    def elsewhere(self, drift: DriftData, step: Array) -> dict[str, Array]:
        """Drift values (D,) by name that are not in force at vector step ``step`` ().

        ``nominal``; ``previous``, the values before the last change (nominal before the first); ``next``, those after
        the next change (after the last, at the end of the run); ``low`` and ``high``, every channel at an end of its
        range (planar channels at the ends of their first axis).
        """

        def around(pattern: Pattern) -> tuple[Array, Array]:
            changes = change_steps(self.task.channels, pattern, drift.realisation, self.timeline)
            last = jnp.max(changes, initial=0, where=changes <= step)
            return last, jnp.min(changes, initial=self.total, where=changes > step)

        branches = [lambda pattern=pattern: around(pattern) for pattern in self.patterns.values()]
        last, following = jax.lax.switch(drift.pattern, branches)
        (previous, following), _ = self.path(drift, jnp.stack([last - 1, following]))

        def ends(name: str) -> Array:
            both = [(c, i) for c in self.task.channels for i in range(c.size)]
            ends = [c.nominal if i and c.kind == "planar" else getattr(c, name) for c, i in both]
            return jnp.asarray(ends, jnp.float32)

        nominal = ends("nominal")
        previous = jnp.where(last > 0, previous, nominal)
        return {"nominal": nominal, "previous": previous, "next": following, "low": ends("low"), "high": ends("high")}

    def displacement(self, values: Array) -> Array:
        """Distance () of drift values (D,) from nominal, for plots: Euclidean norm in half ranges of the channels.

        For a planar channel this is the distance from nominal in radii (1 for the toy goals after one relocation).
        """
        channels = self.task.channels
        nominal = per_coordinate(channels, lambda channel: channel.nominal)
        half = per_coordinate(channels, lambda channel: (channel.high - channel.low) / 2.0)
        return jnp.sqrt(jnp.sum(((values - nominal) / half) ** 2))

    def params_of(self, values: Array, notice: Array | None = None) -> Any:
        """Parameters of the task under drift values (D,), with the `notice` (1,) of a change; None: there was none."""
        size = sum(channel.size for channel in self.task.channels)
        chex.assert_shape(values, (size,), custom_message=f"drift values of task '{self.name}', by channel")
        params = self.task.apply_drift(self.task.params, values)
        if self.observe == CHANGE:
            return Revealed(params, jnp.zeros(1) if notice is None else notice)
        return Revealed(params, normalised(self.task.channels, values)) if self.observe else params

    def seen(self, obs: Array, params: Any) -> Array:
        """Observations (N, S) with the facts of ``params`` appended; older appended facts are replaced.

        Args:
          obs: (N, S), or without facts.
          params: as returned by `params_of`.
        """
        if not self.observe:
            return obs
        own = obs[:, : self.own_size]
        facts = jnp.broadcast_to(params.facts, (own.shape[0], params.facts.shape[-1]))
        return jnp.concatenate([own, facts], axis=1)

    def begun(self, obs: Array) -> Array:
        """Histories of new episodes from first observations (N, O), which are repeated, with actions of 0."""
        before = jnp.concatenate([jnp.zeros((obs.shape[0], self.action_size)), obs], 1)
        return obs if self.history == 1 else jnp.concatenate([obs, jnp.tile(before, (1, self.history - 1))], 1)

    def followed(self, past: Array, action: Array, obs: Array) -> Array:
        """Histories after ``past`` (N, S): the new observation (N, O), then the action (N, A), then what was before."""
        kept = self.own_size - obs.shape[1] - self.action_size
        return obs if self.history == 1 else jnp.concatenate([obs, action, past[:, :kept]], 1)

    def inner(self, state: Any) -> Any:
        """State of the task in a ``state`` of this world, which holds the histories as well."""
        return state if self.history == 1 else state.env

    def params_at(self, drift: DriftData, step: Array | int) -> Any:
        """Parameters of the task at vector step ``step`` ()."""
        notice = self.notice(drift, jnp.atleast_1d(step))
        return self.params_of(self.truth(drift, step).values, None if notice is None else notice[0])

    def reset(self, key: Array, num: int, params: Any) -> tuple[Array, Any]:
        """Observations (num, S) and states of ``num`` new episodes."""
        own = params.params if self.observe else params
        obs, state = jax.vmap(self.task.env.reset, (0, None))(jax.random.split(key, num), own)
        obs = self.begun(obs)
        return self.seen(obs, params), state if self.history == 1 else Remembered(state, obs)

    def faults(self, state: Any) -> Array | None:
        """Number of simulator faults in the parallel environments of ``state``, () int32; None if not counted."""
        count = getattr(self.task.env, "faults", None)
        return None if count is None else count(self.inner(state))

    def mask(self, state: Any) -> Mask | None:
        """Mask of valid copies after the step or reset before ``state``; None if all are always valid."""
        found = getattr(self.task.env, "mask", None)
        return None if found is None else found(self.inner(state))

    def for_evaluation(self) -> "World":
        """A world whose resets do not affect this one; the world itself unless it is a simulator."""
        apart = getattr(self.task.env, "for_evaluation", None)
        return self if apart is None else replace(self, task=self.task._replace(env=apart()))

    def advance(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Step of all copies with auto-reset: the six values of `autoreset_step` with a leading axis N."""
        shape = (action.shape[0] if action.ndim else 0, self.action_size)
        chex.assert_shape(action, shape, custom_message=f"action of task '{self.name}': (copies, actuators)")
        own = params.params if self.observe else params

        def one(words: Array, state: Any, action: Array) -> Step:
            key_step, key_reset = jax.random.wrap_key_data(words)
            return step_with_keys(self.task.env, key_step, key_reset, state, action, own)

        # All keys of the step come from one draw; two words are a key.
        words = jax.random.bits(key, (shape[0], 2, 2), jnp.uint32)
        obs, after, reward, terminated, truncated, info = jax.vmap(one)(words, self.inner(state), action)
        final = info["final_observation"]
        if self.history > 1:
            final = self.followed(state.history, action, final)
            mask, ended = self.mask(Remembered(after, obs)), terminated | truncated
            ended = ended if mask is None else ended | ~mask.valid  # the row after an end has the first observation
            obs = jnp.where(ended[:, None], self.begun(obs), final)
            after = Remembered(after, obs)
        info |= {"final_observation": self.seen(final, params)}
        return self.seen(obs, params), after, reward, terminated, truncated, info

    def step(self, key: Array, state: Any, action: Array, params: Any) -> tuple[Array, ...]:
        """`advance` for a training loop, which reads only the last observation of an episode from the info.

        Returns the next obs (N, S), state, reward (N,), terminated (N,), truncated (N,), and the observation (N, S)
        before any reset.
        """
        *rest, info = self.advance(key, state, action, params)
        return *rest, info["final_observation"]


class DriftState(NamedTuple):
    """Auto-reset replaces ``env``; only a step advances ``clock``."""

    env: Any  # state of the task, leading axis N
    clock: Array  # () int32, vector steps since the run began


class Remembered(NamedTuple):
    """State of the copies of a task whose agents see more than one observation."""

    env: Any  # state of the task, leading axis N
    history: Array  # (N, S), the newest histories


@dataclass(frozen=True)
class Drifting:
    """``num_envs`` copies of a task under one drift, as pure ``reset`` and ``step``.

    >>> import envs, jax
    >>> env = Drifting(envs.make("toy"), "abrupt", total_steps=1000)
    >>> obs, state = env.reset(jax.random.key(0))
    >>> obs, state, reward, *_ = env.step(jax.random.key(1), state, jax.numpy.zeros((1, 2)))
    """

    task: Task
    pattern: str  # a name of PATTERNS
    total_steps: int  # horizon in environment steps, summed over copies; a multiple of num_envs * segments
    drift_seed: int = 0
    segments: int = 5
    num_envs: int = 1  # N
    onset: float = 0.0
    changes: str = EVEN
    world: World = field(init=False, repr=False, compare=False)
    drift: DriftData = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if self.num_envs < 1 or self.total_steps % self.num_envs:
            raise ValueError(f"total_steps must be a multiple of num_envs = {self.num_envs}; got {self.total_steps}")
        total, times = self.total_steps // self.num_envs, {"onset": self.onset, "changes": self.changes}
        world = World(self.task, total, self.segments, patterns=compiled([self.pattern]), **times)
        object.__setattr__(self, "world", world)
        object.__setattr__(self, "drift", world.drift(self.pattern, self.drift_seed))

    def params_at(self, step: Array | int) -> Any:
        """Parameters of the task at vector step ``step``."""
        return self.world.params_at(self.drift, step)

    def truth_at(self, step: Array | int) -> DriftTruth:
        """Drift at vector step ``step``, not for learners."""
        return self.world.truth(self.drift, step)

    def reset(self, key: Array) -> tuple[Array, DriftState]:
        """Observations (N, S) and state at the beginning of the run."""
        obs, state = self.world.reset(key, self.num_envs, self.params_at(0))
        return obs, DriftState(state, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: DriftState, action: Array) -> Step:
        """The six values of ``autoreset_step`` with a leading axis N, for ``action`` (N, A) in [-1, 1] or one-hot.

        ``info["drift"]`` is the ``DriftTruth`` in force during this step, without an axis N.
        """
        chex.assert_shape(
            action,
            (self.num_envs, self.world.action_size),
            custom_message=f"action of task '{self.task.name}': (num_envs, actuators)",
        )
        now = self.truth_at(state.clock)
        *rest, info = self.world.advance(key, state.env, action, self.world.params_of(now.values))
        obs, env_state, reward, terminated, truncated = rest
        next_state = DriftState(env_state, state.clock + 1)
        return obs, next_state, reward, terminated, truncated, info | {"drift": now}

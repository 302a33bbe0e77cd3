"""Copies of a drifting task on the device, stepped from Python, used by the adapters of this folder."""

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Self

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from aesjax.compiling import check_process, jit
from envs import make
from envs.adopt import trying
from envs.core import Task, autoreset_step, check_unmasked, sound
from envs.patterns import compiled
from envs.render import Renderer
from envs.timeline import EVEN
from envs.world import DriftData, World

DRIFT_STEPS = 1_000_000
Options = Mapping[str, Any] | None


class Stepped(NamedTuple):
    """Results of one step of N environments, in arrays that the caller owns."""

    obs: np.ndarray  # (N, S), observations for the next action
    reward: np.ndarray  # (N,)
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    final: np.ndarray  # (N, S), before any reset
    info: dict[str, Any]  # info of the task, leading axis N
    drift: dict[str, np.ndarray]  # in force during the step, as in `Copies.reset`
    idle: np.ndarray  # (N,) bool, where a reset replaced the step: only obs is valid


@dataclass
class _Clock:
    """Steps since the run began."""

    steps: int = 0


class _Program:
    """The compiled functions of a world, for any number of copies."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.start = jit(self._start, static_argnums=0)
        self.step = jit(self._step, static_argnums=0)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Program":
        return self  # immutable

    def __reduce__(self) -> Any:
        return _Program, (self.world,)

    def _start(self, num: int, drift: DriftData, key: Any, clock: Any) -> tuple[Any, ...]:
        key, key_start = jax.random.split(key)
        values = self.world.truth(drift, clock).values
        return key, values, *self.world.reset(key_start, num, self.world.params_of(values))

    def _step(
        self, autoreset: bool, drift: DriftData, key: Any, clock: Any, state: Any, action: Any
    ) -> tuple[Any, ...]:
        key, key_step = jax.random.split(key)
        env, values = self.world.task.env, self.world.truth(drift, clock).values
        move = partial(autoreset_step, env) if autoreset else partial(sound, env, env.step)
        keys = jax.random.split(key_step, action.shape[0])
        return key, values, *jax.vmap(move, (0, 0, 0, None))(keys, state, action, self.world.params_of(values))


@jax.jit
def _merged(mask: Any, new: Any, old: Any) -> Any:
    """``new`` where ``mask`` (N,), else ``old``."""
    return jax.vmap(lambda m, n, o: jax.tree.map(partial(jnp.where, m), n, o))(mask, new, old)


def _equal(one: Any, two: Any) -> bool:
    one, two = (
        jax.random.key_data(x) if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key) else x for x in (one, two)
    )
    return np.array_equal(one, two)


class Copies:
    """N copies under one drift clock.

    Args:
      mode: when a copy resets after the end of an episode; None: the caller resets it.
      clock: clock of other copies, which these copies follow without advancing it.
    """

    def __init__(
        self,
        program: _Program,
        drift: DriftData,
        num_envs: int,
        mode: AutoresetMode | None,
        render_mode: str | None,
        clock: _Clock | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be 1 or more; got {num_envs}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array'; got {render_mode!r}")
        self.program, self.drift, self.num_envs, self.mode = program, drift, num_envs, mode
        self.clock, self.leads = clock or _Clock(), clock is None
        self.key: Any = None  # None until the first reset
        self.obs: Any = None  # (N, S), the newest observations
        self.state: Any = None  # of the environments
        self.values: Any = None  # (D,), the newest drift in force
        self.waiting = np.zeros(num_envs, bool)  # for the reset after an episode
        self.render_mode, self.renderer = render_mode, None  # created by the first picture

    @property
    def task(self) -> Task:
        return self.program.world.task

    def evaluation(self, num_envs: int | None = None, drift: Any = None) -> "Copies":
        """New copies, as in `Parallel.evaluation`."""
        held = self.drift if drift is None else self.program.world.held(drift)
        num = self.num_envs if num_envs is None else num_envs
        return Copies(self.program, held, num, self.mode, self.render_mode, self.clock)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Copies":
        # JAX arrays cannot change and are shared; masks are replaced, never written to.
        memo[id(self)] = twin = copy.copy(self)
        twin.clock, twin.renderer = copy.deepcopy(self.clock, memo), None
        twin.key = None if self.key is None else jax.random.clone(self.key)  # copied on purpose
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"renderer": None}

    def __eq__(self, other: object) -> bool:
        """Whether both continue identically: equal worlds, drifts, clocks and episodes."""
        if not isinstance(other, Copies):
            return False
        fixed = [(each.program.world, each.num_envs, each.mode, each.clock) for each in (self, other)]
        moving = [(each.drift, each.key, each.obs, each.state, each.waiting) for each in (self, other)]
        alike = jax.tree.structure(moving[0]) == jax.tree.structure(moving[1])
        return fixed[0] == fixed[1] and alike and jax.tree.all(jax.tree.map(_equal, *moving))

    def reset(self, rng: np.random.Generator, reseed: bool, options: Options) -> tuple[Any, ...]:
        """Reset copies; returns observations (N, S), the drift at the reset, and a mask of the reset copies (N,).

        The drift is ``drift`` (N, D) float32, the values in force, and ``drift_step`` (N,) int32, their step.
        """
        options = options or {}
        if not set(options) <= {"restart_drift", "reset_mask"}:
            raise ValueError(f"reset has the options restart_drift and reset_mask; got {', '.join(options)}")
        mask = options.get("reset_mask")
        mask = np.ones(self.num_envs, bool) if mask is None else mask
        if getattr(mask, "shape", None) != (self.num_envs,) or mask.dtype != bool or not mask.any():
            shape = f"({self.num_envs},)"
            raise ValueError(f"reset_mask must be a bool array of shape {shape} with at least one True; got {mask!r}")
        first = self.key is None
        if first and not mask.all():
            raise gymnasium.error.ResetNeeded("the first reset must reset every environment; got a partial reset_mask")
        if options.get("restart_drift") and not self.leads:
            raise ValueError("an evaluation follows the drift of another environment, which must be restarted instead")
        if reseed or first:
            self.key = jax.random.key(rng.integers(2**32, dtype=np.uint32))
        if self.leads and (first or options.get("restart_drift", reseed)):
            self.clock.steps = 0
        self._start(mask, self.clock.steps)
        return np.array(self.obs), self._drift_at(self.clock.steps), mask

    def _start(self, mask: np.ndarray, clock: int) -> None:
        """Begin new episodes where ``mask`` (N,)."""
        self.key, self.values, *new = self.program.start(self.num_envs, self.drift, self.key, np.int32(clock))
        if mask.all():
            self.obs, self.state = new
        else:
            self.obs, self.state = _merged(mask, tuple(new), (self.obs, self.state))
            drop = getattr(self.task.env, "drop", None)
            if drop is not None:
                drop(jax.tree.map(itemgetter(~mask), new[1]))
        self.waiting = self.waiting & ~mask

    def _drift_at(self, clock: int) -> dict[str, np.ndarray]:
        n = self.num_envs
        return {"drift": np.tile(np.asarray(self.values), (n, 1)), "drift_step": np.full(n, clock, np.int32)}

    def step(self, action: Any) -> Stepped:
        """One step of every copy with ``action`` (N, A), or (N,) numbers of discrete actions."""
        if self.key is None:
            raise gymnasium.error.ResetNeeded("step was called before the first reset")
        action = self._rows(action)
        if self.mode in (None, AutoresetMode.DISABLED) and self.waiting.any():
            over = ", ".join(map(str, np.flatnonzero(self.waiting)))
            remedy = "call reset" if self.mode is None else "reset them with reset_mask"
            raise gymnasium.error.ResetNeeded(f"the episodes of copies {over} are over; {remedy}")
        idle, clock = self.waiting & (self.mode is AutoresetMode.NEXT_STEP), self.clock.steps
        same_step = self.mode is AutoresetMode.SAME_STEP
        self.key, self.values, self.obs, self.state, *rest = self.program.step(
            same_step, self.drift, self.key, np.int32(clock), self.state, action
        )
        reward, terminated, truncated, info = jax.tree.map(np.array, rest)  # JAX's arrays are read-only
        reward[idle], terminated[idle], truncated[idle] = 0, False, False
        ended = terminated | truncated
        self.waiting = ended & (not same_step) | idle
        if idle.any():
            self._start(idle, clock)
        if self.leads:
            self.clock.steps += 1
        obs = np.array(self.obs)
        final = info.pop("final_observation", obs)
        return Stepped(obs, reward, terminated, truncated, final, info, self._drift_at(clock), idle)

    def _rows(self, action: Any) -> np.ndarray:
        """Actions (N, A) of the task, from numbers (N,) of discrete ones."""
        spec, given = self.task.env.spec, np.asarray(action)
        if spec.discrete:
            last, whole = spec.action_size - 1, given.shape == (self.num_envs,) and given.dtype.kind in "iu"
            if not whole or not ((given >= 0) & (given <= last)).all():
                raise ValueError(f"an action of each copy is a whole number from 0 to {last}; got {given.tolist()}")
            return np.eye(spec.action_size, dtype=np.float32)[given]
        rows, shape = np.asarray(given, np.float32), (self.num_envs, spec.action_size)
        if rows.shape != shape:
            raise ValueError(f"an action of this environment has shape {shape} (copies, actuators); got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError(f"actions must be finite numbers; got {rows.tolist()}")
        return rows

    def pictures(self) -> tuple[np.ndarray, ...] | None:
        """(height, width, 3) uint8 of each copy, None without a render mode.

        Raises:
          ValueError: a task that cannot be drawn, or a robot without OpenGL.
        """
        if self.render_mode is None:
            gymnasium.logger.warn("render was called, but the environment was made without render_mode='rgb_array'")
            return None
        if self.key is None:
            raise gymnasium.error.ResetNeeded("render was called before the first reset")
        self.renderer = self.renderer or Renderer(self.task)
        state, params = jax.device_get((self.state, self.program.world.params_of(jnp.asarray(self.values))))
        return tuple(self.renderer.draw(jax.tree.map(itemgetter(i), state), params) for i in range(self.num_envs))

    def close(self) -> None:
        if self.renderer is not None:
            self.renderer.close()
        self.renderer = None


class Compared:
    """An environment of any library around `Copies`; environments that continue identically are equal."""

    _copies: Copies

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._copies == other._copies

    def __hash__(self) -> int:
        return hash(type(self))  # mutable, so not hashable


class Parallel(Compared):
    """A vector environment of any library around `Copies`."""

    def _around(self, copies: Copies) -> Self:
        self._copies, self.render_mode = copies, copies.render_mode
        return self

    def evaluation(self, num_envs: int | None = None, drift: Any = None) -> Self:
        """Environments for evaluation, whose steps do not advance the clock of these.

        Args:
          num_envs: by default the same number, which needs no new compilation.
          drift: constant values (D,); by default the values in force in these environments at each step.

        Raises:
          ValueError: invalid numbers.
        """
        return type(self).__new__(type(self))._around(self._copies.evaluation(num_envs, drift))


def spaces_of(task: Task) -> tuple[Box, Box | Discrete]:
    """Spaces of one copy: observations (S,) without bounds, actions (A,) in [-1, 1] or one of A numbers."""
    spec = task.env.spec
    actions = Discrete(spec.action_size) if spec.discrete else Box(-1.0, 1.0, (spec.action_size,), np.float32)
    return Box(-np.inf, np.inf, (spec.obs_size,), np.float32), actions


def copies_of(
    task: str | Task,
    pattern: str,
    drift_steps: int,
    num_envs: int,
    autoreset_mode: AutoresetMode | None,
    drift_seed: int = 0,
    segments: int = 5,
    onset: float = 0.0,
    changes: str = EVEN,
    drift: Any = None,
    render_mode: str | None = None,
    period: int | None = None,
    **options: Any,
) -> Copies:
    """Copies with their own clock, of a task or of the task that ``options`` build under a name.

    ``period``: steps of a segment summed over the copies, rounded down to whole vector steps, in place of
    ``drift_steps``.
    """
    check_process()
    if period is not None:
        if drift_steps != DRIFT_STEPS or period < num_envs:
            text = f"period, the steps of a segment of all copies, replaces drift_steps and is at least {num_envs}"
            raise ValueError(f"{text}; got period {period}, drift_steps {drift_steps}")
        drift_steps = period // num_envs * segments
    if "total_steps" in options:
        raise ValueError("an environment's drift takes drift_steps, steps of each copy; got total_steps")
    if (limit := options.pop("max_episode_steps", None)) is not None:
        options["time_limit"] = limit
    if isinstance(task, str):
        with trying("max_episode_steps cannot be set") if limit is not None else nullcontext():
            task = make(task, **options)
    elif options:
        raise ValueError(f"options are those of a task given by name; got a Task and {', '.join(options)}")
    check_unmasked(task, "Gymnasium's interface")
    world = World(task, drift_steps, segments, patterns=compiled([pattern]), onset=onset, changes=changes)
    clocked = world.drift(pattern, drift_seed)
    in_force = clocked if drift is None else world.held(drift)
    return Copies(_Program(world), in_force, num_envs, autoreset_mode, render_mode)

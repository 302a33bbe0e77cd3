"""`aesjax video`: the policy that a run had at a change of its drift, in the world before it and in the world after it,
and the policy that the segment ended with, side by side; of a steady run, the last policy.
"""

import dataclasses
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.registry import Registry
from aesjax.seeding import stream
from envs import PATTERNS, Task
from envs.drift import change_points
from envs.render import scene_of
from envs.world import World
from experiments.report.video_output import Panel, check_output, compose, write_video
from experiments.study.arms import arms_of
from experiments.study.build import Part, build_part
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.snapshots import evaluation_at, load_agent, load_moment

_FRAMES = 300  # shown at most unless --steps says otherwise
FPS = 25  # about, where a step has a duration
_STEPS_PER_SECOND = 10.0  # where a step has no duration
_SAMPLES = 200  # steps of a segment among which a gradual drift is compared


class Change(NamedTuple):
    """The two moments that are compared."""

    number: int  # of the change point, from 1
    steps: np.ndarray  # (2,) vector steps of the run
    values: np.ndarray  # (2, D) drift values


class _Side(NamedTuple):
    """Contents of one picture."""

    heading: str  # the world
    policy: str
    values: np.ndarray  # (D,) drift
    agent: Any


#: One episode under frozen drift: T + 1 states, (T + 1,) undiscounted returns so far, whether it terminated.
_Episode = tuple[list[Any], np.ndarray, bool]


def run(
    *, directory: Path, out: Path | None, method: str | None, pattern: str | None, seed: int | None,
    change: int | None, steps: int | None, fps: int | None, width: int,
) -> Path:  # fmt: skip
    """Write the video with the options of `aesjax video`, and return where it is.

    Raises:
      ValueError, UnknownNameError, ModuleNotFoundError: with one sentence; nothing was written.
    """
    config = open_study(directory).config
    method, pattern, seed = _choose(config, method, pattern, seed, change)
    name = re.sub(r"[^\w.+=-]+", "_", f"{method}-{pattern}-{seed}").strip("_")
    out = out or directory / "video" / f"{name}.gif"
    check_output(out, width, fps)
    task = _drawable(config)
    limit = task.env.spec.time_limit
    if steps is not None and not 1 <= steps <= limit:
        raise ValueError(f"--steps must be between 1 and {limit}, the length of an episode; got {steps}")
    scene = scene_of(task, width)
    try:
        carrier = next(c for c in config.carriers if method in [arm.name for arm in arms_of(config, c)])
        part = build_part(config, carrier)
        keys = {"method": method, "pattern": pattern, "seed": seed}
        at = next(i for i, label in enumerate(part.labels) if keys.items() <= label.items())
        world = World(task, config.vector_steps(carrier), config.segments)
        sides = _sides(directory, config, part, at, world, pattern, change)
        rate, stride = _pace(scene.rate, fps)
        steps = steps or min(limit, _FRAMES * stride)
        agents = jax.tree.map(lambda *leaves: np.stack(leaves), *(side.agent for side in sides))
        values = jnp.asarray(np.stack([side.values for side in sides]))
        observing = part.setup.world
        act = partial(_act_each, part.setup.agent.act_deterministic, agents)
        shown, params = jax.vmap(observing.params_of)(values), jax.vmap(world.params_of)(values)
        episodes = _roll_out(task, lambda obs: act(observing.seen(obs, shown)), params, seed, steps)
        title = f"{config.task}   {method}   {pattern}, seed {seed}"
        note = f"a run of {config.steps:,} steps; in these episodes drift stands still and actions have no noise"
        panels = [
            Panel(
                heading=side.heading,
                policy=side.policy,
                drift=_described(task, side.values),
                params=jax.device_get(world.params_of(jnp.asarray(side.values))),
                states=states,
                returns=returns,
                ending="terminated" if terminated else "",
            )
            for side, (states, returns, terminated) in zip(sides, episodes, strict=True)
        ]
        write_video(out, compose(scene, title, note, panels, stride), rate)
    finally:
        scene.close()
    return out


def _choose(
    config: StudyConfig, method: str | None, pattern: str | None, seed: int | None, change: int | None
) -> tuple[str, str, int]:
    """Method, pattern and seed: those asked for, else the study's first (of the patterns, the first that changes)."""
    methods = [arm.name for carrier in config.carriers for arm in arms_of(config, carrier)]
    moving = [name for name in config.patterns if name != "steady"]
    method = methods[0] if method is None else method
    pattern = (moving or config.patterns)[0] if pattern is None else pattern
    Registry("method of this study", **dict.fromkeys(methods))[method]
    Registry("pattern of this study", **dict.fromkeys(config.patterns))[pattern]
    if pattern == "steady" and change is not None:
        known = f"the study's others: {', '.join(moving)}" if moving else "the study has no other"
        raise ValueError(f"--change: pattern 'steady' has no change to show; {known}")
    seed = config.seeds[0] if seed is None else seed
    if seed not in config.seeds:
        nearest = min(config.seeds, key=lambda known: abs(known - seed))
        trained = ", ".join(map(str, config.seeds))
        raise ValueError(f"the study has no seed {seed}; the nearest is {nearest}, trained were {trained}")
    return method, pattern, seed


def _drawable(config: StudyConfig) -> Task:
    """The study's task, on the engine whose states hold positions: the physics of both is the same."""
    if config.options.get("engine", "mujoco") != "mujoco":
        config = dataclasses.replace(config, options={**config.options, "engine": "mujoco"})
    try:
        return config.build_task()
    except (ImportError, AttributeError, RuntimeError) as error:  # MuJoCo loads the requested GL library at import
        setting = os.environ.get("MUJOCO_GL", "")
        raise ValueError(f"task '{config.task}' cannot be built (MUJOCO_GL='{setting}'): {error}") from None


def _act_each(act: Callable[[Any, Any], Any], agents: Any, obs: Any) -> Any:
    """Every agent (leading axis P) on its own observation (P, S): actions (P, A)."""
    return jax.vmap(lambda agent, own: act(agent, own[None])[0])(agents, obs)


def _sides(
    directory: Path, config: StudyConfig, part: Part, run: int, world: World, pattern: str, number: int | None
) -> list[_Side]:
    """Views shown side by side; a steady run has nothing to compare.

    The policy at a change point has learned in the world before it alone: it is shown in that world and in the next
    one, and beside it the policy that the segment ended with.

    Raises:
      ValueError: nothing was kept that could be shown.
    """
    drift = jax.tree.map(lambda leaf: leaf[run], part.runs.drift)
    truth = lambda step: np.asarray(world.truth(drift, step).values)  # noqa: E731
    if pattern == "steady":
        last = load_agent(directory, config, part, run)
        return [_Side("no drift", f"policy of step {last.step:,}", truth(0), last.agent)]
    change, num_envs = _change(world, drift, pattern, number), config.envs_of(part.carrier)
    point = int(change.steps[1])
    early, late = (f"step {step * num_envs:,}" for step in change.steps)
    headings = (f"before change {change.number}, {early}", f"just after change {change.number}, {late}")
    if not PATTERNS[pattern].jumps:
        headings = (f"drift of {early}", f"drift of {late}")
    moment = partial(load_moment, directory, config, part, run)
    policy = moment(evaluation_at(config, part.carrier, point))
    if policy is None:  # of a study from before any were kept
        last = load_agent(directory, config, part, run)
        text = f"policy of step {last.step:,}, not of then"
        return [_Side(h, text, v, last.agent) for h, v in zip(headings, change.values, strict=True)]
    texts = (f"policy of step {policy.step:,}", "the same policy")
    sides = [_Side(*side, policy.agent) for side in zip(headings, texts, change.values, strict=True)]
    end = point + world.total // world.segments
    final = moment(evaluation_at(config, part.carrier, end)) if end < world.total else None
    if end == world.total:
        final = load_agent(directory, config, part, run)
    if final is not None and final.step > policy.step:  # else training was interrupted before
        heading = f"end of the segment, step {(end - 1) * num_envs:,}"
        sides.append(_Side(heading, f"policy of step {final.step:,}", truth(end - 1), final.agent))
    return sides


def _change(world: World, drift: Any, pattern: str, number: int | None) -> Change:
    """The change point asked for: by default the first jump, or where a gradual drift went farthest.

    A jump is shown by the last step before it and the first one after. A gradual drift has no such steps: what is
    shown is the change point and the step of the segment before it whose drift was farthest from there.
    """
    points = change_points(world.total, world.segments)
    if number is not None and not 1 <= number <= len(points):
        raise ValueError(f"--change must be between 1 and {len(points)}, the change points of a run; got {number}")
    spans = np.concatenate([np.full(c.size, c.high - c.low, np.float32) for c in world.task.channels])
    path, found = jax.jit(world.path), []
    for at, point in enumerate(points if number is None else [points[number - 1]], number or 1):
        earlier = [point - 1]
        if not PATTERNS[pattern].jumps:
            earlier = np.unique(np.linspace(point - points[0], point - 1, _SAMPLES).astype(int)).tolist()
        steps = np.array([*earlier, point])
        values = np.asarray(path(drift, jnp.asarray(steps, jnp.int32))[0])
        sizes = np.linalg.norm((values[:-1] - values[-1]) / spans, axis=-1)
        pair = [int(sizes.argmax()), -1]
        found.append((float(sizes.max()), Change(at, steps[pair], values[pair])))
        if PATTERNS[pattern].jumps:
            break
    return max(found, key=lambda item: item[0])[1]


def _pace(rate: float | None, fps: int | None) -> tuple[float, int]:
    """Frames per second and steps per frame: as fast as the simulated world, as far as its steps allow."""
    if rate is None:
        return fps or _STEPS_PER_SECOND, 1
    stride = max(1, round(rate / (fps or FPS)))
    return fps or rate / stride, stride


def _roll_out(task: Task, act: Callable[[Any], Any], params: Any, seed: int, steps: int) -> list[_Episode]:
    """One episode under each of P sets of parameters (leading axis P), from the same start and with the same noise.

    Args:
      act: observations (P, S) -> actions (P, A).
      steps: at most so many.

    Raises:
      ValueError: an action that is not finite.
    """
    env, key = task.env, stream(jax.random.key(seed), "video")
    key_start, key_steps = jax.random.split(key)

    def advance(at: tuple[Any, Any], number: Any) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        action = act(at[0])
        step = jax.vmap(env.step, in_axes=(None, 0, 0, 0))
        obs, state, reward, terminated, truncated, _ = step(
            jax.random.fold_in(key_steps, number), at[1], action, params
        )
        sound = jnp.all(jnp.isfinite(action), axis=-1)
        return (obs, state), (state, reward, sound, terminated, terminated | truncated)

    @jax.jit
    def play() -> tuple[Any, tuple[Any, ...]]:
        obs, state = jax.vmap(env.reset, in_axes=(None, 0))(key_start, params)
        return state, jax.lax.scan(advance, (obs, state), jnp.arange(steps))[1]

    first, (later, rewards, sound, terminated, over) = jax.device_get(play())
    episodes = []
    for i in range(over.shape[1]):
        end = int(over[:, i].argmax()) + 1 if over[:, i].any() else steps
        if not sound[:end, i].all():
            number = int(sound[:, i].argmin())
            raise ValueError(f"the policy's action at step {number} of the episode is not finite: its run diverged")
        states = [jax.tree.map(lambda leaf, i=i: leaf[i], first)]
        states += [jax.tree.map(lambda leaf, i=i, t=t: leaf[t, i], later) for t in range(end)]
        returns = np.cumsum([0.0, *map(float, rewards[:end, i])])
        episodes.append((states, returns, bool(terminated[end - 1, i])))
    return episodes


def _described(task: Task, values: np.ndarray) -> str:
    """Drift values (D,) with their names."""
    parts, at = [], 0
    for channel in task.channels:
        own = [f"{value:.2f}" for value in values[at : at + channel.size]]
        parts.append(f"{channel.name.replace('_', ' ')} {own[0] if channel.size == 1 else '(' + ', '.join(own) + ')'}")
        at += channel.size
    return "   ".join(parts)

"""Videos of a policy: one episode under the drift at one moment of its run."""

import io
import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.seeding import stream
from envs.render import Renderer
from experiments.measure.study import STEADY, RunKey
from experiments.session.policy import END, Policy
from experiments.session.results import Results
from experiments.study import store

RATE = 10.0  # steps per second of a Gymnasium environment without `render_fps`
FPS = 25  # approximate pictures per second: faster worlds skip steps, slower ones have fewer pictures


class Video(NamedTuple):
    """A written video."""

    path: Path
    step: int  # environment steps of the policy's training
    drift: np.ndarray  # (D,) values in force, in the order of the task's drifting parameters
    episode_return: float  # undiscounted


def film(
    results: Results,
    out: Path | None = None,
    method: str | None = None,
    pattern: str | None = None,
    seed: int | None = None,
    at: float = 1.0,
) -> Video:
    """Write a GIF of one episode with deterministic actions, with a picture every step or every few steps.

    Args:
      out: a new file; by default ``video/METHOD-PATTERN-SEED.gif`` in the study's folder.
      method, pattern, seed: the run; by default the study's first method, first pattern with drift and first seed.
      at: share of the run, 0 to 1. The drift of that moment is in force, and the nearest stored policy acts.
        Policies are stored at every change of the drift and at the end.

    Raises:
      UnknownNameError, ValueError: an unknown run or an invalid argument; nothing was written.
    """
    config = results.config
    method = results.methods[0] if method is None else method
    pattern = next((p for p in config.patterns if p != STEADY), STEADY) if pattern is None else pattern
    seed = config.seeds[0] if seed is None else seed
    name = re.sub(r"[^\w.+=-]+", "_", f"{method}-{pattern}-{seed}").strip("_")
    out = out or results.directory / "video" / f"{name}.gif"
    if out.suffix != ".gif" or out.exists():
        raise ValueError(f"--out must be a new file that ends in .gif; got {out}")
    if not 0.0 <= at <= 1.0:
        raise ValueError(f"--at is a share of the run, from 0 to 1; got {at:g}")
    key = RunKey("", config.task, method, pattern, seed)
    changes = () if pattern == STEADY else results._recorded.changes(key)
    stored = [int(step) for step in changes if step >= config.spacing] + [config.steps]
    nearest = min(stored, key=lambda step: abs(step - at * config.steps))
    policy = results.policy(method, pattern, seed, at=END if nearest == config.steps else nearest)
    world = policy.world
    values = world.truth(policy.drift, min(int(at * (policy.end + 1)), policy.end)).values
    pictures, rate, rewards = (_rendered if hasattr(world.task.env, "film") else _drawn)(policy, values)
    _write(out, pictures, rate)
    return Video(out, policy.step, np.asarray(values), float(np.sum(rewards)))


def _drawn(policy: Policy, values: jax.Array) -> tuple[list[np.ndarray], float, np.ndarray]:
    """Pictures of one episode under drift ``values`` (D,), their number per second, and rewards (T,)."""
    task = policy.world.task
    renderer = Renderer(task)
    try:
        states, rewards = _episode(policy, values)
        params = jax.device_get(task.apply_drift(task.params, values))
        stride = max(1, round(renderer.rate / FPS))
        return [renderer.draw(state, params) for state in states[::stride]], renderer.rate / stride, rewards
    finally:
        renderer.close()


def _rendered(policy: Policy, values: jax.Array) -> tuple[list[np.ndarray], float, np.ndarray]:
    """As `_drawn`, by the ``render()`` of a Gymnasium environment."""
    world, params = policy.world, policy.world.params_of(values)
    env, past = cast(Any, world.task.env), []

    def act(obs: np.ndarray) -> np.ndarray:
        rows = jnp.asarray(obs)[None]
        rows = world.seen(world.followed(past[0], past[1], rows) if past else world.begun(rows), params)
        past[:] = rows, policy(rows)
        return np.asarray(past[1][0])

    pictures, rewards = env.film(act, policy.seed, np.asarray(values))
    _check_finite(policy, np.array(rewards))
    rate = float(env.code.metadata.get("render_fps", RATE))
    stride = max(1, round(rate / FPS))
    return pictures[::stride], rate / stride, np.array(rewards)


def _check_finite(policy: Policy, rewards: np.ndarray) -> None:
    if not np.isfinite(rewards).all():
        raise ValueError(f"the run of {policy.method}, '{policy.pattern}', seed {policy.seed} diverged: no video")


def _episode(policy: Policy, values: jax.Array) -> tuple[list[Any], np.ndarray]:
    """States (start and T steps) and rewards (T,) of one episode under drift ``values`` (D,)."""
    world, key = policy.world, stream(jax.random.key(policy.seed), "video")
    env, (key_start, key_steps) = world.task.env, jax.random.split(key)
    params, own = world.params_of(values), world.task.apply_drift(world.task.params, values)

    def advance(at: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        action = policy.carrier.act_deterministic(policy.agent, at[0])
        obs, state, reward, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
            key[None], at[1], action, own
        )
        obs = world.followed(at[0], action, obs)
        return (world.seen(obs, params), state), (state, reward[0], (terminated | truncated)[0])

    @jit
    def play() -> tuple[Any, tuple[Any, ...]]:
        obs, state = world.reset(key_start, 1, params)
        state = world.inner(state)
        return state, jax.lax.scan(advance, (obs, state), jax.random.split(key_steps, world.time_limit))[1]

    start, (later, rewards, over) = jax.device_get(play())
    length = int(over.argmax()) + 1 if over.any() else world.time_limit
    _check_finite(policy, rewards[:length])
    states = [start, *(jax.tree.map(lambda leaf, t=t: leaf[t], later) for t in range(length))]
    return [jax.tree.map(lambda leaf: leaf[0], state) for state in states], rewards[:length]


def _write(out: Path, frames: list[np.ndarray], fps: float) -> None:
    from PIL import Image

    first, *others = (Image.fromarray(frame) for frame in frames)
    data = io.BytesIO()
    first.save(data, "GIF", save_all=True, append_images=others, duration=1000 / fps, loop=0)
    out.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(out, data.getvalue())

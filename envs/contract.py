"""`check_task`: the contract of a task, checked under random actions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from envs.adopt import trying
from envs.core import Task, check_unmasked
from envs.physics.host import in_own_words
from envs.world import World


def check_task(task: Task, copies: int = 8) -> None:
    """Raise a ValueError unless a task keeps its contract under random actions; takes seconds.

    Observations and rewards are finite float32. Episodes end within the time limit. Every channel that is not `inert`
    changes observations or rewards. Its nominal value is the task without drift, and values replace each other.

    Args:
      task: as `envs.make` returns it; a slow simulator needs a short time limit.
      copies: parallel episodes, as many as it takes for a channel to act.

    Raises:
      ValueError: one sentence with the first violation, caused by the error of the task's code if it has one.

    >>> import envs
    >>> check_task(envs.make("toy"))
    """
    if not isinstance(task, Task):
        raise ValueError(f"check_task needs a task such as envs.make('toy'); got {task!r:.60}")
    name = f"task '{task.name}'"

    def require(fits: Any, text: str) -> None:
        if not fits:
            raise ValueError(f"{name}: {text}")

    check_unmasked(task, "check_task")
    coordinates = [channel for channel in task.channels for _ in range(channel.size)]
    require(len({channel.name for channel in task.channels}) == len(task.channels), "two channels have the same name")
    nominal = np.array([channel.nominal for channel in coordinates], np.float32)
    ends = np.array([c.high if c.nominal < c.high else c.low for c in coordinates], np.float32)
    limit = task.env.spec.time_limit
    world = World(task, limit, segments=1)

    @jit
    def episodes(params: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            key_action, key_step = jax.random.split(key)
            action = world.random_actions(key_action, copies)
            obs, state, reward, terminated, truncated, final = world.step(key_step, state, action, params)
            return state, (obs, reward, terminated, truncated, final)

        key_reset, key_run = jax.random.split(key)
        _, state = world.reset(key_reset, copies, params)
        return jax.lax.scan(step, state, jax.random.split(key_run, limit))[1]

    def run(params: Any) -> Any:
        return jax.device_get(episodes(jax.tree.map(jnp.asarray, params), jax.random.key(0)))

    def drifted(params: Any, values: np.ndarray) -> Any:
        return task.apply_drift(params, jnp.asarray(values))

    with trying(f"{name} does not work"), in_own_words(task.env):
        plain = obs, reward, terminated, truncated, final = run(task.params)
        single = np.where(np.eye(len(ends), dtype=bool), ends, nominal)  # one coordinate at its end per row
        far = [run(drifted(task.params, values)) for values in single]
        back = run(drifted(drifted(task.params, ends), nominal))
    for what, values in {"observation": obs, "reward": reward, "final observation": final}.items():
        require(values.dtype == np.float32, f"its {what} must be float32; got {values.dtype}")
        require(np.isfinite(values).all(), f"its {what} is not finite under random actions")
    ended = terminated | truncated
    require(ended.any(axis=0).all(), f"an episode does not end within its time limit of {limit} steps")
    require((obs[ended] != final[ended]).any(), "an episode that ends is not followed by a reset")
    for channel, (far_obs, far_reward, *_) in zip(coordinates, far, strict=True):
        still = np.array_equal(far_obs, obs) and np.array_equal(far_reward, reward)
        require(not still or channel.name in task.inert, f"channel '{channel.name}' changes nothing; is it `inert`?")
    same = all(np.array_equal(first, second) for first, second in zip(plain, back, strict=True))
    require(same, "nominal drift after other drift must be the task without drift; `apply_drift` replaces values")

"""MuJoCo Playground environments as drifting tasks, with factors on the MJX model or on one part of it."""

from functools import cache
from typing import Any

from aesjax.registry import lookup
from envs.adapters.imported import RANGES, Apply, Library, imported, innermost
from envs.adopt import trying
from envs.core import Task
from envs.physics.channels import texts_of
from envs.physics.fields import FACTORS, Factor, of_part

try:
    from mujoco_playground import registry, wrapper  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"envs.adapters.playground needs MuJoCo Playground ({error}): pip install '.[playground]' in a clone",
        name=error.name,
    ) from None

_PLAYGROUND = Library(
    "Playground", (wrapper.BraxAutoResetWrapper, wrapper.BraxDomainRandomizationVmapWrapper), "_mjx_model"
)

#: Drifting factors on the model. All but gravity accept one part, ``body_mass.pole_1``: mass and inertia of a body,
#: damping and dry friction of a joint, sliding friction of a geom, force of a motor or servo.
CHANNELS = RANGES


def from_playground(
    env: Any,
    name: str | None = None,
    channels: Any = (),
    apply: Apply | None = None,
    observation: str | None = None,
    time_limit: int | None = None,
) -> Task:
    """A MuJoCo Playground environment as a task whose physics drifts; constants derived from masses are not updated.

    Args:
      env: not batched and without Playground's training wrappers; other wrappers stay.
      name: of the task, part of the seed of its drift; by default the environment's class.
      channels: `CHANNELS`, each perhaps of one part and with a range, ``{"body_mass.pole_1": (0.5, 1.5)}`` or
        ``["body_mass.pole_1=0.5:1.5"]``. Without channels the pattern is ``steady``.
      apply: ``(mjx_model, values (D,)) -> mjx_model``, traced, for ``channels`` that are `Channel` objects.
      observation: entry of a dictionary that policy and critics observe, such as ``state``.
      time_limit: steps of an episode; by default the ``episode_length`` of its configuration.

    Raises:
      UnknownNameError: a channel or part that does not exist.
      ValueError: a wrapper or observation that does not fit, repeated actions, or a channel that changes nothing.
    """
    inner, settings = innermost(_PLAYGROUND, env), getattr(env, "_config", {})
    if (repeat := settings.get("action_repeat", 1)) != 1:
        raise ValueError(f"actions are not repeated: load it with action_repeat=1 in config_overrides; got {repeat}")
    if inner.mjx_model.impl.value != "jax":  # of 3 runs with 4 cart-poles each, 6 were wrong by up to 0.03
        raise ValueError("load it with impl='jax' in config_overrides: Warp is wrong under nested `jax.vmap`")
    limit = settings.get("episode_length", 1000) if time_limit is None else time_limit
    texts = () if apply else texts_of(channels)
    names = [str(text).partition("=")[0] for text in texts]
    known = CHANNELS | {each: CHANNELS[kind] for each in names if (kind := each.partition(".")[0]) in CHANNELS}

    def factor_of(channel: str) -> Factor:
        kind, _, part = channel.partition(".")
        return of_part(inner.mj_model, FACTORS[kind], part) if part else FACTORS[kind]

    task = imported(_PLAYGROUND, env, name, channels, known, factor_of, apply, limit, observation)
    given = {"channels": texts, "observation": observation, "time_limit": time_limit}
    return task._replace(options={key: value for key, value in given.items() if value is not None and not apply})


def named(id: str, channels: Any = (), observation: str | None = None, time_limit: int | None = None) -> Task:
    """Task of a name in Playground's registry; equal options return the same task.

    Raises:
      UnknownNameError, ValueError: an unknown name or option, or an environment that cannot be loaded.
    """
    lookup("environment of MuJoCo Playground", dict.fromkeys(registry.ALL_ENVS), id)
    return _named(id, texts_of(channels), observation, time_limit)


@cache
def _named(id: str, channels: tuple[str, ...], observation: str | None, time_limit: int | None) -> Task:
    settings = registry.get_default_config(id)
    with trying(f"Playground environment '{id}' cannot be loaded"):
        env = registry.load(id, config_overrides={"impl": "jax"} if "impl" in settings else None)
    return from_playground(env, f"playground:{id}", channels, None, observation, time_limit)

"""Common part of the Brax and MuJoCo Playground adapters: pure functions on a drifting model."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, EnvSpec, Step, Task, owned, replaced
from envs.physics.channels import Range, channels_of, chosen, texts_of
from envs.physics.fields import Factor, nominal, scaled_fields, subtrees

Array = jax.Array
Apply = Callable[[Any, Array], Any]  # model, drift values (D,) -> model

#: Usual ranges of factors on a model.
RANGES: dict[str, Range] = {
    "body_mass": Range(0.7, 1.3, least=0.01),
    "joint_friction": Range(0.5, 1.5, least=0.0),
    "geom_friction": Range(0.5, 1.5, least=0.0),
    "gravity": Range(0.7, 1.3),
    "actuator_gain": Range(0.5, 1.5),
}


class Library(NamedTuple):
    """A library of environments: its name, its training wrappers, and the attribute that holds the model."""

    name: str
    training: tuple[type, ...]  # its training wrappers, which batch, end or reset episodes
    model: str  # attribute of the innermost environment


class ImportedState(NamedTuple):
    """One episode of an imported environment."""

    brax: Any  # of Brax's protocol: obs, reward, done, metrics, info
    time: Array  # () int32, steps of this episode


class Imported:
    """An environment of a library as an `envs.core.Env`; ``params`` is the flat vector of drift values (D,).

    Args:
      apply: model under drift values; None where nothing drifts.
      observation: observed entry of a dictionary.
    """

    def __init__(self, library: Library, env: Any, apply: Apply | None, time_limit: int, observation: str | None):
        self.library, self.own, self.apply, self.observation = library, env, apply, observation
        self.code = type(env.unwrapped)
        with jax.numpy_rank_promotion("allow"):
            seen: Any = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), np.uint32)).obs
        entries = {name: tuple(each.shape) for name, each in seen.items()} if isinstance(seen, Mapping) else {}
        if (observation is not None or entries) and observation not in entries:
            wanted = f"observation must be one of {', '.join(entries)}" if entries else "no option"
            raise ValueError(f"{self.code.__name__} observes {entries or seen}: {wanted}; got {observation}")
        seen = seen if observation is None else seen[observation]
        if getattr(seen, "ndim", None) != 1:
            raise ValueError(f"only environments that observe one flat vector can be imported; it observes {seen}")
        self.spec = EnvSpec(seen.shape[0], env.action_size, time_limit)

    def reset(self, key: Array, params: Array) -> tuple[Array, ImportedState]:
        """A new episode of the environment under ``params``."""
        with jax.numpy_rank_promotion("allow"):  # these libraries rely on it
            state = self.drifted(params).reset(jax.random.key_data(key))
        state = jax.tree.map(jnp.asarray, owned(state))
        return self._seen(state), ImportedState(state, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: ImportedState, action: Array, params: Array) -> Step:
        """One step; ``done`` is ``terminated`` unless ``info["truncation"]`` is set, and the metrics are the info."""
        del key  # the environment has its own key in its state
        own = state.brax
        # With copied dictionaries, because some environments write into their arguments.
        before = own.replace(metrics=dict(own.metrics), info=dict(own.info))
        with jax.numpy_rank_promotion("allow"):
            after = self.drifted(params).step(before, jnp.clip(action, -1.0, 1.0))
        # Some environments return Python numbers where reset returned arrays.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), owned(after), own)
        # As in Brax's EpisodeWrapper: an end by time has both `done` and `truncation`, a failure `done` alone.
        time, late = state.time + 1, jnp.asarray(after.info.get("truncation", 0)) > 0
        obs, reward = self._seen(after), after.reward.astype(jnp.float32)
        # Learners need finite numbers, so a non-finite simulation is truncated one step earlier.
        good = jnp.isfinite(obs).all() & jnp.isfinite(reward)
        obs, reward = jnp.where(good, obs, self._seen(own)), jnp.where(good, reward, 0.0)
        terminated = (after.done > 0) & ~late & good
        truncated = (late | (time >= self.spec.time_limit) | ~good) & ~terminated
        return obs, ImportedState(after, time), reward, terminated, truncated, dict(after.metrics)

    def drifted(self, params: Array) -> Any:
        """The environment under drift values."""
        if self.apply is None:
            return self.own
        model = getattr(self.own.unwrapped, self.library.model)
        return _with_model(self.own, self.library.model, self.apply(model, params))

    def _seen(self, state: Any) -> Array:
        return (state.obs if self.observation is None else state.obs[self.observation]).astype(jnp.float32)


def _with_model(env: Any, attribute: str, model: Any) -> Any:
    """Copy of ``env`` and its wrappers whose innermost environment has ``model``; ``env`` is not changed."""
    outer = copy.copy(env)
    if env.unwrapped is env:
        setattr(outer, attribute, model)
    else:
        outer.env = _with_model(env.env, attribute, model)
    return outer


def _scaled(factors: Sequence[Factor], model: Any, values: Array) -> Any:
    """A model with the fields of each factor multiplied by its value."""
    for factor, value in zip(factors, values, strict=True):
        model = model.tree_replace(scaled_fields(model, factor, value))
    masses = any(field.name == "body_mass" for factor in factors for field in factor.fields)
    total = {"body_subtreemass": subtrees(model.body_parentid) @ model.body_mass} if masses else {}
    return model.tree_replace(total)


def innermost(library: Library, env: Any) -> Any:
    """``env`` without its wrappers; ValueError for another library or a training wrapper."""
    if not hasattr(env, "action_size"):
        raise ValueError(f"only a {library.name} environment can be imported; got {type(env).__name__}")
    while env is not env.unwrapped:
        if isinstance(env, library.training):
            training = f"import the environment without {library.name}'s training wrappers"
            raise ValueError(f"{training}; got {type(env).__name__}")
        env = env.env
    return env


def imported(
    library: Library,
    env: Any,
    name: str | None,
    channels: Any,
    known: Mapping[str, Range],
    factor_of: Callable[[str], Factor],
    apply: Apply | None,
    time_limit: int,
    observation: str | None = None,
) -> Task:
    """Task of an environment whose channels are factors on its model, or `Channel` objects with ``apply``.

    Args:
      known: ranges of channels by name.
      factor_of: name of a channel -> the fields it multiplies.
    """
    inner, kind = innermost(library, env), type(env.unwrapped).__name__
    drifting: Any = tuple(channels) if apply else texts_of(channels)
    if any(isinstance(each, Channel) != (apply is not None) for each in drifting):
        example = f"{next(iter(known))}=0.5:1.5"
        allowed = f"texts such as {example}, or envs.Channel objects with `apply`"
        raise ValueError(f"channels must be {allowed}; got {channels}")
    if drifting and not hasattr(inner, library.model):
        raise ValueError(f"{kind} has no '{library.model}', so it has no channels; got {channels}")
    if drifting and apply is None:
        model = getattr(inner, library.model)
        drifting = channels_of(f"a {library.name} environment", chosen(drifting, known), known)
        factors = {channel.name: factor_of(channel.name) for channel in drifting}
        for channel, factor in factors.items():
            doubled = scaled_fields(model, factor, np.float32(2))
            if all(np.array_equal(value, nominal(model, field)) for field, value in doubled.items()):
                raise ValueError(f"channel '{channel}' would change nothing: {kind} has only zeros there")
        apply = partial(_scaled, tuple(factors.values()))
    return Task(
        name=name or kind.lower(),
        family=library.name.lower(),
        env=Imported(library, env, apply if drifting else None, time_limit, observation),
        params=np.concatenate([np.zeros(0, np.float32), *(np.full(c.size, c.nominal, np.float32) for c in drifting)]),
        channels=drifting,
        apply_drift=replaced,
        description=f"{library.name} environment {kind}" + " with drifting physics" * bool(drifting),
    )

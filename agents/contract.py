"""`check_carrier`: the contract of a carrier, checked on random data."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.schedules.rule import VECTORS
from aesjax.types import Array, Signals
from agents.carriers import CARRIERS
from agents.common.carrier import Rollout, Transition, UpdateOut
from agents.common.spec import CarrierSpec
from envs.adopt import trying

_S, _A, _N = 3, 2, 4  # sizes of observation and action, environments
_FAST = {"xla_backend_optimization_level": 0}  # compiled fast, for a few calls
_UPDATES = 10  # before the bootstrap is checked: a new network may be constant
#: Signals that the training loops add; all others are the carrier's.
_OF_LOOP = {
    True: ("td_error", "fresh_td_error", "model_error", "true_drift", "online_reward", "measured"),  # on-policy
    False: (
        *("fresh_td_error", "fresh_critic_drift", "model_error", "true_drift"),
        *("reward", "online_reward", "measured"),
    ),
}


class _Step(NamedTuple):
    """One update of an agent."""

    out: UpdateOut
    residuals: dict[str, Array]  # by method
    actions: dict[str, Array]  # (N, A) by method
    entropy: Array  # ()


def check_carrier(carrier: str | CarrierSpec, **settings: Any) -> None:
    """Raise a ValueError unless a carrier keeps its contract on random data; takes seconds.

    The weight that is passed changes the update. Only termination stops the bootstrap. Equal calls have equal results,
    and the state keeps its shapes and types. Signals that are not `absent` are reported. Deterministic actions are in
    [-1, 1], and discrete ones are one-hot rows.

    Args:
      carrier: a registered name or a custom carrier.
      **settings: fields of its config, such as ``hidden=(8,)``; small networks are checked faster.

    Raises:
      ValueError: one sentence with the first violation, caused by the error of the carrier's code if it has one.

    >>> check_carrier("sac", hidden=(8,), batch_size=8)
    """
    spec = carrier if isinstance(carrier, CarrierSpec) else CARRIERS[carrier]
    _check(spec, False, settings)
    if spec.discrete:
        _check(spec, True, settings)


def _check(spec: CarrierSpec, discrete: bool, settings: dict[str, Any]) -> None:
    """`check_carrier` for one kind of actions."""
    name = f"carrier '{spec.name}'" + " with discrete actions" * discrete

    def require(fits: Any, text: str) -> None:
        if not fits:
            raise ValueError(f"{name}: {text}")

    with trying(f"{name} does not work"):
        spec.check(spec.hyper())
        agent = spec.agent(_S, _A, spec.config(**settings), discrete)
        light, heavy = jnp.float32(0.1), jnp.float32(0.4)
        begin = partial(agent.init, num_envs=_N) if spec.on_policy else agent.init
        state, data = jit(begin, compiler_options=_FAST)(jax.random.key(0)), _data_of(agent, spec.on_policy, discrete)
        lowered = _lowered(spec, agent, state, data, light)
        run = lowered.compile()
        base, again, heavier = (jax.device_get(run(state, data, weight)) for weight in (light, light, heavy))
        retraced = _lowered(spec, agent, state, data, light)
    hidden = "two equal calls have different results; keep all memory in the state"
    require(retraced.as_text() == lowered.as_text() and _same(base, again), hidden)
    for field in Signals._fields:
        if field not in (*_OF_LOOP[spec.on_policy], *spec.lacks(discrete)):
            value, rank = getattr(base.out.signals, field), int(field in VECTORS)
            require(value is not None, f"Signals.{field} is not reported; name it in `absent`, with the reason")
            fits = value.ndim == rank and np.all(np.isfinite(value))
            require(fits, f"Signals.{field} must be finite and {'(B,)' if rank else '()'}; got shape {value.shape}")
    for loss in ("critic_loss", "actor_loss"):
        require(np.ndim(base.out.metrics.get(loss)) == 0 and loss in base.out.metrics, f"metrics need '{loss}', ()")
    require(_kinds(state) == _kinds(base.out.state), "update must keep structure, shapes and types of the state")
    require(not _same(_learned(base), _learned(heavier)), "entropy_weight changes no loss and no parameter; use it")
    for method, values in base.actions.items():
        require(values.shape == (_N, _A), f"{method} must return ({_N}, {_A}); got {values.shape}")
        if discrete:
            rows = np.sort(values, -1)
            require((rows == np.eye(_A)[-1]).all(), f"{method} must return one-hot rows; got {values.tolist()}")
    require(np.all(np.abs(base.actions["act_deterministic"]) <= 1.0), "act_deterministic must stay in [-1, 1]")
    require(base.entropy.shape == () and np.isfinite(base.entropy), f"entropy must be finite; got {base.entropy}")

    for _ in range(_UPDATES):
        state = run(state, data, light).out.state
    ends = {"an open": {}, "a terminated": {"terminated": jnp.ones_like(data.terminated)}}
    ends |= {"a truncated": {"truncated": jnp.ones_like(data.reward)}} if spec.on_policy else {}
    for step, flags in ends.items():
        rows = data._replace(**flags)
        moved = rows._replace(next_obs=rows.next_obs + 1.0)
        first, second = (jax.device_get(run(state, x, light).residuals) for x in (rows, moved))
        for method, before in first.items():
            changed, stops = np.any(before != second[method]), "terminated" in flags
            word = "depends" if stops else "does not depend"
            rule = "only termination stops the bootstrap"
            require(changed != stops, f"the residual of {step} step in {method} {word} on next_obs; {rule}")


def _data_of(agent: Any, on_policy: bool, discrete: bool) -> Transition | Rollout:
    """Random transitions (B,), or a rollout (T, N) of a carrier that needs one, without an end of an episode."""
    rng, shape = np.random.default_rng(0), (agent.config.rollout, _N) if on_policy else (agent.config.batch_size,)
    none = jnp.zeros(shape)
    obs, action, reward, later = (jnp.float32(rng.normal(size=(*shape, *size))) for size in ((_S,), (_A,), (), (_S,)))
    if discrete:
        action = jax.nn.one_hot(jnp.argmax(action, -1), _A)
    if on_policy:
        return Rollout(obs, action, reward, none, none, later)
    return Transition(obs, action if discrete else jnp.tanh(0.7 * action), reward, none, later)


def _lowered(spec: CarrierSpec, agent: Any, *arguments: Any) -> Any:
    """A new trace of one update, which is not found in a cache."""
    hyper = jax.tree.map(jnp.float32, spec.hyper())

    def step(before: Any, data: Any, weight: Array) -> _Step:
        keys = jax.random.split(jax.random.key(1), 4)
        used = {"entropy_weight": weight, "hyper": hyper}
        if spec.on_policy:
            ready, _ = agent.observe(before, data.obs[0])
            ready, _ = agent.scale_reward(ready, data.reward[0], data.truncated[0], hyper)
            ready, rows, error = agent.prepare(ready, data, hyper)
            batch = jax.tree.map(lambda x: x[: x.shape[0] // agent.config.minibatches], rows)
            out = agent.update(ready, batch, **used)
            out = out._replace(state=agent.end_epoch(out.state, out.metrics, hyper))
            residuals = {"prepare": error}
        else:
            out = agent.update(before, data, keys[0], jnp.int32(0), **used)
            residuals = {"td_error": agent.td_error(before, data, keys[1], **used)}
            if out.signals.td_error is not None and not spec.joint:
                residuals["update"] = out.signals.td_error
            for values in (agent.q_value(before, data.obs, data.action, **used), residuals["td_error"].reshape(2, -1)):
                if values.shape != (2, *data.reward.shape):
                    raise ValueError(f"q_value and td_error must have both critics' values; got shape {values.shape}")
        obs = data.obs.reshape(-1, _S)[:_N]
        actions = {"act": agent.act(before, obs, keys[2]), "act_deterministic": agent.act_deterministic(before, obs)}
        return _Step(out, residuals, actions, agent.entropy(before, obs, keys[3]))

    return jit(step, compiler_options=_FAST).lower(*arguments)


def _learned(step: _Step) -> Any:
    """Losses, signals and parameters after an update, without single numbers of the state."""
    large = [leaf for leaf in jax.tree.leaves(step.out.state) if leaf.size > 1]
    return large, step.out.metrics, step.out.signals


def _kinds(tree: Any) -> Any:
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def _same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(first, second, equal_nan=True) for first, second in pairs)

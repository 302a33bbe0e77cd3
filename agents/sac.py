"""Soft Actor-Critic (Haarnoja et al. 2018): losses and one gradient step. The entropy weight enters twice:
in the bootstrapped target (`soft_target`) and in the policy objective (`actor_loss`). Automatic temperature
tuning is not here: it is the schedule `auto`, which reads the log-probabilities reported in the signals."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
import optax

from aesjax.types import Array, Signals
from agents.common.carrier import Carrier, Transition, UpdateOut
from agents.common.networks import Gaussian, GaussianActor, TwinCritic
from agents.common.optim import adam, descend, polyak, refresh_networks
from agents.common.plasticity import Probe, hidden
from agents.common.recycle import recycle_networks
from agents.common.spec import check_hyper, check_sizes


class SacHyper(NamedTuple):
    """Traced floats: any of them may differ between the runs of one program."""

    learning_rate: Array | float = 3e-4  # actor, Adam
    critic_learning_rate: Array | float = 1e-3  # both critics, one Adam
    gamma: Array | float = 0.99
    tau: Array | float = 0.005  # step of the target towards the online network
    weight_decay: Array | float = 0.0  # AdamW, of all networks


@dataclass(frozen=True)
class SacConfig:
    """Static structure: a change compiles a new program."""

    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    actor_delay: int = 1  # d: every d-th step makes d actor steps on one batch (the reference has 2)
    layer_norm: bool = False  # in the critics' hidden layers, before the activation
    eps_logdet: bool = False  # the reference's log(1 - a^2 + 1e-6)

    def __post_init__(self) -> None:
        check_sizes(self, counts=("batch_size", "actor_delay"), widths=("hidden",))


def check(hyper: SacHyper) -> None:
    """Refuse concrete values that make no sense, by name."""
    check_hyper(hyper, shares=("gamma", "tau", "weight_decay"))


class SacState(NamedTuple):
    """Parameters and optimiser states, one run."""

    actor: Any
    critic: Any  # leaves with a leading axis of 2
    target: Any  # same structure as critic
    actor_opt: Any
    critic_opt: Any


def soft_target(
    reward: Array, terminated: Array, next_q: Array, next_log_prob: Array, *, entropy_weight: Array, gamma: Array
) -> Array:
    """Bootstrapped soft value ``r + gamma (1 - term) (min_i Q_i(s', a') - lam log pi(a'|s'))``, (B,), no gradient.

    Only termination stops the bootstrap; a time limit does not.

    Args:
      reward, terminated, next_log_prob: (B,).
      next_q: (2, B) target critics at the successor and a fresh action.
      entropy_weight, gamma: ().
    """
    chex.assert_equal_shape([reward, terminated, next_log_prob])
    chex.assert_shape(next_q, (2, *reward.shape))
    value = jnp.min(next_q, 0) - entropy_weight * next_log_prob
    return jax.lax.stop_gradient(reward + gamma * (1.0 - terminated) * value)


def critic_loss(q: Array, target: Array) -> tuple[Array, Array]:
    """``sum_i mean_B (Q_i - y)^2`` and the residuals ``y - Q_i`` (2, B), the latter without gradient.

    Args:
      q: (2, B) online values of the stored actions.
      target: (B,).
    """
    chex.assert_shape(q, (2, *target.shape))
    error = target[None] - q
    return jnp.sum(jnp.mean(error**2, -1)), jax.lax.stop_gradient(error)


def actor_loss(log_prob: Array, q: Array, *, entropy_weight: Array) -> Array:
    """``mean_B (lam log pi(a|s) - min_i Q_i(s, a))`` for fresh reparameterised actions.

    Args:
      log_prob: (B,); q: (2, B); entropy_weight: ().
    """
    chex.assert_shape(q, (2, *log_prob.shape))
    return jnp.mean(entropy_weight * log_prob - jnp.min(q, 0))


class Networks(NamedTuple):
    """Static parts of an agent: modules without parameters, and sizes."""

    actor: GaussianActor
    critic: TwinCritic
    obs_size: int
    action_size: int
    config: SacConfig

    def policy(self, actor: Any, obs: Array) -> Gaussian:
        """The distribution of actions (B, A) under parameters ``actor``."""
        return cast(Gaussian, self.actor.apply(actor, obs))

    def sample(self, actor: Any, obs: Array, noise: Array) -> tuple[Array, Array]:
        """Actions (B, A) from standard normal ``noise`` (B, A), and their log-densities (B,)."""
        return self.policy(actor, obs).sample_and_log_prob(noise, self.config.eps_logdet)

    def value(self, critic: Any, obs: Array, action: Array) -> Array:
        """Values (2, B) of both critics."""
        return cast(Array, self.critic.apply(critic, obs, action))

    def noise(self, key: Array, *count: int) -> Array:
        """Standard normal noise (..., A)."""
        return jax.random.normal(key, (*count, self.action_size))


_ADAM = adam()


def init(nets: Networks, key: Array) -> SacState:
    """A new agent."""
    key_actor, key_critic = jax.random.split(key)
    obs, action = jnp.zeros((1, nets.obs_size)), jnp.zeros((1, nets.action_size))
    actor = nets.actor.init(key_actor, obs)
    critic = nets.critic.init(key_critic, obs, action)
    # A copy, not an alias: the carry is donated and two leaves may not share one buffer.
    target = jax.tree.map(jnp.copy, critic)
    return SacState(actor, critic, target, _ADAM.init(actor), _ADAM.init(critic))


def act(nets: Networks, state: SacState, obs: Array, key: Array) -> Array:
    """Sampled actions (N, A) for observations (N, S)."""
    return nets.sample(state.actor, obs, nets.noise(key, obs.shape[0]))[0]


def act_deterministic(nets: Networks, state: SacState, obs: Array) -> Array:
    """The policy's modes (N, A)."""
    return nets.policy(state.actor, obs).mode()


def entropy(nets: Networks, state: SacState, obs: Array, key: Array) -> Array:
    """Mean () over observations (B, S) of one sample of ``-log pi`` each, in nats."""
    return -jnp.mean(nets.sample(state.actor, obs, nets.noise(key, obs.shape[0]))[1])


def q_value(
    nets: Networks, state: SacState, obs: Array, action: Array, *, entropy_weight: Any = None, hyper: Any = None
) -> Array:
    """Values (2, B) of both critics; no argument but the first four is used."""
    del entropy_weight, hyper  # other carriers need them
    return nets.value(state.critic, obs, action)


def _target(nets: Networks, state: SacState, batch: Transition, noise: Array, entropy_weight: Array, gamma: Any):
    action, log_prob = nets.sample(state.actor, batch.next_obs, noise)
    next_q = nets.value(state.target, batch.next_obs, action)
    return soft_target(batch.reward, batch.terminated, next_q, log_prob, entropy_weight=entropy_weight, gamma=gamma)


def td_error(
    nets: Networks, state: SacState, batch: Transition, key: Array, *, entropy_weight: Array, hyper: SacHyper
) -> Array:
    """Residuals (2B,) of a batch under the current parameters, reward."""
    noise = jax.random.normal(key, batch.action.shape)
    target = _target(nets, state, batch, noise, entropy_weight, hyper.gamma)
    return critic_loss(nets.value(state.critic, batch.obs, batch.action), target)[1].reshape(-1)


def critic_step(
    nets: Networks, state: SacState, batch: Transition, noise: Array, *, entropy_weight: Array, hyper: SacHyper
) -> tuple[Any, Any, Array, Array, Any]:
    """One gradient step of both critics: parameters, optimiser state, loss (), residuals (2, B), gradients."""
    target = _target(nets, state, batch, noise, entropy_weight, hyper.gamma)

    def loss_fn(params: Any) -> tuple[Array, Array]:
        return critic_loss(nets.value(params, batch.obs, batch.action), target)

    (loss, error), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.critic)
    rate, decay = hyper.critic_learning_rate, hyper.weight_decay
    critic, opt = descend(state.critic, grads, state.critic_opt, rate, decay=decay)
    return critic, opt, loss, error, grads


def actor_step(
    nets: Networks,
    carry: tuple[Any, Any],
    noise: Array,
    *,
    critic: Any,
    obs: Array,
    entropy_weight: Array,
    hyper: SacHyper,
) -> tuple[tuple[Any, Any], Array]:
    """One gradient step of the actor: its parameters and optimiser state, and the loss ()."""
    actor, opt = carry

    def loss_fn(params: Any) -> Array:
        action, log_prob = nets.sample(params, obs, noise)
        return actor_loss(log_prob, nets.value(critic, obs, action), entropy_weight=entropy_weight)

    loss, grads = jax.value_and_grad(loss_fn)(actor)
    return descend(actor, grads, opt, hyper.learning_rate, decay=hyper.weight_decay), loss


def update(
    nets: Networks,
    state: SacState,
    batch: Transition,
    key: Array,
    step: Array,
    *,
    entropy_weight: Array,
    hyper: SacHyper,
) -> UpdateOut:
    """One gradient step: critics, actor, target.

    Args:
      step: () int32, which every ``actor_delay``-th time the actor's turn is.
      entropy_weight: () reward per nat; it enters the critics' target and the actor's loss.
    """
    delay = nets.config.actor_delay
    # One draw for the target, the temperature's sample and every actor step.
    noise = jax.random.normal(key, (2 + delay, *batch.action.shape))
    critic, critic_opt, value_loss, error, grads = critic_step(
        nets, state, batch, noise[0], entropy_weight=entropy_weight, hyper=hyper
    )

    one_step = partial(actor_step, nets, critic=critic, obs=batch.obs, entropy_weight=entropy_weight, hyper=hyper)
    before = (state.actor, state.actor_opt)
    if delay == 1:
        (actor, actor_opt), loss = one_step(before, noise[2])
    else:

        def repeated(before):
            after, losses = jax.lax.scan(one_step, before, noise[2:])
            return after, losses[-1]

        # `step` is common to all runs of a program, so this stays a branch under vmap.
        none = jnp.zeros((), batch.reward.dtype)
        (actor, actor_opt), loss = jax.lax.cond(step % delay == 0, repeated, lambda x: (x, none), before)
    target = polyak(state.target, critic, hyper.tau)
    signals = Signals(
        td_error=error.reshape(-1),
        value_loss=jax.lax.stop_gradient(value_loss),
        critic_drift=optax.tree.norm(jax.tree.map(jnp.subtract, critic, state.critic)),
        # Fresh actions of the policy just updated, as the reference's temperature step draws them.
        log_prob=jax.lax.stop_gradient(nets.sample(actor, batch.obs, noise[1])[1]),
    )
    metrics = {
        "critic_loss": value_loss,
        "actor_loss": loss,  # 0 where a delayed actor was not due
        "grad_norm": optax.tree.norm(grads),  # of the critics; so the others
    }
    return UpdateOut(SacState(actor, critic, target, actor_opt, critic_opt), signals, metrics)


def _probe(nets: Networks, state: SacState, obs: Array, action: Array) -> dict[str, Probe]:
    critic = Probe(state.critic, hidden(nets.critic, state.critic, obs, action))
    return {"critic": critic, "actor": Probe(state.actor, hidden(nets.actor, state.actor, obs))}


def make(obs_size: int, action_size: int, config: SacConfig = SacConfig()) -> Carrier:
    """SAC for observations of size S and normalised actions of size A.

    >>> carrier = make(2, 2, SacConfig(hidden=(64, 64), batch_size=128))
    """
    actor, critic = GaussianActor(config.hidden, action_size), TwinCritic(config.hidden, config.layer_norm)
    nets = Networks(actor, critic, obs_size, action_size, config)
    return Carrier(
        init=partial(init, nets),
        act=partial(act, nets),
        act_deterministic=partial(act_deterministic, nets),
        entropy=partial(entropy, nets),
        update=partial(update, nets),
        td_error=partial(td_error, nets),
        q_value=partial(q_value, nets),
        batch_size=config.batch_size,
        refresh=refresh_networks,
        probe=partial(_probe, nets),
        recycle=recycle_networks(actor, critic),
    )

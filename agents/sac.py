"""Soft Actor-Critic (Haarnoja et al. 2018): losses and one gradient step. The entropy weight enters twice:
in the bootstrapped target (`soft_target`) and in the policy objective (`actor_loss`). Automatic temperature
tuning is not here: it is the schedule `auto`, which reads the log-probabilities reported in the signals."""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
import optax

from aesjax.typed import Count, check_fields
from aesjax.types import Array, Signals
from agents.common.carrier import Carrier, Network, Transition, UpdateOut
from agents.common.draws import standard_normal
from agents.common.networks import Gaussian, GaussianActor, TwinCritic
from agents.common.optim import ADAM, Networks, begin, descend, polyak


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

    hidden: tuple[Count, ...] = (256, 256)
    batch_size: Count = 256
    actor_delay: Count = 1  # d: every d-th step makes d actor steps on one batch (the reference has 2)
    layer_norm: bool = False  # in the critics' hidden layers, before the activation

    def __post_init__(self) -> None:
        check_fields(self)


def soft_target(
    reward: Array, terminated: Array, next_q: Array, next_log_prob: Array, *, entropy_weight: Array, gamma: Array
) -> Array:
    """Bootstrapped soft value ``r + gamma (1 - term) (min_i Q_i(s', a') - lam log pi(a'|s'))``, (B,), no gradient.

    Only termination stops the bootstrap. next_q: (2, B) target critics at the successor and a fresh action.
    """
    chex.assert_equal_shape([reward, terminated, next_log_prob])
    chex.assert_shape(next_q, (2, *reward.shape))
    value = jnp.min(next_q, 0) - entropy_weight * next_log_prob
    return jax.lax.stop_gradient(reward + gamma * (1.0 - terminated) * value)


def critic_loss(q: Array, target: Array) -> tuple[Array, Array]:
    """``sum_i mean_B (Q_i - y)^2``, online values (2, B), target (B,), and the residuals ``y - Q_i``, no gradient."""
    chex.assert_shape(q, (2, *target.shape))
    error = target[None] - q
    return jnp.sum(jnp.mean(error**2, -1)), jax.lax.stop_gradient(error)


def actor_loss(log_prob: Array, q: Array, *, entropy_weight: Array) -> Array:
    """``mean_B (lam log pi(a|s) - min_i Q_i(s, a))``, (B,) and (2, B), for fresh reparameterised actions."""
    chex.assert_shape(q, (2, *log_prob.shape))
    return jnp.mean(entropy_weight * log_prob - jnp.min(q, 0))


@dataclass(frozen=True)
class Sac(Carrier):
    """SAC for observations of size S and normalised actions of size A.

    >>> carrier = Sac(2, 2, SacConfig(hidden=(64, 64), batch_size=128))
    """

    config: SacConfig = SacConfig()
    optimiser: optax.GradientTransformation = ADAM

    @property
    def actor(self) -> GaussianActor:
        return GaussianActor(self.config.hidden, self.action_size)

    @property
    def critic(self) -> TwinCritic:
        return TwinCritic(self.config.hidden, self.config.layer_norm)

    @property
    def networks(self) -> tuple[Network, ...]:
        return Network("actor", "actor", "actor_opt"), Network("critic", "critic", "critic_opt", "target")

    def policy(self, params: Any, obs: Array) -> Gaussian:
        return cast(Gaussian, self.actor.apply(params, obs))

    def sample(self, params: Any, obs: Array, noise: Array) -> tuple[Array, Array]:
        """Actions (B, A) from standard normal ``noise`` (B, A), and their log-densities (B,)."""
        return self.policy(params, obs).sample_and_log_prob(noise)

    def value(self, params: Any, obs: Array, action: Array) -> Array:
        return cast(Array, self.critic.apply(params, obs, action))

    def init(self, key: Array) -> Networks:
        key_actor, key_critic = jax.random.split(key)
        obs, action = jnp.zeros((1, self.obs_size)), jnp.zeros((1, self.action_size))
        actor, critic = self.actor.init(key_actor, obs), self.critic.init(key_critic, obs, action)
        return begin(actor, critic, self.optimiser)

    def act(self, state: Networks, obs: Array, key: Array) -> Array:
        return self.sample(state.actor, obs, standard_normal(key, (obs.shape[0], self.action_size)))[0]

    def act_deterministic(self, state: Networks, obs: Array) -> Array:
        return self.policy(state.actor, obs).mode()

    def entropy(self, state: Networks, obs: Array, key: Array) -> Array:
        """One sample of ``-log pi`` per observation."""
        return -jnp.mean(self.sample(state.actor, obs, standard_normal(key, (obs.shape[0], self.action_size)))[1])

    def q_value(
        self, state: Networks, obs: Array, action: Array, *, entropy_weight: Any = None, hyper: Any = None
    ) -> Array:
        return self.value(state.critic, obs, action)

    def target(self, state: Networks, batch: Transition, noise: Array, entropy_weight: Array, gamma: Any) -> Array:
        """`soft_target` of a batch, (B,)."""
        action, log_prob = self.sample(state.actor, batch.next_obs, noise)
        next_q = self.value(state.target, batch.next_obs, action)
        return soft_target(batch.reward, batch.terminated, next_q, log_prob, entropy_weight=entropy_weight, gamma=gamma)

    def critic_loss(self, params: Any, batch: Transition, target: Array) -> tuple[Array, Array]:
        """`critic_loss` of these critics on a batch with targets (B,), and its residuals (2, B)."""
        return critic_loss(self.value(params, batch.obs, batch.action), target)

    def actor_loss(self, params: Any, critic: Any, obs: Array, noise: Array, entropy_weight: Array) -> Array:
        """`actor_loss` of fresh actions at observations (B, S), from standard normal noise (B, A)."""
        action, log_prob = self.sample(params, obs, noise)
        return actor_loss(log_prob, self.value(critic, obs, action), entropy_weight=entropy_weight)

    def log_prob(self, params: Any, obs: Array, noise: Array) -> Array:
        """Log-densities (B,) of fresh actions."""
        return self.sample(params, obs, noise)[1]

    def td_error(
        self, state: Networks, batch: Transition, key: Array, *, entropy_weight: Array, hyper: SacHyper
    ) -> Array:
        target = self.target(state, batch, standard_normal(key, batch.action.shape), entropy_weight, hyper.gamma)
        return critic_loss(self.value(state.critic, batch.obs, batch.action), target)[1].reshape(-1)

    def update(
        self, state: Networks, batch: Transition, key: Array, step: Array, *, entropy_weight: Array, hyper: SacHyper
    ) -> UpdateOut:
        """One step of the critics, then of the actor, then of the target."""
        delay, options = self.config.actor_delay, {"optimiser": self.optimiser, "decay": hyper.weight_decay}
        # One draw for the target, the temperature's sample and every actor step.
        noise = standard_normal(key, (2 + delay, *batch.action.shape))
        target = self.target(state, batch, noise[0], entropy_weight, hyper.gamma)

        loss_and_grad = jax.value_and_grad(self.critic_loss, has_aux=True)
        (critic_value, error), grads = loss_and_grad(state.critic, batch, target)
        critic, critic_opt = descend(state.critic, grads, state.critic_opt, hyper.critic_learning_rate, **options)

        def actor_step(before: tuple[Any, Any], noise: Array) -> tuple[tuple[Any, Any], Array]:
            actor, opt = before

            loss, grads = jax.value_and_grad(self.actor_loss)(actor, critic, batch.obs, noise, entropy_weight)
            return descend(actor, grads, opt, hyper.learning_rate, **options), loss

        def actor_steps(before: tuple[Any, Any]) -> tuple[tuple[Any, Any], Array]:
            after, losses = jax.lax.scan(actor_step, before, noise[2:])
            return after, losses[-1]

        before = (state.actor, state.actor_opt)
        if delay == 1:
            (actor, actor_opt), loss = actor_step(before, noise[2])
        else:
            # `step` is common to all runs of a program, so this stays a branch under vmap.
            none = jnp.zeros((), batch.reward.dtype)
            (actor, actor_opt), loss = jax.lax.cond(step % delay == 0, actor_steps, lambda x: (x, none), before)
        signals = Signals(
            td_error=error.reshape(-1),
            value_loss=jax.lax.stop_gradient(critic_value),
            critic_drift=optax.tree.norm(jax.tree.map(jnp.subtract, critic, state.critic)),
            # Fresh actions of the policy just updated, as the reference's temperature step draws them.
            log_prob=jax.lax.stop_gradient(self.log_prob(actor, batch.obs, noise[1])),
        )
        metrics = {"critic_loss": critic_value, "actor_loss": loss}  # 0 where the delayed actor had no step
        new = Networks(actor, critic, polyak(state.target, critic, hyper.tau), actor_opt, critic_opt)
        return UpdateOut(new, signals, metrics)

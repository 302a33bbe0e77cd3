"""Soft Q-learning (Haarnoja et al. 2017; twin critics as in its successors): losses and one gradient step. The
entropy weight enters twice: as the temperature of the soft value in the target (`soft_value`) and as that of the
energy whose score moves the sampler (`log_target`). The critics are trained on rewards times `reward_scale`; weights,
residuals and values that enter or leave a carrier are in raw reward units."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from aesjax.typed import Count, check_fields
from aesjax.types import Array, Signals
from agents.common.carrier import Carrier, Network, Transition, UpdateOut
from agents.common.draws import standard_normal
from agents.common.networks import MLP, TwinCritic
from agents.common.optim import ADAM, Networks, begin, descend, polyak
from agents.common.stein import nearest_neighbour_entropy, stein_directions
from agents.sac import critic_loss

ENTROPY_OBS, ENTROPY_PARTICLES = 32, 64  # of the entropy estimate; more states change it by less than its bias
_EVALUATION_SAMPLES = 32
_SQUASH_EPS = 1e-6  # e of log(1 - a^2 + e)
_LEAST_BANDWIDTH = 1e-3  # the reference adds 1e-8 instead of taking a maximum


class SqlHyper(NamedTuple):
    """Traced floats: any of them may differ between the runs of one program."""

    learning_rate: Array | float = 3e-4  # sampler, Adam
    critic_learning_rate: Array | float = 3e-4  # both critics, one Adam
    gamma: Array | float = 0.99
    tau: Array | float = 0.005  # step of the target towards the online network
    weight_decay: Array | float = 0.0  # AdamW, of all networks
    reward_scale: Array | float = 10.0  # c: the critics learn c times the raw reward
    reference_weight: Array | float = 0.1  # the sampler's weight where `schedule_sampler` is off; reward per nat


@dataclass(frozen=True)
class SqlConfig:
    """Static structure: a change compiles a new program."""

    hidden: tuple[Count, ...] = (128, 128)
    batch_size: Count = 256
    value_samples: Count = 16  # K: uniform proposals of the soft value
    fixed_particles: Count = 16  # Kf: where the score is taken
    updated_particles: Count = 16  # Ku: particles that the sampler moves
    layer_norm: bool = False  # in the critics' hidden layers, before the activation
    schedule_sampler: bool = True  # off: the sampler keeps `SqlHyper.reference_weight`

    def __post_init__(self) -> None:
        check_fields(self)


def soft_value(q: Array, *, temperature: Array | float, action_size: int) -> Array:
    """``V = T (logsumexp_k(min_i Q_i(s, a_k) / T) - log K + A log 2)``, (B,): from K uniform proposals an estimate of
    ``T log int exp(Q / T) da``, the soft value function of Haarnoja et al. 2017.

    Biased low, the more the smaller T and the larger A: a schedule that raises the weight removes bias too.

    Args:
      q: (2, B, K) critics at proposals uniform in [-1, 1]^A; temperature: () T > 0, units of ``q`` per nat.
    """
    chex.assert_shape(q, (2, None, None))
    least = jnp.min(q, 0)
    # Shifted by the maximum before the division: |Q| / temperature reaches 1e7.
    best = jnp.max(least, -1, keepdims=True)
    mass = jnp.mean(jnp.exp((least - best) / temperature), -1)
    return best[:, 0] + temperature * (jnp.log(mass) + action_size * math.log(2.0))


def soft_target(reward: Array, terminated: Array, next_value: Array, *, gamma: Any, scale: Any) -> Array:
    """Bootstrapped soft value ``c r + gamma (1 - term) V(s')``, (B,), scaled reward units, no gradient.

    Args:
      reward: (B,) raw; terminated, next_value: (B,), the value in scaled units; gamma, scale: ().
    """
    chex.assert_equal_shape([reward, terminated, next_value])
    return jax.lax.stop_gradient(scale * reward + gamma * (1.0 - terminated) * next_value)


def log_target(q: Array, action: Array, *, temperature: Array | float) -> Array:
    """Log-density of the sampler's target, ``min_i Q_i / T + sum_d log(1 - a_d^2 + e)``, (...,) nats.

    The score is taken with respect to the action, so that the second term, the correction of a pre-tanh density,
    gives the distribution ``exp(Q / T) prod_d (1 - a_d^2)``, as in all references.

    Args:
      q: (2, ...); action: (..., A); temperature: () T > 0, units of ``q`` per nat.
    """
    return jnp.min(q, 0) / temperature + jnp.sum(jnp.log(1.0 - action**2 + _SQUASH_EPS), -1)


@dataclass(frozen=True)
class Sql(Carrier):
    """SQL for observations of size S and normalised actions of size A.

    >>> carrier = Sql(2, 2, SqlConfig(hidden=(64, 64), batch_size=64))
    """

    config: SqlConfig = SqlConfig()
    optimiser: optax.GradientTransformation = ADAM

    @property
    def actor(self) -> MLP:
        """The sampler network: observation and noise to the pre-tanh action."""
        return MLP(self.config.hidden, self.action_size)

    @property
    def critic(self) -> TwinCritic:
        return TwinCritic(self.config.hidden, self.config.layer_norm)

    @property
    def networks(self) -> tuple[Network, ...]:
        """Sampler and critics."""
        return Network("actor", "actor", "actor_opt"), Network("critic", "critic", "critic_opt", "target")

    def sampler(self, params: Any, obs: Array, noise: Array) -> Array:
        """Implicit policy ``a = tanh(f(s, xi))`` for standard normal ``xi``, (..., S), (..., A) -> (..., A)."""
        return jnp.tanh(cast(Array, self.actor.apply(params, jnp.concatenate([obs, noise], -1))))

    def value(self, params: Any, obs: Array, action: Array) -> Array:
        return cast(Array, self.critic.apply(params, obs, action))

    def per_state(self, network: Any, params: Any, obs: Array, x: Array) -> Array:
        """``network`` of observations (B, S), each with K rows of ``x`` (B, K, A)."""
        # One matrix of B * K rows: on a CPU products with three axes cost half as much again.
        rows = jnp.broadcast_to(obs[:, None, :], (*x.shape[:2], self.obs_size)).reshape(-1, self.obs_size)
        return network(params, rows, x.reshape(-1, self.action_size))

    def particles(self, params: Any, obs: Array, noise: Array) -> Array:
        """Actions of the sampler, (B, S), (B, K, A) -> (B, K, A)."""
        return self.per_state(self.sampler, params, obs, noise).reshape(noise.shape)

    def values(self, params: Any, obs: Array, action: Array) -> Array:
        """State-action values, (B, S), (B, K, A) -> (2, B, K)."""
        return self.per_state(self.value, params, obs, action).reshape(2, *action.shape[:2])

    def init(self, key: Array) -> Networks:
        key_actor, key_critic = jax.random.split(key)
        obs, action = jnp.zeros((1, self.obs_size)), jnp.zeros((1, self.action_size))
        actor = self.actor.init(key_actor, jnp.concatenate([obs, action], -1))
        return begin(actor, self.critic.init(key_critic, obs, action), self.optimiser)

    def act(self, state: Networks, obs: Array, key: Array) -> Array:
        return self.particles(state.actor, obs, standard_normal(key, (obs.shape[0], 1, self.action_size)))[:, 0]

    def act_deterministic(self, state: Networks, obs: Array) -> Array:
        """Best of a fixed set of sampler outputs under the smaller critic."""
        # Part of the evaluation policy, not of a run: equal for every run and every evaluation.
        bank = np.random.default_rng(0).standard_normal((_EVALUATION_SAMPLES + 1, self.action_size)).astype(np.float32)
        bank[0] = 0.0
        action = self.particles(state.actor, obs, jnp.broadcast_to(bank[None], (obs.shape[0], *bank.shape)))
        best = jnp.argmax(jnp.min(self.values(state.critic, obs, action), 0), -1)
        return jnp.take_along_axis(action, best[:, None, None], 1)[:, 0]

    def entropy(self, state: Networks, obs: Array, key: Array) -> Array:
        """Nearest-neighbour (Kozachenko-Leonenko) estimate from particles of `ENTROPY_OBS` states.

        The sampler has no density.
        """
        obs = obs[:ENTROPY_OBS]
        noise = standard_normal(key, (obs.shape[0], ENTROPY_PARTICLES, self.action_size))
        return jnp.mean(jax.vmap(nearest_neighbour_entropy)(self.particles(state.actor, obs, noise)))

    def q_value(
        self, state: Networks, obs: Array, action: Array, *, entropy_weight: Any = None, hyper: SqlHyper
    ) -> Array:
        return self.value(state.critic, obs, action) / hyper.reward_scale

    def target(self, state: Networks, batch: Transition, key: Array, entropy_weight: Array, hyper: SqlHyper) -> Array:
        """`soft_target` of a batch, (B,), from uniform proposals."""
        shape = (batch.obs.shape[0], self.config.value_samples, self.action_size)
        proposals = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
        next_q = self.values(state.target, batch.next_obs, proposals)
        next_value = soft_value(next_q, temperature=hyper.reward_scale * entropy_weight, action_size=self.action_size)
        return soft_target(batch.reward, batch.terminated, next_value, gamma=hyper.gamma, scale=hyper.reward_scale)

    def td_error(
        self, state: Networks, batch: Transition, key: Array, *, entropy_weight: Array, hyper: SqlHyper
    ) -> Array:
        target = self.target(state, batch, key, entropy_weight, hyper)
        q = self.value(state.critic, batch.obs, batch.action)
        return critic_loss(q, target)[1].reshape(-1) / hyper.reward_scale

    def critic_loss(self, params: Any, batch: Transition, target: Array) -> tuple[Array, Array]:
        """`critic_loss` of these critics on a batch with targets (B,), and its residuals (2, B), scaled units."""
        return critic_loss(self.value(params, batch.obs, batch.action), target)

    def actor_loss(self, params: Any, obs: Array, noise: Array, fixed: Array, score: Array) -> tuple[Array, Array]:
        """Loss whose gradient moves the sampler along the Stein direction, and the mean norm of that direction.

        Args:
          noise: (B, Ku, A) of the particles that move; fixed, score: (B, Kf, A), actions and scores of `log_target`.
        """
        updated = self.particles(params, obs, noise)
        count = self.config.fixed_particles
        direction = stein_directions(fixed, updated, score, count=count, floor=_LEAST_BANDWIDTH)
        # A mean where the reference has a sum: immaterial under Adam.
        return -jnp.mean(jnp.sum(direction * updated, -1)), jnp.mean(jnp.sqrt(jnp.sum(direction**2, -1)))

    def critic_step(
        self, state: Any, batch: Transition, key: Array, entropy_weight: Array, hyper: SqlHyper
    ) -> tuple[Any, Any, Signals]:
        """Critics and optimiser after one step, and its signals in raw reward units."""
        target = self.target(state, batch, key, entropy_weight, hyper)

        (loss, error), grads = jax.value_and_grad(self.critic_loss, has_aux=True)(state.critic, batch, target)
        rate, options = hyper.critic_learning_rate, {"optimiser": self.optimiser, "decay": hyper.weight_decay}
        critic, opt = descend(state.critic, grads, state.critic_opt, rate, **options)
        scale = jnp.asarray(hyper.reward_scale, jnp.float32)
        value_loss = jax.lax.stop_gradient(loss) / scale**2
        critic_drift = optax.tree.norm(jax.tree.map(jnp.subtract, critic, state.critic))
        signals = Signals(td_error=error.reshape(-1) / scale, value_loss=value_loss, critic_drift=critic_drift)
        return critic, opt, signals

    def update(
        self, state: Networks, batch: Transition, key: Array, step: Array, *, entropy_weight: Array, hyper: SqlHyper
    ) -> UpdateOut:
        """One step of the critics, then of the sampler along the Stein direction, then of the target."""
        config = self.config
        key_proposals, key_noise = jax.random.split(key)
        critic, critic_opt, signals = self.critic_step(state, batch, key_proposals, entropy_weight, hyper)

        # One draw for both sets of particles.
        both = (batch.obs.shape[0], config.fixed_particles + config.updated_particles, self.action_size)
        noise_fixed, noise_updated = jnp.split(standard_normal(key_noise, both), [config.fixed_particles], axis=1)
        weight = entropy_weight if config.schedule_sampler else hyper.reference_weight
        fixed = self.particles(state.actor, batch.obs, noise_fixed)

        def energy(action: Array) -> Array:
            q = self.values(critic, batch.obs, action)
            return jnp.sum(log_target(q, action, temperature=hyper.reward_scale * weight))

        score = jax.grad(energy)(fixed)

        loss_grad = jax.grad(self.actor_loss, has_aux=True)
        grads, stein_norm = loss_grad(state.actor, batch.obs, noise_updated, fixed, score)
        options = {"optimiser": self.optimiser, "decay": hyper.weight_decay}
        actor, actor_opt = descend(state.actor, grads, state.actor_opt, hyper.learning_rate, **options)
        new = Networks(actor, critic, polyak(state.target, critic, hyper.tau), actor_opt, critic_opt)
        # The Stein norm, nats per action unit, measures the distance of the sampler from its target; its loss does not.
        metrics = {"critic_loss": signals.value_loss, "actor_loss": stein_norm}
        return UpdateOut(new, signals, metrics)

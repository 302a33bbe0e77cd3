"""SAC, PPO and SQL for discrete actions. An action is a one-hot row (A,), and critics have a value per action, so
expectations over the policy are exact sums. SAC is Christodoulou's (2019, arXiv 1910.07207); the soft value of SQL is
the log-sum-exp that its samples estimate for continuous actions."""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp

from aesjax.types import Array
from agents.common.carrier import Network, Transition, UpdateOut
from agents.common.networks import MLP, ActorCritic, Categorical, TwinActionValues
from agents.common.optim import Networks, begin, polyak
from agents.ppo import Ppo
from agents.sac import Sac
from agents.sql import Sql, SqlHyper, soft_target


def policy_value(policy: Categorical, q: Array, *, entropy_weight: Array) -> Array:
    """``sum_a pi(a|s) (min_i Q_i(s, a) - lam log pi(a|s))``, (B,), for critics (2, B, A)."""
    chex.assert_shape(q, (2, *policy.logits.shape))
    return policy.mean(jnp.min(q, 0) - entropy_weight * policy.log_probs())


def soft_value(q: Array, *, temperature: Array | float) -> Array:
    """``T logsumexp_a(min_i Q_i(s, a) / T)``, (B,), exact, for critics (2, B, A) and () T > 0 in units of ``q``."""
    chex.assert_shape(q, (2, None, None))
    return temperature * jax.nn.logsumexp(jnp.min(q, 0) / temperature, -1)


class _ActionValues:
    """Critics with a value per action."""

    config: Any
    action_size: int

    @property
    def critic(self) -> Any:
        return TwinActionValues(self.config.hidden, self.action_size, self.config.layer_norm)

    def all_values(self, params: Any, obs: Array) -> Array:
        """Values (2, B, A) of all actions."""
        return cast(Array, self.critic.apply(params, obs))

    def value(self, params: Any, obs: Array, action: Array) -> Array:
        """Values (2, B) of one-hot actions (B, A)."""
        return jnp.sum(self.all_values(params, obs) * action[None], -1)


@dataclass(frozen=True)
class DiscreteSac(_ActionValues, Sac):
    """SAC with a categorical policy.

    >>> carrier = DiscreteSac(4, 2)
    """

    @property
    def actor(self) -> Any:
        return MLP(self.config.hidden, self.action_size)

    def policy(self, params: Any, obs: Array) -> Any:
        return Categorical(cast(Array, self.actor.apply(params, obs)))

    def init(self, key: Array) -> Networks:
        key_actor, key_critic = jax.random.split(key)
        obs = jnp.zeros((1, self.obs_size))
        return begin(self.actor.init(key_actor, obs), self.critic.init(key_critic, obs), self.optimiser)

    def act(self, state: Networks, obs: Array, key: Array) -> Array:
        return self.policy(state.actor, obs).sample(key)

    def entropy(self, state: Networks, obs: Array, key: Array) -> Array:
        """Exact mean over observations."""
        return self.policy(state.actor, obs).entropy()

    def target(self, state: Networks, batch: Transition, noise: Array, entropy_weight: Array, gamma: Any) -> Array:
        """``r + gamma (1 - term) V(s')`` with V the `policy_value` of the target critics, (B,), no gradient."""
        q = self.all_values(state.target, batch.next_obs)
        value = policy_value(self.policy(state.actor, batch.next_obs), q, entropy_weight=entropy_weight)
        return soft_target(batch.reward, batch.terminated, value, gamma=gamma, scale=1.0)

    def actor_loss(self, params: Any, critic: Any, obs: Array, noise: Array, entropy_weight: Array) -> Array:
        """Minus the mean `policy_value` of the online critics."""
        q = self.all_values(critic, obs)
        return -jnp.mean(policy_value(self.policy(params, obs), q, entropy_weight=entropy_weight))

    def log_prob(self, params: Any, obs: Array, noise: Array) -> Array:
        """Minus the exact entropies (B,): expected log-probabilities."""
        policy = self.policy(params, obs)
        return policy.mean(policy.log_probs())


@dataclass(frozen=True)
class DiscretePpo(Ppo):
    """PPO with a categorical policy.

    >>> carrier = DiscretePpo(4, 2)
    """

    @property
    def net(self) -> ActorCritic:
        return super().net.clone(log_std=None)


class SqlState(NamedTuple):
    """Parameters and optimiser state of two critics, one run."""

    critic: Any  # leaves with a leading axis of 2
    target: Any  # same structure as critic
    critic_opt: Any
    temperature: Array  # () of the policy, units of the critics per nat; 1 before the first update


@dataclass(frozen=True)
class DiscreteSql(_ActionValues, Sql):
    """SQL with the exact policy ``softmax(min_i Q_i / T)``, T the newest weight; sizes of its sampler are unused.

    >>> carrier = DiscreteSql(4, 2)
    """

    @property
    def networks(self) -> tuple[Network, ...]:
        return (Network("critic", "critic", "critic_opt", "target"),)

    def policy(self, state: SqlState, obs: Array) -> Categorical:
        return Categorical(jnp.min(self.all_values(state.critic, obs), 0) / state.temperature)

    def init(self, key: Array) -> Any:
        params = self.critic.init(key, jnp.zeros((1, self.obs_size)))
        # A copy, not an alias: the carry is donated and two leaves may not share one buffer.
        target = jax.tree.map(jnp.copy, params)
        return SqlState(params, target, self.optimiser.init(params), jnp.ones(()))

    def act(self, state: Any, obs: Array, key: Array) -> Array:
        return self.policy(state, obs).sample(key)

    def act_deterministic(self, state: Any, obs: Array) -> Array:
        """Best action under the smaller critic."""
        return self.policy(state, obs).mode()

    def entropy(self, state: Any, obs: Array, key: Array) -> Array:
        """Exact mean over observations."""
        return self.policy(state, obs).entropy()

    def target(self, state: Any, batch: Transition, key: Array, entropy_weight: Array, hyper: SqlHyper) -> Array:
        """``c r + gamma (1 - term) V(s')`` with V the `soft_value` of the target critics, (B,), no gradient."""
        q, temperature = self.all_values(state.target, batch.next_obs), hyper.reward_scale * entropy_weight
        value = soft_value(q, temperature=temperature)
        return soft_target(batch.reward, batch.terminated, value, gamma=hyper.gamma, scale=hyper.reward_scale)

    def update(
        self, state: Any, batch: Transition, key: Array, step: Array, *, entropy_weight: Array, hyper: SqlHyper
    ) -> UpdateOut:
        """One step of the critics, then of the target."""
        critic, opt, signals = self.critic_step(state, batch, key, entropy_weight, hyper)
        weight = entropy_weight if self.config.schedule_sampler else hyper.reference_weight
        temperature = jnp.asarray(hyper.reward_scale * weight, jnp.float32)
        new = SqlState(critic, polyak(state.target, critic, hyper.tau), opt, temperature)
        policy = self.policy(new, batch.obs)
        signals = signals._replace(log_prob=policy.mean(policy.log_probs()))  # exact, as in SAC
        return UpdateOut(new, signals, {"critic_loss": cast(Array, signals.value_loss), "actor_loss": jnp.zeros(())})

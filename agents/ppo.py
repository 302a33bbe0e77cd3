"""Proximal Policy Optimization (Schulman et al. 2017): losses and one minibatch step. The entropy weight enters once,
as the weight of the entropy bonus in the policy loss (`entropy_bonus`)."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
import optax

from aesjax.typed import Count, check_fields, require
from aesjax.types import Array, Signals
from agents.common import masks
from agents.common.carrier import Network, OnPolicyCarrier, Rollout, UpdateOut
from agents.common.masks import Moments, denormalise, empty, merge, normalise
from agents.common.networks import ACTIVATIONS, ActorCritic, Categorical, Normal
from agents.common.optim import descend

_ADAM = optax.scale_by_adam(eps=1e-5)


class PpoHyper(NamedTuple):
    """Traced floats: any of them may differ between the runs of one program.

    With normalised advantages the entropy weight is worth ``lam * std(A)`` in reward: on a quadratic reward the
    policy's std then has no equilibrium but shrinks for every weight below sqrt(2), the slower the larger it is.
    """

    learning_rate: Array | float = 3e-4  # Adam, eps 1e-5; not annealed, so that the agent can respond to late drift
    gamma: Array | float = 0.99
    gae_lambda: Array | float = 0.95
    clip: Array | float = 0.2  # of the ratio, and of the value's change where that is clipped
    value_coef: Array | float = 0.5
    max_norm: Array | float = 0.5  # of the gradient
    reward_scale: Array | float = 1.0  # where rewards are not normalised
    kl_target: Array | float = 0.008  # of the adaptive learning rate
    weight_decay: Array | float = 0.0  # AdamW, of all parameters


@dataclass(frozen=True)
class PpoConfig:
    """Static structure: a change compiles a new program."""

    rollout: Count = 2048  # T
    epochs: Count = 10
    minibatches: Count = 32
    hidden: tuple[Count, ...] = (64, 64)
    activation: str = "tanh"
    orthogonal: bool = True  # gains sqrt(2), 0.01 (mean), 1 (value) and zero biases; else PyTorch's default
    shared: bool = False  # one trunk for policy and value
    layer_norm: bool = False  # in the hidden layers of value network or trunk, before the activation
    log_std: float = 0.0  # initial
    log_std_bounds: tuple[float, float] | None = None
    normalise_obs: float = 10.0  # clip of normalised observations; 0: as they are
    normalise_reward: bool = True  # by the standard deviation of the discounted return, clip 10
    normalise_advantage: bool = True  # per minibatch; makes the bonus scale-free, see `PpoHyper`
    normalise_value: bool = False  # the value network works on standardised returns
    value_clip: bool = True  # 0.5 max of clipped and unclipped squared error; else the plain squared error
    adaptive_rate: bool = False  # learning rate follows the policy's KL after each epoch

    def __post_init__(self) -> None:
        check_fields(self)
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"PpoConfig.activation must be one of {', '.join(ACTIVATIONS)}; got '{self.activation}'")
        clip, bounds = self.normalise_obs, self.log_std_bounds
        low, high = bounds or (self.log_std, self.log_std)
        require(clip >= 0.0, "PpoConfig.normalise_obs", "0 or more, the clip of normalised observations", clip)
        require(low <= high, "PpoConfig.log_std_bounds", "the lower bound and the upper one", bounds)


class PpoState(NamedTuple):
    """Parameters, optimiser state and running statistics, one run."""

    params: Any
    opt: Any
    obs_moments: Moments  # (S,)
    return_moments: Moments  # () of the discounted return
    value_moments: Moments  # () of the value network's targets
    discounted: Array  # (N,) discounted return of the unfinished episodes
    rate: Array  # () multiplier of the learning rate, 1 unless adaptive


class Rows(NamedTuple):
    """The data set of one rollout, leading axis T * N."""

    obs: Array  # (B, S) normalised
    action: Array  # (B, A)
    log_prob: Array  # (B,) of the policy that acted
    advantage: Array  # (B,)
    value: Array  # (B,) value of the state, in the value network's newest units
    target: Array  # (B,) in the value network's units
    reward: Array  # (B,) over the standard deviation of the advantages of the rollout
    weight: Array | None = None  # (B,) 1 where the row counts, else 0; None: all do


def td_errors(reward: Array, terminated: Array, value: Array, next_value: Array, gamma: Array | float) -> Array:
    """``delta_t = r_t + gamma (1 - term_t) V(s'_t) - V(s_t)``, all (T, N); ``next_value`` before any auto-reset."""
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape([reward, terminated, value, next_value])  # (T,) and (T, N) would broadcast unnoticed
    return reward + gamma * (1.0 - terminated) * next_value - value


def advantages(delta: Array, terminated: Array, truncated: Array, decay: Array | float) -> Array:
    """``A_t = delta_t + decay (1 - term_t)(1 - trunc_t) A_{t+1}``, (T, N), with ``decay = gamma * lambda``.

    Schulman et al. 2016. A truncated step has its bootstrap in delta already and cuts the trace; a terminated one has
    neither.
    """
    chex.assert_equal_shape([delta, terminated, truncated])
    keep = decay * (1.0 - terminated) * (1.0 - truncated)

    def step(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, keep = now
        here = delta + keep * after
        return here, here

    return jax.lax.scan(step, jnp.zeros(delta.shape[1:]), (delta, keep), reverse=True)[1]


def clipped_loss(ratio: Array, advantage: Array, clip: Array | float, weight: Array | None = None) -> Array:
    """``-mean min(ratio A, clip(ratio, 1 - eps, 1 + eps) A)``, (B,) each; advantages already normalised."""
    pessimistic = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)
    return -masks.mean(pessimistic, weight)


def value_loss(
    value: Array, old: Array, target: Array, clip: Array | float, clipped: bool, weight: Array | None = None
) -> Array:
    """``mean (V - R)^2``, or with ``clipped`` ``0.5 mean max((V - R)^2, (V_clip - R)^2)``, (B,) each."""
    error = (value - target) ** 2
    if not clipped:
        return masks.mean(error, weight)
    near = old + jnp.clip(value - old, -clip, clip)
    return 0.5 * masks.mean(jnp.maximum(error, (near - target) ** 2), weight)


def entropy_bonus(entropy: Array, *, entropy_weight: Array) -> Array:
    """``-lam H`` for the mean entropy () of the policy, nats."""
    return -entropy_weight * entropy


@dataclass(frozen=True)
class Ppo(OnPolicyCarrier):
    """PPO for observations of size S and normalised actions of size A; samples are clipped to [-1, 1] by the world.

    >>> carrier = Ppo(2, 2, PpoConfig(rollout=128, minibatches=4))
    """

    config: PpoConfig = PpoConfig()
    optimiser: optax.GradientTransformation = _ADAM

    @property
    def net(self) -> ActorCritic:
        c = self.config
        bounds = c.log_std_bounds or (-jnp.inf, jnp.inf)
        return ActorCritic(
            c.hidden, self.action_size, c.activation, c.orthogonal, c.shared, c.log_std, bounds, c.layer_norm
        )

    @property
    def networks(self) -> tuple[Network, ...]:
        """Policy and value, the trunk counted with the value."""
        return (Network("actor", heads={"value": "critic", "trunk": "critic"}),)

    def apply(self, params: Any, obs: Array) -> tuple[Normal | Categorical, Array]:
        """Policy and value (...)."""
        return cast(tuple[Normal | Categorical, Array], self.net.apply(params, obs))

    def init(self, key: Array, num_envs: int) -> PpoState:
        params = self.net.init(key, jnp.zeros((1, self.obs_size)))
        moments = (empty((self.obs_size,)), empty(), empty())
        return PpoState(params, self.optimiser.init(params), *moments, jnp.zeros(num_envs), jnp.ones(()))

    def view(self, state: PpoState, obs: Array) -> Array:
        return normalise(state.obs_moments, obs, self.config.normalise_obs) if self.config.normalise_obs else obs

    def observe(self, state: PpoState, obs: Array, live: Array | None = None) -> tuple[PpoState, Array]:
        if self.config.normalise_obs:
            state = state._replace(obs_moments=merge(state.obs_moments, obs, live))
        return state, self.view(state, obs)

    def act(self, state: PpoState, seen: Array, key: Array) -> Array:
        return self.apply(state.params, seen)[0].sample(key)

    def act_deterministic(self, state: PpoState, obs: Array) -> Array:
        return self.apply(state.params, self.view(state, obs))[0].mode()

    def entropy(self, state: PpoState, obs: Array, key: Array) -> Array:
        """Exact entropy of the policy before its samples are clipped to the action box."""
        return self.apply(state.params, self.view(state, obs))[0].entropy()

    def scale_reward(
        self, state: PpoState, reward: Array, done: Array, hyper: PpoHyper, valid: Array | None = None
    ) -> tuple[PpoState, Array]:
        """Rewards over the standard deviation of the discounted return, or times `reward_scale`."""
        if not self.config.normalise_reward:
            return state, reward * hyper.reward_scale
        reward, done = masks.kept(valid, reward), 1.0 - masks.kept(valid, 1.0 - done)  # an invalid row ends the sum
        discounted = hyper.gamma * state.discounted + reward
        moments = merge(state.return_moments, discounted, valid)
        scaled = jnp.clip(reward / jnp.sqrt(moments.var + 1e-8), -10.0, 10.0)
        return state._replace(return_moments=moments, discounted=discounted * (1.0 - done)), scaled

    def prepare(self, state: PpoState, rollout: Rollout, hyper: PpoHyper) -> tuple[PpoState, Rows, Array]:
        """Advantages, targets and residuals of a rollout; residuals in reward units."""
        # Values and log-probabilities of the complete rollout in one pass, under the parameters that acted.
        policy, output = self.apply(state.params, rollout.obs)
        next_output = self.apply(state.params, rollout.next_obs)[1]
        log_prob = policy.log_prob(rollout.action)
        terminated, truncated = rollout.terminated, rollout.truncated
        restored = partial(denormalise, state.value_moments) if self.config.normalise_value else lambda values: values
        value, next_value = restored(output), restored(next_output)
        delta = td_errors(rollout.reward, terminated, value, next_value, hyper.gamma)
        delta, valid = masks.kept(rollout.valid, delta), rollout.valid
        advantage = advantages(delta, terminated, truncated, hyper.gamma * hyper.gae_lambda)
        target = advantage + value
        if self.config.normalise_value:
            which = None if valid is None else valid.reshape(-1)
            moments = merge(merge(state.value_moments, value.reshape(-1), which), target.reshape(-1), which)
            state = state._replace(value_moments=moments)
            output, target = (normalise(moments, x, 1e6) for x in (value, target))
        weight = None if valid is None else valid.astype(jnp.float32)
        reward = rollout.reward / (masks.std(advantage, weight) + 1e-8 if self.config.normalise_advantage else 1.0)
        rows = Rows(rollout.obs, rollout.action, log_prob, advantage, output, target, reward, weight)
        rows = jax.tree.map(lambda x: jax.lax.stop_gradient(x.reshape(-1, *x.shape[2:])), rows)
        return state, rows, jax.lax.stop_gradient(delta.reshape(-1))

    def actor_loss(self, policy: Normal | Categorical, ratio: Array, batch: Rows, hyper: PpoHyper) -> Array:
        """`clipped_loss` of a policy with probability ratios (B,); advantages of the batch are normalised."""
        return clipped_loss(ratio, batch.advantage, hyper.clip, batch.weight)

    def critic_loss(self, value: Array, batch: Rows, hyper: PpoHyper) -> Array:
        """`value_loss` of values (B,), in the value network's units."""
        return value_loss(value, batch.value, batch.target, hyper.clip, self.config.value_clip, batch.weight)

    def update(self, state: PpoState, batch: Rows, *, entropy_weight: Array, hyper: PpoHyper) -> UpdateOut:
        advantage, weight = batch.advantage, batch.weight
        if self.config.normalise_advantage:
            advantage = (advantage - masks.mean(advantage, weight)) / (masks.std(advantage, weight) + 1e-8)
            batch = batch._replace(advantage=advantage)

        def loss_fn(params: Any):
            policy, value = self.apply(params, batch.obs)
            log_ratio, entropy = policy.log_prob(batch.action) - batch.log_prob, policy.entropy(weight)
            ratio = jnp.exp(log_ratio)
            actor = self.actor_loss(policy, ratio, batch, hyper)
            critic = self.critic_loss(value, batch, hyper)
            bonus = entropy_bonus(entropy, entropy_weight=entropy_weight)
            kl = masks.mean(ratio - 1.0 - log_ratio, weight)
            outside = masks.mean(jnp.abs(ratio - 1.0) > hyper.clip, weight)
            return actor + hyper.value_coef * critic + bonus, (actor, critic, kl, outside, entropy)

        grads, (actor, critic, kl, outside, entropy) = jax.grad(loss_fn, has_aux=True)(state.params)
        options = {"optimiser": self.optimiser, "max_norm": hyper.max_norm, "decay": hyper.weight_decay}
        params, opt = descend(state.params, grads, state.opt, hyper.learning_rate * state.rate, **options)
        moved = jax.tree.map(jnp.subtract, params, state.params)["params"]
        signals = Signals(
            value_loss=critic,
            critic_drift=optax.tree.norm({k: v for k, v in moved.items() if k in ("value", "trunk")}),
            log_prob=-entropy.reshape(1),  # the exact mean, because the entropy is known
            reward=masks.compact(batch.reward, None if weight is None else weight > 0),
        )
        metrics = {"critic_loss": critic, "actor_loss": actor, "kl": kl, "clip_fraction": outside}
        return UpdateOut(state._replace(params=params, opt=opt), jax.lax.stop_gradient(signals), metrics)

    def end_epoch(self, state: PpoState, metrics: dict[str, Array], hyper: PpoHyper) -> PpoState:
        """State with the learning rate adapted to the policy's KL divergence, if it is adaptive."""
        if not self.config.adaptive_rate:
            return state
        kl, target = metrics["kl"], hyper.kl_target
        factor = jnp.where(kl > 2.0 * target, 1 / 1.5, jnp.where(kl < 0.5 * target, 1.5, 1.0))
        rate = jnp.clip(hyper.learning_rate * state.rate * factor, 1e-6, 1e-2) / hyper.learning_rate
        return state._replace(rate=rate)

"""CrossQ (Bhatt et al. 2024): SAC without a target network, whose networks have batch renormalisation.

The critics see the pairs of a batch and of its successors at once, so that both have one set of statistics, those of
the joint batch. Actions use running statistics, and so do critics in the actor's loss and in residuals of new data.

Deviations: the critics are as wide as the preset's, not 2048; the actor's log standard deviation lies in [-5, 2]
through a tanh; the critics' loss has no factor of a half; `auto` tunes at every update, not at those of the actor.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from aesjax.typed import Count, check_fields
from aesjax.types import Array, Signals
from agents.common.carrier import Network, Transition, UpdateOut
from agents.common.draws import standard_normal
from agents.common.networks import Gaussian, GaussianActor, TwinCritic
from agents.common.optim import descend
from agents.sac import Sac, actor_loss, critic_loss, soft_target

ADAM = optax.scale_by_adam(b1=0.5)


class CrossQHyper(NamedTuple):
    """Traced floats, by default the published ones: any of them may differ between the runs of one program."""

    learning_rate: Array | float = 1e-3  # actor, Adam
    critic_learning_rate: Array | float = 1e-3  # both critics, one Adam
    gamma: Array | float = 0.99
    weight_decay: Array | float = 0.0  # AdamW, of all networks
    renorm_after: Array | float = 100_000.0  # updates of a network with plain batch normalisation, before


@dataclass(frozen=True)
class CrossQConfig:
    """Static structure: a change compiles a new program."""

    hidden: tuple[Count, ...] = (256, 256)
    batch_size: Count = 256
    policy_delay: Count = 3  # every so many steps the actor makes one

    def __post_init__(self) -> None:
        check_fields(self)


class CrossQState(NamedTuple):
    """Parameters, running statistics and optimiser states of an actor and two critics, one run."""

    actor: Any
    critic: Any  # leaves with a leading axis of 2
    actor_opt: Any
    critic_opt: Any
    updates: Array  # () int32, of the critics

    @property
    def target(self) -> Any:
        """The critics themselves."""
        return self.critic


@dataclass(frozen=True)
class CrossQ(Sac):
    """CrossQ for observations of size S and normalised actions of size A.

    >>> carrier = CrossQ(2, 2, CrossQConfig(hidden=(64, 64), batch_size=128))
    """

    config: Any = CrossQConfig()
    optimiser: optax.GradientTransformation = ADAM

    @property
    def actor(self) -> GaussianActor:
        return GaussianActor(self.config.hidden, self.action_size, renorm=True)

    @property
    def critic(self) -> TwinCritic:
        return TwinCritic(self.config.hidden, renorm=True)

    @property
    def networks(self) -> tuple[Network, ...]:
        return tuple(network._replace(target=None) for network in super().networks)

    def init(self, key: Array) -> Any:
        actor, critic, *_ = super().init(key)
        actor_opt, critic_opt = (self.optimiser.init({"params": part["params"]}) for part in (actor, critic))
        return CrossQState(actor, critic, actor_opt, critic_opt, jnp.int32(0))

    def descended(self, loss_fn: Any, variables: Any, opt: Any, rate: Any, hyper: CrossQHyper) -> tuple[Any, ...]:
        """Variables and optimiser state after one step, the loss, and further results of ``loss_fn``."""
        old = {"params": variables["params"]}
        (loss, (stats, *more)), grads = jax.value_and_grad(loss_fn, has_aux=True)(old)
        new, opt = descend(old, grads, opt, rate, optimiser=self.optimiser, decay=hyper.weight_decay)
        return variables | new | stats, opt, loss, more

    def update(
        self, state: Any, batch: Transition, key: Array, step: Array, *, entropy_weight: Array, hyper: Any
    ) -> UpdateOut:
        """One step of the critics, then of the actor if it is due."""
        noise = standard_normal(key, (3, *batch.action.shape))
        next_action, next_log_prob = self.sample(state.actor, batch.next_obs, noise[0])
        pairs = jnp.concatenate([batch.obs, batch.next_obs]), jnp.concatenate([batch.action, next_action])

        def critic_loss_fn(params: Any) -> tuple[Array, Any]:
            corrected = state.updates >= hyper.renorm_after
            both, stats = self.critic.apply(state.critic | params, *pairs, corrected, mutable=["batch_stats"])
            q, next_q = jnp.split(cast(Array, both), 2, axis=-1)
            given = {"entropy_weight": entropy_weight, "gamma": hyper.gamma}
            loss, error = critic_loss(q, soft_target(batch.reward, batch.terminated, next_q, next_log_prob, **given))
            return loss, (stats, error)

        rate = hyper.critic_learning_rate
        critic, critic_opt, value, (error,) = self.descended(
            critic_loss_fn, state.critic, state.critic_opt, rate, hyper
        )

        def actor_step(before: tuple[Any, Any]) -> tuple[tuple[Any, Any], Array]:
            actor, opt = before

            def actor_loss_fn(params: Any) -> tuple[Array, Any]:
                corrected = state.updates >= hyper.renorm_after * self.config.policy_delay
                policy, stats = self.actor.apply(actor | params, batch.obs, corrected, mutable=["batch_stats"])
                action, log_prob = cast(Gaussian, policy).sample_and_log_prob(noise[2])
                q = self.value(critic, batch.obs, action)
                return actor_loss(log_prob, q, entropy_weight=entropy_weight), (stats,)

            *after, loss, _ = self.descended(actor_loss_fn, actor, opt, hyper.learning_rate, hyper)
            return tuple(after), loss

        none = jnp.zeros((), batch.reward.dtype)
        # `step` is common to all runs of a program, so this stays a branch under vmap.
        due = step % self.config.policy_delay == 0
        (actor, actor_opt), loss = jax.lax.cond(due, actor_step, lambda x: (x, none), (state.actor, state.actor_opt))
        signals = Signals(
            td_error=error.reshape(-1),
            value_loss=jax.lax.stop_gradient(value),
            critic_drift=optax.tree.norm(jax.tree.map(jnp.subtract, critic["params"], state.critic["params"])),
            log_prob=jax.lax.stop_gradient(self.log_prob(actor, batch.obs, noise[1])),
        )
        metrics = {"critic_loss": value, "actor_loss": loss}  # 0 where the delayed actor had no step
        return UpdateOut(CrossQState(actor, critic, actor_opt, critic_opt, state.updates + 1), signals, metrics)

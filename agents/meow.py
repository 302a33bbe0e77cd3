"""MEow (Chao et al. 2024): one energy-based normalising flow is actor and critic. Its scaled unnormalised log-density
is the soft Q, its scaled log-normaliser the soft V, so there is no actor loss. The entropy weight multiplies the
flow's part of both (`soft_value`); the policy depends on it only through the learned flow."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from aesjax.typed import Count, check_fields
from aesjax.types import Array, Signals
from agents.common.carrier import Carrier, Network, Transition, UpdateOut
from agents.common.draws import standard_normal
from agents.common.optim import ADAM, descend, polyak

_SHIFT_UNITS = ("ref", "lam", "one")


class MeowHyper(NamedTuple):
    """Traced floats: any of them may differ between the runs of one program."""

    learning_rate: Array | float = 1e-3  # all parameters, one Adam
    gamma: Array | float = 0.99
    tau: Array | float = 0.005  # step of the target towards the online network; 1e-4 to 5e-3 in the reference
    reference_weight: Array | float = 0.25  # reward per nat; multiplies the reward shifts under shift_units "ref"
    max_norm: Array | float = 30.0  # global norm above which gradients are scaled down
    weight_decay: Array | float = 0.0  # AdamW, of all parameters


@dataclass(frozen=True)
class MeowConfig:
    """Static structure: a change compiles a new program."""

    flow_hidden: tuple[Count, ...] = (64, 64)  # couplings and prior scale
    shift_hidden: tuple[Count, ...] = (256, 256)  # reward shifts
    layer_norm: bool = False  # in the reward shifts' hidden layers, before the activation; the couplings always have it
    batch_size: Count = 256
    log_sigma_min: float = -5.0  # bounds of the prior's log standard deviation, before the tanh
    log_sigma_max: float = -0.3
    dropout: float = 0.1  # online Q in training only
    shift_units: str = "ref"  # factor of the shifts: reference weight, entropy weight ("lam") or 1 ("one")

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.log_sigma_min < self.log_sigma_max:
            low, high = self.log_sigma_min, self.log_sigma_max
            raise ValueError(f"MeowConfig.log_sigma_min must be below log_sigma_max {high:g}; got {low:g}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"MeowConfig.dropout must lie in [0, 1); got {self.dropout:g}")
        if self.shift_units not in _SHIFT_UNITS:
            raise ValueError(f"MeowConfig.shift_units must be one of {', '.join(_SHIFT_UNITS)}; got {self.shift_units}")


class MeowState(NamedTuple):
    """Parameters and optimiser state, one run."""

    params: Any
    target: Any  # same structure; only its prior and shifts are ever evaluated
    opt: Any


def shift_weight(units: str, entropy_weight: Array, reference_weight: Any) -> Any:
    """Factor of the reward shifts, () reward per unit of shift.

    "lam" is the reference code's placement; "ref" equals it at the reference weight and keeps the learned shifts in
    place when a schedule moves the weight; "one" is the paper's formula.
    """
    return {"ref": reference_weight, "lam": entropy_weight, "one": 1.0}[units]


def unnormalised(latent: Array, log_det: Array, log_sigma: Array) -> Array:
    """Unnormalised log-density ``log |dz/da| - sum_d (z_d / sigma_d)^2 / 2``, (..., A), (...,), (..., A) -> (...,)."""
    return log_det - 0.5 * jnp.sum((latent * jnp.exp(-log_sigma)) ** 2, -1)


def log_normaliser(log_sigma: Array) -> Array:
    """``(A / 2) log 2 pi + sum_d log sigma_d``, (..., A) -> (...,) nats."""
    return jnp.sum(log_sigma + 0.5 * jnp.log(2 * jnp.pi), -1)


def soft_value(shift: Array, core: Array, *, entropy_weight: Array, shift_weight: Any) -> Array:
    """``w b_i + lam core_i``, (2, B) reward: the soft Q of actions whose cores are `unnormalised`, and the soft V of
    states, exactly ``lam log int exp(Q_i / lam) da``, whose core is `log_normaliser`.

    Args:
      shift, core: (2, B) or (1, B), see `ConditionalFlow.shift`; the cores of Q differ by their dropout alone.
      entropy_weight, shift_weight: ().
    """
    return shift_weight * shift + entropy_weight * core


def soft_target(reward: Array, terminated: Array, next_v: Array, *, gamma: Any) -> Array:
    """``r + gamma (1 - term) min_i V_i(s')``, (B,), no gradient, for next_v (2, B) of the target without dropout."""
    return jax.lax.stop_gradient(reward + gamma * (1.0 - terminated) * jnp.min(next_v, 0))


def critic_loss(q: Array, target: Array) -> tuple[Array, Array]:
    """Mean of ``(y - Q_i)^2``, online values (2, B) and target (B,), and the residuals ``y - Q_i``, no gradient."""
    error = target[None] - q
    return jnp.mean(error**2), jax.lax.stop_gradient(error)


@dataclass(frozen=True)
class Meow(Carrier):
    """MEow for observations of size S and normalised actions of size A.

    >>> carrier = Meow(2, 2, MeowConfig(shift_hidden=(64, 64), batch_size=128))
    """

    config: MeowConfig = MeowConfig()
    optimiser: optax.GradientTransformation = ADAM

    @property
    def flow(self) -> Any:
        from agents.common.flow import ConditionalFlow  # with distrax, which takes seconds to import

        c = self.config
        bounds = (c.log_sigma_min, c.log_sigma_max)
        return ConditionalFlow(self.action_size, c.flow_hidden, c.shift_hidden, *bounds, layer_norm=c.layer_norm)

    @property
    def networks(self) -> tuple[Network, ...]:
        """The flow, which is both actor and critic."""
        return (Network("critic", target="target"),)

    def apply(self, params: Any, method: str, *args: Any) -> Any:
        return self.flow.apply(params, *args, method=method)

    def init(self, key: Array) -> MeowState:
        params = self.flow.init(key, jnp.zeros((1, self.obs_size)), jnp.zeros((1, self.action_size)))
        # A copy, not an alias: the carry is donated and two leaves may not share one buffer.
        return MeowState(params, jax.tree.map(jnp.copy, params), self.optimiser.init(params))

    def sample(self, params: Any, obs: Array, noise: Array) -> tuple[Array, Array]:
        """Action and exact log-density, (N, A) and (N,); ``noise`` (N, A) is standard normal."""
        log_sigma = self.apply(params, "log_sigma", obs)
        action, log_det = self.apply(params, "generate", jnp.exp(log_sigma) * noise, obs)
        return action, -0.5 * jnp.sum(noise**2, -1) - log_normaliser(log_sigma) - log_det

    def act(self, state: MeowState, obs: Array, key: Array) -> Array:
        return self.sample(state.params, obs, standard_normal(key, (obs.shape[0], self.action_size)))[0]

    def act_deterministic(self, state: MeowState, obs: Array) -> Array:
        """Mode of the pre-tanh density, which is in general not the mode of the action's density."""
        return self.apply(state.params, "generate", jnp.zeros((obs.shape[0], self.action_size)), obs)[0]

    def entropy(self, state: MeowState, obs: Array, key: Array) -> Array:
        """One sample of ``-log pi`` per observation."""
        return -jnp.mean(self.sample(state.params, obs, standard_normal(key, (obs.shape[0], self.action_size)))[1])

    def value(self, params: Any, obs: Array, action: Array, masks: Any, weights: Any) -> Array:
        """Online Q, (2, B); each half of ``masks`` belongs to one shift, None: no dropout."""
        twice = lambda x: jnp.broadcast_to(x, (1 if masks is None else 2, *x.shape))  # noqa: E731
        latent, log_det = self.apply(params, "infer", twice(action), twice(obs), masks)
        core = unnormalised(latent, log_det, self.apply(params, "log_sigma", obs)[None])
        return soft_value(self.apply(params, "shift", obs), core, **weights)

    def weights(self, entropy_weight: Array, hyper: MeowHyper) -> dict[str, Any]:
        shift = shift_weight(self.config.shift_units, entropy_weight, hyper.reference_weight)
        return {"entropy_weight": entropy_weight, "shift_weight": shift}

    def masks(self, key: Array, rows: int) -> Any:
        """Dropout of a batch; None: no dropout."""
        from agents.common.flow import dropout_masks

        return dropout_masks(key, self.config.dropout, rows, self.config.flow_hidden) if self.config.dropout else None

    def q_value(self, state: MeowState, obs: Array, action: Array, *, entropy_weight: Array, hyper: MeowHyper) -> Array:
        return self.value(state.params, obs, action, None, self.weights(entropy_weight, hyper))

    def target(self, state: MeowState, batch: Transition, weights: dict[str, Any], gamma: Any) -> Array:
        """`soft_target` of a batch, (B,)."""
        log_z = log_normaliser(self.apply(state.target, "log_sigma", batch.next_obs))
        next_v = soft_value(self.apply(state.target, "shift", batch.next_obs), log_z[None], **weights)
        return soft_target(batch.reward, batch.terminated, next_v, gamma=gamma)

    def td_error(
        self, state: MeowState, batch: Transition, key: Array, *, entropy_weight: Array, hyper: MeowHyper
    ) -> Array:
        weights = self.weights(entropy_weight, hyper)
        masks = self.masks(key, batch.reward.shape[0])
        q = self.value(state.params, batch.obs, batch.action, masks, weights)
        return critic_loss(q, self.target(state, batch, weights, hyper.gamma))[1].reshape(-1)

    def critic_loss(self, params: Any, batch: Transition, target: Array, masks: Any, weights: Any) -> Any:
        """`critic_loss` of these parameters on a batch with targets (B,), and its residuals (2, B)."""
        return critic_loss(self.value(params, batch.obs, batch.action, masks, weights), target)

    def update(
        self, state: MeowState, batch: Transition, key: Array, step: Array, *, entropy_weight: Array, hyper: MeowHyper
    ) -> UpdateOut:
        key_masks, key_sample = jax.random.split(key)
        weights = self.weights(entropy_weight, hyper)
        target = self.target(state, batch, weights, hyper.gamma)
        masks = self.masks(key_masks, batch.reward.shape[0])

        loss_and_grad = jax.value_and_grad(self.critic_loss, has_aux=True)
        (loss, error), grads = loss_and_grad(state.params, batch, target, masks, weights)
        options = {"optimiser": self.optimiser, "max_norm": hyper.max_norm, "decay": hyper.weight_decay}
        moved = descend(state.params, grads, state.opt, hyper.learning_rate, **options)
        # A loss that is not finite skips one step and is reported unchanged.
        finite = jnp.isfinite(loss)
        params, opt = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, (state.params, state.opt))
        new_target = polyak(state.target, params, hyper.tau)
        noise = standard_normal(key_sample, batch.action.shape)
        signals = Signals(
            td_error=error.reshape(-1),
            value_loss=jax.lax.stop_gradient(loss),
            critic_drift=optax.tree.norm(jax.tree.map(jnp.subtract, params, state.params)),
            # Fresh actions of the policy just updated; dead code unless the schedule reads it.
            log_prob=jax.lax.stop_gradient(self.sample(params, batch.obs, noise)[1]),
        )
        metrics = {"critic_loss": loss, "actor_loss": jnp.zeros(())}
        return UpdateOut(MeowState(params, new_target, opt), signals, metrics)

"""Model of reward and dynamics, trained alongside the agent; its error on new transitions is a drift signal."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from aesjax.types import Array
from agents.common import masks
from agents.common.carrier import Rollout, Transition
from agents.common.networks import MLP
from agents.common.optim import ADAM, descend

_HIDDEN = (64, 64)
_LEARNING_RATE = 1e-3
_SLOWEST = 1e-3  # step of the running scales, once they have seen enough
_LARGEST = 100.0  # squared error, in variances: one transition may not outweigh all others


class Scale(NamedTuple):
    """Running mean and mean square of some features, (F,) each."""

    mean: Array
    square: Array

    def normal(self, rows: Array) -> Array:
        """Rows (B, F) in standard deviations, which are at least a thousandth of the features' own size."""
        variance = jnp.maximum(self.square - self.mean**2, 1e-6 * self.square) + 1e-12
        return (rows - self.mean[None]) / jnp.sqrt(variance)[None]

    def seen(self, rows: Array, weight: Array, step: Array) -> "Scale":
        """Scale moved by ``step`` towards rows (B, F); rows of weight 0, (B,), are ignored."""
        mean, square = (weight @ x / jnp.maximum(jnp.sum(weight), 1.0) for x in (rows, rows**2))
        return Scale(self.mean + step * (mean - self.mean), self.square + step * (square - self.square))


class ModelState(NamedTuple):
    """Memory of the model, one run."""

    params: Any
    opt: Any
    inputs: Scale  # of observation and action, (S + A,)
    targets: Scale  # of the change of the observation and the reward, (S + 1,)
    error: Array  # () float32, mean over the newest transitions, when they arrived; variances of the target
    count: Array  # () int32, batches of new transitions seen


def _features(rows: Transition | Rollout) -> tuple[Array, Array]:
    flat = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), (rows.obs, rows.action, rows.next_obs))
    obs, action, after = flat
    return jnp.concatenate([obs, action], -1), jnp.concatenate([after - obs, rows.reward.reshape(-1, 1)], -1)


def _errors(net: MLP, params: Any, state: ModelState, inputs: Array, targets: Array) -> Array:
    """Squared error (B,) in variances of the targets: half from the reward, half from all observations."""
    inputs, targets = state.inputs.normal(inputs), state.targets.normal(targets)
    error = jnp.minimum((cast(Array, net.apply(params, inputs)) - targets) ** 2, _LARGEST)
    return (jnp.mean(error[:, :-1], -1) + error[:, -1]) / 2


class Model(NamedTuple):
    """Model of a world with observations of size S and actions of size A."""

    net: MLP
    inputs: int
    window: int  # newest transitions over which the error is averaged

    def init(self, key: Array) -> ModelState:
        """Untrained model."""
        params = self.net.init(key, jnp.zeros((1, self.inputs)))
        inputs, targets = (Scale(jnp.zeros(size), jnp.zeros(size)) for size in (self.inputs, self.net.out))
        return ModelState(params, ADAM.init(params), inputs, targets, jnp.zeros(()), jnp.int32(0))

    def observe(self, state: ModelState, rows: Transition | Rollout, counts: Array | None = None) -> ModelState:
        """Measure the error on new transitions (..., S), (..., A); ``counts`` (...) marks the valid ones, None: all."""
        inputs, targets = _features(rows)
        weight = jnp.ones(len(inputs)) if counts is None else counts.reshape(-1).astype(jnp.float32)
        some = jnp.any(weight > 0)
        step = some * jnp.maximum(1.0 / (state.count + 1.0), _SLOWEST)
        state = state._replace(
            inputs=state.inputs.seen(inputs, weight, step), targets=state.targets.seen(targets, weight, step)
        )
        error = masks.mean(_errors(self.net, state.params, state, inputs, targets), weight)
        share = jnp.where(state.count > 0, jnp.minimum(jnp.sum(weight) / self.window, 1.0), 1.0)
        error = state.error + some * share * (error - state.error)
        return state._replace(error=error, count=state.count + some.astype(jnp.int32))

    def learn(self, state: ModelState, rows: Transition | Rollout, counts: Array | None = None) -> ModelState:
        """One gradient step on a batch."""
        inputs, targets = _features(rows)

        def loss(params: Any) -> Array:
            return masks.mean(_errors(self.net, params, state, inputs, targets), counts)

        params, opt = descend(state.params, jax.grad(loss)(state.params), state.opt, _LEARNING_RATE)
        return state._replace(params=params, opt=opt)


def make(obs_size: int, action_size: int, window: int) -> Model:
    """Model for observations of size S and actions of size A, whose error is a mean over ``window`` transitions."""
    return Model(MLP(_HIDDEN, obs_size + 1), obs_size + action_size, window)

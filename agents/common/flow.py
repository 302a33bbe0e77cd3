"""The conditional normalising flow of MEow (Chao et al. 2024) and its reward-shift networks.

Direction "generate": latent z -> pre-squash u -> action a; direction "infer": a -> u -> z. Both are one distrax
bijector: additive couplings, which preserve volume, then a tanh."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import distrax
import jax
import jax.numpy as jnp
from flax import linen as nn

from aesjax.types import Array
from agents.common.networks import orthogonal, twin, uniform_bias

COUPLINGS = 4
_Masks = Sequence[Sequence[Array]]  # per coupling and hidden layer, (..., width) float32: 0 or 1 / (1 - rate)


class Swish(nn.Module):
    """``x sigmoid(beta x)`` with one learnable ``beta`` per unit, 1 at first."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """(..., W) -> (..., W)."""
        beta = self.param("beta", nn.initializers.ones_init(), (x.shape[-1],))
        return x * jax.nn.sigmoid(jnp.broadcast_to(beta, x.shape) * x)


class Perceptron(nn.Module):
    """Dense -> [LayerNorm] -> Swish -> [dropout] per hidden layer, then a linear output, ``(..., in) -> (..., out)``.

    Biases are uniform in ``+-1/sqrt(fan_in)`` for every kernel: zero kernels with zero biases would never train.
    """

    hidden: tuple[int, ...]
    out: int
    kernel_init: Callable[..., Array]
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: Array, masks: Sequence[Array] | None = None) -> Array:
        """Apply the network; ``masks``, one (..., width) per hidden layer, multiply the activations."""
        for index, width in enumerate(self.hidden):
            x = self._dense(width, x.shape[-1])(x)
            if self.layer_norm:
                x = nn.LayerNorm(epsilon=1e-5)(x)
            x = Swish()(x)
            if masks is not None:
                x = x * masks[index]
        return self._dense(self.out, x.shape[-1])(x)

    def _dense(self, features: int, fan_in: int) -> nn.Dense:
        return nn.Dense(features, kernel_init=self.kernel_init, bias_init=uniform_bias(fan_in))


class Squash(distrax.Tanh):
    """tanh whose inverse treats stored actions like the reference implementation.

    Actions are first clipped to ``+-(1 - clip)``, because atanh(1) is infinite, and the log-Jacobian of the inverse
    is ``-log(1 - a^2 + eps)``. Both zero: the exact inverse.
    """

    def __init__(self, clip: float, eps: float):
        super().__init__()
        self.clip, self.eps = clip, eps

    def inverse_and_log_det(self, y: Array) -> tuple[Array, Array]:
        """Pre-squash value and log |du/da|, elementwise."""
        y = jnp.clip(y, -1.0 + self.clip, 1.0 - self.clip)
        return jnp.arctanh(y), -jnp.log(1.0 - y**2 + self.eps)


class ConditionalFlow(nn.Module):
    """Flow, prior scale and reward shifts of one policy. S = observation size, A = action size.

    The only state-dependent volume change is the prior ``z ~ N(0, diag(sigma(s)^2))``.
    """

    action_size: int
    hidden: tuple[int, ...] = (64, 64)  # of the couplings and of sigma
    shift_hidden: tuple[int, ...] = (256, 256)
    log_sigma_min: float = -5.0
    log_sigma_max: float = -0.3
    action_clip: float = 1e-5
    squash_eps: float = 1.19e-7  # float32's machine epsilon in the reference
    layer_norm: bool = False  # in the shifts; the couplings always have it

    def setup(self) -> None:
        """Parameter names: t_0 ... t_3, h, b."""
        zeros = nn.initializers.zeros_init()
        self.t = [Perceptron(self.hidden, self.action_size, orthogonal(), True) for _ in range(COUPLINGS)]
        self.h = Perceptron(self.hidden, self.action_size, zeros)
        self.b = twin(Perceptron)(self.shift_hidden, 1, zeros, self.layer_norm)

    def __call__(self, obs: Array, action: Array) -> tuple[Array, Array, Array]:
        return self.log_sigma(obs), self.shift(obs), self.infer(action, obs)[0]

    def log_sigma(self, obs: Array) -> Array:
        """Log standard deviation of the prior, (..., S) -> (..., A), inside its bounds through a tanh."""
        half = 0.5 * (self.log_sigma_max - self.log_sigma_min)
        return self.log_sigma_min + half * (jnp.tanh(self.h(obs)) + 1.0)

    def shift(self, obs: Array) -> Array:
        """Reward shifts b_1 and b_2, (..., S) -> (2, ...); in units of the weight they are multiplied with."""
        return self.b(obs).squeeze(-1)

    def generate(self, latent: Array, obs: Array) -> tuple[Array, Array]:
        """Action of ``latent`` (..., A) and exact log |da/dz|, (..., A) and (...,)."""
        return cast(tuple[Array, Array], self.bijector(obs).forward_and_log_det(latent))

    def infer(self, action: Array, obs: Array, masks: _Masks | None = None) -> tuple[Array, Array]:
        """Latent of ``action`` (..., A) and log |dz/da|, (..., A) and (...,); dropout where ``masks`` are given."""
        return cast(tuple[Array, Array], self.bijector(obs, masks).inverse_and_log_det(action))

    def bijector(self, obs: Array, masks: _Masks | None = None) -> distrax.Bijector:
        """z -> a given observations (..., S): couplings with masks b, 1-b, b, 1-b, b = (1, 0, 1, ...), then tanh."""
        squash = distrax.Block(Squash(self.action_clip, self.squash_eps), 1)
        couplings = [self._coupling(k, obs, None if masks is None else masks[k]) for k in range(COUPLINGS)]
        return distrax.Chain([squash, *reversed(couplings)])  # a chain applies its last first

    def _coupling(self, index: int, obs: Array, masks: Sequence[Array] | None) -> distrax.Bijector:
        kept = jnp.arange(self.action_size) % 2 == index % 2
        # Of full rank, because distrax would otherwise broadcast silently.
        kept = kept.reshape((1,) * (obs.ndim - 1) + (-1,))

        def translation(fixed: Any) -> Array:
            return self.t[index](jnp.concatenate([fixed, obs], -1), masks)

        return distrax.MaskedCoupling(kept, translation, distrax.ScalarAffine, event_ndims=1)


def dropout_masks(key: Array, rate: float, rows: int, hidden: Sequence[int]) -> _Masks:
    """Independent masks for two halves of a batch, (2, rows, width) per coupling and hidden layer.

    The key seeds a counter hashed by lowbias32; each word gives one unit 16 bits for each half. A call of JAX's
    generator per mask would cost more than the networks.
    """
    seed = jax.random.bits(key, (2,), jnp.uint32)
    threshold = jnp.uint32(round(rate * 2**16))
    halves = jnp.array([0, 16], jnp.uint32).reshape(2, 1, 1)
    masks, start = [], 0
    for _ in range(COUPLINGS):
        layers = []
        for width in hidden:
            counter = start + jnp.arange(rows * width, dtype=jnp.uint32).reshape(1, rows, width)
            word = _hash(seed[0] + counter * (seed[1] | 1))
            keep = ((word >> halves) & 0xFFFF) >= threshold
            layers.append(keep.astype(jnp.float32) / (1.0 - rate))
            start += rows * width
        masks.append(layers)
    return masks


def _hash(x: Any) -> Any:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)

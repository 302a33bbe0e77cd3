"""Networks, the initialisers of the reference implementations, and the policies' distributions."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import linen as nn

from aesjax.types import Array
from agents.common import masks
from agents.common.draws import standard_normal

# PyTorch's nn.Linear: kernel and bias both uniform in +-1/sqrt(fan_in).
torch_default = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def uniform_bias(fan_in: int) -> Callable[..., Array]:
    """Initialiser of PyTorch's bias, uniform in ``+-1/sqrt(fan_in)``; flax's own default is zero."""
    bound = fan_in**-0.5

    def init(key: Array, shape: Sequence[int], dtype=jnp.float32) -> Array:
        return jax.random.uniform(key, tuple(shape), dtype, -bound, bound)

    return init


def orthogonal(gain: float = 1.0) -> Callable[..., Array]:
    """Initialiser of orthogonal kernels (Saxe et al. 2014): orthonormal columns, or rows where there are fewer.

    By Gram-Schmidt, twice for float32. LAPACK's batched QR, which flax calls, waits for threads that wait for it where
    two of them run at once on a CPU of two cores.
    """

    def init(key: Array, shape: Sequence[int], dtype=jnp.float32) -> Array:
        rows, columns = shape
        longer, shorter = max(shape), min(shape)
        normal = jax.random.normal(key, (longer, shorter), dtype)

        def next_column(j: Array, q: Array) -> Array:
            v = jax.lax.dynamic_slice_in_dim(normal, j, 1, 1)
            for _ in range(2):
                v = v - q @ (q.T @ v)
            return jax.lax.dynamic_update_slice_in_dim(q, v / jnp.linalg.norm(v), j, 1)

        q = jax.lax.fori_loop(0, shorter, next_column, jnp.zeros((longer, shorter), dtype))
        return gain * (q if rows >= columns else q.T)

    return init


def _dense(features: int, fan_in: int, name: str | None = None) -> nn.Dense:
    return nn.Dense(features, kernel_init=torch_default, bias_init=uniform_bias(fan_in), name=name)


ACTIVATIONS = {"relu": nn.relu, "tanh": nn.tanh, "elu": nn.elu, "gelu": lambda x: nn.gelu(x, approximate=False)}


class BatchRenorm(nn.Module):
    """Batch renormalisation (Ioffe 2017) with the constants of CrossQ (Bhatt et al. 2024)."""

    momentum: float = 0.99  # share of the running statistics that one update keeps
    r_max: float = 3.0
    d_max: float = 5.0
    epsilon: float = 1e-3

    @nn.compact
    def __call__(self, x: Array, corrected: Array | None = None) -> Array:
        """Normalised features, (B, F) -> (B, F).

        Args:
          corrected: None: normalise with the running statistics, which stay. Else () bool: normalise with the
            statistics of the batch, move the running ones, and if True correct towards them as renormalisation does.
        """
        mean = self.variable("batch_stats", "mean", jnp.zeros, x.shape[-1:])
        var = self.variable("batch_stats", "var", jnp.ones, x.shape[-1:])
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        std = jnp.sqrt(var.value + self.epsilon)
        if corrected is None:
            normal = (x - mean.value[None]) / std[None]
        else:
            batch_mean, batch_var = jnp.mean(x, 0), jnp.var(x, 0)
            batch_std = jnp.sqrt(batch_var + self.epsilon)
            r = jnp.clip(batch_std / std, 1.0 / self.r_max, self.r_max)
            d = jnp.clip((batch_mean - mean.value) / std, -self.d_max, self.d_max)
            r, d = jax.lax.stop_gradient((jnp.where(corrected, r, 1.0), jnp.where(corrected, d, 0.0)))
            normal = (x - batch_mean[None]) / batch_std[None] * r[None] + d[None]
            mean.value += (1.0 - self.momentum) * (jax.lax.stop_gradient(batch_mean) - mean.value)
            var.value += (1.0 - self.momentum) * (jax.lax.stop_gradient(batch_var) - var.value)
        return scale[None] * normal + bias[None]


class MLP(nn.Module):
    """Dense layers with an activation between them and a linear output, ``(..., in) -> (..., out)``.

    With ``out = 0`` the last hidden layer is the output. Every layer uses `torch_default`, unless ``gain`` is given:
    then orthogonal kernels of gain sqrt(2), of gain ``gain`` in the output layer, and zero biases.
    """

    hidden: tuple[int, ...]
    out: int
    activation: str = "relu"
    gain: float | None = None
    layer_norm: bool = False  # of the hidden layers, before the activation
    renorm: bool = False  # `BatchRenorm` of the input and after every activation, to which ``corrected`` goes

    @nn.compact
    def __call__(self, x: Array, corrected: Array | None = None) -> Array:
        def layer(features: int, gain: float) -> nn.Dense:
            if self.gain is None:
                return _dense(features, x.shape[-1])
            return nn.Dense(features, kernel_init=orthogonal(gain))

        x = BatchRenorm()(x, corrected) if self.renorm else x
        for width in self.hidden:
            x = layer(width, 2**0.5)(x)
            x = nn.LayerNorm(epsilon=1e-5)(x) if self.layer_norm else x
            x = ACTIVATIONS[self.activation](x)
            x = BatchRenorm()(x, corrected) if self.renorm else x
        return layer(self.out, self.gain or 1.0)(x) if self.out else x


class Gaussian(NamedTuple):
    """Mean and log standard deviation of the pre-tanh normal, (..., A) each."""

    mean: Array
    log_std: Array

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Reparameterised action in (-1, 1) and its log-density in normalised action units, (..., A) and (...,).

        ``noise`` (..., A) is standard normal. The density is formed from the pre-tanh sample, as inverting tanh in
        float32 is infinite for |u| > 9; the log-Jacobian is the exact ``2 (log 2 - u - softplus(-2u))``.
        """
        u = self.mean + jnp.exp(self.log_std) * noise
        action = jnp.tanh(u)
        log_det = 2 * (jnp.log(2) - u - jax.nn.softplus(-2 * u))
        normal = -0.5 * noise**2 - self.log_std - 0.5 * jnp.log(2 * jnp.pi)
        return action, jnp.sum(normal - log_det, -1)

    def mode(self) -> Array:
        """Deterministic evaluation action ``tanh(mean)``."""
        return jnp.tanh(self.mean)


class Normal(NamedTuple):
    """PPO's normal distribution: mean (..., A), and log standard deviation (A,), equal in every state."""

    mean: Array
    log_std: Array

    def sample(self, key: Array) -> Array:
        """Actions (..., A), which may leave [-1, 1]."""
        return self.mean + jnp.exp(self.log_std)[None] * standard_normal(key, self.mean.shape)

    def mode(self) -> Array:
        """Mean, clipped to [-1, 1]."""
        return jnp.clip(self.mean, -1.0, 1.0)

    def log_prob(self, action: Array) -> Array:
        """Log-density (...,) of actions (..., A)."""
        mean, log_std = self
        scale = jnp.broadcast_to(jnp.exp(log_std).reshape((1,) * (mean.ndim - 1) + log_std.shape), mean.shape)
        return (-0.5 * jnp.square((action - mean) / scale) - (0.5 * math.log(2 * math.pi) + jnp.log(scale))).sum(-1)

    def entropy(self, weight: Array | None = None) -> Array:
        """``sum_j (0.5 + 0.5 log 2 pi + log_std_j)``, () nats, before samples are clipped."""
        return jnp.sum(0.5 + 0.5 * jnp.log(2 * jnp.pi) + self.log_std)


class Categorical(NamedTuple):
    """Distribution over A choices by its logits (..., A); samples are one-hot rows."""

    logits: Array

    def sample(self, key: Array) -> Array:
        """One-hot rows (..., A)."""
        return self._row(jax.random.categorical(key, self.logits))

    def mode(self) -> Array:
        """One-hot row (..., A) of the most probable choice."""
        return self._row(jnp.argmax(self.logits, -1))

    def _row(self, choice: Array) -> Array:
        return jax.nn.one_hot(choice, self.logits.shape[-1], dtype=jnp.float32)

    def log_probs(self) -> Array:
        """Log-probability (..., A) of every choice."""
        return jax.nn.log_softmax(self.logits)

    def log_prob(self, action: Array) -> Array:
        """Log-probability (...,) of one-hot rows (..., A)."""
        return jnp.sum(action * self.log_probs(), -1)

    def mean(self, values: Array) -> Array:
        """Expectation (...,) of values (..., A) per choice."""
        return jnp.sum(jax.nn.softmax(self.logits) * values, -1)

    def entropy(self, weight: Array | None = None) -> Array:
        """Exact entropy, () nats, mean over rows (B,); rows of ``weight`` 0 do not count."""
        return masks.mean(-self.mean(self.log_probs()), weight)


class GaussianActor(nn.Module):
    """Observation to a tanh-Gaussian whose log standard deviation lies in [-5, 2] through a tanh, not a clip."""

    hidden: tuple[int, ...]
    action_size: int
    renorm: bool = False  # as in `MLP`

    @nn.compact
    def __call__(self, obs: Array, corrected: Array | None = None) -> Gaussian:
        """(..., S) -> mean and log_std, (..., A) each."""
        x = BatchRenorm()(obs, corrected) if self.renorm else obs
        for width in self.hidden:
            x = nn.relu(_dense(width, x.shape[-1])(x))
            x = BatchRenorm()(x, corrected) if self.renorm else x
        # One matmul for both heads: same function and initial distribution as two linear layers.
        mean, rho = jnp.split(_dense(2 * self.action_size, x.shape[-1])(x), 2, axis=-1)
        return Gaussian(mean, -5.0 + 3.5 * (jnp.tanh(rho) + 1.0))


def twin(module: type[nn.Module]) -> Callable[..., Any]:
    """Two of ``module`` with separate initial parameters on the same input; parameters and output are stacked."""
    return nn.vmap(
        module,
        variable_axes={"params": 0, "batch_stats": 0},
        split_rngs={"params": True},
        in_axes=cast(int, None),  # both see the same input; flax types this too narrowly
        out_axes=0,
        axis_size=2,
    )


class TwinCritic(nn.Module):
    """Two independent state-action values with parameters stacked on a leading axis, -> (2, ...)."""

    hidden: tuple[int, ...]
    layer_norm: bool = False
    renorm: bool = False  # as in `MLP`

    @nn.compact
    def __call__(self, obs: Array, action: Array, corrected: Array | None = None) -> Array:
        """(..., S), (..., A) -> (2, ...); the two critics draw separate initial parameters."""
        net = twin(MLP)(self.hidden, 1, layer_norm=self.layer_norm, renorm=self.renorm)
        return net(jnp.concatenate([obs, action], -1), corrected).squeeze(-1)


class TwinActionValues(nn.Module):
    """Two independent critics with a value per discrete action; parameters stacked on a leading axis."""

    hidden: tuple[int, ...]
    action_size: int
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """(..., S) -> (2, ..., A)."""
        return twin(MLP)(self.hidden, self.action_size, layer_norm=self.layer_norm)(obs)


class ActorCritic(nn.Module):
    """PPO's policy and its state value, as two networks or as two heads of one trunk."""

    hidden: tuple[int, ...]
    action_size: int
    activation: str
    orthogonal: bool  # gains sqrt(2), 0.01 (mean), 1 (value); else `torch_default`
    shared: bool
    log_std: float | None  # initial; None: the policy is `Categorical`
    bounds: tuple[float, float]  # of log_std
    layer_norm: bool = False  # in the value network, or the trunk

    @nn.compact
    def __call__(self, obs: Array) -> tuple[Normal | Categorical, Array]:
        """(..., S) -> policy, value (...)."""

        def net(hidden: tuple[int, ...], out: int, gain: float, name: str) -> MLP:
            norm = self.layer_norm and name != "policy"
            return MLP(hidden, out, self.activation, gain if self.orthogonal else None, norm, name=name)

        hidden, features = self.hidden, obs
        if self.shared:
            hidden, features = (), net(self.hidden, 0, 1.0, "trunk")(obs)
        mean = net(hidden, self.action_size, 0.01, "policy")(features)
        value = net(hidden, 1, 1.0, "value")(features).squeeze(-1)
        if self.log_std is None:
            return Categorical(mean), value
        log_std = self.param("log_std", nn.initializers.constant(self.log_std), (self.action_size,))
        return Normal(mean, jnp.clip(log_std, *self.bounds)), value

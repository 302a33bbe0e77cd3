"""The optimiser of every carrier: Adam with a traced learning rate, optionally after clipping the global norm."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from aesjax.types import Array

__all__ = ["adam", "descend", "polyak"]


def adam(eps: float = 1e-8) -> optax.GradientTransformation:
    """Adam without a learning rate; eps 1e-8 is both optax's and PyTorch's default."""
    return optax.scale_by_adam(eps=eps)


def descend(
    params: Any,
    grads: Any,
    opt_state: Any,
    learning_rate: Array | float,
    *,
    max_norm: Array | float | None = None,
    eps: float = 1e-8,
) -> tuple[Any, Any]:
    """One step down the gradient.

    Args:
      opt_state: of `adam`.
      learning_rate: () may be traced, so that runs of one program may differ in it.
      max_norm: () largest global norm of the gradient, PyTorch's rule ``g * min(1, max_norm / (norm + 1e-6))``;
        None: no clipping.

    Returns:
      New parameters and optimiser state.
    """
    if max_norm is not None:
        scale = jnp.minimum(1.0, max_norm / (optax.tree.norm(grads) + 1e-6))
        grads = jax.tree.map(lambda g: g * scale, grads)
    updates, opt_state = adam(eps).update(grads, opt_state)
    return jax.tree.map(lambda p, u: p - learning_rate * u, params, updates), opt_state


def polyak(target: Any, online: Any, tau: Array | float) -> Any:
    """Target parameters moved by ``tau`` towards the online ones."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, online)

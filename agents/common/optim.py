"""One step of an optimiser with a traced learning rate, and moving averages of parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from aesjax.types import Array

ADAM = optax.scale_by_adam()


class Networks(NamedTuple):
    """Parameters and optimiser states of an actor and two critics, one run."""

    actor: Any
    critic: Any  # leaves with a leading axis of 2
    target: Any  # same structure as critic
    actor_opt: Any
    critic_opt: Any


def begin(actor: Any, critic: Any, optimiser: optax.GradientTransformation = ADAM) -> Networks:
    """A new agent of these parameters."""
    # A copy, not an alias: the carry is donated and two leaves may not share one buffer.
    target = jax.tree.map(jnp.copy, critic)
    return Networks(actor, critic, target, optimiser.init(actor), optimiser.init(critic))


def descend(
    params: Any,
    grads: Any,
    opt_state: Any,
    learning_rate: Array | float,
    *,
    optimiser: optax.GradientTransformation = ADAM,
    max_norm: Array | float | None = None,
    decay: Array | float = 0.0,
) -> tuple[Any, Any]:
    """One step down the gradient: new parameters and the state of the optimiser.

    Args:
      learning_rate: () may be traced.
      optimiser: maps gradients to steps of a learning rate of 1, with the sign of the gradients.
      max_norm: () gradients become ``g * min(1, max_norm / (norm + 1e-6))``, PyTorch's rule; None: no clipping.
      decay: () share of the parameters subtracted per unit of learning rate (AdamW).
    """
    if max_norm is not None:
        scale = jnp.minimum(1.0, max_norm / (optax.tree.norm(grads) + 1e-6))
        grads = jax.tree.map(lambda g: g * scale, grads)
    steps, opt_state = optimiser.update(grads, opt_state, params)
    return jax.tree.map(lambda p, u: p - learning_rate * (u + decay * p), params, steps), opt_state


def polyak(target: Any, online: Any, tau: Array | float) -> Any:
    """Target parameters, moved by ``tau`` towards the online ones."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, online)


def restarted(opt_state: Any, fresh: Any, step: Array | float) -> Any:
    """Fresh optimiser state where parameters moved by a ``step`` above 0, because its moments are of the old ones."""
    return jax.tree.map(lambda new, old: jnp.where(step > 0, new, old), fresh, opt_state)

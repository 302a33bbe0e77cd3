"""What both loops do for adaptations: read the levers, log them, refresh the parameters when that is due, and
measure what networks have become."""

from typing import Any

import jax
import jax.numpy as jnp

from aesjax.types import Array, Levers, ResponseState
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.loop import AdaptationOf, LoopConfig
from agents.common.plasticity import measures


def levers_of(adaptation: ResponseState | None) -> Levers:
    """What is turned in the step about to run; nothing where the program has no adaptations."""
    return Levers() if adaptation is None else adaptation.levers


def adaptation_logs(adaptation: ResponseState | None) -> dict[str, Array]:
    """What one update under ``adaptation`` adds to the sums of its chunk: the levers that are there."""
    if adaptation is None:
        return {}
    levers, logs = adaptation.levers, {"response_ratio": adaptation.ratio}
    if levers.window is not None:  # as a share of what is stored
        logs["window_share"] = jnp.minimum(levers.window, adaptation.stored) / adaptation.stored
    if levers.rate is not None:
        logs["rate_factor"] = levers.rate
    return logs


def refreshed(
    carrier: Carrier | OnPolicyCarrier,
    agent: Any,
    fresh: Any,
    adaptation: ResponseState,
    seen: tuple[Array, Array] | None = None,
) -> tuple[Any, ResponseState, Array]:
    """Do the refresh that is due: the agent, the adaptation with nothing due, and whether there was one, () float32.

    Args:
      fresh: an agent just initialised.
      seen: observations (B, S) and actions (B, A) on which units are asleep or not; None: no unit is ever recycled.
    """
    assert carrier.refresh is not None  # checked when the program is made
    levers = adaptation.levers
    assert levers.refresh is not None
    moved = carrier.refresh(agent, fresh, levers.refresh, levers.refresh_actor)
    due, done = levers.refresh > 0, {"refresh": 0.0, "refresh_actor": 0.0}
    if seen is not None and levers.refresh_units is not None:
        assert carrier.recycle is not None
        moved = carrier.recycle(moved, fresh, *seen, levers.refresh_units)
        due, done = due | (levers.refresh_units > 0), done | {"refresh_units": 0.0}
    agent = jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, agent)
    levers = levers._replace(**{name: jnp.float32(zero) for name, zero in done.items()})
    return agent, adaptation._replace(levers=levers), due.astype(jnp.float32)


def check_adaptations(
    carrier: Carrier | OnPolicyCarrier, adaptation_of: AdaptationOf | None, config: LoopConfig
) -> None:
    """Refuse a program whose adaptations its carrier cannot follow, or whose measures it cannot take.

    Raises:
      ValueError: a refresh of a carrier without `refresh` (or `recycle`), or measures of one without `probe`.
    """
    if config.plasticity and carrier.probe is None:
        raise ValueError("measures of plasticity need a carrier with a function `probe`")
    if config.refresh and (carrier.refresh is None or adaptation_of is None):
        raise ValueError("a refresh of parameters needs a carrier with a function `refresh`, and adaptations that ask")
    if config.recycle and carrier.recycle is None:
        raise ValueError("recycling units needs a carrier with a function `recycle`")


def plasticity_of(carrier: Carrier | OnPolicyCarrier, agent: Any, obs: Array, action: Array) -> dict[str, Array]:
    """The measures of an agent's networks on observations (B, S) and actions (B, A)."""
    assert carrier.probe is not None  # checked when the program is made
    return measures(carrier.probe(agent, obs, action))

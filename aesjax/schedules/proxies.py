"""Drift proxies: one step's signals in, one non-negative magnitude out, on the update batch or on the newest data."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from aesjax.registry import Registry
from aesjax.schedules.order import quantile
from aesjax.schedules.rule import read_signal
from aesjax.types import Array, Proxy, Signals

_RESIDUALS = MappingProxyType({"update": "td_error", "fresh": "fresh_td_error"})
_LOSSES = MappingProxyType({"update": "value_loss", "fresh": "fresh_td_error"})
_CRITIC_CHANGES = MappingProxyType({"update": "critic_drift", "fresh": "fresh_critic_drift"})


def td_quantile(q: Array | float = 0.9, source: str = "update") -> Proxy:
    """Upper quantile of the absolute temporal-difference errors, () reward.

    AES paper Eq. (proxy_offpolicy) and (proxy_onpolicy). With twin critics the residuals of both form one set.
    Deviation: ``source="fresh"`` reads the newest transitions, on which a change of the environment shows at once;
    a replay batch shows it only as the buffer refills.

    Args:
      q: () quantile level in [0, 1], linear interpolation; may be traced.
      source: "update" for the update batch (paper), "fresh" for the newest transitions.

    Example:
      >>> import jax.numpy as jnp
      >>> from aesjax.types import Signals
      >>> print(td_quantile(q=0.5)(Signals(td_error=jnp.array([-3.0, 1.0, 2.0]))))
      2.0
    """
    field = _field("td_quantile", _RESIDUALS, source)
    return lambda signals: quantile(jnp.abs(_read("td_quantile", signals, field)), q)


def td_mean(source: str = "update") -> Proxy:
    """Mean absolute temporal-difference error, () reward; the paper's ablation "TD mean"."""
    field = _field("td_mean", _RESIDUALS, source)
    return lambda signals: jnp.mean(jnp.abs(_read("td_mean", signals, field)))


def value_loss(source: str = "update") -> Proxy:
    """Critic loss, () reward squared; the paper's ablation "value loss".

    ``source="fresh"`` is the mean squared residual of the newest transitions. Carriers weigh and sum their critics'
    losses differently, so the two sources differ by a constant factor.
    """
    field = _field("value_loss", _LOSSES, source)
    if source == "fresh":
        return lambda signals: jnp.mean(jnp.square(_read("value_loss", signals, field)))
    return lambda signals: _read("value_loss", signals, field)


def critic_drift(source: str = "update") -> Proxy:
    """How far the critic moved in this step; the paper's ablation "critic drift".

    ``source="update"`` is the norm of the parameter change, () parameter units; "fresh" is the mean change of the
    critic's values on the newest transitions, () reward.
    """
    field = _field("critic_drift", _CRITIC_CHANGES, source)
    return lambda signals: _read("critic_drift", signals, field)


class ProxySpec(NamedTuple):
    """A registered proxy."""

    build: Callable[..., Proxy]  # (q, source) -> Proxy; proxies without a quantile ignore q
    fields: Mapping[str, str]  # source -> the one Signals field it reads
    label: str  # name in tables
    summary: str  # one line for listings


PROXIES: Registry[ProxySpec] = Registry(
    "proxy",
    td_quantile=ProxySpec(td_quantile, _RESIDUALS, "TD quantile", "q-quantile of |TD error| (paper default, q = 0.9)"),
    td_mean=ProxySpec(lambda q, source: td_mean(source), _RESIDUALS, "TD mean", "mean of |TD error|"),
    value_loss=ProxySpec(lambda q, source: value_loss(source), _LOSSES, "Value loss", "critic loss, reward squared"),
    critic_drift=ProxySpec(
        lambda q, source: critic_drift(source),
        _CRITIC_CHANGES,
        "Critic drift",
        "size of the critic's own change",
    ),
)

_RANKS = {"td_error": 1, "fresh_td_error": 1, "value_loss": 0, "critic_drift": 0, "fresh_critic_drift": 0}


def _read(name: str, signals: Signals, field: str) -> Array:
    # Behind stop_gradient: a weight that can be differentiated through its residuals would train the critic.
    return lax.stop_gradient(read_signal(f"proxy '{name}'", signals, field, _RANKS[field]))


def _field(name: str, fields: Mapping[str, str], source: str) -> str:
    if source not in fields:
        raise ValueError(f"proxy '{name}' has no source '{source}'; sources: {', '.join(fields)}")
    return fields[source]

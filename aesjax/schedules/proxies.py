"""Drift proxies: one step's signals in, one non-negative magnitude out, on the update batch or on the newest data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from aesjax.factory import SHARE, Factory, Made
from aesjax.registry import Registry
from aesjax.schedules.order import quantile
from aesjax.schedules.rule import read_signal
from aesjax.types import Array, Proxy, Signals

_RESIDUALS = MappingProxyType({"update": "td_error", "fresh": "fresh_td_error"})
_LOSSES = MappingProxyType({"update": "value_loss", "fresh": "fresh_td_error"})
_CRITIC_CHANGES = MappingProxyType({"update": "critic_drift", "fresh": "fresh_critic_drift"})
_MODEL = MappingProxyType({"update": "model_error", "fresh": "model_error"})


@dataclass(eq=False)
class ProxyFactory(Factory):
    """A registered proxy: call it for a `DriftProxy`, ``td_quantile(q=0.8, source="fresh")``."""

    kind = "proxy"
    known_ranges = MappingProxyType({"q": SHARE})
    static = ("source",)
    fillable = ("q",)

    label: str  # in tables
    #: source -> the one field of `Signals` that it reads there
    fields: Mapping[str, str] = field(default_factory=lambda: dict(_RESIDUALS))

    @property
    def options(self) -> tuple[str, ...]:
        return ("q",)

    @property
    def takes(self) -> set[str]:
        """Those of ``q`` and ``source`` that its function accepts."""
        return {"q", "source"} & {*self.signature.names, *self.signature.others}

    def __call__(self, q: Array | float = 0.9, source: str | None = None) -> "DriftProxy":
        """The proxy at quantile level ``q``, which only `td_quantile` uses.

        Raises:
          ValueError: it has no such source, or ``q`` is outside [0, 1].
        """
        if source is not None and source not in self.fields:
            raise ValueError(f"proxy '{self.name}' has no source '{source}'; sources: {', '.join(self.fields)}")
        self.check({"q": q})
        return DriftProxy(self, q, source)


@partial(jax.tree_util.register_dataclass, data_fields=["q"], meta_fields=["factory", "source"])
@dataclass(eq=False, repr=False)
class DriftProxy(Made):
    """A proxy: maps `Signals` to a drift magnitude, () float32 >= 0. A pytree, whose leaf is ``q``.

    Without a source it uses the source of its schedule; outside a schedule it reads the update batch.
    """

    factory: ProxyFactory
    q: Array | float
    source: str | None

    def at(self, source: str) -> "DriftProxy":
        """This proxy, with ``source`` if it has none."""
        return self if self.source is not None else self.factory(self.q, source)

    @property
    def place(self) -> str:
        """Source that it reads, "update" or "fresh"."""
        return self.source or next(iter(self.factory.fields))

    @property
    def key(self) -> str:
        """Key in the measured proxies, such as "td_quantile/fresh"."""
        return f"{self.factory.name}/{self.place}"

    @property
    def field(self) -> str:
        """Field of `Signals` that it reads."""
        return self.factory.fields[self.place]

    def __call__(self, signals: Signals) -> Array:
        """The proxy of one step; raises when traced if its signal is absent."""
        given = {"q": self.q, "source": self.place}
        return self.factory.make(**{name: given[name] for name in self.factory.takes})(signals)

    def __repr__(self) -> str:
        source = "" if self.source is None else f", source='{self.source}'"
        return f"{self.factory.name}(q={self.q}{source})"


def as_proxy(
    make: Callable[..., Proxy] | None = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    fields: Mapping[str, str] = _RESIDUALS,
) -> Any:
    """Turn a function that returns a proxy into a proxy's factory; also a decorator.

    The function may take ``q``, the quantile level, and ``source``, "update" or "fresh". The first line of its
    docstring is its summary in listings.

    Args:
      name: by default the function's.
      label: name in tables; by default the name.
      fields: source -> the one field of `Signals` that it reads there.

    Raises:
      ValueError: another parameter without a default.
    """
    return ProxyFactory.of(make, name, label=label, fields=dict(fields))


@as_proxy(label="TD quantile")
def td_quantile(q: Array | float, source: str) -> Proxy:
    """q-quantile of |TD error| (paper default, q = 0.9).

    () reward. AES paper Eq. (proxy_offpolicy) and (proxy_onpolicy). With twin critics the residuals of both form one
    set. Deviation: ``source="fresh"`` reads the newest transitions, on which a change of the environment has an
    immediate effect; on a replay batch it appears only as the buffer refills.

    Args:
      q: () quantile level in [0, 1], linear interpolation; may be traced.
      source: "update" for the update batch (paper), "fresh" for the newest transitions.

    Example:
      >>> import jax.numpy as jnp
      >>> from aesjax.types import Signals
      >>> print(td_quantile(q=0.5)(Signals(td_error=jnp.array([-3.0, 1.0, 2.0]))))
      2.0
    """
    field = _RESIDUALS[source]
    return lambda signals: quantile(jnp.abs(_read("td_quantile", signals, field)), q)


@as_proxy(label="TD mean")
def td_mean(source: str) -> Proxy:
    """Mean of |TD error|.

    () reward; the paper's ablation "TD mean".
    """
    field = _RESIDUALS[source]
    return lambda signals: jnp.mean(jnp.abs(_read("td_mean", signals, field)))


@as_proxy(label="Value loss", fields=_LOSSES)
def value_loss(source: str) -> Proxy:
    """Critic loss, in squared units of reward; the paper's ablation "value loss".

    ``source="fresh"`` is the mean squared residual of the newest transitions. Carriers weigh and sum their critics'
    losses differently, so the two sources differ by a constant factor.
    """
    field = _LOSSES[source]
    if source == "fresh":
        return lambda signals: jnp.mean(jnp.square(_read("value_loss", signals, field)))
    return lambda signals: _read("value_loss", signals, field)


@as_proxy(label="Critic drift", fields=_CRITIC_CHANGES)
def critic_drift(source: str) -> Proxy:
    """Size of the critic's change in one update; the paper's ablation "critic drift".

    ``source="update"`` is the norm of the parameter change, () parameter units; "fresh" is the mean change of the
    critic's values on the newest transitions, () reward.
    """
    field = _CRITIC_CHANGES[source]
    return lambda signals: _read("critic_drift", signals, field)


@as_proxy(label="Dynamics", fields=_MODEL)
def dynamics() -> Proxy:
    """Prediction error of a model of reward and dynamics on the newest transitions.

    () variances of the target. Not in the paper. The model is trained with the agent, one gradient step per update.
    After a change of a robot TD errors change little; a prediction of the next step is wrong immediately.
    """
    return lambda signals: _read("dynamics", signals, "model_error")


PROXIES: Registry[ProxyFactory] = Registry(
    "proxy", **{each.name: each for each in (td_quantile, td_mean, value_loss, critic_drift, dynamics)}
)


def _read(name: str, signals: Signals, field: str) -> Array:
    # stop_gradient, because differentiating the weight through its residuals would train the critic.
    return lax.stop_gradient(read_signal(f"proxy '{name}'", signals, field))

"""The registered responses beyond the entropy weight: a line each."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from aesjax.adaptations import rules
from aesjax.registry import Registry
from aesjax.types import Levers

LEVERS = ("window", "refresh", "rate")  # what a response may turn; a schedule turns the entropy weight
_INF = float("inf")


class ResponseSpec(NamedTuple):
    """A registered response."""

    turn: Callable[..., tuple[Levers, Any]]  # (now, memory, *, options) -> the one lever it turns, memory
    start: Callable[[], Any]  # memory before the first update
    lever: str  # of `LEVERS`
    options: Mapping[str, float]  # with their defaults, all may be traced and swept
    ranges: Mapping[str, tuple[float, float]]  # of options, both ends allowed
    summary: str  # one line for listings
    uses_signal: bool = True  # False: the clock alone moves it
    units: bool = False  # what it refreshes are single units of the networks


def _frozen(**entries: Any) -> Mapping[str, Any]:
    return MappingProxyType(entries)


def _nothing() -> tuple[()]:
    return ()


_POWER = _frozen(power=(0.0, _INF))
_ALARM = {"threshold": (1.0, _INF), "rest": (0.0, 1.0)}
_SHARES = {"strength": (0.0, 1.0), "actor": (0.0, 1.0)}

RESPONSES: Registry[ResponseSpec] = Registry(
    "response",
    window=ResponseSpec(
        rules.window, _nothing, "window", _frozen(power=2.0), _POWER, "sample the newest stored / ratio^power only"
    ),
    forget=ResponseSpec(
        rules.forget, rules.quiet, "window", _frozen(threshold=1.5, rest=0.02), _frozen(**_ALARM),
        "when the ratio crosses the threshold: sample only what arrives from then on",
    ),
    refresh=ResponseSpec(
        rules.refresh, rules.quiet, "refresh", _frozen(strength=0.5, actor=1.0, threshold=1.5, rest=0.02),
        _frozen(**_SHARES, **_ALARM), "when the ratio crosses the threshold: shrink and perturb the networks",
    ),
    rate=ResponseSpec(rules.rate, _nothing, "rate", _frozen(power=1.0), _POWER, "learning rates times ratio^power"),
    recent=ResponseSpec(
        rules.recent, _nothing, "window", _frozen(share=0.25), _frozen(share=(0.0, 1.0)),
        "baseline: always sample the newest share of the replay", uses_signal=False,
    ),
    ere=ResponseSpec(
        rules.ere, _nothing, "window", _frozen(eta=0.996, cycle=1000.0), _frozen(eta=(0.0, 1.0), cycle=(1.0, _INF)),
        "baseline: emphasise recent experience (ERE)", uses_signal=False,
    ),
    reset=ResponseSpec(
        rules.reset, _nothing, "refresh", _frozen(strength=1.0, actor=1.0, every=0.1),
        _frozen(**_SHARES, every=(0.0, 1.0)), "baseline: fresh networks (or a step towards them) at fixed times",
        uses_signal=False,
    ),
    redo=ResponseSpec(
        rules.redo, _nothing, "refresh", _frozen(dormant=0.025, cycle=1000.0),
        _frozen(dormant=(0.0, 1.0), cycle=(1.0, _INF)), "baseline: recycle dormant units at fixed times (ReDo)",
        uses_signal=False, units=True,
    ),
)  # fmt: skip


def check_options(response: str, options: Mapping[str, Any]) -> None:
    """Refuse concrete values that are not allowed.

    Raises:
      ValueError: naming the response, the option, its value and what is allowed.
    """
    spec = RESPONSES[response]
    for option, value in options.items():
        low, high = spec.ranges.get(option, (-_INF, _INF))
        if not np.isfinite(value) or not low <= value <= high:
            allowed = f"finite and at least {low:g}" if high == _INF else f"in [{low:g}, {high:g}]"
            raise ValueError(f"option '{option}' of response '{response}' must be {allowed}; got {float(value):g}")

"""The registered adaptations: from the drift ratio and the clock to one lever each. All options may be traced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.factory import (
    FINITE,
    SHARE,
    Options,
    Range,
    check_options,
    equal,
    first_line,
    options_of,
    ranges_of,
    resemble,
)
from aesjax.registry import Registry, unknown
from aesjax.types import Array, Levers

LEVERS = ("window", "refresh", "rate", "updates")  # of an adaptation; a schedule adjusts the entropy weight

MOST_UPDATES = 64  # gradient steps per vector step

_NEVER = 2**30


class Supply(NamedTuple):
    """Numbers of transitions in a run's replay; all zero without a replay.

    Masked rows are counted, too.
    """

    stored: float = 0.0  # at the first update
    arriving: float = 0.0  # with every further update
    capacity: float = 0.0
    floor: float = 0.0  # a window never holds fewer: several batches' worth, and four windows of newest residuals


class Now(NamedTuple):
    """Input of a rule after an update."""

    ratio: Array  # () float32 >= 1, how much more drift there is than usual
    count: Array  # () int32, updates so far, this one included
    updates: Array  # () float32, planned number of updates
    stored: Array  # () float32, transitions in the replay
    supply: Supply


class Alarm(NamedTuple):
    """Memory of a rule that answers single events: the ratio's crossings of a threshold, from below."""

    above: Array  # () int32, 1 while the ratio is above the threshold
    since: Array  # () int32, updates since the last alarm, `_NEVER` at most


def quiet() -> Alarm:
    """Before the first update."""
    return Alarm(jnp.int32(0), jnp.int32(_NEVER))


def at_alarm(now: Now, memory: Alarm, threshold: Array, rest: Array) -> tuple[Array, Alarm]:
    """Whether this update rings, () bool, and the memory after it.

    Args:
      threshold: () ratio above which drift counts as a change.
      rest: () share of the planned updates during which a second crossing is the same change.
    """
    above = now.ratio > threshold
    rings = above & (memory.above == 0) & (memory.since.astype(jnp.float32) >= rest * now.updates)
    since = jnp.where(rings, 0, jnp.minimum(memory.since + 1, _NEVER))
    return rings, Alarm(above.astype(jnp.int32), since)


@dataclass(frozen=True, eq=False)
class AdaptationFactory:
    """A registered adaptation: call it with options by name, ``recent(share=0.1)``, for an `Adaptation`."""

    name: str
    adjust: Callable[..., tuple[Levers, Any]] = field(repr=False)  # (now, memory, *, options) -> its lever, memory
    start: Callable[[], Any] = field(repr=False)  # memory before the first update
    lever: str  # of `LEVERS`
    summary: str = field(repr=False)  # one line for listings
    uses_signal: bool  # False: the clock alone moves it
    units: bool  # single units of the networks begin anew, not all
    signature: Options = field(repr=False)
    ranges: Mapping[str, Range] = field(repr=False)

    def __post_init__(self) -> None:
        resemble(self, self.adjust)

    @property
    def options(self) -> Mapping[str, float]:
        """The options with their defaults."""
        return self.signature.defaults

    def __call__(self, **given: Any) -> "Adaptation":
        """The adaptation with these options.

        Raises:
          ValueError, TypeError: an option that it does not have, or a value outside its range.
        """
        for name in given:
            if name not in self.options:
                raise TypeError(unknown(f"option of adaptation '{self.name}'", self.options, name))
        self.check(given)
        return Adaptation(self, given)

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse concrete values that are not allowed.

        Raises:
          ValueError: naming the adaptation, the option, its value and what is allowed.
        """
        ranges = {option: self.ranges.get(option, FINITE) for option in options}
        check_options("adaptation", self.name, ranges, options)


@jax.tree_util.register_pytree_node_class
class Adaptation:
    """An adaptation and the options it was given. A pytree whose leaves are these numbers and ``on``."""

    def __init__(self, factory: AdaptationFactory, given: Mapping[str, Any], on: Any = 1.0):
        self.factory, self.given = factory, dict(given)
        self.on = on  # () float32; 0: a run of the same program without it

    def filled(self) -> "Adaptation":
        """The same adaptation with all of its options: the given ones, else the defaults."""
        return Adaptation(self.factory, {**self.factory.options, **self.given}, self.on)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Adaptation) and equal(
            (self.factory, self.given, self.on), (other.factory, other.given, other.on)
        )

    def __hash__(self) -> int:
        return hash(self.factory)

    def __repr__(self) -> str:
        return f"{self.factory.name}({', '.join(f'{name}={value}' for name, value in self.given.items())})"

    def tree_flatten(self) -> tuple[Any, Any]:
        """The given numbers and ``on`` as leaves; see `jax.tree_util`."""
        return (self.given, self.on), self.factory

    @classmethod
    def tree_unflatten(cls, structure: Any, leaves: Any) -> "Adaptation":
        """The inverse of `tree_flatten`."""
        return cls(structure, *leaves)


def as_adaptation(
    *,
    lever: str,
    name: str | None = None,
    start: Callable[[], Any] = tuple,
    summary: str | None = None,
    uses_signal: bool = True,
    units: bool = False,
    ranges: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., tuple[Levers, Any]]], AdaptationFactory]:
    """Decorator that turns a rule ``(now, memory, *, options) -> (Levers, memory)`` into an adaptation's factory.

    Args:
      lever: of `LEVERS`, the one that the rule adjusts.
      start: memory before the first update.
      summary: one line for `aesjax list`; by default the first line of the docstring.
      uses_signal: False where the clock alone moves it.
      units: single units of the networks begin anew, not all.
      ranges: allowed values of options, both ends included.

    Raises:
      ValueError: an unknown lever, an option without a default, or a range of something else.
    """

    def factory(rule: Callable[..., tuple[Levers, Any]]) -> AdaptationFactory:
        own = name or rule.__name__
        if lever not in LEVERS:
            raise ValueError(f"adaptation '{own}' adjusts '{lever}'; levers: {', '.join(LEVERS)}")
        options = options_of("adaptation", own, rule, static=("now", "memory"))
        return AdaptationFactory(
            own, rule, start, lever, summary or first_line(rule), uses_signal, units, options,
            ranges_of("adaptation", own, ranges, options),
        )  # fmt: skip

    return factory


_POWER = {"power": Range(0.0, text="finite and at least 0")}
_ALARM = {"threshold": Range(1.0, text="finite and at least 1"), "rest": SHARE}
_SHARES = {"strength": SHARE, "actor": SHARE}
_CYCLE = {"cycle": Range(1.0, text="finite and at least 1")}
_UPDATES = {"updates": Range(1.0, MOST_UPDATES), "span": SHARE}


@as_adaptation(lever="window", summary="sample the newest stored / ratio^power only", ranges=_POWER)
def window(now: Now, memory: Any, *, power: Any = 2.0) -> tuple[Levers, Any]:
    """Draw from the newest ``stored / ratio**power`` transitions: the more drift, the shorter the past."""
    return Levers(window=now.stored * now.ratio**-power), memory


@as_adaptation(
    lever="window",
    start=quiet,
    summary="when the ratio crosses the threshold: sample only what arrives from then on",
    ranges=_ALARM,
)
def forget(now: Now, memory: Alarm, *, threshold: Any = 1.5, rest: Any = 0.02) -> tuple[Levers, Alarm]:
    """At an alarm drop the past: draw from what arrived since, and the floor before it."""
    _, memory = at_alarm(now, memory, threshold, rest)
    arrived = memory.since.astype(jnp.float32) * now.supply.arriving
    return Levers(window=now.supply.floor + arrived), memory


@as_adaptation(
    lever="window",
    summary="baseline: always sample the newest share of the replay",
    uses_signal=False,
    ranges={"share": SHARE},
)
def recent(now: Now, memory: Any, *, share: Any = 0.25) -> tuple[Levers, Any]:
    """Always draw from the newest ``share * capacity`` transitions: a smaller replay."""
    return Levers(window=share * now.supply.capacity), memory


@as_adaptation(
    lever="window",
    summary="baseline: emphasise recent experience (ERE)",
    uses_signal=False,
    ranges={"eta": SHARE, **_CYCLE},
)
def ere(now: Now, memory: Any, *, eta: Any = 0.996, cycle: Any = 1000.0) -> tuple[Levers, Any]:
    """Emphasising recent experience: draw from the newest ``stored * eta**(1000 k / K)``, k = 0 to K - 1 and again.

    Wang and Ross 2019, whose K is the number of updates after an episode. Deviation: a cycle of fixed length, and
    eta is not annealed.
    """
    k = now.count % jnp.maximum(cycle, 1.0).astype(jnp.int32)
    return Levers(window=now.stored * eta ** (1000.0 * k.astype(jnp.float32) / cycle)), memory


@as_adaptation(
    lever="refresh",
    start=quiet,
    summary="when the ratio crosses the threshold: shrink and perturb the networks",
    ranges={**_SHARES, **_ALARM},
)
def refresh(
    now: Now, memory: Alarm, *, strength: Any = 0.5, actor: Any = 1.0, threshold: Any = 1.5, rest: Any = 0.02
) -> tuple[Levers, Alarm]:
    """At an alarm move the parameters by ``strength`` towards fresh ones (shrink and perturb), Adam starts anew.

    Args:
      actor: () the actor moves by ``actor * strength``; 0: the critic only.
    """
    rings, memory = at_alarm(now, memory, threshold, rest)
    step = jnp.where(rings, strength, 0.0)
    return Levers(refresh=step, refresh_actor=actor * step), memory


@as_adaptation(
    lever="refresh",
    summary="baseline: fresh networks (or a step towards them) at fixed times",
    uses_signal=False,
    ranges={**_SHARES, "every": SHARE},
)
def reset(now: Now, memory: Any, *, strength: Any = 1.0, actor: Any = 1.0, every: Any = 0.1) -> tuple[Levers, Any]:
    """Shrink and perturb every ``every`` of the planned updates; 0.1 and 0.2 hit the change points of five segments."""
    period = jnp.maximum(every * now.updates, 1.0).astype(jnp.int32)
    step = jnp.where(now.count % period == 0, strength, 0.0)
    return Levers(refresh=step, refresh_actor=actor * step), memory


@as_adaptation(
    lever="refresh",
    summary="baseline: recycle dormant units at fixed times (ReDo)",
    uses_signal=False,
    units=True,
    ranges={"dormant": SHARE, **_CYCLE},
)
def redo(now: Now, memory: Any, *, dormant: Any = 0.025, cycle: Any = 1000.0) -> tuple[Levers, Any]:
    """Every ``cycle`` updates recycle the units whose activity is at most ``dormant`` of their layer's mean (ReDo)."""
    due = now.count % jnp.maximum(cycle, 1.0).astype(jnp.int32) == 0
    zero = jnp.zeros(())
    return Levers(refresh=zero, refresh_actor=zero, refresh_units=jnp.where(due, dormant, 0.0)), memory


@as_adaptation(lever="rate", summary="learning rates times ratio^power", ranges=_POWER)
def rate(now: Now, memory: Any, *, power: Any = 1.0) -> tuple[Levers, Any]:
    """Learning rates times ``ratio**power``."""
    return Levers(rate=now.ratio**power), memory


@as_adaptation(
    lever="updates",
    start=quiet,
    summary="when the ratio crosses the threshold: several gradient steps per vector step for a while",
    ranges={**_UPDATES, **_ALARM},
)
def burst(
    now: Now, memory: Alarm, *, updates: Any = 4.0, span: Any = 0.1, threshold: Any = 1.5, rest: Any = 0.02
) -> tuple[Levers, Alarm]:
    """After a detection take ``updates`` gradient steps per vector step for ``span`` of the planned vector steps."""
    _, memory = at_alarm(now, memory, threshold, rest)
    return Levers(updates=jnp.where(memory.since.astype(jnp.float32) < span * now.updates, updates, 1.0)), memory


@as_adaptation(
    lever="updates",
    summary="baseline: several gradient steps per vector step, always or at fixed times",
    uses_signal=False,
    ranges={**_UPDATES, "every": SHARE},
)
def utd(now: Now, memory: Any, *, updates: Any = 4.0, span: Any = 1.0, every: Any = 1.0) -> tuple[Levers, Any]:
    """Take ``updates`` gradient steps per vector step (update-to-data ratio) in the first ``span`` of every ``every``.

    Args:
      span, every: () shares of the planned vector steps; by default all the time.
    """
    period = jnp.maximum(every * now.updates, 1.0).astype(jnp.int32)
    within = (now.count % period).astype(jnp.float32) < span * now.updates
    return Levers(updates=jnp.where(within, updates, 1.0)), memory


ADAPTATIONS: Registry[AdaptationFactory] = Registry(
    "adaptation", **{each.name: each for each in (window, forget, refresh, rate, recent, ere, reset, redo, burst, utd)}
)

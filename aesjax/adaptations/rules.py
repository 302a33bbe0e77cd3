"""The registered adaptations: each maps the drift ratio and the update count to one lever; options may be traced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.factory import AT_LEAST_1, FINITE, NOT_NEGATIVE, SHARE, Factory, Made, Range
from aesjax.registry import Registry
from aesjax.types import Array, Levers

#: Levers of adaptations; a schedule adjusts the entropy weight.
LEVERS = ("window", "recency", "refresh", "isometry", "rate", "updates")
#: Fields of `Levers` that are due at single updates, until they are done.
ONCE = ("refresh", "refresh_actor", "isometry")
MOST_UPDATES = 64  # gradient steps per vector step

_NEVER = 2**31 - 2  # as long as any run, so that `since + 1` is an int32


class Supply(NamedTuple):
    """Numbers of transitions in a run's replay; all zero without a replay.

    Masked rows are counted, too.
    """

    stored: float = 0.0  # at the first update
    arriving: float = 0.0  # with every further update
    capacity: float = 0.0
    floor: float = 0.0  # smallest window: a batch, and four windows of newest residuals


class Now(NamedTuple):
    """Input of a rule after an update."""

    ratio: Array  # () float32 >= 1, drift relative to its usual level
    count: Array  # () int32, updates so far, this one included
    updates: Array  # () float32, planned number of updates
    stored: Array  # () float32, transitions in the replay
    supply: Supply


class Alarm(NamedTuple):
    """Memory of an event-triggered rule: upward crossings of a threshold by the ratio."""

    above: Array  # () int32, 1 while the ratio is above the threshold
    since: Array  # () int32, updates since the last detection, `_NEVER` at most


def quiet() -> Alarm:
    """Memory before the first update."""
    return Alarm(jnp.int32(0), jnp.int32(_NEVER))


def at_alarm(now: Now, memory: Alarm, threshold: Array, rest: Array) -> tuple[Array, Alarm]:
    """Whether this update is a detection, () bool, and the memory after it.

    Args:
      threshold: () ratio above which drift counts as a change.
      rest: () share of the planned updates within which a second crossing belongs to the same change.
    """
    above = now.ratio > threshold
    rings = above & (memory.above == 0) & (memory.since.astype(jnp.float32) >= rest * now.updates)
    since = jnp.where(rings, 0, jnp.minimum(memory.since + 1, _NEVER))
    return rings, Alarm(above.astype(jnp.int32), since)


@dataclass(eq=False)
class AdaptationFactory(Factory):
    """A registered adaptation: call it with options by name, ``recent(share=0.1)``, for an `Adaptation`.

    Its function ``make`` maps (now, memory, *, options) to its lever and memory.
    """

    kind = "adaptation"
    other_range = FINITE
    static = ("now", "memory")
    traits = ("lever", "uses_signal")

    lever: str  # of `LEVERS`
    uses_signal: bool = True  # False: depends on the update count alone
    start: Callable[[], Any] = field(default=tuple, repr=False)  # memory before the first update

    def __call__(self, **given: Any) -> "Adaptation":
        """The adaptation with these options.

        Raises:
          ValueError, TypeError: an option that it does not have, or a value outside its range.
        """
        self.check(given)
        return Adaptation(self, given)


@partial(jax.tree_util.register_dataclass, data_fields=["given", "on"], meta_fields=["factory"])
@dataclass(eq=False, repr=False)
class Adaptation(Made):
    """An adaptation and its given options. A pytree whose leaves are these numbers and ``on``."""

    factory: AdaptationFactory
    given: Mapping[str, Any]
    on: Any = 1.0  # () float32; 0: a run of the same program without it


def as_adaptation(
    *,
    lever: str,
    name: str | None = None,
    start: Callable[[], Any] = tuple,
    uses_signal: bool = True,
    ranges: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., tuple[Levers, Any]]], AdaptationFactory]:
    """Decorator that turns a rule ``(now, memory, *, options) -> (Levers, memory)`` into an adaptation's factory.

    The first line of the docstring is its summary in listings.

    Args:
      lever: of `LEVERS`, the one that the rule adjusts.
      start: memory before the first update.
      uses_signal: False if the rule depends on the update count alone.
      ranges: allowed values of options, both ends included.

    Raises:
      ValueError: an unknown lever, an option without a default, or a range of an unknown option.
    """
    if lever not in LEVERS:
        raise ValueError(f"an adaptation adjusts one of {', '.join(LEVERS)}; got '{lever}'")
    traits = {"start": start, "lever": lever, "uses_signal": uses_signal}
    return AdaptationFactory.of(None, name, ranges, **traits)


_POWER = {"power": NOT_NEGATIVE}
_ALARM = {"threshold": AT_LEAST_1, "rest": SHARE}
_SHARES = {"strength": SHARE, "actor": SHARE}
_CYCLE = {"cycle": AT_LEAST_1}
SCALE = Range(0.0, text="positive (inf: uniform)", open_low=True, infinite=True)
_UPDATES = {"updates": Range(1.0, MOST_UPDATES), "span": SHARE}


def _due(now: Now, every: Array) -> Array:
    """Whether a fixed interval, () share of the planned updates, ends at this update."""
    return now.count % jnp.maximum(every * now.updates, 1.0).astype(jnp.int32) == 0


@as_adaptation(lever="window", ranges=_POWER)
def window(now: Now, memory: Any, *, power: Any = 2.0) -> tuple[Levers, Any]:
    """Sample from the newest stored / ratio^power transitions only."""
    return Levers(window=now.stored * now.ratio**-power), memory


@as_adaptation(lever="window", start=quiet, ranges=_ALARM)
def forget(now: Now, memory: Alarm, *, threshold: Any = 1.5, rest: Any = 0.02) -> tuple[Levers, Alarm]:
    """When the ratio rises above the threshold, sample only transitions that arrive from then on.

    Batches also contain the smallest window of earlier transitions.
    """
    _, memory = at_alarm(now, memory, threshold, rest)
    arrived = memory.since.astype(jnp.float32) * now.supply.arriving
    return Levers(window=now.supply.floor + arrived), memory


@as_adaptation(lever="window", uses_signal=False, ranges={"share": SHARE})
def recent(now: Now, memory: Any, *, share: Any = 0.25) -> tuple[Levers, Any]:
    """Baseline: always sample from the newest share of the replay."""
    return Levers(window=share * now.supply.capacity), memory


@as_adaptation(lever="recency", uses_signal=False, ranges={"share": SCALE})
def geometric(now: Now, memory: Any, *, share: Any = 0.25) -> tuple[Levers, Any]:
    """Baseline: sample with weights that decay with age (truncated geometric).

    Of n stored transitions that of age i, 0 for the newest, has the weight ``exp(-i / m)``, m = share * capacity / 2.
    Far below n, m is the mean age, that of `recent` with this share, and e m the effective size (exp of the entropy of
    the weights), 1.36 times the window of `recent`. Korniak et al. 2026 (arXiv 2605.10236). Deviation: e m is at
    least the smallest window.
    """
    return Levers(recency=share * now.supply.capacity / 2.0), memory


@as_adaptation(lever="window", uses_signal=False, ranges={"eta": SHARE, **_CYCLE})
def ere(now: Now, memory: Any, *, eta: Any = 0.996, cycle: Any = 1000.0) -> tuple[Levers, Any]:
    """Baseline: emphasise recent experience (ERE).

    Draw from the newest ``stored * eta**(1000 k / K)`` transitions, k = 0 to K - 1 and again. Wang and Ross 2019, whose
    K is the number of updates after an episode. Deviation: a cycle of fixed length, and eta is not annealed.
    """
    k = now.count % jnp.maximum(cycle, 1.0).astype(jnp.int32)
    return Levers(window=now.stored * eta ** (1000.0 * k.astype(jnp.float32) / cycle)), memory


@as_adaptation(lever="refresh", start=quiet, ranges={**_SHARES, **_ALARM})
def refresh(
    now: Now, memory: Alarm, *, strength: Any = 0.5, actor: Any = 1.0, threshold: Any = 1.5, rest: Any = 0.02
) -> tuple[Levers, Alarm]:
    """When the ratio rises above the threshold, shrink and perturb the networks.

    Args:
      strength: () step of the parameters towards fresh ones; Adam restarts.
      actor: () the actor moves by ``actor * strength``; 0: the critic only.
    """
    rings, memory = at_alarm(now, memory, threshold, rest)
    step = jnp.where(rings, strength, 0.0)
    return Levers(refresh=step, refresh_actor=actor * step), memory


@as_adaptation(lever="refresh", uses_signal=False, ranges={**_SHARES, "every": SHARE})
def reset(now: Now, memory: Any, *, strength: Any = 1.0, actor: Any = 1.0, every: Any = 0.1) -> tuple[Levers, Any]:
    """Baseline: reset the networks, in full or in part, at fixed intervals.

    Every ``every`` of the planned updates; 0.1 and 0.2 hit the change points of five segments.
    """
    step = jnp.where(_due(now, every), strength, 0.0)
    return Levers(refresh=step, refresh_actor=actor * step), memory


@as_adaptation(lever="isometry", start=quiet, ranges={"strength": SHARE, **_ALARM})
def fire(
    now: Now, memory: Alarm, *, strength: Any = 1.0, threshold: Any = 1.5, rest: Any = 0.02
) -> tuple[Levers, Alarm]:
    """When the ratio rises above the threshold, move hidden kernels to their nearest isometry (FIRE).

    Frobenius-isometry reinitialisation, Han et al. 2026 (arXiv 2602.08040). Deviations: last layers stay, as they have
    the scale of the values; targets move as well; Adam restarts.

    Args:
      strength: () step towards the isometry; 1: all of it, as published.
    """
    rings, memory = at_alarm(now, memory, threshold, rest)
    return Levers(isometry=jnp.where(rings, strength, 0.0)), memory


@as_adaptation(lever="isometry", uses_signal=False, ranges={"strength": SHARE, "every": SHARE})
def fire_reset(now: Now, memory: Any, *, strength: Any = 1.0, every: Any = 0.1) -> tuple[Levers, Any]:
    """Baseline: as `fire`, at fixed intervals.

    Every ``every`` of the planned updates; 0.1 and 0.2 hit the change points of five segments.
    """
    return Levers(isometry=jnp.where(_due(now, every), strength, 0.0)), memory


@as_adaptation(lever="rate", ranges=_POWER)
def rate(now: Now, memory: Any, *, power: Any = 1.0) -> tuple[Levers, Any]:
    """Multiply the learning rates by ratio^power."""
    return Levers(rate=now.ratio**power), memory


@as_adaptation(lever="updates", start=quiet, ranges={**_UPDATES, **_ALARM})
def burst(
    now: Now, memory: Alarm, *, updates: Any = 4.0, span: Any = 0.1, threshold: Any = 1.5, rest: Any = 0.02
) -> tuple[Levers, Alarm]:
    """When the ratio rises above the threshold, take several gradient steps per vector step for a time.

    Args:
      span: () share of the planned vector steps.
    """
    _, memory = at_alarm(now, memory, threshold, rest)
    return Levers(updates=jnp.where(memory.since.astype(jnp.float32) < span * now.updates, updates, 1.0)), memory


@as_adaptation(lever="updates", uses_signal=False, ranges={**_UPDATES, "every": SHARE})
def utd(now: Now, memory: Any, *, updates: Any = 4.0, span: Any = 1.0, every: Any = 1.0) -> tuple[Levers, Any]:
    """Baseline: several gradient steps per vector step, always or at fixed intervals.

    In the first ``span`` of every ``every``.

    Args:
      span, every: () shares of the planned vector steps; by default all the time.
    """
    period = jnp.maximum(every * now.updates, 1.0).astype(jnp.int32)
    within = (now.count % period).astype(jnp.float32) < span * now.updates
    return Levers(updates=jnp.where(within, updates, 1.0)), memory


_ALL = (window, forget, refresh, fire, rate, recent, geometric, ere, reset, fire_reset, burst, utd)
ADAPTATIONS: Registry[AdaptationFactory] = Registry("adaptation", **{each.name: each for each in _ALL})

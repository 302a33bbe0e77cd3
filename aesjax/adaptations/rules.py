"""The rules of the responses: from the drift ratio and the clock to one lever each. All options may be traced."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from aesjax.types import Array, Levers

_NEVER = 2**30


class Supply(NamedTuple):
    """How many transitions a run has to draw from; all zero where there is no replay.

    In a world whose rows do not all count they are counted as if all did.
    """

    stored: float = 0.0  # at the first update
    arriving: float = 0.0  # with every further update
    capacity: float = 0.0
    floor: float = 0.0  # a window never holds fewer: several batches' worth, and four windows of newest residuals


class Now(NamedTuple):
    """What a rule sees after an update."""

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


def window(now: Now, memory: Any, *, power: Array) -> tuple[Levers, Any]:
    """Draw from the newest ``stored / ratio**power`` transitions: the more drift, the shorter the past."""
    return Levers(window=now.stored * now.ratio**-power), memory


def forget(now: Now, memory: Alarm, *, threshold: Array, rest: Array) -> tuple[Levers, Alarm]:
    """At an alarm drop the past: draw from what arrived since, and the floor before it."""
    _, memory = at_alarm(now, memory, threshold, rest)
    arrived = memory.since.astype(jnp.float32) * now.supply.arriving
    return Levers(window=now.supply.floor + arrived), memory


def recent(now: Now, memory: Any, *, share: Array) -> tuple[Levers, Any]:
    """Always draw from the newest ``share * capacity`` transitions: a smaller replay."""
    return Levers(window=share * now.supply.capacity), memory


def ere(now: Now, memory: Any, *, eta: Array, cycle: Array) -> tuple[Levers, Any]:
    """Emphasising recent experience: draw from the newest ``stored * eta**(1000 k / K)``, k = 0 to K - 1 and again.

    Wang and Ross 2019, whose K is the number of updates after an episode. Deviation: a cycle of fixed length, and
    eta is not annealed.
    """
    k = now.count % jnp.maximum(cycle, 1.0).astype(jnp.int32)
    return Levers(window=now.stored * eta ** (1000.0 * k.astype(jnp.float32) / cycle)), memory


def refresh(
    now: Now, memory: Alarm, *, strength: Array, actor: Array, threshold: Array, rest: Array
) -> tuple[Levers, Alarm]:
    """At an alarm move the parameters by ``strength`` towards fresh ones (shrink and perturb), Adam starts anew.

    Args:
      actor: () the actor moves by ``actor * strength``; 0: the critic only.
    """
    rings, memory = at_alarm(now, memory, threshold, rest)
    step = jnp.where(rings, strength, 0.0)
    return Levers(refresh=step, refresh_actor=actor * step), memory


def reset(now: Now, memory: Any, *, strength: Array, actor: Array, every: Array) -> tuple[Levers, Any]:
    """The same every ``every`` of the planned updates, drift or not."""
    period = jnp.maximum(every * now.updates, 1.0).astype(jnp.int32)
    step = jnp.where(now.count % period == 0, strength, 0.0)
    return Levers(refresh=step, refresh_actor=actor * step), memory


def redo(now: Now, memory: Any, *, dormant: Array, cycle: Array) -> tuple[Levers, Any]:
    """Every ``cycle`` updates recycle the units whose activity is at most ``dormant`` of their layer's mean (ReDo)."""
    due = now.count % jnp.maximum(cycle, 1.0).astype(jnp.int32) == 0
    zero = jnp.zeros(())
    return Levers(refresh=zero, refresh_actor=zero, refresh_units=jnp.where(due, dormant, 0.0)), memory


def rate(now: Now, memory: Any, *, power: Array) -> tuple[Levers, Any]:
    """Learning rates times ``ratio**power``."""
    return Levers(rate=now.ratio**power), memory

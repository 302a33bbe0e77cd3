"""`check_adaptation`: the contract of an adaptation, checked under a drift ratio that rises and falls."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.adaptations.assemble import NEUTRAL
from aesjax.adaptations.rules import SCALE, Adaptation, AdaptationFactory, Now, Supply
from aesjax.compiling import jit
from aesjax.factory import AT_LEAST_1, NOT_NEGATIVE, SHARE, Range
from aesjax.schedules.schedule import working
from aesjax.typed import require
from aesjax.types import Array, Levers

_RATIO = np.repeat(np.array([1.0, 3.0, 1.0], np.float32), (1000, 100, 900))  # (updates,) calm, a change, calm
_SUPPLY = Supply(stored=400.0, arriving=4.0, capacity=5000.0, floor=20.0)
#: Ranges of levers; the others are shares.
_ALLOWED = {
    "window": Range(0.0, text="positive (inf: all transitions)", open_low=True, infinite=True),
    "recency": SCALE,
    "rate": NOT_NEGATIVE,
    "updates": AT_LEAST_1,
}


def check_adaptation(adaptation: Any) -> None:
    """Raise a ValueError unless an adaptation keeps its contract in a run with one change; takes a second.

    It adjusts its own lever, within its range and at least once. Its memory keeps its structure, shapes and types.
    Equal runs are equal.

    Args:
      adaptation: an `Adaptation`, or its factory.

    Raises:
      ValueError: one sentence with the first violation, caused by the error of the rule's code if it has one.

    >>> from aesjax.adaptations import window
    >>> check_adaptation(window(power=1.0))
    """
    made = adaptation() if isinstance(adaptation, AdaptationFactory) else adaptation
    require(isinstance(made, Adaptation), "adaptation", "an object such as window(power=1.0)", adaptation)
    made = made.filled()
    factory, options, name = made.factory, jax.tree.map(jnp.float32, made.given), f"adaptation '{made.factory.name}'"
    own = {factory.lever, "refresh_actor"} if factory.lever == "refresh" else {factory.lever}

    def levers(ratios: Array) -> dict[str, Array]:
        def step(carry: Any, ratio: Array) -> Any:
            memory, count = carry
            stored = jnp.minimum(_SUPPLY.stored + _SUPPLY.arriving * count, _SUPPLY.capacity)
            now = Now(ratio, count + 1, jnp.float32(_RATIO.size), stored, _SUPPLY)
            levers, memory = factory.make(now, memory, **options)
            set_here = {lever: value for lever, value in Levers(*levers)._asdict().items() if value is not None}
            if factory.lever not in set_here or set_here.keys() - own:
                raise ValueError(f"it declares the lever '{factory.lever}' and sets {', '.join(set_here) or 'none'}")
            return (memory, count + 1), {lever: jnp.float32(value) for lever, value in set_here.items()}

        return jax.lax.scan(step, (factory.start(), jnp.int32(0)), ratios)[1]

    with working(name):
        first, again = jax.device_get(jit(lambda ratios: (levers(ratios), levers(ratios)))(_RATIO))
    for lever, values in first.items():
        if values.shape != _RATIO.shape:
            raise ValueError(f"{name}: its lever '{lever}' must be a scalar; got shape {values.shape[1:]}")
        allowed = _ALLOWED.get(lever, SHARE)
        if wrong := [value for value in values if not allowed.allows(value)]:
            raise ValueError(f"{name}: its lever '{lever}' must be {allowed}; got {wrong[0]:g}")
        if not np.array_equal(values, again[lever]):
            raise ValueError(f"{name}: two equal runs differ in lever '{lever}'; keep all memory in the state")
    if all(np.all(values == getattr(NEUTRAL, lever)) for lever, values in first.items()):
        raise ValueError(f"{name}: it never acts in {_RATIO.size} updates with ratios up to {_RATIO.max():g}")

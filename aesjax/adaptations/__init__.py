"""Adaptations, which adjust quantities other than the entropy weight from a drift signal, and their registry."""

from aesjax.adaptations.assemble import NEUTRAL, driver_of, together
from aesjax.adaptations.contract import check_adaptation
from aesjax.adaptations.controls import CONTROLS, ControlSpec, Played
from aesjax.adaptations.rules import (
    ADAPTATIONS,
    LEVERS,
    MOST_UPDATES,
    Adaptation,
    AdaptationFactory,
    Now,
    Supply,
    as_adaptation,
    burst,
    ere,
    forget,
    rate,
    recent,
    redo,
    refresh,
    reset,
    utd,
    window,
)

__all__ = [
    "ADAPTATIONS",
    "CONTROLS",
    "LEVERS",
    "MOST_UPDATES",
    "NEUTRAL",
    "Adaptation",
    "AdaptationFactory",
    "ControlSpec",
    "Now",
    "Played",
    "Supply",
    "as_adaptation",
    "burst",
    "check_adaptation",
    "driver_of",
    "ere",
    "forget",
    "rate",
    "recent",
    "redo",
    "refresh",
    "reset",
    "together",
    "utd",
    "window",
]

"""Adaptations: other quantities that a drift signal adjusts, and the registry of them."""

from aesjax.adaptations.assemble import DEFAULT_SIGNAL, NEUTRAL, AdaptationData, build, signal_of
from aesjax.adaptations.controls import CONTROLS, ControlSpec, Played
from aesjax.adaptations.rules import (
    ADAPTATIONS,
    LEVERS,
    Adaptation,
    AdaptationFactory,
    Now,
    Supply,
    as_adaptation,
    ere,
    forget,
    rate,
    recent,
    redo,
    reset,
    shrink,
    window,
)

__all__ = [
    "ADAPTATIONS",
    "CONTROLS",
    "DEFAULT_SIGNAL",
    "LEVERS",
    "NEUTRAL",
    "Adaptation",
    "AdaptationData",
    "AdaptationFactory",
    "ControlSpec",
    "Now",
    "Played",
    "Supply",
    "as_adaptation",
    "build",
    "ere",
    "forget",
    "rate",
    "recent",
    "redo",
    "reset",
    "shrink",
    "signal_of",
    "window",
]

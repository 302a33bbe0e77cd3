"""Drift responses beyond the entropy weight: what the signal of a schedule turns besides, and the registry of it."""

from aesjax.adaptations.assemble import DEFAULT_SIGNAL, NEUTRAL, ResponseHyper, build, signal_of
from aesjax.adaptations.catalogue import LEVERS, RESPONSES, ResponseSpec, check_options
from aesjax.adaptations.controls import CONTROLS, ControlSpec, Played
from aesjax.adaptations.rules import Now, Supply

__all__ = [
    "CONTROLS",
    "DEFAULT_SIGNAL",
    "LEVERS",
    "NEUTRAL",
    "RESPONSES",
    "ControlSpec",
    "Now",
    "Played",
    "ResponseHyper",
    "ResponseSpec",
    "Supply",
    "build",
    "check_options",
    "signal_of",
]

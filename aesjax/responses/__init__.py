"""Drift responses beyond the entropy weight: what the signal of a schedule turns besides, and the registry of it."""

from aesjax.responses.assemble import DEFAULT_SIGNAL, NEUTRAL, ResponseHyper, build, signal_of
from aesjax.responses.catalogue import LEVERS, RESPONSES, ResponseSpec, check_options
from aesjax.responses.controls import CONTROLS, ControlSpec, Played
from aesjax.responses.rules import Now, Supply

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

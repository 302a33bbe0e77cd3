"""Maximum-entropy carriers (losses and one update each) and what they share: replay, networks, the run loop."""

from aesjax.registry import Registry
from agents import sac
from agents.spec import CarrierSpec
from agents.types import Carrier, Transition, UpdateOut, World

__all__ = ["CARRIERS", "Carrier", "CarrierSpec", "Transition", "UpdateOut", "World"]

CARRIERS = Registry(
    "carrier",
    sac=CarrierSpec("SAC", sac.make, sac.SacConfig, sac.SacHyper, sac.check, baseline="auto"),
)

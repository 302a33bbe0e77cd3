"""What the registry knows of a carrier: how to build it, its settings, and the weight it uses by itself."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from agents.types import Carrier, OnPolicyCarrier

__all__ = ["CarrierSpec"]


class CarrierSpec(NamedTuple):
    """One line of `agents.CARRIERS`."""

    label: str  # name in tables: "SAC", and "SAC+AES" with a schedule
    make: Callable[[int, int, Any], Carrier | OnPolicyCarrier]  # obs_size, action_size, config
    config: type  # frozen dataclass of static structure
    hyper: type  # NamedTuple of traced floats
    check: Callable[[Any], None]  # raises ValueError for concrete values of `hyper` that make no sense
    baseline: str  # schedule that stands for the carrier's own entropy weight
    absent: Mapping[str, str] = MappingProxyType({})  # fields of `Signals` it cannot report -> the reason

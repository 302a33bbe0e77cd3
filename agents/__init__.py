"""Carriers of aesjax (losses and one update each), their run loop, and `make_train`."""

from agents.carriers import CARRIERS
from agents.common.carrier import Carrier, OnPolicyCarrier, Transition, UpdateOut
from agents.common.spec import CarrierSpec
from agents.contract import check_carrier
from agents.train import make_train
from envs.world import World

__all__ = [
    "CARRIERS",
    "Carrier",
    "CarrierSpec",
    "OnPolicyCarrier",
    "Transition",
    "UpdateOut",
    "World",
    "check_carrier",
    "make_train",
]

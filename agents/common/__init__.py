"""From a world, a carrier and a schedule to a program of one run: the way in to the loops on and off policy."""

from aesjax.types import Program
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.loop import REASONS, AdaptationOf, LoopConfig, Run, ScheduleOf
from agents.common.off_policy import make_off_policy
from agents.common.on_policy import make_on_policy
from envs.world import World

__all__ = ["REASONS", "AdaptationOf", "LoopConfig", "Run", "make_off_policy", "make_on_policy", "make_program"]


def make_program(
    world: World,
    carrier: Carrier | OnPolicyCarrier,
    schedule_of: ScheduleOf,
    config: LoopConfig,
    adaptation_of: AdaptationOf | None = None,
) -> Program:
    """One run as a program that `experiments.study.sweep` can stack, whatever kind the carrier is of."""
    make = make_on_policy if isinstance(carrier, OnPolicyCarrier) else make_off_policy
    return make(world, carrier, schedule_of, config, adaptation_of)  # type: ignore

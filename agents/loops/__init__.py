"""From a world, a carrier and a schedule to a program of one run: the way in to the loops on and off policy."""

from aesjax.types import Program
from agents.loops.common import REASONS, LoopConfig, ResponseOf, Run, ScheduleOf
from agents.loops.off_policy import make_off_policy
from agents.loops.on_policy import make_on_policy
from agents.types import Carrier, OnPolicyCarrier, World

__all__ = ["REASONS", "LoopConfig", "ResponseOf", "Run", "make_off_policy", "make_on_policy", "make_program"]


def make_program(
    world: World,
    carrier: Carrier | OnPolicyCarrier,
    schedule_of: ScheduleOf,
    config: LoopConfig,
    response_of: ResponseOf | None = None,
) -> Program:
    """One run as a program that `aesjax.lab.sweep` can stack, whatever kind the carrier is of."""
    make = make_on_policy if isinstance(carrier, OnPolicyCarrier) else make_off_policy
    return make(world, carrier, schedule_of, config, response_of)  # type: ignore

"""From a world, a carrier and a schedule to a program of one run."""

from aesjax.types import Program
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.loop import REASONS, AdaptationOf, LoopConfig, Run, ScheduleOf
from agents.common.off_policy import OffPolicy
from agents.common.on_policy import OnPolicy
from envs.world import World

__all__ = ["REASONS", "LoopConfig", "Run", "make_program"]


def make_program(
    world: World,
    carrier: Carrier | OnPolicyCarrier,
    schedule_of: ScheduleOf,
    config: LoopConfig,
    adaptation_of: AdaptationOf | None = None,
    needs: frozenset[str] = frozenset(),
) -> Program:
    """One run as a program that can be vmapped over runs, for either kind of carrier.

    Args:
      schedule_of, adaptation_of: the schedule and the adaptations of a `Run`.
      needs: fields of `aesjax.types.Signals` that some schedule of the program reads.
    """
    kind = OnPolicy if isinstance(carrier, OnPolicyCarrier) else OffPolicy
    loop = kind(world, carrier, schedule_of, config, adaptation_of, needs)  # type: ignore
    return Program(loop.init, loop.train, loop.evaluate)

"""Builds the program of one run from a world, a carrier and a schedule."""

from aesjax.adaptations import Supply
from aesjax.schedules import DriftProxy
from aesjax.types import Program
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.loop import REASONS, LoopConfig, Run
from agents.common.off_policy import OffPolicy
from agents.common.on_policy import OnPolicy
from envs.world import World

__all__ = ["REASONS", "LoopConfig", "Run", "make_program"]


def make_program(
    world: World,
    carrier: Carrier | OnPolicyCarrier,
    config: LoopConfig,
    supply: Supply | None = None,
    record: tuple[DriftProxy, ...] = (),
) -> Program:
    """The program of one run, ready to be vmapped over runs, for off-policy and on-policy carriers.

    Schedules, adaptations and all numbers are data, a `Run`; runs of one program have them in one structure.

    Args:
      supply: transitions from which a run draws its batches, for adaptations that read it.
      record: proxies to measure besides those that schedules read.
    """
    kind = OnPolicy if isinstance(carrier, OnPolicyCarrier) else OffPolicy
    loop = kind(world, carrier, config, Supply() if supply is None else supply, record)  # type: ignore
    return Program(loop.init, loop.train, loop.evaluate)

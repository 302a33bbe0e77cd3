"""Named sizes of a study per task: what `--preset` means. Every number here is printed in the report."""

from aesjax.registry import Registry
from envs import BRIDGE
from envs.bridge.names import native_of
from experiments.presets.general import general
from experiments.presets.isaac import ISAAC
from experiments.presets.mujoco import MUJOCO
from experiments.presets.preset import Preset
from experiments.presets.release import TOY_RELEASE
from experiments.presets.toy import TOY

__all__ = ["PRESETS", "presets_of"]

PRESETS: dict[str, Registry[Preset]] = {
    "toy": TOY,
    "toy_multigoal_classic": Registry("preset", **TOY, release=TOY_RELEASE),
    "pendulum": TOY,
    "reacher": TOY,
    "cartpole_swingup": TOY,
    "grid": TOY,
    **MUJOCO,
    **ISAAC,
}


def presets_of(task: str, time_limit: int) -> Registry[Preset]:
    """The presets of a task; those that suit any task of its length, where it has none of its own.

    A bridged task has those of our own task of the same definitions.

    Args:
      time_limit: steps of its longest episode.
    """
    own = native_of(task) or task if task.startswith(BRIDGE) else task
    return PRESETS[own] if own in PRESETS else general(time_limit)

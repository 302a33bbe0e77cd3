"""Named sizes of a study per task: what `--preset` means. Every number here is printed in the report."""

from aesjax.registry import Registry
from experiments.mujoco_presets import MUJOCO
from experiments.preset import Preset
from experiments.toy_presets import TOY

__all__ = ["PRESETS", "presets_of"]

PRESETS: dict[str, Registry[Preset]] = {"toy": TOY, "toy_multigoal_classic": TOY, "pendulum": TOY, **MUJOCO}


def presets_of(task: str) -> Registry[Preset]:
    """The presets of a task that exists."""
    return PRESETS[task]

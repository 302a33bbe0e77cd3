"""Sizes of the tables' presets: which tasks, how long, how many seeds."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from experiments.paper.evidence import FAMILY_OF, TASKS

Scale = Literal["quick", "cpu", "paper"]


class Size(NamedTuple):
    """Options of a study of one task."""

    options: Mapping[str, Any]
    warm: Mapping[str, Any] = {}  # further ones of the steady study whose agents the runs begin with; empty: untrained


def _quick(steps: int) -> Size:
    return Size({"preset": "quick", "steps": steps, "seeds": "1:3", "patterns": "steady,abrupt"})


#: quick: a smoke test. cpu: hours on two cores. paper: the published sizes, as far as they are known; MuJoCo and Isaac
#: need an accelerator for it.
SIZES: dict[str, dict[Scale, Size]] = {
    "toy": {
        "quick": _quick(2400),
        "cpu": Size({"preset": "quick", "seeds": "1:5"}),
        "paper": Size({"preset": "paper", "seeds": "1:10"}),
    },
    "mujoco": {
        "quick": _quick(1280),
        "cpu": Size({"preset": "mujoco-warm", "seeds": "1:3"}, {"steps": 512_000}),
        "paper": Size({"preset": "paper", "seeds": "1:5"}),
    },
    "isaac": {
        "quick": _quick(4800),
        "cpu": Size({"preset": "quick", "seeds": "1:3", "steps": 256_000}, {"steps": 1_024_000}),
        "paper": Size({"preset": "paper", "seeds": "1:5"}),
    },
}
_QUICK_TASKS = {"toy": "toy", "mujoco": "hopper", "isaac": "isaac_ingenuity"}


def size_of(task: str, scale: Scale) -> Size:
    """The size of a task; one that the paper does not have is of the toy family's sizes."""
    return SIZES[FAMILY_OF.get(task, "toy")][scale]


def preset_tasks(families: Sequence[str], scale: Scale) -> list[str]:
    """The tasks of a table: one of each family for ``quick``."""
    if scale == "quick":
        return [_QUICK_TASKS[family] for family in families]
    return [task for family in families for task in TASKS[family]]

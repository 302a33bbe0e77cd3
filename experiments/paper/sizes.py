"""Sizes of the scripts' presets: which tasks and carriers, how long, how many seeds."""

from typing import Literal, NamedTuple

from experiments.paper.evidence import TASKS

Scale = Literal["quick", "cpu", "paper"]


class Size(NamedTuple):
    """Options of `aesjax run` for one task."""

    words: tuple[str, ...]
    warm: tuple[str, ...] = ()  # options of the steady study whose agents the runs begin with; empty: untrained


#: quick: at a size that says nothing, to see a script run. cpu: hours on two cores. paper: the published sizes, as far
#: as they are known; MuJoCo and Isaac need an accelerator for it.
SIZES: dict[str, dict[Scale, Size]] = {
    "toy": {
        "quick": Size(("--preset", "quick", "--steps", "2400", "--seeds", "1:3", "--patterns", "steady,abrupt")),
        "cpu": Size(("--preset", "quick", "--seeds", "1:5")),
        "paper": Size(("--preset", "paper", "--seeds", "1:10")),
    },
    "mujoco": {
        "quick": Size(("--preset", "quick", "--steps", "1280", "--seeds", "1:3", "--patterns", "steady,abrupt")),
        "cpu": Size(("--preset", "mujoco-warm", "--seeds", "1:3"), ("--steps", "512000")),
        "paper": Size(("--preset", "paper", "--seeds", "1:5")),
    },
    "isaac": {
        "quick": Size(("--preset", "quick", "--steps", "4800", "--seeds", "1:3", "--patterns", "steady,abrupt")),
        "cpu": Size(("--preset", "quick", "--seeds", "1:3", "--steps", "256000"), ("--steps", "1024000")),
        "paper": Size(("--preset", "paper", "--seeds", "1:5")),
    },
}
_QUICK_TASKS = {"toy": "toy", "mujoco": "hopper", "isaac": "isaac_ingenuity"}
EVERY = "sac,ppo,sql,meow"


def size_of(task: str, scale: Scale) -> Size:
    """The size of a task; one that the paper does not have is of the toy family's sizes."""
    family = next((family for family, tasks in TASKS.items() if task in tasks), "toy")
    return SIZES[family][scale]


def tasks_of(families: tuple[str, ...], scale: Scale) -> list[str]:
    """The tasks of a table: one of each family for ``quick``."""
    if scale == "quick":
        return [_QUICK_TASKS[family] for family in families]
    return [task for family in families for task in TASKS[family]]


def carriers_of(scale: Scale) -> str:
    """One carrier for ``quick``, else all."""
    return "sac" if scale == "quick" else EVERY

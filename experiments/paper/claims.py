"""The paper's quantitative sentences, read from `claims.toml`: data, without any result."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.paper.design import TASKS
from experiments.paper.evidence import CARRIERS, PATTERNS, Side
from experiments.study.method import BASELINE

#: ``mean``: the pooled difference is on the claimed side; ``every``: so is each cell; ``most``: more than half of the
#: cells, and the pooled difference; ``never_worse``: each cell's interval excludes a loss beyond the margin;
#: ``question``: of ours, which way?
Kind = Literal["mean", "every", "most", "never_worse", "question"]
_AES, _BASELINE = Side(("aes",)), Side((BASELINE,))


@dataclass(frozen=True)
class Claim:
    """One sentence: ``first`` compared with ``second`` in ``metric``, higher or lower, over the cells it names."""

    key: str
    section: str  # of the paper
    text: str  # in our own short words
    paper: str  # the paper's number, as printed there or as its tables give it
    kind: Kind = "mean"
    first: Side = _AES
    second: Side = _BASELINE
    metric: str = "nauc_task_safe"  # of `docs/metrics.md`, or `weight_noise`
    sign: int = 1  # 1: first is higher, -1: lower
    patterns: tuple[str, ...] = PATTERNS
    carriers: tuple[str, ...] = CARRIERS
    tasks: tuple[str, ...] = tuple(task for tasks in TASKS.values() for task in tasks)
    unit: tuple[str, ...] = ("family", "carrier", "pattern")  # what makes one cell
    weigh: Literal["family", "task"] = "family"
    contrast: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # patterns with the larger effect, with the smaller
    against: tuple[str, ...] = ()  # tasks with the smaller effect
    everywhere: bool = True  # needs runs of all its tasks and carriers; False: is judged on those with runs
    untestable: str = ""  # why no study could decide it


def _claim(entry: dict[str, Any], name: str) -> Claim:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    patterns = {side: fields.pop(f"{side}_pattern", "") for side in ("first", "second")}
    for side, pattern in patterns.items():
        given = fields.get(side)
        if given == "best constant":
            fields[side] = Side(hindsight=True)
        elif given is not None or pattern:
            default = ("aes",) if side == "first" else (BASELINE,)
            fields[side] = Side(given or default, pattern)
    if "contrast" in fields:
        fields["contrast"] = tuple(map(tuple, fields["contrast"]))
    # The design trains the methods of the paper's Appendix B on the toy task.
    fields |= {"everywhere": not entry["section"].startswith("B.")} if name == "claim" else {"kind": "question"}
    return Claim(**fields)


_ENTRIES = tomllib.loads(Path(__file__).with_name("claims.toml").read_text())
CLAIMS, QUESTIONS = (tuple(_claim(entry, name) for entry in _ENTRIES[name]) for name in ("claim", "question"))

"""The paper's quantitative sentences, read from `claims.toml`, and questions of ours: data, without any result."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from experiments.paper.design import TASKS
from experiments.paper.evidence import CARRIERS, PATTERNS, Side
from experiments.study.method import BASELINE

#: ``mean``: the pooled difference is on the claimed side; ``every``: so is each cell; ``most``: more than half of the
#: cells, and the pooled difference; ``never_worse``: each cell's interval excludes a loss beyond the margin;
#: ``question``: of ours, which way?
Kind = Literal["mean", "every", "most", "never_worse", "question"]
_AES, _BASELINE = Side(("aes",)), Side((BASELINE,))


class Premise(NamedTuple):
    """A difference that a claim takes for granted: first minus second in ``metric``, clearly on a side of zero."""

    metric: str
    sign: int  # 1: first is higher, -1: lower


@dataclass(frozen=True)
class Claim:
    """One sentence: ``first`` compared with ``second`` in ``metric``, higher or lower, over the cells it names."""

    key: str
    section: str  # of the paper
    text: str  # in our own short words
    paper: str  # the paper's numbers, of second → first, as printed there or as its tables give them
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
    everywhere: bool = True  # needs at least half of its tasks and carriers; False: is judged on those that count
    premise: Premise | None = None  # is judged only where it holds
    untestable: str = ""  # why no study could decide it

    @property
    def effect(self) -> float | None:
        """The paper's pooled difference, first minus second, in units of the metric; None without two numbers."""
        sides = [re.findall(r"[\d.]+", side.partition(";")[0]) for side in self.paper.split("→")]
        if len(sides) < 2 or self.contrast or self.against or self.kind == "never_worse":
            return None
        second, first = (fmean(map(float, numbers)) for numbers in sides)
        return (first - second) / self._unit

    @property
    def rounding(self) -> float:
        """Largest error of `effect`, in its units: half of the last place that the paper prints, on each side."""
        numbers = re.findall(r"[\d.]+", self.paper.partition(";")[0])
        return 10.0 ** -min(len(number.partition(".")[2]) for number in numbers) / self._unit

    @property
    def _unit(self) -> float:
        """Divisor of the paper's numbers: 100 where they are percentages."""
        return 100.0 if "%" in self.paper else 1.0


def _claim(entry: dict[str, Any]) -> Claim:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    for side, default in (("first", _AES), ("second", _BASELINE)):
        fields[side] = Side(fields.get(side, default.methods), fields.pop(f"{side}_pattern", ""))
    if "contrast" in fields:
        fields["contrast"] = tuple(map(tuple, fields["contrast"]))
    if "premise" in fields:
        fields["premise"] = Premise(**fields["premise"])
    # The design trains the methods of the paper's Appendix B on the toy task.
    return Claim(**{"everywhere": not entry["section"].startswith("B."), **fields})


def _questions() -> Iterator[Claim]:
    """Is a method better than its baseline, the best constant in hindsight, its own values permuted?"""
    for name in ("AES", "AES-R", "AES-R+window", "AES-C+recent+refresh:threshold=3"):
        method = name.lower().replace("-", "_")
        opponents = {
            "its baseline": _BASELINE,
            "the best constant in hindsight": Side(hindsight=True),
            "its own values permuted": Side((f"permuted:of={method}",)),
        }
        for at, (words, second) in enumerate(opponents.items(), 1):
            carriers = ("SAC", "SQL", "MEow") if "+" in method else CARRIERS
            text, first = f"Is {name} better than {words}?", Side((method,))
            yield Claim(f"{name} {at}", "ours", text, "–", "question", first, second, carriers=carriers)


CLAIMS = tuple(map(_claim, tomllib.loads(Path(__file__).with_name("claims.toml").read_text())["claim"]))
_FASTER = Claim(
    *("AES 4", "ours", "Does AES in SAC recover faster than a fixed weight?", "–", "question", _AES, Side(("fixed",))),
    *("recovery", -1, ("abrupt",), ("SAC",)),
    weigh="task",
)
QUESTIONS = tuple(sorted([*_questions(), _FASTER], key=lambda question: question.key))

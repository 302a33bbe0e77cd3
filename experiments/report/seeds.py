"""Every seed by itself: where it ended, and which ended far from the others."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments.report.cells import NONE, Cell, Lookup, Table, number

_METRIC = "final_return"
_ENOUGH = 4  # seeds, below which none is called an outlier
_SPREADS = 5.0  # robust standard deviations from the median
_SHARE = 0.1  # of the others' median above the floor: what is nearer is no outlier, however close the others lie
_NORMAL = 1.4826  # standard deviations of a normal distribution per median absolute deviation


class Outlier(NamedTuple):
    """Seeds of one method, task and pattern that ended far from the others."""

    task: str
    method: str
    pattern: str
    ends: dict[int, float]  # seed -> mean return over the last tenth of training
    others: float  # median of the other seeds

    @property
    def sentence(self) -> str:
        """For the reader of a report."""
        names, values = (_listed(map(str, self.ends)), _listed(number(end, 1) for end in self.ends.values()))
        many = len(self.ends) > 1
        return (
            f"{self.method}, {self.task}, {self.pattern}: seed{'s' if many else ''} {names} end{'' if many else 's'} "
            f"at {values}, the others at {number(self.others, 1)}."
        )


def _listed(words) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def apart(ends: Mapping[int, float], floor: float = 0.0) -> list[int]:
    """Seeds that lie more than 5 robust standard deviations, and more than a tenth of the median's height above the
    floor, from the median; none of fewer than four.

    >>> apart({1: 47.5, 2: 23.8, 3: 47.7, 4: 47.6, 5: 47.4})
    [2]
    """
    known = {seed: end for seed, end in ends.items() if math.isfinite(end)}
    if len(known) < _ENOUGH:
        return []
    values = np.array(list(known.values()))
    centre = float(np.median(values))
    spread = _NORMAL * float(np.median(np.abs(values - centre)))
    least = max(_SPREADS * spread, _SHARE * abs(centre - floor))
    return [seed for seed, end in known.items() if abs(end - centre) > least]


def outliers(look: Lookup, floors: Mapping[str, float]) -> list[Outlier]:
    """In the order of tasks, patterns and methods.

    Args:
      floors: task -> return of the random policy, 0 where it is unknown.
    """
    found = []
    for task in dict.fromkeys(task for tasks in look.tasks.values() for task in tasks):
        for pattern in look.patterns:
            for method in look.methods:
                ends = look.seeds(task, method, pattern, _METRIC)
                far = apart(ends, floors.get(task, 0.0))
                if far:
                    rest = [end for seed, end in ends.items() if seed not in far and math.isfinite(end)]
                    own = {seed: ends[seed] for seed in far}
                    found.append(Outlier(task, method, pattern, own, float(np.median(rest))))
    return found


def seed_table(look: Lookup, floors: Mapping[str, float]) -> Table:
    """The return that every seed ended with; outliers are marked and named in the notes.

    Args:
      floors: as in `outliers`.
    """
    seeds = sorted({seed for runs in look.runs.values() for seed in runs})
    table = Table(
        "seeds",
        "Every seed",
        "Mean evaluation return over the last tenth of training, a column per seed; marked is what lies more than 5 "
        "robust standard deviations and a tenth of the median's height above the random policy from the median of its "
        "row, and a dash stands for a run that does not count.",
        ["method", *(f"seed {seed}" for seed in seeds)],
    )
    far = {(o.task, o.pattern, o.method): o for o in outliers(look, floors)}
    for task in dict.fromkeys(task for tasks in look.tasks.values() for task in tasks):
        for pattern in look.patterns:
            rows = []
            for method in look.methods:
                if ends := look.seeds(task, method, pattern, _METRIC):
                    outlier = far.get((task, pattern, method))
                    rows.append([Cell(method), *(_end(seed, ends, outlier) for seed in seeds)])
            if rows:
                table.groups.append((f"{task} · {pattern}", rows))
    table.notes = [outlier.sentence for outlier in far.values()]
    return table


def _end(seed: int, ends: Mapping[int, float], outlier: Outlier | None) -> Cell:
    if not math.isfinite(ends.get(seed, math.nan)):
        return Cell(NONE, kind="muted")
    if outlier is None or seed not in outlier.ends:
        return Cell(number(ends[seed]))
    return Cell(number(ends[seed]), kind="worse" if ends[seed] < outlier.others else "better")

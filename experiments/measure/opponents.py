"""Which methods of a study are there to be compared with: constants, and controls that play another method's record."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.measure.curves import mean_return
from experiments.measure.study import RecordedStudy, carrier_of

BEST_CONSTANT = "best_constant"
_CONTROL = re.compile(r"(\w+):of=(.+)")
CONSTANT = "constant"
_FIXED = "fixed"  # the schedule of a constant entropy weight

#: One number per run (higher is better): method -> pattern -> seed -> score.
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
#: Kind of opponent -> (task, pattern) -> method.
Opponents = dict[str, dict[tuple[str, str], str]]


class _Identity(NamedTuple):
    """Identity of a method apart from its label."""

    names: frozenset[str]  # schedule and adaptations
    options: frozenset[str]


def best_of(scores: Scores, methods: Sequence[str], pattern: str) -> str | None:
    """The method with the highest mean score under ``pattern``; None where none has any.

    By the seeds that all of them have, if there are any, so that none is chosen for its seeds; on the very runs that it
    is then compared on, so it looks a little better than it is: a hard opponent.
    """
    found = {m: runs for m in methods if (runs := scores.get(m, {}).get(pattern))}
    common = set.intersection(*map(set, found.values())) if found else set()
    means = {m: float(np.mean([runs[seed] for seed in sorted(common or runs)])) for m, runs in found.items()}
    return max(means, key=means.__getitem__, default=None)


def constants_of(study: RecordedStudy) -> list[str]:
    """Methods with a constant entropy weight that turn nothing else."""
    return [method for method, (rule, _) in study.rules.items() if rule == _FIXED]


def asides_of(study: RecordedStudy) -> set[str]:
    """Methods that others are compared with: constants and controls."""
    controls = [method for method, (rule, _) in study.rules.items() if _CONTROL.fullmatch(rule)]
    return {*constants_of(study), *controls}


def scores_of(study: RecordedStudy, task: str) -> Scores:
    """Mean return over training of every valid run on a task: method -> pattern -> seed -> score."""
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for key, run in study.runs.items():
        if key.task == task and run.curve is not None and np.isfinite(value := mean_return(run.curve)):
            scores.setdefault(key.method, {}).setdefault(key.pattern, {})[key.seed] = value
    return scores


def opponents_of(study: RecordedStudy, method: str) -> Opponents:
    """Against whom a method is compared besides its baseline; nothing for a constant or a control.

    The best constant in hindsight is the carrier's with the highest mean return on the task under the pattern, where
    it has at least two to choose from; a single one is an opponent as it is. A control belongs to the method whose
    record it plays.
    """
    if method in asides_of(study) or method not in study.rules:
        return {}
    found: Opponents = {}
    mine = [m for m in study.rules if carrier_of(m) == carrier_of(method)]
    constants = [m for m in constants_of(study) if m in mine]
    cells = dict.fromkeys((key.task, key.pattern) for key in study.runs)
    if len(constants) > 1:
        scores = {task: scores_of(study, task) for task in dict.fromkeys(task for task, _ in cells)}
        for task, pattern in cells:
            best = best_of(scores[task], constants, pattern)
            if best is not None:
                found.setdefault(BEST_CONSTANT, {})[task, pattern] = best
    # A carrier is compared with its only constant once: the constant against its baseline.
    elif constants and carrier_of(method) not in (method, constants[0]):
        found[CONSTANT] = dict.fromkeys(cells, constants[0])
    rule, variant = study.rules[method]
    me = _Identity(frozenset(rule.split("+")), frozenset(filter(None, variant.split(","))))
    for other in mine:
        control = _CONTROL.fullmatch(study.rules[other][0])
        if control is not None and _typed(control[2]) == me:
            found.setdefault(control[1], {}).update(dict.fromkeys(cells, other))
    return found


def _typed(entry: str) -> _Identity:
    """The method that an entry of ``--schedules`` stands for: ``aes_r:kappa=0.3+window:power=1``."""
    names, options = [], []
    for part in re.split(r"\+(?=[A-Za-z_])", entry):
        words = part.split(":")
        name = ":".join(word for word in words if "=" not in word)
        prefix = f"{name}." if names else ""
        options += [prefix + word for word in words if "=" in word]
        names.append(name)
    return _Identity(frozenset(names), frozenset(options))

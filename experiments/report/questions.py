"""What a drift signal should turn: the questions as pairs of methods, and their answers as tables."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents import OnPolicyCarrier
from experiments.measure.contrasts import Contrast, Scores, best_of, contrasts, share_of
from experiments.measure.curves import mean_return
from experiments.measure.patterns import STEADY
from experiments.measure.stats import Interval
from experiments.measure.study import load_study
from experiments.report.markdown import escaped
from experiments.report.origins import config_by_names
from experiments.study.build import carrier_of, world_of
from experiments.study.folder import open_study
from experiments.study.methods import Method, methods_of

_BEST = "best constant"  # stands for the best constant of the cell in hindsight
_EVERY = "every method"  # stands for each of them in turn


class Question(NamedTuple):
    """Pairs of entries as typed in `--schedules`; those that a study does not have are left out."""

    text: str
    pairs: tuple[tuple[str, str], ...]


def _alone(*entries: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"fixed+{entry}", "fixed") for entry in entries)


_PLAYED = ("aes", "aes_r", "aes_c", "aes_r+window", "aes_c+window", "aes_r+forget+refresh", "aes_c+forget+refresh")
_PLAYED += ("aes_r+refresh", "aes_c+refresh", "aes_c+recent+refresh", "aes_c+recent+refresh:threshold=3")

_BOTH = tuple(f"aes_c+{name}{end}" for end in ("", ":threshold=3") for name in ("refresh", "recent+refresh"))
_BOTH += ("aes_c+window+refresh:threshold=3",)
_BY_THE_CLOCK = ("fixed+recent", "fixed+reset:strength=0.5", "fixed+reset:every=0.2:strength=0.5")

QUESTIONS: dict[str, Question] = {
    "itself": Question(
        "Is it better than the carrier by itself?",
        tuple((name, "baseline") for name in ("aes", "aes_r", "aes_r+window", "aes_r+refresh", *_BOTH, *_BY_THE_CLOCK)),
    ),
    "entropy": Question(
        "Does the entropy weight that follows the signal beat the constant it starts from?",
        tuple((name, "fixed") for name in ("aes", "aes_r", "aes_c", "oracle")),
    ),
    "level": Question(
        "Is it the timing or the level? Against a constant at its own mean, levers held at their means, too.",
        tuple((name, f"constant_at_mean:of={name}") for name in _PLAYED),
    ),
    "timing": Question("The same values at the wrong times.", tuple((name, f"permuted:of={name}") for name in _PLAYED)),
    "data": Question(
        "Which data: does the same signal do more when it chooses the replay window?",
        (
            *_alone("window", "forget"),
            ("aes_r+window", "aes_r"),
            ("aes_c+window", "aes_c"),
            ("oracle+window", "oracle"),
            ("aes_r+window", "fixed+window"),
        ),
    ),
    "parameters": Question(
        "Which parameters: does a refresh at the alarm add to forgetting?",
        (
            ("aes_r+forget+refresh", "fixed+forget"),
            ("aes_c+forget+refresh", "aes_c+forget"),
            ("oracle+forget+refresh", "oracle+forget"),
            ("aes_r+refresh", "aes_r"),
            ("aes_c+refresh", "aes_c"),
            ("aes_c+refresh:threshold=3", "aes_c"),
            ("aes_c+refresh:threshold=3", "fixed"),
            ("oracle+refresh", "oracle"),
            ("fixed+refresh", "fixed"),
        ),
    ),
    "rates": Question("Learning rates.", (*_alone("rate"), ("aes_r+rate", "aes_r"))),
    "clocks": Question(
        "Without any signal: always the newest data, a fixed cycle, resets by the clock.",
        (
            ("fixed+recent", "fixed"),
            ("fixed+ere", "fixed"),
            ("fixed+reset:strength=0.5", "fixed"),
            ("fixed+reset:every=0.2:strength=0.5", "fixed"),
            ("aes_r+window", "fixed+recent"),
            ("aes_c+window", "fixed+recent"),
            ("aes_r+window", "fixed+ere"),
            ("aes_r+forget+refresh", "fixed+reset:strength=0.5"),
        ),
    ),
    "alarms": Question(
        "The clock and the signal: are refreshes at alarms better than refreshes or newest data by the clock?",
        (
            ("aes_c+refresh", "fixed+recent"),
            ("aes_c+forget+refresh", "fixed+recent"),
            ("aes_c+recent+refresh", "fixed+recent"),
            ("aes_c+recent+refresh:threshold=3", "fixed+recent"),
            ("aes_c+recent+refresh:threshold=3", "aes_c+recent+refresh"),
            ("aes_c+recent+refresh", "aes_c+refresh"),
            ("aes_c+refresh", "fixed+reset:strength=0.5"),
            ("aes_c+refresh", "fixed+reset:every=0.2:strength=0.5"),
        ),
    ),
    "knowledge": Question(
        "How much is lost by not knowing when the drift happens?",
        (
            ("aes_r+window", "oracle+window"),
            ("aes_c+window", "oracle+window"),
            ("aes_c+forget+refresh", "oracle+forget+refresh"),
        ),
    ),
    "hindsight": Question("Against the best constant of the cell, chosen in hindsight.", ((_EVERY, _BEST),)),
}


class Answers(NamedTuple):
    """What the studies of one carrier on one task say."""

    task: str
    label: str  # of the carrier
    replay: bool  # it learns from one
    configs: tuple[Mapping[str, Any], ...]
    scores: Scores  # mean return over training, of valid runs
    constants: tuple[str, ...]
    floor: float
    found: Mapping[str, list[Contrast]]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Drift patterns, in the order of the studies."""
        return tuple(dict.fromkeys(pattern for runs in self.scores.values() for pattern in runs))


def _identity(method: Method) -> tuple[str, str]:
    """What makes two methods one, whatever they are called: a baseline may be `fixed` itself."""
    return method.rule, method.variant


def _constant(method: Method) -> bool:
    return method.choice.schedule == "fixed" and not method.responses and method.control is None


def answer(directories: Sequence[Path], carrier: str) -> Answers:
    """Read finished studies of one task, equal in all but their methods, and put the questions.

    Raises:
      ValueError: a folder has no finished study, or two differ in task, horizon or preset.
    """
    studies = [open_study(directory, ended=True) for directory in directories]
    first = studies[0].config
    scores: dict[str, dict[str, dict[int, float]]] = {}
    known: dict[tuple[str, str], str] = {}
    constants: list[str] = []
    floors: list[float] = []
    for study in studies:
        for field in ("task", "steps", "preset", "evaluations", "replay_capacity", "drift_seed"):
            if (mine := getattr(study.config, field)) != (theirs := getattr(first, field)):
                raise ValueError(f"{study.directory}: {field} is {mine}, in {studies[0].directory} it is {theirs}")
        recorded = load_study(study.rows("curves.parquet"), study.config.to_json(), study.ended.manifest)
        floors.append(recorded.floors.get(first.task, 0.0))
        methods = {method.name: method for method in methods_of(study.config, carrier)}
        known = {_identity(method): name for name, method in methods.items()} | known
        constants += [name for name, method in methods.items() if _constant(method)]
        for key, run in recorded.runs.items():
            if key.method in methods and run.curve is not None:
                scores.setdefault(key.method, {}).setdefault(key.pattern, {})[key.seed] = mean_return(run.curve)
    constants = list(dict.fromkeys(constants))
    patterns = tuple(dict.fromkeys(pattern for runs in scores.values() for pattern in runs))
    found = {}
    for key, question in QUESTIONS.items():
        typed = {entry for pair in question.pairs for entry in pair if entry not in (_BEST, _EVERY)}
        names = {
            entry: known.get(
                _identity(methods_of(dataclasses.replace(first, schedules=(entry,), sweep={}), carrier)[0])
            )
            for entry in typed
        }
        pairs = list(_pairs(question, names, scores, constants, patterns))
        if asked := contrasts(scores, pairs):
            found[key] = asked
    label = next(iter(scores)).split("+")[0].split("[")[0] if scores else carrier
    jsons = tuple(config_by_names(study.config.to_json()) for study in studies)
    replay = not isinstance(carrier_of(first, carrier, world_of(first, carrier)), OnPolicyCarrier)
    return Answers(first.task, label, replay, jsons, scores, tuple(constants), floors[0], found)


def _pairs(
    question: Question,
    names: Mapping[str, str | None],
    scores: Scores,
    constants: Sequence[str],
    patterns: Sequence[str],
) -> Iterable[tuple[str, str, str]]:
    for one, other in question.pairs:
        firsts = [m for m in scores if m not in constants] if one == _EVERY else [names[one]]
        for first in firsts:
            for pattern in patterns:
                second = best_of(scores, constants, pattern) if other == _BEST else names[other]
                if first is not None and second is not None:
                    yield first, second, pattern


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] + ["---:"] * (len(head) - 1)), *map(_row, rows), ""]


def _shown(contrast: Contrast) -> str:
    value, low, high = contrast.difference
    mark = {"better": "**", "worse": "_", "undecided": ""}[contrast.verdict]
    p = f"{contrast.p_holm:.2g}" if contrast.p_holm >= 1e-4 else "<1e-4"
    return f"{mark}{value:+.2f}{mark} [{low:+.2f}, {high:+.2f}] p {p}"


def _means(answers: Answers) -> list[str]:
    """Mean returns, the highest of a pattern bold, and the worst cell against the best constant."""
    patterns, best = answers.patterns, {}
    mean = {m: {p: float(np.mean(list(v.values()))) for p, v in runs.items()} for m, runs in answers.scores.items()}
    for pattern in patterns:
        best[pattern] = max(runs.get(pattern, -np.inf) for runs in mean.values())
    opponents = {pattern: best_of(answers.scores, answers.constants, pattern) for pattern in patterns}
    rows = []
    for method, runs in mean.items():
        cells = [escaped(method)]
        for pattern in patterns:
            text = "" if pattern not in runs else f"{runs[pattern]:.2f}"
            cells.append(f"**{text}**" if text and runs[pattern] == best[pattern] else text)
        shares = [
            share_of(answers.scores, method, opponent, pattern, answers.floor)
            for pattern, opponent in opponents.items()
            if opponent is not None
        ]
        cells.append(f"{100 * min(shares):.1f} %" if shares and np.all(np.isfinite(shares)) else "")
        rows.append(cells)
    chosen = escaped(", ".join(f"{p}: {o}" for p, o in opponents.items()))
    head = ["method", *patterns, "worst cell"]
    return [
        *_table(head, rows),
        f"Worst cell: the smallest share of the best constant's return above the random policy's ({answers.floor:.2f}) "
        f"under any pattern. Best constants in hindsight: {chosen}.",
        "",
    ]


def markdown(answers: Answers, command: Sequence[str]) -> str:
    """Mean returns, every question with its contrasts, and how many of them are decided."""
    seeds = sorted({seed for runs in answers.scores.values() for found in runs.values() for seed in found})
    config = answers.configs[0]
    sizes = [f"{len(seeds)} seeds", f"{config['steps']:,} steps", f"preset {config['preset']}"]
    sizes += [f"replay {config['replay_capacity']:,}"] if answers.replay else []
    sizes += [f"channels {', '.join(config['options']['channels'])}"] if "channels" in config["options"] else []
    begun = "every run began with an agent that was trained without drift; " if config.get("warm_start") else ""
    lines = [
        f"# What a drift signal should turn: {answers.task}, {answers.label}",
        "",
        f"Mean return over training; {begun}{', '.join(sizes)}. Differences are paired by seed, with Student's 95 % "
        "intervals; p after Holm over all contrasts of one question; bold is better, italic worse, at 5 %. Made by",
        "",
        "```",
        *command,
        "```",
        "",
        *_means(answers),
    ]
    for key, found in answers.found.items():
        lines += [f"## {QUESTIONS[key].text}", ""]
        rows: dict[tuple[str, str], dict[str, Contrast]] = {}
        for contrast in found:
            second = _BEST if key == "hindsight" else contrast.second
            rows.setdefault((contrast.first, second), {})[contrast.pattern] = contrast
        body = []
        for (first, second), cells in rows.items():
            verdicts = [c.verdict for p, c in cells.items() if p != STEADY]
            tally = f"{verdicts.count('better')} better, {verdicts.count('worse')} worse of {len(verdicts)}"
            body.append(
                [escaped(f"{first} − {second}"), *(_shown(cells[p]) if p in cells else "" for p in answers.patterns)]
            )
            body[-1].append(tally)
        lines += _table(["difference", *answers.patterns, "drifting cells"], body)
    return "\n".join(lines)


def plain(answers: Answers, command: Sequence[str]) -> dict[str, Any]:
    """Everything as JSON holds it: scores of every run and every contrast."""
    return {
        "task": answers.task,
        "carrier": answers.label,
        "command": list(command),
        "configs": answers.configs,
        "floor": answers.floor,
        "constants": answers.constants,
        "scores": answers.scores,
        "contrasts": {
            key: [{**c._asdict(), "difference": _finite(c.difference), "p": _or_none(c.p)} | _decided(c) for c in found]
            for key, found in answers.found.items()
        },
    }


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _finite(interval: Interval) -> list[float | None]:
    return [_or_none(value) for value in interval]


def _decided(contrast: Contrast) -> dict[str, Any]:
    return {"p_holm": _or_none(contrast.p_holm), "verdict": contrast.verdict}

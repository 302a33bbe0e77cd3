"""The studies that a table is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.paper.named import STUDIES
from experiments.paper.sizes import Scale, preset_tasks, size_of
from experiments.session.study import Study
from experiments.study.text import parse_methods

#: Carriers that keep data, among which an adaptation can choose.
_REPLAY = ("sac", "sql", "meow")
#: Methods of the main tables: the paper's two, and ours; the last one where there is a replay.
METHODS, COMBINED = "baseline,aes,aes_r", "aes_c+recent+refresh:threshold=3"


@dataclass
class Options:
    """Size and place of a table's studies."""

    out: Path  # folder for the studies and the table
    preset: Scale = "quick"
    tasks: str | None = None  # comma-separated, instead of the preset's
    carriers: str | None = None  # likewise
    given: Mapping[str, Any] = field(default_factory=dict)  # options of every study, before those of its size


class Part(NamedTuple):
    """One study of a table."""

    name: str  # its folder, in the folder of the table
    study: Study
    warm: "Part | None" = None  # whose agents it begins with


class Made(NamedTuple):
    """A table's finished studies."""

    name: str  # of the table
    options: Options
    parts: list[Part]

    @property
    def folders(self) -> list[Path]:
        """Of the studies."""
        return [self.options.out / part.name for part in self.parts]


class PaperTable(NamedTuple):
    """A table: the studies it needs, and how it is shown."""

    summary: str
    wanted: Callable[[Options], list[Part]]
    show: Callable[[Made], None]  # prints and writes it, when all studies are finished
    then: Callable[[Options, Part], Part] | None = None  # a study that is trained from a finished one


def tasks_of(options: Options, families: Sequence[str]) -> list[str]:
    """The tasks asked for, else the preset's tasks of these families."""
    return options.tasks.split(",") if options.tasks else preset_tasks(families, options.preset)


def main_studies(options: Options, families: Sequence[str], patterns: str | None = None) -> list[Part]:
    """The methods of the main tables on every task, with recent replay and refreshes for carriers that keep data."""
    some = {"patterns": patterns} if patterns else {}
    return [
        _part(options, f"main/{task}{end}", task, carriers, methods, some)
        for task in tasks_of(options, families)
        for carriers, methods, end in _split(options, (f"{METHODS},{COMBINED}", ""), (METHODS, "-ppo"))
    ]


def named_studies(
    options: Options, name: str, families: Sequence[str] = ("toy",), carriers: str | None = None
) -> list[Part]:
    """A named study on every task."""
    named, carriers = STUDIES[name], carriers or _carriers(options)
    own = {"patterns": named.patterns, "seeds": named.seeds, "preset": named.preset}
    return [
        _part(options, f"{name}/{task}", task, carriers, named.schedules, {}, own)
        for task in tasks_of(options, families)
    ]


def split_studies(options: Options, replay: str, rest: str) -> list[Part]:
    """A named study for carriers that keep data, one for those that do not, on every toy task."""
    parts = _split(options, (replay,), (rest,))
    return [each for carriers, study in parts for each in named_studies(options, study, carriers=carriers)]


def _carriers(options: Options) -> str:
    return options.carriers or ("sac" if options.preset == "quick" else "sac,ppo,sql,meow")


def _split(options: Options, replay: tuple[str, ...], rest: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The carriers that keep data, before what is for them, and the others, before what is for those."""
    carriers = _carriers(options).split(",")
    keeping = [carrier for carrier in carriers if carrier in _REPLAY]
    others = [carrier for carrier in carriers if carrier not in _REPLAY]
    return [(",".join(part), *own) for part, own in ((keeping, replay), (others, rest)) if part]


def _part(
    options: Options,
    name: str,
    task: str,
    carriers: str,
    schedules: str,
    more: Mapping[str, Any],
    named: Mapping[str, Any] = {},
) -> Part:
    """A study of the table's size; what is given for all studies wins over ``more``, the size, and ``named``."""
    size = size_of(task, options.preset)
    own = {**named, **size.options, **more, **options.given}
    study = Study(task, parse_methods(carriers, schedules), **own)
    if not size.warm:
        return Part(name, study)
    steady = replace(
        Study(task, parse_methods(carriers, "baseline"), **{**size.options, **size.warm}), patterns="steady"
    )
    return Part(name, study, Part(f"warm/{task}-{carriers.replace(',', '-')}", steady))

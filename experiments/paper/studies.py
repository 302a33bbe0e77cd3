"""The studies that a table is made of, as calls of `aesjax run`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from experiments.paper.sizes import Scale, preset_tasks, size_of

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


class Study(NamedTuple):
    """One call of `aesjax run`."""

    name: str  # its folder, in the folder of the table
    words: tuple[str, ...]
    warm: "Study | None" = None  # whose agents it begins with

    @property
    def task(self) -> str:
        """The task that it trains on."""
        return self.words[self.words.index("--task") + 1]


class Made(NamedTuple):
    """A table's finished studies."""

    name: str  # of the table
    options: Options
    studies: list[Study]

    @property
    def folders(self) -> list[Path]:
        """Of the studies."""
        return [self.options.out / study.name for study in self.studies]


class PaperTable(NamedTuple):
    """A table: the studies it needs, and how it is shown."""

    summary: str
    wanted: Callable[[Options], list[Study]]
    show: Callable[[Made], None]  # prints and writes it, when all studies are finished
    then: Callable[[Options, Study], Study] | None = None  # a study that is trained from a finished one


def tasks_of(options: Options, families: Sequence[str]) -> list[str]:
    """The tasks asked for, else the preset's tasks of these families."""
    return options.tasks.split(",") if options.tasks else preset_tasks(families, options.preset)


def main_studies(options: Options, families: Sequence[str], patterns: str | None = None) -> list[Study]:
    """The methods of the main tables on every task, with recent replay and refreshes for carriers that keep data."""
    some = ("--patterns", patterns) if patterns else ()
    return [
        _study(options, f"main/{task}{end}", task, carriers, more=("--schedules", methods, *some))
        for task in tasks_of(options, families)
        for carriers, methods, end in _split(options, (f"{METHODS},{COMBINED}", ""), (METHODS, "-ppo"))
    ]


def named_studies(
    options: Options, study: str, families: Sequence[str] = ("toy",), carriers: str | None = None
) -> list[Study]:
    """One of `aesjax list`'s studies on every task."""
    carriers = carriers or _carriers(options)
    return [
        _study(options, f"{study}/{task}", task, carriers, named=("--study", study))
        for task in tasks_of(options, families)
    ]


def split_studies(options: Options, replay: str, rest: str) -> list[Study]:
    """One of `aesjax list`'s studies for carriers that keep data, one for those that do not, on every toy task."""
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


def _study(
    options: Options, name: str, task: str, carriers: str, *, named: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> Study:
    size = size_of(task, options.preset)
    common = (*named, "--task", task, "--carriers", carriers, *size.words)
    if not size.warm:
        return Study(name, (*common, *more))
    steady = ("--schedules", "baseline", "--patterns", "steady", *size.warm)
    return Study(name, (*common, *more), Study(f"warm/{task}-{carriers.replace(',', '-')}", (*common, *steady)))

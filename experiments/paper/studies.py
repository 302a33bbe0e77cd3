"""The studies that a table is made of, as calls of `aesjax run`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from experiments.paper.sizes import Scale, carriers_of, size_of, tasks_of

#: Carriers that keep data, among which an adaptation can choose.
_REPLAY = ("sac", "sql", "meow")
#: Methods of the main tables: the paper's two, and ours; the last one where there is a replay.
METHODS, RECOMMENDED = "baseline,aes,aes_r", "aes_c+recent+refresh:threshold=3"


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

    @property
    def carriers(self) -> list[str]:
        """The carriers that it trains."""
        return self.words[self.words.index("--carriers") + 1].split(",")


class Made(NamedTuple):
    """A table's finished studies."""

    name: str  # of the table
    options: Options
    command: str  # that made them
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


def _tasks(options: Options, families: tuple[str, ...]) -> list[str]:
    return options.tasks.split(",") if options.tasks else tasks_of(families, options.preset)


def main_studies(options: Options, families: tuple[str, ...], patterns: str | None = None) -> list[Study]:
    """The methods of the main tables on every task, with what is recommended for carriers that keep data."""
    return [
        _study(options, f"main/{task}{end}", task, own, methods, patterns)
        for task in _tasks(options, families)
        for own, methods, end in _split(options, (f"{METHODS},{RECOMMENDED}", ""), (METHODS, "-ppo"))
    ]


def named_studies(options: Options, study: str, families: tuple[str, ...] = ("toy",)) -> list[Study]:
    """One of `aesjax list`'s studies on every task."""
    return _named(options, study, _carriers(options), families)


def split_studies(options: Options, replay: str, rest: str) -> list[Study]:
    """One of `aesjax list`'s studies for carriers that keep data, one for those that do not, on every toy task."""
    return [
        each
        for carriers, study in _split(options, (replay,), (rest,))
        for each in _named(options, study, carriers, ("toy",))
    ]


def _named(options: Options, study: str, carriers: str, families: tuple[str, ...]) -> list[Study]:
    return [
        _study(options, f"{study}/{task}", task, carriers, None, None, ("--study", study))
        for task in _tasks(options, families)
    ]


def _carriers(options: Options) -> str:
    return options.carriers or carriers_of(options.preset)


def _split(options: Options, replay: tuple[str, ...], rest: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The carriers that keep data, before what is for them, and the others, before what is for those."""
    carriers = _carriers(options).split(",")
    parts = (
        (",".join(carrier for carrier in carriers if (carrier in _REPLAY) == kept), *what)
        for kept, what in ((True, replay), (False, rest))
    )
    return [part for part in parts if part[0]]


def _study(
    options: Options,
    name: str,
    task: str,
    carriers: str,
    schedules: str | None,
    patterns: str | None,
    more: tuple[str, ...] = (),
) -> Study:
    size = size_of(task, options.preset)
    common = (*more, "--task", task, "--carriers", carriers, *size.words)
    words = (
        *common,
        *(("--schedules", schedules) if schedules else ()),
        *(("--patterns", patterns) if patterns else ()),
    )
    if not size.warm:
        return Study(name, words)
    steady = ("--schedules", "baseline", "--patterns", "steady", *size.warm)
    return Study(name, words, Study(f"warm/{task}-{carriers.replace(',', '-')}", (*common, *steady)))

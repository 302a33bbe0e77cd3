"""The studies behind a table: trained where they are not there yet, and never twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tyro

from experiments.cli import main
from experiments.cli.errors import DIVERGED, DONE, Refusal, guarded, refusing
from experiments.cli.run import Run, configured
from experiments.paper.sizes import Scale, carriers_of, size_of, tasks_of
from experiments.study import store
from experiments.study.devices import start_jax

#: Carriers that keep data, among which a response can choose.
_REPLAY = ("sac", "sql", "meow")
#: What the main tables compare: the paper's two, and ours; the last one where there is a replay.
METHODS, RECOMMENDED = "baseline,aes,aes_r", "aes_c+recent+refresh:threshold=3"
#: Of these a finished study may have more than a table needs.
_CONTAINED = ("carriers", "schedules", "patterns", "seeds")
_SIZED = ("settings", "replay_capacity", "warmup")  # they follow from the carriers


@dataclass
class Options:
    """Any option of `aesjax run` may be given beside these and wins: --seeds, --patterns, --steps, --devices, ..."""

    out: Path
    """Folder for the studies and the table. A study that is finished in it is not trained again, so that tables made of
    the same runs can share a folder."""
    preset: Scale = "quick"
    """Sizes: quick (a minute, says nothing), cpu (hours on two cores), or paper."""
    tasks: str | None = None
    """Comma-separated tasks instead of the preset's."""
    carriers: str | None = None
    """Comma-separated carriers instead of the preset's: sac for quick, else all."""
    resume: bool = False
    """Go on where an earlier call stopped."""


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
    """What a table is made of."""

    options: Options
    rest: list[str]  # what else was typed, for `aesjax run`
    studies: list[Study]  # trained

    @property
    def folders(self) -> list[Path]:
        """Of the studies."""
        return [self.options.out / study.name for study in self.studies]


def run_table(
    wanted: Callable[[Options], list[Study]],
    tell: Callable[[Made], None],
    description: str | None,
    argv: Sequence[str] | None = None,
    then: Callable[[Options, Study], Study] | None = None,
) -> int:
    """A table's script: train its studies, then tell the table; returns the exit code.

    Args:
      wanted: the studies.
      tell: prints and writes the table; not called where a study could not run.
      description: of the script, for `--help`.
      then: a study that is trained from a finished one of ``wanted``; told behind those.
    """
    return guarded(lambda: _run_table(wanted, tell, description, argv, then))


def _run_table(
    wanted: Callable[[Options], list[Study]],
    tell: Callable[[Made], None],
    description: str | None,
    argv: Sequence[str] | None,
    then: Callable[[Options, Study], Study] | None,
) -> int:
    options, rest = tyro.cli(Options, description=description, args=argv, return_unknown_args=True)
    studies = wanted(options)
    with refusing():
        code = train(options, studies, rest)
        if code in (DONE, DIVERGED) and then is not None:
            studies += (more := [then(options, study) for study in studies])
            code = max(code, train(options, more, rest))
        if code in (DONE, DIVERGED):
            tell(Made(options, rest, studies))
    return code


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


def train(options: Options, studies: Sequence[Study], rest: Sequence[str] = ()) -> int:
    """Train what is not finished; a study that could not run ends it with its exit code.

    Args:
      rest: what else was typed, given to every study but those that only train agents to begin with.

    Raises:
      Refusal: a finished folder holds another study than the one that is wanted.
    """
    worst = DONE
    for study in studies:
        folder = options.out / study.name
        more = list(rest)
        if study.warm is not None:
            code = train(options, [study.warm])
            if code not in (DONE, DIVERGED):
                return code
            more = ["--warm-start", str(options.out / study.warm.name), *more]
        words = [*study.words, *more, "--out", str(folder)]
        if (folder / store.MANIFEST).exists():
            _check(folder, words)
            continue
        code = main(["run", *words, *(["--resume"] if options.resume and folder.exists() else [])])
        if code not in (DONE, DIVERGED):
            return code
        worst = max(worst, code)
    return worst


def _check(folder: Path, words: Sequence[str]) -> None:
    """Refuse a finished study that is not, or does not contain, the one that was asked for."""
    asked = tyro.cli(Run, args=list(words))
    start_jax(asked.devices)
    wanted, there = configured(asked).to_json(), store.read_json(folder / store.CONFIG)
    wrong = [name for name in _CONTAINED if set(wanted[name]) - set(there[name])]
    wrong += [n for n, value in wanted.items() if n not in (*_CONTAINED, *_SIZED) and there.get(n) != value]
    if not wrong and any(there["settings"][carrier] != own for carrier, own in wanted["settings"].items()):
        wrong.append("settings")
    if wrong:
        raise Refusal(f"{folder} holds a study with other {', '.join(wrong)}; choose another --out")

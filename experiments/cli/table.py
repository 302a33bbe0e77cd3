"""`aesjax table NAME`: a table of the paper"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from experiments.cli.errors import DIVERGED, DONE, Refusal, refusing
from experiments.cli.run import RunOptions, configured, flat
from experiments.cli.run import train as run
from experiments.study.devices import start_jax

if TYPE_CHECKING:
    from experiments.paper.studies import Options, Study

#: Of these a finished study may have more than a table needs.
_CONTAINED = ("carriers", "schedules", "patterns", "seeds")
_SIZED = ("settings", "replay_capacity", "warmup")  # they follow from the carriers


@dataclass
class Table:
    """Train the studies of one of the paper's tables and print it with the paper's numbers. Any option of `aesjax run`
    may be given as well and wins: --seeds, --patterns, --steps, --devices, ..."""

    name: tyro.conf.Positional[str]
    """Name of the table; `aesjax list` describes them: toy, mujoco, isaac, recovery, ablation, quantile, ema, clip,
    fixed_grid, controls, responses, proxies."""
    out: Path
    """Folder for the studies and the table. A finished study in it is not trained again, so that tables of equal
    runs can share a folder."""
    preset: Literal["quick", "cpu", "paper"] = "quick"
    """Sizes: quick (a minute, says nothing), cpu (hours on two cores), or paper."""
    tasks: str | None = None
    """Comma-separated tasks instead of the preset's."""
    carriers: str | None = None
    """Comma-separated carriers instead of the preset's: sac for quick, else all."""
    resume: bool = False
    """Continue where an earlier call stopped."""
    rest: tyro.conf.Suppress[tuple[str, ...]] = ()


def execute(options: Table) -> int:
    """Train what is not finished, then print and write the table."""
    from experiments.paper.studies import Made
    from experiments.paper.studies import Options as Sizes
    from experiments.paper.tables import TABLES

    with refusing():
        table = TABLES[options.name]
        sizes = Sizes(options.out, options.preset, options.tasks, options.carriers)
        studies = table.wanted(sizes)
        code = _train(sizes, studies, options.rest, options.resume)
        if code in (DONE, DIVERGED) and table.then is not None:
            studies += (more := [table.then(sizes, study) for study in studies])
            code = max(code, _train(sizes, more, options.rest, options.resume))
        if code in (DONE, DIVERGED):
            table.show(Made(options.name, sizes, studies))
    return code


def _train(sizes: "Options", studies: Sequence["Study"], rest: Sequence[str], resume: bool) -> int:
    """Train what is not finished; a study that could not run ends it with its exit code.

    Args:
      rest: further words for every study but those that only train agents to begin with.
    """
    from experiments.study import store

    worst = DONE
    for study in studies:
        folder = sizes.out / study.name
        more = list(rest)
        if study.warm is not None:
            code = _train(sizes, [study.warm], (), resume)
            if code not in (DONE, DIVERGED):
                return code
            more = ["--warm-start", str(sizes.out / study.warm.name), *more]
        words = [*study.words, *more, "--out", str(folder)]
        words += ["--resume"] if resume and folder.exists() and not (folder / store.MANIFEST).exists() else []
        asked = flat(tyro.cli(RunOptions, prog="aesjax run", args=words))
        if (folder / store.MANIFEST).exists():
            _check(folder, asked)
            continue
        code = run(asked)
        if code not in (DONE, DIVERGED):
            return code
        worst = max(worst, code)
    return worst


def _check(folder: Path, asked: Any) -> None:
    """Refuse a finished study that is not, or does not contain, the one that was asked for."""
    from experiments.study import store

    start_jax(asked.devices)
    wanted, there = configured(asked).to_json(), store.read_json(folder / store.CONFIG)
    wrong = [name for name in _CONTAINED if set(wanted[name]) - set(there[name])]
    wrong += [n for n, value in wanted.items() if n not in (*_CONTAINED, *_SIZED) and there.get(n) != value]
    if not wrong and any(there["settings"][carrier] != own for carrier, own in wanted["settings"].items()):
        wrong.append("settings")
    if wrong:
        raise Refusal(f"{folder} holds a study with other {', '.join(wrong)}; choose another --out")

"""`aesjax table NAME`: a table of the paper"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from experiments.cli.errors import DIVERGED, DONE, Refusal, refusing
from experiments.cli.run import Runtime, train
from experiments.session.study import Study, Text, Whole
from experiments.study.process import start_jax

if TYPE_CHECKING:
    from experiments.paper.studies import Options, Part

#: Of these a finished study may have more than a table needs.
_CONTAINED = ("methods", "patterns", "seeds")
_SIZED = ("settings", "replay_capacity", "warmup")  # they follow from the carriers


@dataclasses.dataclass(frozen=True)
class Table:
    """Train the studies of one of the paper's tables and print it with the paper's numbers."""

    name: tyro.conf.Positional[str]
    """Name of the table; `aesjax list` describes them: toy, mujoco, isaac, recovery, ablation, quantile, ema, clip,
    fixed_grid, controls, responses."""
    out: Path
    """Folder for the studies and the table. A finished study in it is not trained again, so that tables of equal
    runs can share a folder."""
    preset: Literal["quick", "cpu", "paper"] = "quick"
    """Sizes: quick (a smoke test), cpu (hours on two cores), or paper."""
    tasks: str | None = None
    """Comma-separated tasks instead of the preset's."""
    carriers: str | None = None
    """Comma-separated carriers instead of the preset's: sac for quick, else all."""
    patterns: Text = None
    """Drift patterns of every study instead of its own."""
    seeds: Text = None
    """Training seeds of every study instead of the preset's."""
    steps: Whole = None
    """Environment steps of a run instead of the preset's."""
    evaluations: Whole = None
    """Evaluations of a run instead of the preset's."""
    devices: Whole = None
    """Devices to use; on a CPU one per core by default."""
    resume: bool = False
    """Continue where an earlier call stopped."""
    quiet: bool = False
    """Show no progress."""
    report: bool = True
    """Write the report of every study."""


def execute(options: Table) -> int:
    """Train what is not finished, then print and write the table."""
    from experiments.paper.studies import Made
    from experiments.paper.studies import Options as Sizes
    from experiments.paper.tables import TABLES

    with refusing():
        start_jax(options.devices)
        table = TABLES[options.name]
        names = ("patterns", "seeds", "steps", "evaluations")
        given = {name: value for name in names if (value := getattr(options, name)) is not None}
        sizes = Sizes(options.out, options.preset, options.tasks, options.carriers, given)
        parts = table.wanted(sizes)
        code = _train(options, sizes, parts)
        if code in (DONE, DIVERGED) and table.then is not None:
            parts += (more := [table.then(sizes, part) for part in parts])
            code = max(code, _train(options, sizes, more))
        if code in (DONE, DIVERGED):
            table.show(Made(options.name, sizes, parts))
    return code


def _train(options: Table, sizes: "Options", parts: "Sequence[Part]") -> int:
    """Train what is not finished; a study that could not run ends it with its exit code."""
    from experiments.study import store

    worst = DONE
    for part in parts:
        study, folder = part.study, sizes.out / part.name
        if part.warm is not None:
            code = _train(options, sizes, [part.warm])
            if code not in (DONE, DIVERGED):
                return code
            study = dataclasses.replace(study, start=sizes.out / part.warm.name)
        if (folder / store.MANIFEST).exists():
            _check(folder, study)
            continue
        begun = options.resume and folder.exists()
        code = train(study, Runtime(folder, begun, quiet=options.quiet, report=options.report, devices=options.devices))
        if code not in (DONE, DIVERGED):
            return code
        worst = max(worst, code)
    return worst


def _check(folder: Path, study: Study) -> None:
    """Refuse a finished study that is not, or does not contain, the one that was asked for."""
    from experiments.study import store

    wanted, there = study.config.to_json(), store.read_json(folder / store.CONFIG)
    wrong = [name for name in _CONTAINED if any(each not in there[name] for each in wanted[name])]
    wrong += [n for n in {*wanted, *there} - {*_CONTAINED, *_SIZED} if there.get(n) != wanted.get(n)]
    own: dict[str, Any] = wanted["settings"]
    if not wrong and any(there["settings"][carrier] != settings for carrier, settings in own.items()):
        wrong.append("settings")
    if wrong:
        raise Refusal(f"{folder} holds a study with other {', '.join(sorted(wrong))}; choose another --out")

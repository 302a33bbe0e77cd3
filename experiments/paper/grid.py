"""The grid: one design of methods for every carrier and task, from which the verdicts on AES follow.

Each carrier has its baseline, AES as published, AES with three smaller kappas, four constants, `aes_r`, and the two
controls of the published AES. SAC, SQL and MEow take one gradient step per environment step on the toy task, the small
mechanics and MuJoCo; on Isaac they take one per vector step, as the authors' code does.

python -m experiments.paper.grid record DIR ...      # adds finished studies to the record
python -m experiments.paper.grid tables              # prints its tables
python -m experiments.paper.grid figure docs/kappa.png
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from aesjax.adaptations import burst, recent, refresh, reset, utd
from aesjax.schedules import aes, aes_c, aes_r, fixed
from experiments.paper import grid_tables
from experiments.presets import presets_of
from experiments.session.study import Study
from experiments.study.method import Control, Method

PATTERNS = "steady,abrupt,linear,periodic,mixed,sawtooth"
#: Factors of AES besides the published 1, and constants as multiples of the preset's weight, by carrier.
KAPPAS = {"ppo": (0.003, 0.01, 0.03)}
CONSTANTS = {"ppo": (0.3, 1.0, 3.0, 10.0)}
_KAPPAS, _CONSTANTS = (0.03, 0.1, 0.3), (0.4, 1.0, 4.0, 10.0)
_CONTROLS = ("constant_at_mean", "permuted")


class Cell(NamedTuple):
    """One study of the grid: a carrier on a task."""

    name: str  # of its folder
    study: Study


class Size(NamedTuple):
    """Sizes of the studies of one task."""

    task: str
    steps: int
    seeds: str
    evaluations: int = 100
    episodes: int | None = None
    patterns: str = PATTERNS
    preset: str = "quick"


_MECHANICS = ("reacher", "cartpole_swingup", "pendulum")
#: Part -> its tasks, at the small scale.
SIZES = {
    "A": (Size("toy", 100_000, "1:10"),),
    "B": tuple(
        Size(
            "toy_multigoal_classic", steps, "1:10", 20, preset="release",
            patterns="steady,abrupt,sawtooth,periodic,mixed_release",
        )
        for steps in (4_000, 40_000)
    ),
    "C": tuple(Size(task, 40_000, "1:10") for task in _MECHANICS),
    "D": tuple(Size(task, 102_400, "1:5", 40, 5) for task in ("hopper", "halfcheetah", "walker2d", "ant", "humanoid")),
}  # fmt: skip


def methods(carrier: str, base: float) -> list[Method]:
    """The methods of one carrier, whose own constant is ``base``; without the controls, which need records."""
    constants = [base * factor for factor in CONSTANTS.get(carrier, _CONSTANTS)]
    constants = [0.0, *constants] if carrier == "ppo" else constants
    rows = [Method(carrier), *(Method(carrier, fixed(float(f"{weight:g}"))) for weight in constants)]
    rows += [Method(carrier, aes()), *(Method(carrier, aes(kappa=kappa)) for kappa in KAPPAS.get(carrier, _KAPPAS))]
    return [*rows, Method(carrier, aes_r())]


def released(carrier: str) -> list[Method]:
    """The methods on the authors' toy task: AES starts at its lower bound, and the baseline is the constant 2.5."""
    constants = [Method(carrier, fixed(weight)) for weight in (2.5, 1.0, 0.3)]
    rules = [Method(carrier, aes(base=1e-4)), *(Method(carrier, aes(base=1e-4, kappa=kappa)) for kappa in _KAPPAS)]
    return [Method(carrier), *constants, *rules]


def helpers(carrier: str) -> list[Method]:
    """Newer data, more gradient steps and partial resets; for PPO resets alone, at three intervals."""
    if carrier == "ppo":
        resets = [Method(carrier, fixed(), reset(every=every, strength=0.5)) for every in (0.17, 0.2, 0.23)]
        return [*resets, Method(carrier, aes_c(), refresh())]
    levers = ([recent()], [utd(updates=4)], [recent(), utd(updates=4)])
    return [*(Method(carrier, fixed(), own) for own in levers), Method(carrier, aes_c(), [recent(), burst()])]


def cells(part: str, carriers: tuple[str, ...] = ("sac", "ppo", "sql", "meow")) -> list[Cell]:
    """The studies of a part, one for each task, horizon and carrier."""
    found = []
    for size in SIZES["A"] + SIZES["C"] if part == "F" else SIZES[part]:
        for carrier in carriers if part != "F" else [each for each in carriers if each in ("sac", "ppo")]:
            preset = presets_of(size.task, 1_000)[size.preset]
            rows = (
                helpers(carrier)
                if part == "F"
                else released(carrier)
                if part == "B"
                else methods(carrier, preset.carriers[carrier].base)
            )
            study = Study(
                size.task, rows, size.patterns, size.seeds, size.preset, size.steps,
                num_envs=None if carrier == "ppo" else 1, evaluations=size.evaluations, episodes=size.episodes,
            )  # fmt: skip
            found.append(Cell(f"{part}-{size.task}-{size.steps}-{carrier}", study))
    return found


def controls(cell: Cell, folder: Path) -> Cell:
    """The controls of the published AES, made of the finished study in ``folder``."""
    published = [method for method in cell.study.methods if method == Method(method.carrier, aes())]
    rows = [Method(method.carrier, control=Control(kind, method)) for method in published for kind in _CONTROLS]
    return Cell(f"{cell.name}-controls", replace(cell.study, methods=rows, controls_from=folder))


def main(arguments: Sequence[str] | None = None) -> None:
    """Add studies to the record, print its tables, or draw its figure."""
    import tyro

    def record(folders: tyro.conf.Positional[tuple[Path, ...]], out: Path = grid_tables.RECORD) -> None:
        """Add finished studies to the record."""
        grid_tables.record(folders, out)

    def tables(record: Path = grid_tables.RECORD) -> None:
        """Print the tables of the record as Markdown."""
        print(grid_tables.tables(grid_tables.read(record).runs))

    def figure(path: tyro.conf.Positional[Path], record: Path = grid_tables.RECORD) -> None:
        """Draw return against mean weight."""
        grid_tables.figure(grid_tables.read(record).runs, path)

    tyro.extras.subcommand_cli_from_dict({"record": record, "tables": tables, "figure": figure}, args=arguments)


if __name__ == "__main__":
    main()

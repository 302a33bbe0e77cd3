"""`aesjax table grid`: studies of a part of the design, their record, and its tables"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import tyro

from experiments.cli.errors import DIVERGED, DONE, Refusal, refusing, say
from experiments.cli.run import Runtime, train
from experiments.session.study import SECONDS, Study, Text, Whole, Word
from experiments.study.process import start_jax

#: Fields of which a finished study may have more values than a table needs.
_CONTAINED = ("methods", "patterns", "seeds")
_SIZED = ("settings", "replay_capacity", "warmup")  # they follow from the carriers


@dataclasses.dataclass(frozen=True)
class Table:
    """Train the missing studies of a part of the design, add them to a record, and print the record's tables with the
    paper's numbers."""

    name: tyro.conf.Positional[Literal["grid"]]
    """grid: methods with equal tuning, including the paper's two, and controls."""
    part: str
    """A to H, S, or appendix; `aesjax list tables` describes them."""
    out: Path
    """Folder of the studies, tables.md and the record. Finished studies in it are not trained again, interrupted ones
    are continued."""
    preset: Literal["small", "paper"] = "small"
    """Sizes: small (hours to a day on two cores), or paper (the paper's, as far as stated)."""
    tasks: str | None = None
    """Comma-separated tasks of the part instead of all."""
    carriers: str | None = None
    """Comma-separated carriers of the part instead of all."""
    patterns: Text = None
    """Drift patterns of every study instead of the part's."""
    seeds: Text = None
    """Training seeds of every study instead of the part's."""
    steps: Whole = None
    """Environment steps of a run instead of the part's."""
    evaluations: Whole = None
    """Evaluations of a run instead of the part's."""
    episodes: Whole = None
    """Episodes of an evaluation instead of the part's."""
    engine: Word = None
    """Physics of robots instead of the device's default: mujoco (C), mjx or warp."""
    record: Path | None = None
    """Record to which the runs are added; by default OUT/record."""
    with_reference: bool = False
    """Also train SAC's runs without drift that nAUC needs, if neither the selection nor the record has them."""
    devices: Whole = None
    """Devices to use; on a CPU one per core by default."""
    checkpoint_seconds: Annotated[float, *SECONDS] = 30.0
    """Seconds between checkpoints."""
    dry_run: bool = False
    """Print the missing studies with runs, memory and a time estimate; nothing is trained or written. Controls, which
    need finished studies, are omitted."""
    quiet: bool = False
    """Do not show progress."""
    report: bool = False
    """Write the report of every study."""


def execute(options: Table) -> int:
    """Train unfinished studies, record them and print the tables."""
    import polars as pl

    from experiments.paper import helps, tables
    from experiments.paper.design import cells, controls
    from experiments.paper.evidence import FAMILY_OF, SETTING, planned, references
    from experiments.paper.record import STUDIES, Record, gather, read, record
    from experiments.session.results import Results
    from experiments.session.tuning import TuningPlan
    from experiments.study import store

    names = ("patterns", "seeds", "steps", "evaluations", "episodes", "engine")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    with refusing():
        start_jax(options.devices)
        carriers, tasks = (names.split(",") if names else None for names in (options.carriers, options.tasks))
        wanted = cells(options.part, carriers, options.preset, tasks, given)
        place = options.record or options.out / "record"
        known = read(place) if (place / STUDIES).exists() else Record(pl.DataFrame(), pl.DataFrame(), {})
        expected = planned(wanted)
        runs = pl.concat([expected, known.runs], how="diagonal_relaxed").join(expected, on=SETTING, how="semi")
        if needed := tables.unfilled(options.part, runs):
            raise Refusal(f"the tables of part {options.part} would be empty: they need {needed}, here or in {place}")
        missing = references(wanted, known)
        if missing and not options.with_reference:
            tasks = ", ".join(sorted({cell.study.task for cell in missing}))
            raise Refusal(f"nAUC on {tasks} needs runs of SAC on steady, which {place} lacks; add --with-reference")
        wanted += missing
        worst, folders = DONE, []
        for cell in wanted:
            folder, facts = options.out / cell.name, {}
            if cell.tuned:
                study = dataclasses.replace(cell.study, methods=cell.tuned.methods)
                plan, choices = TuningPlan(study, cell.tuned.options), []
                trials = options.out / f"{cell.name}-trials"
                code = _train(options, trials, plan.trials)
                if code not in (DONE, DIVERGED):
                    return code
                worst, folders = max(worst, code), [*folders, trials]
                if not options.dry_run:
                    results = Results.open(trials, plan.trials)
                    choices = plan.choose(results)
                    facts = {"tuning": plan.lines(results, choices)}
                    print(*facts["tuning"], sep="\n", flush=True)
                methods = dict.fromkeys([*cell.study.methods, *plan.judged(choices).methods])
                cell = cell._replace(study=dataclasses.replace(cell.study, methods=list(methods)))
            code = _train(options, folder, cell.study, facts)
            control = None if options.dry_run or code not in (DONE, DIVERGED) else controls(cell, folder)
            if control is not None:
                folders.append(options.out / control.name)
                code = max(code, _train(options, folders[-1], control.study))
            if code not in (DONE, DIVERGED):
                return code
            worst, folders = max(worst, code), [*folders, folder]
        if options.dry_run:
            return DONE
        record(folders, place)
        results = gather([place])
        if options.part == "H":
            text = helps.by_task(helps.comparisons(read(place)))
        elif options.part == "S":
            text = tables.reached(results.runs, read(place).curves)
        else:
            text = tables.appendix_tables(results) if options.part == "appendix" else tables.tables(results.runs)
        paper = tables.paper_tables(results) if set(results.runs["task"]) & set(FAMILY_OF) else ""
        store.write_text(options.out / "tables.md", f"{text}\n{paper}")
        print(f"{text}\nrecord: {place}\ntables, with the paper's: {options.out / 'tables.md'}")
    return worst


def _train(options: Table, folder: Path, study: Study, facts: Mapping[str, Any] = MappingProxyType({})) -> int:
    """Train an unfinished study, with further facts for its manifest; returns the exit code, also of a finished one."""
    from experiments.study import store

    if (folder / store.MANIFEST).exists():
        _check(folder, study)
        return _finished(options, folder)
    begun = (folder / store.CONFIG).exists()
    if options.dry_run:
        print(f"{folder}: {'begun' if begun else 'missing'}")
        return train(study, Runtime(folder, begun, devices=options.devices, dry_run=True))
    runtime = Runtime(
        folder, begun, quiet=options.quiet, report=options.report, checkpoint_seconds=options.checkpoint_seconds,
        devices=options.devices,
    )  # fmt: skip
    return train(study, runtime, facts=facts)


def _finished(options: Table, folder: Path) -> int:
    """Report a finished study if this is requested; returns the exit code of its training."""
    from experiments.report import write_report
    from experiments.study import store

    if options.report and not options.dry_run:
        print(f"report: {write_report(folder)}")
    runs = [run for run in store.read_manifest(folder)["runs"] if run["status"] == "diverged"]
    if runs:
        say(f"{folder / store.MANIFEST}: diverged runs: {len(runs)}")
    return DIVERGED if runs else DONE


def _check(folder: Path, study: Study) -> None:
    """Raise for a finished study that does not contain the requested one."""
    from experiments.study import store

    wanted, there = study.config.to_json(), store.read_json(folder / store.CONFIG)
    wrong = [name for name in _CONTAINED if any(each not in there[name] for each in wanted[name])]
    wrong += [n for n in {*wanted, *there} - {*_CONTAINED, *_SIZED} if there.get(n) != wanted.get(n)]
    own: dict[str, Any] = wanted["settings"]
    if not wrong and any(there["settings"][carrier] != settings for carrier, settings in own.items()):
        wrong.append("settings")
    if wrong:
        raise Refusal(f"{folder} holds a study with other {', '.join(sorted(wrong))}; choose another --out")

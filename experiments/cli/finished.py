"""Commands that read finished studies: `aesjax report`, `calibrate`, `audit`, `video` and `export`"""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.session.study import LogOptions
from experiments.study.process import start_jax
from experiments.study.store import CURVES, open_results


@dataclass
class Report:
    """Write DIR/report from the results in DIR, or one report of several studies, such as the tasks of a family."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies."""
    out: Path | None = None
    """With several folders: folder of the report; must be new or empty."""
    tensorboard: Path | None = None
    """Also write every logged number of every run as TensorBoard events into this folder, new or empty."""
    metric: str | None = None
    """Also report a custom metric, given as module:name."""


def report(options: Report) -> int:
    """Write the report of one study, or of several merged studies."""
    with refusing():
        folders, out = options.directories, options.out
        if not folders or (len(folders) > 1) != (out is not None):
            raise ValueError("report needs the folder of a finished study, or several folders and --out")
        for folder in folders:  # errors come before JAX is imported
            open_results(folder)
        from experiments.measure.catalog import metric_at
        from experiments.report import write_report
        from experiments.report.live import check_tensorboard, write_tensorboard
        from experiments.report.merge import merge_studies

        custom = [] if options.metric is None else [metric_at(options.metric)]
        if options.tensorboard is not None:  # before the merged study is written
            check_tensorboard(options.tensorboard)
        folder = folders[0] if out is None else merge_studies(folders, out)
        if options.tensorboard is not None:
            count = write_tensorboard(open_results(folder).rows(CURVES), options.tensorboard)
            print(f"tensorboard: {count} runs in {options.tensorboard}")
        print(f"report: {write_report(folder, metrics=custom)}")
    return DONE


@dataclass(frozen=True)
class Compare(LogOptions):
    """Compare methods by logs of other trainers: paired differences, detectable differences, recovery, and a report."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """CSV (also of a W&B chart), Parquet, TensorBoard event files, or evaluations.npz of Stable-Baselines3. A file
    without columns of method and seed is one run, with the name of the file or its folder."""
    out: Path | None = None
    """Also write the report into this folder, new or empty."""


def compare(options: Compare) -> int:
    """Print the comparisons of logs, and write their report."""
    with refusing():
        if not options.files:
            raise ValueError("compare needs one or more logs")
        from experiments.measure.study import LOGS
        from experiments.report.cells import Lookup
        from experiments.report.verdicts import compared, verdicts
        from experiments.report.write import status_of
        from experiments.session import logs

        results = logs.compare(list(options.files), **{name: getattr(options, name) for name in vars(LogOptions())})
        status, problems = status_of(results._recorded, results.manifest)
        print(status, *problems, *results.remarks, sep="\n")
        look = Lookup(results.metrics, results._recorded)
        metrics = dict.fromkeys([*(verdict.metric for verdict in verdicts(look)), "recovery"])
        for metric, method, pattern in product(metrics, look.methods, look.patterns):
            if pair := compared(look, (LOGS, None), method, pattern, metric, ""):
                print(f"{method}, {look.metric(metric).title}, {pair.sentence}")
        if options.out is not None:
            print(f"report: {results.report(options.out)}")
    return DONE


@dataclass
class Calibrate:
    """Compare the proxies recorded in DIR with the true drift: their bound on it, and how often the bound holds."""

    directory: tyro.conf.Positional[Path]
    """Folder of a finished study."""
    out: Path | None = None
    """Folder for calibration.json and calibration.md, which must not exist; by default DIR."""
    delta: float = 0.1
    """Share of new runs that may exceed the bound; needs at least 1/delta - 1 runs of every method."""


def calibrate(options: Calibrate) -> int:
    """Calibrate and print the tables."""
    out = options.out or options.directory
    with refusing():
        open_results(options.directory)
        from experiments.report import calibration

        start_jax(None)
        text = calibration.run(options.directory, options.delta, out)
    print(f"{text}\n\ncalibration: {out / calibration.TEXT}")
    return DONE


@dataclass
class Audit:
    """Check every quantitative claim of the AES paper against finished studies: reproduced, contradicted or undecided,
    with the reason; prints a summary."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies, records, or folders that contain them."""
    claim: str | None = None
    """Check one claim, such as B1, and print its settings: levels, difference, interval and outcome, or the reason why
    a setting does not count."""
    json: Path | None = None
    """Also write everything as JSON into this file; - is standard output."""
    out: Path | None = None
    """Also write all claims as a page, self-contained HTML, or Markdown where the name ends in .md; - is standard
    output."""


def audit(options: Audit) -> int:
    """Check the claims, print a summary, and write the requested files."""
    from rich.console import Console
    from rich.markdown import Markdown

    from experiments.paper import audit
    from experiments.report.page import render_html, render_markdown, render_table
    from experiments.study import store

    with refusing():
        if not options.directories:
            raise ValueError("audit needs a record, or a folder with one or more finished studies")
        data = audit.audit(options.directories, options.claim)
        console = Console(stderr=not {str(options.json), str(options.out)}.isdisjoint(store.STDOUT))
        for table in audit.summary(data) if options.claim is None else audit.tables(data):
            console.print(Markdown(render_table(table)))
        console.print(data["sentence"], soft_wrap=True, highlight=False)
        if options.json is not None:
            store.write_output(options.json, json.dumps(data, indent=1) + "\n")
        if options.out is not None:
            page = audit.page(data)
            markdown = options.out.suffix == ".md"
            store.write_output(options.out, render_markdown(page) if markdown else render_html(page))
            console.print(f"page: {options.out}", soft_wrap=True, highlight=False)
    return DONE


@dataclass
class Video:
    """Record a video of one episode of a stored policy in DIR, under the drift at one moment of its run."""

    directory: tyro.conf.Positional[Path]
    """Folder of a finished study."""
    out: Path | None = None
    """New GIF file; by default DIR/video/METHOD-PATTERN-SEED.gif."""
    method: str | None = None
    """Method of the study; by default its first."""
    pattern: str | None = None
    """Drift pattern of the study; by default its first with drift."""
    seed: int | None = None
    """Training seed; by default the first."""
    task: str | None = None
    """MODULE:NAME of the study's custom task."""
    carriers: str | None = None
    """MODULE:NAME of its custom carriers, comma-separated."""
    patterns: str | None = None
    """MODULE:NAME of its custom patterns, comma-separated."""
    at: float = 1.0
    """Moment as a share of the run, 0 to 1. Its drift is in force; the nearest stored policy (changes, end) acts."""


def video(options: Video) -> int:
    """Write the video, and print its path, the policy's step, the drift and the return."""
    with refusing():
        open_results(options.directory)
        start_jax(None)
        from experiments.session.results import Results
        from experiments.session.video import film

        chosen = vars(options).copy()
        objects = {name: value for name in ("task", "carriers", "patterns") if (value := chosen.pop(name)) is not None}
        made = film(Results.open(chosen.pop("directory"), **objects), **chosen)
    drift = ", ".join(f"{value:.3g}" for value in made.drift)
    print(f"video: {made.path}\npolicy of step {made.step:,}, drift {drift}; return {made.episode_return:.1f}")
    return DONE


@dataclass
class Export:
    """Write the final agents of studies with the pattern steady into a small folder for `--warm-start`, or a policy."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of finished studies of one task; every carrier is taken from the first study that trained it."""
    out: Path
    """Folder for the agents, new or empty; with --policy a new .npz file."""
    policy: str | None = None
    """Write the policy of this method at the end of a run instead, as one NumPy file that is read without JAX."""
    pattern: str | None = None
    """With --policy: drift pattern of the run; by default the study's first."""
    seed: int | None = None
    """With --policy: its seed; by default the study's first."""
    task: str | None = None
    """MODULE:NAME of the studies' custom task."""
    carriers: str | None = None
    """MODULE:NAME of their custom carriers, comma-separated."""
    results: bool = False
    """Add the results of the studies to the record in --out instead, which `aesjax audit` reads. A study with the same
    name is replaced, and folders of other studies in configurations become names."""


def export(options: Export) -> int:
    """Write the agents, results or policy, and print their path."""
    with refusing():
        folders = list(options.folders)
        if not folders:
            raise ValueError("export needs the folder of a finished study")
        if options.policy is None and (options.pattern, options.seed) != (None, None):
            raise ValueError("--pattern and --seed are of one policy; name its method by --policy")
        if options.policy is not None and (options.results or len(folders) > 1):
            raise ValueError("--policy is of one study, without --results")
        if options.results and (named := options.task or options.carriers):
            raise ValueError(f"--results reads no custom objects; leave out --task and --carriers, got {named}")
        for folder in folders:  # errors come before JAX is imported
            open_results(folder)
        start_jax(None)
        from experiments.paper.record import record
        from experiments.session.results import Results
        from experiments.study.config import at_hand
        from experiments.study.warm import export_agents

        if options.policy is not None:
            study = Results.open(folders[0], task=options.task, carriers=options.carriers)
            pattern = options.pattern or study.config.patterns[0]
            seed = study.config.seeds[0] if options.seed is None else options.seed
            print(f"policy: {study.policy(options.policy, pattern, seed).save(options.out)}")
        elif options.results:
            record(folders, options.out)
            print(f"record: {options.out}")
        else:
            size = export_agents(folders, options.out, at_hand(options.task, options.carriers))
            print(f"agents: {options.out} ({size / 1e6:.2f} MB)")
    return DONE

"""`aesjax tune`: choose numbers of methods on other seeds, and judge them"""

import dataclasses
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from experiments.cli import run
from experiments.cli.errors import DIVERGED, DONE, refusing
from experiments.session.study import Study, TuneOptions, in_words
from experiments.study.process import JUDGED, TRIALS, start_jax

if TYPE_CHECKING:
    from experiments.session.tuning import TuningPlan


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclasses.dataclass(frozen=True)
class Tune:
    """Choose numbers of the methods on other seeds and the beginning of their runs, then train and report the chosen
    settings on --seeds. --out and --tensorboard get the folders trials and study."""

    tuning: TuneOptions = dataclasses.field(default_factory=TuneOptions)
    methods: run.Methods = dataclasses.field(default_factory=run.Methods)
    study: Study = dataclasses.field(default_factory=Study)
    runtime: run.Runtime = dataclasses.field(default_factory=run.Runtime)


def execute(options: Tune) -> int:
    """Train the trials, print what they chose and cost, then train and report the chosen settings."""
    with refusing():
        runtime = options.runtime
        start_jax(runtime.devices, runtime.out if runtime.resume else None)
        from experiments.report.live import check_tensorboard
        from experiments.session.tuning import TuningPlan
        from experiments.study import store

        plan = TuningPlan(run.study_of(options), options.tuning)
        if runtime.dry_run:
            for title, folder, study in (("trials", TRIALS, plan.trials), ("the study", JUDGED, plan.judged([]))):
                place = runtime.out / folder if runtime.resume and runtime.out is not None else None
                print(f"{title}:\n{study.forecast(folder=place)}")
            return DONE
        if runtime.resume and runtime.out is None:
            raise ValueError("--resume continues the tuning in --out; name its folder")
        out = runtime.out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-tuning"
        if runtime.tensorboard is not None and not runtime.resume:
            check_tensorboard(runtime.tensorboard)
        continued = _again(plan, options, out)

    def within(folder: str, report: bool) -> run.Runtime:
        begun = runtime.resume and (out / folder / store.CONFIG).exists()
        events = None if runtime.tensorboard is None else runtime.tensorboard / folder
        return dataclasses.replace(runtime, out=out / folder, resume=begun, report=report, tensorboard=events)

    ended = run.train(plan.trials, within(TRIALS, False), command=continued)
    if ended not in (DONE, DIVERGED):
        return ended
    with refusing():
        from experiments.session.results import Results

        trials = Results.open(out / TRIALS, plan.trials)
        choices = plan.choose(trials)
        lines = plan.lines(trials, choices)
        print(*lines, sep="\n", flush=True)
    judged = run.train(plan.judged(choices), within(JUDGED, runtime.report), command=continued, facts={"tuning": lines})
    return judged if judged != DONE else ended


def _again(plan: "TuningPlan", options: Tune, out: Path) -> str:
    """The command that continues a tuning."""
    file, usual = options.methods.config, vars(TuneOptions())
    words = ["--config", str(file)] if file else shlex.split(plan.study.command())[2:]
    tuning = {name: value for name, value in vars(options.tuning).items() if value != usual[name]}
    return run.again(shlex.join(["aesjax", "tune", *words, *in_words(tuning)]), options.runtime, out)

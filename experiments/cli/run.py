"""`aesjax run`: train a study and report it"""

import dataclasses
import os
import shlex
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import tyro

from experiments.cli.errors import DIVERGED, DONE, INTERRUPTED, WRONG, Refusal, refusing, say
from experiments.session.study import SECONDS, Folder, Names, Study, Text, Whole, in_words
from experiments.study.process import start_jax


@dataclasses.dataclass(frozen=True)
class Methods:
    """Methods on the command line."""

    carriers: Names = None
    """Carriers (agents), comma-separated, or all; by default sac."""
    schedules: Names = None
    """Schedules, comma-separated, each optionally with options (aes:proxy=td_mean:lambda_max=inf) and adaptations
    (aes_r+window+refresh:strength=0.5); baseline is the carrier's own weight (SAC: auto-tuned). By default
    baseline,aes,aes_r."""
    config: Folder = None
    """A TOML or JSON file of a study, as Study.to_toml writes it, instead of the options of the study; only --block may
    be added."""


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Runtime options, which are not part of a study's configuration."""

    out: Folder = None
    """Folder for the results; must be new or empty unless --resume is given. By default runs/DATE-TIME-TASK."""
    resume: bool = False
    """Continue an interrupted study in --out; its options need not be repeated."""
    dry_run: bool = False
    """Print the number of runs, memory, and a time estimate from a trial of about ten seconds, with --resume of what is
    left; nothing is written."""
    quiet: bool = False
    """Do not show progress."""
    report: bool = True
    """Write the report at the end."""
    tensorboard: Folder = None
    """Write every logged number as TensorBoard events into this folder while training; must be new or empty unless
    --resume is given."""
    wandb: Text = None
    """Log every run to this Weights & Biases project while training."""
    checkpoint_seconds: Annotated[float, *SECONDS] = 30.0
    """Seconds between checkpoints."""
    devices: Whole = None
    """Devices to use; on a CPU one per core by default."""
    sim_python: Folder = None
    """The Python of an Isaac Gym or Isaac Lab installation, for a bridged task; by default AESJAX_ISAAC_PYTHON."""


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclasses.dataclass(frozen=True)
class Run:
    """Train every carrier under every schedule, pattern and seed, then write the report."""

    methods: Methods = dataclasses.field(default_factory=Methods)
    study: Study = dataclasses.field(default_factory=Study)
    runtime: Runtime = dataclasses.field(default_factory=Runtime)


def execute(options: Run) -> int:
    """Train, write the report, and name the runs that diverged."""
    with refusing():
        runtime = options.runtime
        # JAX starts once, and modules named in texts may use it.
        start_jax(runtime.devices, runtime.out if runtime.resume else None)
        alone = runtime.resume and (options.methods, options.study) == (Methods(), Study())
        study = None if alone else study_of(options)
    return train(study, runtime)


def study_of(options: Any) -> Study:
    """The study of a command line, with its methods as objects."""
    from experiments.study.text import parse_methods

    typed = options.methods
    if typed.config is not None:
        block = {} if options.study.block is None else {"block": options.study.block}
        if (dataclasses.replace(typed, config=None), options.study) != (Methods(), Study(**block)):
            text = f"--config {typed.config} is the complete study; leave out the other options of the study"
            raise ValueError(f"{text}, except --block")
        return dataclasses.replace(Study.from_file(typed.config), **block)
    carriers = "sac" if typed.carriers is None else typed.carriers
    methods = parse_methods(carriers, "baseline,aes,aes_r" if typed.schedules is None else typed.schedules)
    return dataclasses.replace(options.study, methods=methods)


def train(
    study: Study | None, runtime: Runtime, command: str = "", facts: Mapping[str, Any] = MappingProxyType({})
) -> int:
    """Train a study and report it; the exit code.

    Args:
      study: None: the study that began in the folder of ``runtime``.
      command: continues it; by default `aesjax run` with its options.
      facts: further facts for the manifest.
    """
    from experiments.study import store
    from experiments.study.config import USUAL
    from experiments.study.folder import begun, check_place, claim, missing, place_of
    from experiments.study.program import Plan, plan_of

    out = runtime.out
    with refusing(), ExitStack() as stack:
        if runtime.sim_python is not None:  # specific to this machine, and so not part of the study's configuration
            from envs.bridge.names import PYTHON

            os.environ[PYTHON] = str(runtime.sim_python)
        if out is None and runtime.resume:
            raise ValueError("--resume continues the study in --out; name its folder")
        given = None if study is None else study.protocol or study.task
        task = str(given or USUAL["task"]).replace(":", "-").replace("/", "-")
        out = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{task}"
        start_jax(runtime.devices, out if runtime.resume else None)
        plan = Plan(begun(out)) if study is None else plan_of(study)
        from experiments.report.live import writers
        from experiments.session.forecast import ENDED, forecast
        from experiments.study import train as training
        from experiments.study.prepare import prepare

        added = missing(plan.config, out)
        lacking = Plan(added) if added else plan
        prepared = prepare(lacking)  # errors must occur before the folder is locked
        if runtime.dry_run:
            check_place(plan.config, out, resume=runtime.resume, added=added)
            print(*forecast(lacking, prepared, folder=place_of(out, added)), sep="\n")
            return DONE
        on_rows = stack.enter_context(writers(runtime.tensorboard, runtime.wandb, resume=runtime.resume))
        claimed = claim(plan.config, out, resume=runtime.resume, added=added)
        release = stack.pop_all()
    repeated = study if plan.config.objects or claimed.extended else None
    command = command or again("" if repeated is None else repeated.command_or_none(plan.config), runtime, out)
    on = f"Continue with:\n  {command}"
    with release, claimed.owner:
        for line in plan.notes:
            print(line, flush=True)
        if runtime.resume and not claimed.extended and (out / store.MANIFEST).exists():
            print(ENDED, flush=True)
        try:
            outcome = training.train(
                lacking,
                claimed,
                prepared,
                checkpoint_seconds=runtime.checkpoint_seconds,
                facts={"command": "" if study is None else study.command_or_none(plan.config, "DIR"), **facts},
                quiet=runtime.quiet,
                on_rows=on_rows,
            )
        except training.Refused as error:
            raise Refusal(str(error)) from None
        except (training.Interrupted, training.Stopped, KeyboardInterrupt, store.Unwritable) as error:
            kept = "" if isinstance(error, training.Interrupted) else "; the latest checkpoint, if any, is unchanged"
            say(f"{str(error) or 'interrupted'}{kept}. {on}")
            return WRONG if isinstance(error, store.Unwritable) else INTERRUPTED
    if runtime.report:
        from experiments.report import write_report

        try:
            with refusing():
                print(f"report: {write_report(out)}")
        except KeyboardInterrupt:
            say(f"interrupted; the training is complete. For the report:\n  aesjax report {shlex.quote(str(out))}")
            return INTERRUPTED
    from experiments.session.results import Results

    with refusing():
        for line in Results.open(out).remarks:
            print(f"note: {line}")
    if outcome.faults:
        say(f"{outcome.faults} simulations failed in the physics engine and were reset; see manifest.json")
    for line in outcome.diverged:
        say(line)
    return DIVERGED if outcome.diverged else DONE


def again(command: str, runtime: Runtime, out: Path) -> str:
    """Command that continues a study, from its ``command``, which is empty if the folder has its options."""
    words = shlex.split(command) or ["aesjax", "run"]
    plain = vars(Runtime(out))
    given = {name: value for name, value in vars(runtime).items() if name != "out" and value != plain[name]}
    return shlex.join([*words, *in_words({"out": out, **given, "resume": True})])

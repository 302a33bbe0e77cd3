"""`aesjax run`: train a study and report it"""

import dataclasses
import os
import shlex
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.cli.errors import DIVERGED, DONE, INTERRUPTED, WRONG, Output, Refusal, refusing, say
from experiments.study.devices import start_jax
from experiments.study.options import SECONDS, Folder, Names, StudyOptions, Text, Whole, in_words

_LONGEST_WAIT = 86_400.0  # seconds between checkpoints


@dataclasses.dataclass(frozen=True)
class Methods:
    """Methods as they are typed."""

    study: Text = "default"
    """Named study that sets carriers, schedules, patterns, seeds and preset, unless they are given; see `aesjax list
    studies`."""
    carriers: Names = None
    """Carriers (agents), comma-separated, or all; by default sac."""
    schedules: Names = None
    """Schedules, comma-separated, each with options if need be (aes:proxy=td_mean:lambda_max=inf) and with adaptations
    (aes_r+window+refresh:strength=0.5); baseline is the carrier's own weight (SAC: auto-tuned). By default
    baseline,aes,aes_r."""
    config: Folder = None
    """A TOML or JSON file of a study, as Study.to_toml writes it, instead of the options of the study."""


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Runtime options, which are not part of a study's configuration."""

    out: Folder = None
    """Folder for the results; must be new or empty unless --resume is given. By default runs/DATE-TIME-TASK."""
    resume: bool = False
    """Continue an interrupted study in --out; its options need not be typed again."""
    dry_run: bool = False
    """Train nothing and write nothing: print runs, memory and the time that a trial of about ten seconds suggests."""
    quiet: bool = False
    """Show no progress."""
    report: bool = True
    """Write the report at the end."""
    tensorboard: Folder = None
    """Write every logged number as TensorBoard events into this folder while training."""
    wandb: Text = None
    """Log every run to this Weights & Biases project while training."""
    checkpoint_seconds: Annotated[float, *SECONDS] = 30.0
    """Seconds between checkpoints."""
    devices: Whole = None
    """Devices to use; on a CPU one per core by default."""
    compiled: bool = True
    """Keep compiled programs for later studies of the same shape; `aesjax list programs` says where."""
    sim_python: Folder = None
    """The Python of an Isaac Gym or Isaac Lab installation, for a bridged task; by default AESJAX_ISAAC_PYTHON."""


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclasses.dataclass(frozen=True)
class Run:
    """Train a sweep: every carrier under every schedule, pattern and seed, then write the report."""

    methods: Methods = dataclasses.field(default_factory=Methods)
    study: StudyOptions = dataclasses.field(default_factory=StudyOptions)
    runtime: Runtime = dataclasses.field(default_factory=Runtime)


def execute(options: Run, argv: list[str] | None = None) -> int:
    """Train, write the report, and name the runs that diverged.

    Args:
      argv: the words after `aesjax run`, read again where a named study gives other defaults.
    """
    with refusing():
        options, runtime = with_named(options, argv), options.runtime
        # JAX starts once, and modules that a text names may use it.
        start_jax(runtime.devices, runtime.compiled, runtime.out if runtime.resume else None)
        alone = options.runtime.resume and (options.methods, options.study) == (Methods(), StudyOptions())
        study = None if alone else study_of(options)
    return train(study, options.runtime)


def with_named(options: Any, argv: list[str] | None) -> Any:
    """The options, of `Run` or another command with its ``methods`` and ``study``, with those of a named study.

    Args:
      argv: the words of the command, read again so that what was typed wins.
    """
    from experiments.presets.studies import STUDIES

    if options.methods.study == "default" or argv is None:
        return options
    named, command = STUDIES[options.methods.study], type(options)
    study = StudyOptions(patterns=named.patterns, seeds=named.seeds, preset=named.preset)
    default = command(methods=Methods(carriers=named.carriers, schedules=named.schedules), study=study)
    return tyro.cli(command, prog=f"aesjax {command.__name__.lower()}", args=argv, default=default)


def study_of(options: Any) -> StudyOptions:
    """The study that was typed, with its methods as objects."""
    from experiments.study.text import parse_methods

    typed = options.methods
    if typed.config is not None:
        if (dataclasses.replace(typed, config=None), options.study) != (Methods(), StudyOptions()):
            raise ValueError(f"--config {typed.config} is the complete study; leave out the other options of the study")
        return StudyOptions.from_file(typed.config)
    carriers = "sac" if typed.carriers is None else typed.carriers
    methods = parse_methods(carriers, "baseline,aes,aes_r" if typed.schedules is None else typed.schedules)
    return dataclasses.replace(options.study, methods=methods)


def train(study: StudyOptions | None, runtime: Runtime) -> int:
    """Train a study and report it; the exit code.

    Args:
      study: None: the one that began in the folder of ``runtime``.
    """
    from experiments.report.live import writers
    from experiments.session.forecast import forecast
    from experiments.study import store
    from experiments.study import train as training
    from experiments.study.folder import begun, check_place, claim
    from experiments.study.prepare import notes_of, prepare

    out = runtime.out
    with refusing(), ExitStack() as stack:
        if runtime.dry_run and runtime.resume:
            raise ValueError("--dry-run plans a study from its beginning; leave out --resume")
        if not 0.0 <= runtime.checkpoint_seconds <= _LONGEST_WAIT:  # false for nan, too
            raise ValueError(
                f"--checkpoint-seconds must be between 0 and {_LONGEST_WAIT:g}; got {runtime.checkpoint_seconds:g}"
            )
        if runtime.sim_python is not None:  # of this machine, and so no part of the study's configuration
            from envs.bridge.names import PYTHON

            os.environ[PYTHON] = str(runtime.sim_python.expanduser())
        if out is None:
            if runtime.resume:
                raise ValueError("--resume continues the study in --out; name its folder")
            out = _new_folder(study)
        out = out.expanduser()
        start_jax(runtime.devices, runtime.compiled, out if runtime.resume else None)
        config = begun(out) if study is None else study.config
        prepared = prepare(config)  # refusals come before a folder is claimed
        if runtime.dry_run:
            check_place(out)
            print(*forecast(config, prepared), sep="\n")
            return DONE
        on_rows = stack.enter_context(writers(runtime.tensorboard, runtime.wandb))
        claimed = claim(config, out, resume=runtime.resume)
        release = stack.pop_all()
    Output.place = out.absolute() / store.MESSAGES
    on = f"Continue with:\n  {_again(study if config.objects else None, runtime, out)}"
    with release, claimed.owner:
        for line in notes_of(config):
            print(line, flush=True)
        if runtime.resume and (out / store.MANIFEST).exists():
            print("the training has ended; nothing is trained again", flush=True)
        try:
            outcome = training.train(
                claimed,
                prepared=prepared,
                checkpoint_seconds=runtime.checkpoint_seconds,
                command=_command(study),
                quiet=runtime.quiet,
                on_rows=on_rows,
            )
        except training.Refused as error:
            raise Refusal(str(error)) from None
        except training.Stopped as error:
            say(f"{error}\nProgress is saved in the latest checkpoint. {on}")
            return INTERRUPTED
        except (training.Interrupted, KeyboardInterrupt) as where:
            say(f"interrupted; {str(where) or 'the latest checkpoint, if there is one, is unchanged'}. {on}")
            return INTERRUPTED
        except store.Unwritable as error:
            say(f"{error}\nThe latest checkpoint, if there is one, is unchanged. {on}")
            return WRONG
    if runtime.report:
        from experiments.report import write_report

        try:
            with refusing():
                print(f"report: {write_report(out)}")
        except KeyboardInterrupt:
            say(f"interrupted; the training is complete. For the report:\n  aesjax report {shlex.quote(str(out))}")
            return INTERRUPTED
    if outcome.faults:
        say(f"the physics engine gave up on {outcome.faults} simulations, which were reset; see manifest.json")
    for line in outcome.diverged:
        say(line)
    return DIVERGED if outcome.diverged else DONE


def _new_folder(study: StudyOptions | None) -> Path:
    task = str(StudyOptions().task if study is None else study.task)
    return Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{task.replace(':', '-').replace('/', '-')}"


def _command(study: StudyOptions | None) -> str:
    """The command that makes the same results, for the manifest; empty where no command does."""
    try:
        return "" if study is None else study.command("DIR")
    except ValueError:
        return ""


def _again(study: StudyOptions | None, runtime: Runtime, out: Path) -> str:
    """The command that continues a study; without options of the ``study`` where the folder holds them."""
    words = shlex.split(_command(study).removesuffix(" --out DIR")) or ["aesjax", "run"]
    plain = vars(Runtime(out, resume=True))
    given = {name: value for name, value in vars(runtime).items() if value != plain[name]}
    return shlex.join([*words, *in_words({"out": out, **given}), "--resume"])

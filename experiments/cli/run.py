"""`aesjax run`: train a study and report it"""

import dataclasses
import os
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from experiments.cli.errors import DIVERGED, DONE, INTERRUPTED, WRONG, Refusal, refusing, say
from experiments.study.devices import start_jax

if TYPE_CHECKING:
    from experiments.study.config import StudyConfig


_LONGEST_WAIT = 86_400.0  # seconds between checkpoints
#: Runtime options, which are not part of the study's configuration.
RUNTIME = ("out", "sim_python", "dry_run", "resume", "devices", "compiled", "checkpoint_seconds")
RUNTIME += ("report",)


@dataclass
class Run:
    """Train a sweep: every carrier under every schedule, pattern and seed, then write the report."""

    out: Path
    """Folder for the results; must be new or empty unless --resume is given."""
    study: str = "default"
    """Named study that sets the next five options, unless they are given; see `aesjax list`."""
    carriers: str | None = None
    """Comma-separated carriers, or all; by default sac."""
    schedules: str | None = None
    """Comma-separated schedules, each with options if need be (aes:proxy=td_mean:lambda_max=inf) and with responses
    beyond the entropy weight (aes_r+window+refresh:strength=0.5); `baseline` is the carrier's own weight (SAC:
    auto-tuned). By default baseline,aes,aes_r."""
    patterns: str | None = None
    """Comma-separated drift patterns, or all; by default all."""
    seeds: str | None = None
    """Training seeds: 1:5 (both ends included, the default), 1,2,7, or a mix."""
    preset: str | None = None
    """Sizes: quick (minutes, the default) or paper; mujoco-warm for --warm-start. See `aesjax list`."""
    task: str = "toy"
    """Task; see `aesjax list`. bridge:NAME is one of an installed Isaac Gym or Isaac Lab, see docs/bridge.md."""
    steps: int | None = None
    """Environment steps of a run, if other than the preset's."""
    proxy: str = "td_quantile"
    """Drift proxy of the schedules that use one."""
    source: str | None = None
    """Where the proxy looks: update (the update batch) or fresh (the newest transitions); default: each schedule's."""
    drift_seed: int | None = None
    """One drift realisation for all seeds; by default each training seed has its own."""
    sweep: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Hyper-parameter axis NAME=V1,V2,...; may be given several times. All values train in the same program."""
    engine: str | None = None
    """Physics of a MuJoCo or Isaac task: mujoco (C), mjx, or auto (the default: C on a CPU, MJX on an accelerator)."""
    observation: str | None = None
    """Observation of ant and humanoid: v5 (the default) or v4, Gymnasium's without contact forces in ant and with all
    rows in humanoid. Models, rewards and endings are v5's either way. Of isaac_allegro_hand: full_state (the default),
    full or full_no_vel."""
    variant: str | None = None
    """Constants of an Isaac task: gym (the default), those of Isaac Gym, or omni, those of its successor."""
    channels: str | None = None
    """What drifts, comma-separated, each perhaps with a range of its own (body_mass=0.5:1.5). In a MuJoCo task:
    body_mass, joint_friction (the default both), geom_friction, leg_gain, direction, target_velocity, or `hard`, the
    first, second and fourth with wide ranges; in an Isaac task: gravity, joint_damping (the default both)."""
    sim_python: Path | None = None
    """The Python of an Isaac Gym or Isaac Lab installation, for a bridged task; by default AESJAX_ISAAC_PYTHON."""
    controls_from: Path | None = None
    """Folder of the finished study whose runs the controls among --schedules play."""
    warm_start: Path | None = None
    """Begin with trained agents: the folder of a finished study on the pattern steady, or of exported agents. Seed by
    seed where there are as many."""
    layer_norm: bool = False
    """Normalise the hidden layers of every carrier's critic; weight decay is an axis, `--sweep weight_decay=0,1e-2`."""
    plasticity: bool = False
    """Log how able the networks still are to learn, at every evaluation: dormant units, effective rank, norms of
    weights and gradients."""
    counterfactual: bool = False
    """Evaluate every policy also under drift values that are not in force: nominal, those before the last change and
    after the next, and both ends of the range (columns return_nominal, return_previous, ...)."""
    dry_run: bool = False
    """Train nothing and write nothing: print runs, memory and the time that a trial of about ten seconds suggests."""
    resume: bool = False
    """Continue an interrupted study in --out, which knows its options: none need be typed again."""
    together: int | None = None
    """Runs that go through the program together, at most, on one device; the numbers of a run then depend neither on
    how many devices there are nor on their memory. By default as many as fit, on all devices."""
    part: str | None = None
    """Train only this part of the study, 2/4 for the second of four, into --out; needs --together. `aesjax submit` has
    all parts trained and `aesjax join` makes one study of them."""
    devices: int | None = None
    """Devices to use; on a CPU one per core by default."""
    compiled: bool = True
    """Keep compiled programs for later studies of the same shape; `aesjax list` says where."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints."""
    report: bool = True
    """Write the report at the end."""


def execute(options: Run) -> int:
    """Train, write the report, and name the runs that diverged."""
    from experiments.measure.patterns import STEADY
    from experiments.study import store, train
    from experiments.study.build import check
    from experiments.study.driver import Interrupted
    from experiments.study.folder import begun, check_place, claim
    from experiments.study.forecast import forecast, lines_of
    from experiments.study.lock import LostError
    from experiments.study.prepare import prepare

    with refusing():
        if options.dry_run and options.resume:
            raise ValueError("--dry-run plans a study from its beginning; leave out --resume")
        if not 0.0 <= options.checkpoint_seconds <= _LONGEST_WAIT:  # false for nan, too
            raise ValueError(
                f"--checkpoint-seconds must be between 0 and {_LONGEST_WAIT:g}; got {options.checkpoint_seconds:g}"
            )
        if options.sim_python is not None:  # of this machine, and so no part of the study's configuration
            from envs.bridge.names import PYTHON

            os.environ[PYTHON] = str(options.sim_python.expanduser())
        start_jax(options.devices, options.compiled)
        if options.resume and not words_of(options, besides=RUNTIME):  # reading a study starts JAX's devices
            options = dataclasses.replace(options, **described(begun(options.out)))
        config = configured(options)
        check(config)
        prepared = prepare(config)  # refusals come before a folder is claimed
        if options.dry_run:
            check_place(options.out)
            print(*lines_of(config, forecast(config, prepared)), sep="\n")
            return DONE
        study = claim(config, options.out, resume=options.resume)
    on = f"Continue with:\n  {again(options)}"
    with study.owner:
        if STEADY not in config.patterns and not config.part:
            print(
                f"without the pattern {STEADY} there will be no nAUC and no DropRatio; --patterns may name it, too",
                flush=True,
            )
        try:
            outcome = train.train(
                study,
                prepared=prepared,
                checkpoint_seconds=options.checkpoint_seconds,
                command=shlex.join(typed(dataclasses.replace(options, out=Path("DIR")))),
            )
        except train.Refused as error:
            raise Refusal(str(error)) from None
        except train.Stopped as error:
            say(f"{error}\nProgress is saved in the latest checkpoint. {on}")
            return INTERRUPTED
        except (Interrupted, KeyboardInterrupt) as where:
            say(f"interrupted; {str(where) or 'the latest checkpoint, if there is one, is unchanged'}. {on}")
            return INTERRUPTED
        except (store.Unwritable, LostError) as error:
            say(f"{error}\nThe latest checkpoint is unchanged. {on}")
            return WRONG
    if options.report:
        from experiments.report import write_report

        try:
            with refusing():
                print(f"report: {write_report(options.out)}")
        except KeyboardInterrupt:
            command = shlex.join(["aesjax", "report", str(options.out)])
            say(f"interrupted; the training is complete. For the report:\n  {command}")
            return INTERRUPTED
    if outcome.faults:
        say(f"the physics engine gave up on {outcome.faults} simulations, which were reset; see manifest.json")
    for line in outcome.diverged:
        say(line)
    return DIVERGED if outcome.diverged else DONE


def configured(options: Run) -> "StudyConfig":
    """The configuration that was typed; a named study stands for the options that were not.

    Raises:
      ValueError, UnknownNameError: with one sentence.
    """
    from experiments.study.named import STUDIES
    from experiments.study.options import StudyOptions
    from experiments.study.strings import parse_methods, parse_names

    named = STUDIES[options.study]._asdict()
    typed = {name: value for name, value in dataclasses.asdict(options).items() if value is not None}
    chosen = named | typed
    carriers = parse_names("carrier", "--carriers", chosen["carriers"])
    fields = {field.name for field in dataclasses.fields(StudyOptions)}
    given = {name: value for name, value in chosen.items() if name in fields}
    methods = parse_methods(chosen["schedules"], carriers)
    return StudyOptions(**given, methods=methods, start=options.warm_start).resolve()


def described(config: "StudyConfig") -> dict[str, Any]:
    """What must be typed for a configuration; the inverse of `configured` for all that was typed."""
    from experiments.study.strings import text_of

    names = ("carriers", "patterns", "seeds")
    lists = {name: ",".join(map(str, getattr(config, name))) for name in names}
    lists["schedules"] = ",".join(map(text_of, config.methods_of(config.carriers[0])))
    same = ("task", "preset", "steps", "proxy", "source", "drift_seed", "plasticity", "counterfactual", "together")
    built = {name: config.options[name] for name in ("engine", "observation", "variant") if name in config.options}
    if "channels" in config.options:
        built["channels"] = ",".join(config.options["channels"])
    return {
        **lists,
        **{name: getattr(config, name) for name in same},
        **built,
        "sweep": tuple(f"{name}={','.join(map(repr, axis))}" for name, axis in config.sweep.items()),
        "controls_from": Path(config.controls["from"]) if config.controls else None,
        "warm_start": Path(config.warm_start["from"]) if config.warm_start else None,
        "layer_norm": any(own["config"].get("layer_norm") for own in config.settings.values()),
        "part": "{number}/{of}".format(**config.part) if config.part else None,
    }


def again(options: Run) -> str:
    """The command that continues this one; the folder knows which study it is."""
    which = {field.name for field in dataclasses.fields(options)} - set(RUNTIME)
    return shlex.join(["aesjax", "run", *words_of(options, {*which, "resume"}), "--resume"])


def typed(options: Run) -> list[str]:
    """The command that began this one, without what is left at its default."""
    return ["aesjax", "run", *words_of(options)]


def words_of(options: Run, besides: Collection[str] = ("resume",)) -> list[str]:
    """What was typed after `aesjax run`.

    Args:
      besides: names of options that are left out.
    """
    words = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        option = "--" + field.name.replace("_", "-")
        typed = field.default is dataclasses.MISSING or value != field.default
        if not typed or field.name in besides:
            continue
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif field.name == "sweep":
            words += [word for item in value for word in (option, item)]
        else:
            words += [option, str(value)]
    return words

"""The command line: `aesjax run | report | replay | calibrate | video | list | bench`. Exit codes: 0 done,
2 wrong arguments, 3 a run diverged, 130 interrupted. Nothing here imports JAX before the number of devices is set."""

import dataclasses
import os
import sys
from collections.abc import Callable
from functools import partial

import tyro

from experiments.arguments import Bench, Calibrate, Command, List, Replay, Report, Run, Video

__all__ = ["Bench", "Calibrate", "List", "Replay", "Report", "Run", "Video", "main"]

DONE, WRONG, DIVERGED, INTERRUPTED = 0, 2, 3, 130


def start_jax(devices: int | None) -> None:
    """Set the number of CPU devices (one per usable core unless told) before JAX starts its backend.

    Raises:
      ValueError: a number of devices that the machine does not have.
    """
    import jax

    from envs.physics.host import usable_cores

    cores = usable_cores()
    most = max(8, 4 * cores)  # more than one per core is of use in a test of sharding only
    if devices is not None and not 1 <= devices <= most:
        raise ValueError(f"--devices must be between 1 and {most}; got {devices}")
    try:
        jax.config.update("jax_num_cpu_devices", cores if devices is None else devices)
    except RuntimeError:  # JAX runs already (a notebook, a test): the devices there are will do
        if devices is not None and devices != len(jax.local_devices()):
            there = len(jax.local_devices())
            raise ValueError(f"--devices {devices}: JAX has already started with {there} devices") from None


def _say(text: str) -> None:
    print(f"aesjax: {text}", file=sys.stderr, flush=True)


def _list() -> int:
    import envs
    from aesjax.schedules import PROXIES, SCHEDULES
    from agents import CARRIERS
    from experiments.presets import PRESETS
    from experiments.studies import STUDIES

    def section(title: str, lines: dict[str, str]) -> None:
        print(f"{title}:")
        width = max(map(len, lines))
        for name, text in lines.items():
            print(f"  {name:<{width}}  {text}".rstrip())

    def about(task: str) -> str:
        try:
            return envs.make(task).description
        except ModuleNotFoundError as error:
            return f"({error})"

    section("tasks", {name: about(name) for name in envs.TASKS})
    section("carriers", {name: f"{spec.label}; baseline = {spec.baseline}" for name, spec in CARRIERS.items()})
    section("schedules", {"baseline": "the carrier's own weight"} | {n: s.summary for n, s in SCHEDULES.items()})
    section("proxies", {name: spec.summary for name, spec in PROXIES.items()})
    section("studies", {name: study.summary for name, study in STUDIES.items()})
    section("patterns", {name: _first_line(entry) for name, entry in envs.PATTERNS.items()})
    section(
        "presets",
        {
            f"{task}/{name}": f"{preset.steps:,} steps, {preset.evaluations} evaluations of {preset.episodes} episodes"
            for task, presets in PRESETS.items()
            for name, preset in presets.items()
        },
    )
    return DONE


def _first_line(entry: object) -> str:
    for part in (entry, *(entry if isinstance(entry, tuple) else ())):
        doc = getattr(part, "__doc__", None)
        if callable(part) and doc:
            return doc.strip().splitlines()[0]
    return ""


def _run(arguments: Run) -> int:
    from aesjax.lab.driver import Interrupted
    from experiments import runner
    from experiments.config import make_config
    from experiments.studies import STUDIES

    try:
        start_jax(arguments.devices)
        named = STUDIES[arguments.study]
        options = {
            name: getattr(named if value is None and hasattr(named, name) else arguments, name)
            for name, value in dataclasses.asdict(arguments).items()
        }
        keep = ("task", "carriers", "schedules", "patterns", "seeds", "preset", "steps", "proxy", "source")
        config = make_config(
            **{name: options[name] for name in keep},
            drift_seed=arguments.drift_seed,
            sweep=arguments.sweep,
            options=_task_options(arguments),
        )
        study = runner.open_study(config, arguments.out, resume=arguments.resume)
    except (ValueError, KeyError, OSError, ModuleNotFoundError) as error:
        _say(str(error))
        return WRONG
    try:
        outcome = runner.train(study, checkpoint_seconds=arguments.checkpoint_seconds)
    except runner.Refused as error:
        _say(str(error))
        return WRONG
    except Interrupted:
        _say(f"interrupted; a checkpoint is written. Continue with:\n  {_again(arguments)}")
        return INTERRUPTED
    if arguments.report:
        from aesjax.lab.report import write_report

        print(f"report: {write_report(arguments.out)}")
    if outcome.faults:
        _say(f"the physics engine gave up on {outcome.faults} simulations, which were reset; see manifest.json")
    for line in outcome.diverged:
        _say(line)
    return DIVERGED if outcome.diverged else DONE


def _task_options(arguments: Run) -> dict[str, object]:
    """The options that were typed, as the task's builder takes them."""
    typed = {"engine": arguments.engine, "observation": arguments.observation}
    if arguments.channels is not None:
        typed["channels"] = tuple(name.strip() for name in arguments.channels.split(",") if name.strip())  # type: ignore
    return {name: value for name, value in typed.items() if value is not None}


def _again(arguments: Run) -> str:
    """The command that continues this one."""
    import shlex

    words = ["aesjax", "run"]
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        option = "--" + field.name.replace("_", "-")
        if field.name == "resume" or (field.default is not dataclasses.MISSING and value == field.default):
            continue
        if field.name == "report":
            words.append("--no-report")
        elif field.name == "sweep":
            words += [word for item in value for word in (option, item)]
        else:
            words += [option, str(value)]
    return shlex.join([*words, "--resume"])


def _report(arguments: Report) -> int:
    from aesjax.lab.merge import merge_studies
    from aesjax.lab.report import write_report

    try:
        folders, out = arguments.directories, arguments.out
        if not folders:
            raise ValueError("report needs the folder of a finished study")
        if (len(folders) > 1) != (out is not None):
            raise ValueError("--out and several folders belong together: they are merged into it")
        folder = folders[0] if out is None else merge_studies(folders, out)
        print(f"report: {write_report(folder)}")
    except (ValueError, OSError) as error:
        _say(str(error))
        return WRONG
    return DONE


def _replay(arguments: Replay) -> int:
    from experiments import replay

    directory, out = arguments.directory, arguments.out or arguments.directory / "replay"
    try:
        summary = replay.run(directory, arguments.schedules, arguments.methods, out)
    except (ValueError, KeyError, OSError) as error:
        _say(str(error))
        return WRONG
    print(f"{summary}\nreplay: {out / replay.SUMMARY}")
    return DONE


def _calibrate(arguments: Calibrate) -> int:
    from experiments import calibrate

    try:
        start_jax(None)
        text = calibrate.run(arguments.directory, arguments.delta, arguments.source)
    except (ValueError, KeyError, OSError, ModuleNotFoundError) as error:
        _say(str(error))
        return WRONG
    print(f"{text}\n\ncalibration: {arguments.directory / calibrate.TEXT}")
    return DONE


def _video(arguments: Video) -> int:
    from experiments import video

    try:
        start_jax(None)
        print(f"video: {video.run(arguments)}")
    except (ValueError, OSError, ModuleNotFoundError) as error:
        _say(str(error))
        return WRONG
    return DONE


def _bench(arguments: Bench) -> int:
    from experiments import bench

    try:
        start_jax(arguments.devices)
        bench.run(arguments)
    except (ValueError, KeyError, OSError, ModuleNotFoundError) as error:
        _say(str(error))
        return WRONG
    return DONE


def _into_pipe(command: Callable[[], int]) -> int:
    """Run a command whose output is its purpose: a reader that stops early (`| head`) ends it quietly."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at exit
        return DONE
    return code


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `aesjax` command; returns the exit code."""
    command: Run | Report | Replay | Calibrate | Video | List | Bench = tyro.cli(
        Command,  # type: ignore
        prog="aesjax",
        args=argv,
        description="Drift-aware exploration in JAX.",
    )
    if isinstance(command, Run):
        return _run(command)
    if isinstance(command, Report):
        return _report(command)
    if isinstance(command, Bench):
        return _bench(command)
    if isinstance(command, Video):
        return _video(command)
    if isinstance(command, Calibrate):
        return _into_pipe(partial(_calibrate, command))
    return _into_pipe(_list if isinstance(command, List) else partial(_replay, command))


if __name__ == "__main__":
    sys.exit(main())

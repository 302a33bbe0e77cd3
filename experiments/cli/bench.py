"""`aesjax bench`"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from experiments.cli.errors import DONE, refusing
from experiments.study.process import start_jax

if TYPE_CHECKING:
    from experiments.bench import timing

_FIRST = ("hopper", "halfcheetah", "ant", "humanoid", "isaac_ant")  # with --gpu


@dataclass
class Bench:
    """Measure updates (PPO: environment steps) per second, optionally of rejax too, or the rates of physics tasks."""

    out: Path | None = None
    """JSON file for the record, written after every case; must not exist."""
    carriers: str = "sac"
    """Comma-separated carriers."""
    methods: str = "fixed,aes"
    """Comma-separated schedules with adaptations; their times are compared with the first."""
    runs: tuple[int, ...] = (1, 25)
    """Numbers of vmapped runs, comma-separated."""
    task: str | None = None
    """Task on which carriers learn, with its preset quick, such as hopper; by default the toy task with preset paper,
    and the pendulum for PPO."""
    rounds: int = 5
    """Timed rounds; all contestants are interleaved in every round."""
    rejax: bool = False
    """Also measure rejax's SAC and PPO, installed into a temporary virtual environment."""
    physics: str | None = None
    """Measure environment steps of physics tasks instead: comma-separated tasks, mujoco, isaac or all."""
    engines: tuple[Literal["auto", "mujoco", "mjx", "warp"], ...] = ("mujoco",)
    """With --physics: the engines; auto is the default of this machine."""
    envs: int = 128
    """With --physics: number of parallel environments, a multiple of the number of devices."""
    gpu: bool = False
    """Measure every carrier, and every physics task on warp and mjx, most important first; needs --out."""
    devices: int | None = None
    """Devices to use; on a CPU one per core by default."""


def execute(options: Bench) -> int:
    """Measure, and write the record if --out is given."""
    with refusing():
        if options.rejax and options.task:
            raise ValueError("rejax has no rates on other tasks; leave out --task or --rejax")
        start_jax(options.devices)
        from experiments.bench import timing

        with timing.installed() if options.rejax else nullcontext() as rejax:
            about = {name: str(value) for name, value in vars(options).items()}
            timing.measure(_cases(options, rejax), options.out, {"options": about})
    return DONE


def _cases(options: Bench, rejax: Any) -> "list[timing.Case]":
    """Cases to measure; ValueError or UnknownNameError for an invalid task, carrier or number."""
    import jax

    from agents import CARRIERS
    from envs.physics import engine_name
    from experiments.bench import physics, timing

    def learning(carriers: Iterable[str], runs: int, rounds: int) -> Iterator[Any]:
        for name in carriers:
            CARRIERS[name]
            case = partial(timing.measured, name, options.methods.split(","), runs, rounds, rejax, options.task)
            yield ", ".join(filter(None, (name, options.task, f"{runs} runs"))), case

    def stepping(tasks: Iterable[str], engines: Sequence[str], num_envs: int, rounds: int) -> Iterator[Any]:
        for name in tasks:
            case = partial(physics.measured, name, engines, num_envs, rounds)
            yield f"{name}, {', '.join(engines)}, {num_envs} environments", case

    if min(options.rounds, *options.runs) < 1 or options.envs % len(jax.local_devices()):
        raise ValueError("--rounds and --runs must be at least 1, and --envs a multiple of the number of devices")
    cases: list[Any] = []
    if options.gpu:
        if options.out is None:
            raise ValueError("--gpu writes its record after every case; name it with --out")
        tasks = sorted(physics.named("all"), key=lambda name: name not in _FIRST)
        for runs, num_envs in ((100, 4096), (25, 16384), (400, 1024), (1, 8192)):
            cases += learning(CARRIERS, runs, 3)
            cases += stepping(tasks, ["warp"], num_envs, 3)
            cases += stepping(tasks, ["mjx"], num_envs, 3)
    elif options.physics is not None:
        engines = list(dict.fromkeys(map(engine_name, options.engines)))
        cases += stepping(physics.named(options.physics), engines, options.envs, options.rounds)
    else:
        for runs in options.runs:
            cases += learning(options.carriers.split(","), runs, options.rounds)
    return cases

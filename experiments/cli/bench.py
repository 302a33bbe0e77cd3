"""`aesjax bench`"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.errors import DONE, refusing
from experiments.study.process import start_jax

if TYPE_CHECKING:
    from experiments.bench import timing

_TRAINED = ("hopper", "halfcheetah", "ant", "humanoid", "isaac_ant")  # with --gpu also in PPO


@dataclass
class Bench:
    """Measure updates (PPO: environment steps) per second compared with matrix products and, if asked, with rejax."""

    out: Path | None = None
    """JSON file for the record, written after every case; must not exist."""
    carriers: str = "sac"
    """Comma-separated carriers."""
    runs: str = "1,25"
    """Numbers of vmapped runs."""
    rounds: int = 5
    """Timed rounds; all contestants are interleaved in every round."""
    rejax: bool = False
    """Also measure rejax's SAC and PPO, in a virtual environment of its own made in a temporary folder."""
    physics: str | None = None
    """Instead: environment steps of comma-separated physics tasks, or of mujoco, isaac or all."""
    engines: str = "mujoco"
    """With --physics: comma-separated engines: mujoco, mjx, warp."""
    envs: str = "128"
    """With --physics: comma-separated numbers of parallel environments, multiples of the number of devices."""
    gpu: bool = False
    """Instead: every carrier, and every physics task on warp and mjx, most important first; needs --out."""
    devices: int | None = None
    """Devices to use; on a CPU one per core by default."""


def execute(options: Bench) -> int:
    """Measure and, if asked, write the record."""
    with refusing():
        start_jax(options.devices)
        from experiments.bench import timing, updates

        with updates.installed() if options.rejax else nullcontext() as rejax:
            chosen = {name: value for name, value in vars(options).items() if value != getattr(Bench, name)}
            words = [f"--{name}" + ("" if value is True else f" {value}") for name, value in chosen.items()]
            timing.measure(_cases(options, rejax), options.out, {"command": " ".join(["aesjax bench", *words])})
    return DONE


def _cases(options: Bench, rejax: Any) -> "list[timing.Case]":
    """Raises ValueError, UnknownNameError: a task, engine, carrier or number that does not exist or fit."""
    import jax

    from agents import CARRIERS
    from envs.physics import ENGINES
    from experiments.bench import physics, updates

    def learning(carriers: Iterable[str], runs: int, rounds: int) -> Iterator[Any]:
        for name in carriers:
            CARRIERS[name]
            yield f"{name}, {runs} runs", partial(updates.measured, name, runs, rounds, rejax)

    def stepping(tasks: Iterable[str], engines: list[str], num_envs: int, rounds: int, trained: Any = ()) -> Any:
        for name in tasks:
            case = partial(physics.measured, name, engines, num_envs, rounds, name in trained)
            yield f"{name}, {', '.join(engines)}, {num_envs} environments", case

    if options.rounds < 1:
        raise ValueError(f"--rounds must be at least 1; got {options.rounds}")
    cases: list[Any] = []
    if options.gpu:
        if options.out is None:
            raise ValueError("--gpu writes its record after every case; name it with --out")
        tasks = sorted(physics.named("all"), key=lambda name: name not in _TRAINED)
        for runs, num_envs in ((100, 4096), (25, 16384), (400, 1024), (1, 8192)):
            cases += learning(("sac", "ppo", "sql", "meow"), runs, 3)
            cases += stepping(tasks, ["warp"], num_envs, 3, _TRAINED if runs == 100 else ())
            cases += stepping(tasks, ["mjx"], num_envs, 3)
    elif options.physics is not None:
        tasks, engines = physics.named(options.physics), options.engines.split(",")
        if set(engines) - set(ENGINES[1:]):
            raise ValueError(f"--engines must name some of {', '.join(ENGINES[1:])}; got '{options.engines}'")
        for num_envs in physics.numbers(options.envs, "envs", len(jax.local_devices())):
            cases += stepping(tasks, engines, num_envs, options.rounds)
    else:
        for runs in physics.numbers(options.runs, "runs"):
            cases += learning(options.carriers.split(","), runs, options.rounds)
    return cases

"""`aesjax bench`"""

from dataclasses import dataclass
from pathlib import Path

from experiments.cli.errors import DONE, refusing
from experiments.study.devices import start_jax


@dataclass
class Bench:
    """Measure updates (PPO: environment steps) per second beside the limit of the machine and, if asked, rejax."""

    out: Path | None = None
    """JSON file for the figures; must not exist."""
    carriers: str = "sac"
    """Comma-separated carriers."""
    runs: str = "1,5,25,50"
    """Numbers of stacked runs."""
    sizes: str = "small"
    """small: networks 64-64 (SAC: batch 128); large, for SAC only: 256-256, batch 256."""
    rounds: int = 5
    """Timed rounds; all contestants take turns in every round."""
    physics: str | None = None
    """Instead: comma-separated physics tasks, or mujoco, isaac or all, timed by themselves and inside SAC and PPO."""
    engines: str = "mujoco"
    """With --physics: comma-separated engines: mujoco, mjx, warp."""
    envs: str = "128"
    """With --physics: comma-separated numbers of copies stepped together, multiples of the number of devices."""
    training: bool = True
    """With --physics: also inside SAC and PPO (Isaac tasks: PPO), which take minutes to compile."""
    sbx: bool = False
    """With --physics and training: also SBX's SAC and PPO (needs PyTorch), in a virtual environment of their own."""
    rejax: bool = False
    """Also measure rejax's SAC and PPO, in a virtual environment of its own made in a temporary folder."""
    gpu: bool = False
    """Instead: everything an accelerator is asked for, most important first, until --minutes are up; needs --out."""
    minutes: float = 9.5
    """With --gpu: the longest that the call may take."""
    devices: int | None = None
    """Devices to use; on a CPU one per core by default."""


def execute(options: Bench) -> int:
    """Measure and, if asked, write the record."""
    with refusing():
        start_jax(options.devices)
        if options.gpu:
            from experiments.bench import accelerator
            from experiments.bench.timing import check_record

            if options.out is None:
                raise ValueError("--gpu writes its record after every measurement; name it with --out")
            check_record(options.out)
            accelerator.measure(accelerator.full(), options.out, options.minutes)
        elif options.physics is None:
            from experiments.bench import updates

            updates.run(
                carriers=options.carriers,
                runs=options.runs,
                sizes=options.sizes,
                rounds=options.rounds,
                rejax=options.rejax,
                out=options.out,
            )
        else:
            from experiments.bench import physics

            physics.run(
                tasks=options.physics,
                engines=options.engines,
                copies=options.envs,
                rounds=options.rounds,
                learning=options.training,
                sbx=options.sbx,
                out=options.out,
            )
    return DONE

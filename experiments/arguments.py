"""What may be typed after `aesjax`: one dataclass per command, whose docstrings are the manual."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

__all__ = ["Bench", "Calibrate", "Command", "List", "Replay", "Report", "Run", "Video"]


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
    """Comma-separated schedules, each with options if need be (aes:proxy=td_mean:lambda_max=inf); `baseline` is the
    carrier's own weight (SAC: auto-tuned). By default baseline,aes,aes_r."""
    patterns: str | None = None
    """Comma-separated drift patterns, or all; by default all."""
    seeds: str | None = None
    """Training seeds: 1:5 (both ends included, the default), 1,2,7, or a mix."""
    preset: str | None = None
    """Sizes: quick (minutes, the default) or paper."""
    task: str = "toy"
    """Task; see `aesjax list`."""
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
    """Physics of a MuJoCo task: mujoco (C), mjx, or auto (the default: C on a CPU, MJX on an accelerator)."""
    observation: str | None = None
    """Observation of a MuJoCo task: v5 (the default) or v4."""
    channels: str | None = None
    """What drifts in a MuJoCo task, comma-separated: body_mass, joint_friction (the default both), geom_friction,
    target_velocity."""
    resume: bool = False
    """Continue an interrupted study in --out."""
    devices: int | None = None
    """Devices to use; on a CPU one per core by default."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints."""
    report: bool = True
    """Write the report at the end."""


@dataclass
class Report:
    """Write DIR/report from the results in DIR, or one report of several studies (tasks of a family) together."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies."""
    out: Path | None = None
    """With several folders: where their results and report go together; must be new or empty."""


@dataclass
class Replay:
    """Feed the proxies recorded in DIR through other schedules, without training, and plot the weights they give."""

    directory: tyro.conf.Positional[Path]
    """Folder of a finished study."""
    schedules: str
    """Comma-separated schedules, each with options if need be (aes_d,aes:kappa=0.3), or all that can be replayed."""
    methods: str | None = None
    """Comma-separated methods of the study whose recorded proxies are fed; by default every one."""
    out: Path | None = None
    """Folder for the results, new or empty; by default DIR/replay."""


@dataclass
class Calibrate:
    """Compare the proxies recorded in DIR with the true drift: which bound on it do they give, and does it hold?"""

    directory: tyro.conf.Positional[Path]
    """Folder of a study, finished or interrupted; calibration.json and calibration.md are written into it."""
    delta: float = 0.1
    """Share of fresh runs that may break the bound; needs at least 1/delta - 1 runs of every method."""
    source: str | None = None
    """Calibrate the proxy on the update batch (update) or the newest transitions (fresh); default: each schedule's."""


@dataclass
class Video:
    """Film one policy of the study in DIR for an episode before and one after a drift change, side by side."""

    directory: tyro.conf.Positional[Path]
    """Folder of a study, finished or interrupted."""
    out: Path | None = None
    """New file, .gif or .mp4 (which needs the extra aesjax[video]); by default DIR/video/METHOD-PATTERN-SEED.gif."""
    method: str | None = None
    """Method of the study; by default its first."""
    pattern: str | None = None
    """Drift pattern of the study; by default the first that changes."""
    seed: int | None = None
    """Training seed; by default the first."""
    change: int | None = None
    """Change point, counted from 1; by default the first jump, or where a gradual drift went farthest."""
    steps: int | None = None
    """Steps of the episode at most; by default as many as 300 pictures show."""
    fps: int | None = None
    """Pictures per second, 1 to 50; by default as fast as the simulated world."""
    width: int = 320
    """Pixels of each of the two pictures, 160 to 1280."""
    renderer: str = "software"
    """Renderer of a MuJoCo task: software, gl (MuJoCo's own, through MUJOCO_GL), or auto: gl where it works."""


@dataclass
class List:
    """Print the tasks, carriers, schedules, proxies, patterns and presets there are."""


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
    """Instead: comma-separated MuJoCo tasks, or all, whose physics is timed by itself and inside SAC and PPO."""
    engines: str = "mujoco"
    """With --physics: mujoco, mjx, or both."""
    envs: int = 128
    """With --physics: copies stepped together, a multiple of the number of devices."""
    training: bool = True
    """With --physics: also inside SAC and PPO, which take minutes to compile."""
    sbx: bool = False
    """With --physics and training: also SBX's SAC and PPO (needs PyTorch), in a virtual environment of their own."""
    rejax: bool = False
    """Also measure rejax's SAC and PPO, in a virtual environment of its own made in a temporary folder."""
    devices: int | None = None
    """Devices to use; on a CPU one per core by default."""


Command = (
    Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Replay, tyro.conf.subcommand("replay")]
    | Annotated[Calibrate, tyro.conf.subcommand("calibrate")]
    | Annotated[Video, tyro.conf.subcommand("video")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

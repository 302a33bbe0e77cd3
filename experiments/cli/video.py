"""`aesjax video`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.study.devices import start_jax


@dataclass
class Video:
    """Film a run of the study in DIR around a drift change: the policy of then before and just after it, and the one of
    the end of the segment, side by side; of a steady run, one episode."""

    directory: tyro.conf.Positional[Path]
    """Folder of a study, finished or interrupted."""
    out: Path | None = None
    """New file, .gif or .mp4 (which needs the extra aesjax[video]); by default DIR/video/METHOD-PATTERN-SEED.gif."""
    method: str | None = None
    """Method of the study; by default its first."""
    pattern: str | None = None
    """Drift pattern of the study; by default the first that changes, steady where there is none."""
    seed: int | None = None
    """Training seed; by default the first."""
    change: int | None = None
    """Change point, counted from 1; by default the first jump, or where a gradual drift went farthest."""
    steps: int | None = None
    """Steps of the episode at most; by default as many as 300 pictures show."""
    fps: int | None = None
    """Pictures per second, 1 to 50; by default as fast as the simulated world."""
    width: int = 320
    """Pixels of each of the pictures, 160 to 1280."""


def execute(options: Video) -> int:
    """Film and print where the file is."""
    from experiments.report import video

    with refusing():
        start_jax(None)
        print(f"video: {video.run(**vars(options))}")
    return DONE

"""`aesjax video`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.study.process import start_jax


@dataclass
class Video:
    """Film an episode of one policy of the finished study in DIR, under the drift of one moment of its run."""

    directory: tyro.conf.Positional[Path]
    """Folder of a finished study."""
    out: Path | None = None
    """New file, .gif or .mp4; by default DIR/video/METHOD-PATTERN-SEED.gif."""
    method: str | None = None
    """Method of the study; by default its first."""
    pattern: str | None = None
    """Drift pattern of the study; by default its first with drift."""
    seed: int | None = None
    """Training seed; by default the first."""
    at: float = 1.0
    """Share of the run, 0 to 1: its drift is in force, and the stored policy nearest to it acts (changes and end)."""


def execute(options: Video) -> int:
    """Film, and print the path, the policy's step, the drift and the return."""
    with refusing():
        start_jax(None)
        from experiments.session.results import Results
        from experiments.session.video import film

        chosen = vars(options).copy()
        video = film(Results.open(chosen.pop("directory")), **chosen)
    drift = ", ".join(f"{value:.3g}" for value in video.drift)
    print(f"video: {video.path}\npolicy of step {video.step:,}, drift {drift}; return {video.episode_return:.1f}")
    return DONE

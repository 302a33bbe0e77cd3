"""`aesjax video`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.study.devices import start_jax


@dataclass
class Video:
    """Film episodes of one policy of the finished study in DIR, under the drift of one moment of its run."""

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
    episodes: int = 1
    """Episodes, one after another."""


def execute(options: Video) -> int:
    """Film, and print the path, the policy's step, the drift and the returns."""
    with refusing():
        start_jax(None)
        from experiments.session.results import Results
        from experiments.session.video import film

        chosen = vars(options).copy()
        video = film(Results.open(chosen.pop("directory")), **chosen)
    drift = "".join(f", {name} {', '.join(f'{v:.3g}' for v in values)}" for name, values in video.drift.items())
    returns = ", ".join(f"{value:.1f}" for value in video.returns)
    print(f"video: {video.path}\npolicy of step {video.step:,}{drift}; {video.frames} pictures, return {returns}")
    return DONE

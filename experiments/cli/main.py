"""The `aesjax` command: one module per subcommand, of which only the chosen one imports what it needs.

Exit codes: 0 done, 2 wrong arguments, 3 a run diverged, 130 interrupted. Nothing here starts JAX before the number of
devices is set.
"""

from functools import partial
from typing import Annotated

import tyro

from experiments.cli import bench, calibrate, export, listing, replay, report, run, video
from experiments.cli.errors import guarded

__all__ = ["main"]

Command = (
    Annotated[run.Run, tyro.conf.subcommand("run")]
    | Annotated[report.Report, tyro.conf.subcommand("report")]
    | Annotated[replay.Replay, tyro.conf.subcommand("replay")]
    | Annotated[calibrate.Calibrate, tyro.conf.subcommand("calibrate")]
    | Annotated[video.Video, tyro.conf.subcommand("video")]
    | Annotated[export.Export, tyro.conf.subcommand("export")]
    | Annotated[listing.List, tyro.conf.subcommand("list")]
    | Annotated[bench.Bench, tyro.conf.subcommand("bench")]
)
EXECUTE = {
    run.Run: run.execute,
    report.Report: report.execute,
    replay.Replay: replay.execute,
    calibrate.Calibrate: calibrate.execute,
    video.Video: video.execute,
    export.Export: export.execute,
    listing.List: listing.execute,
    bench.Bench: bench.execute,
}


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `aesjax` command; returns the exit code."""
    options = tyro.cli(
        Command,  # type: ignore
        prog="aesjax",
        args=argv,
        description="Drift-aware exploration in JAX.",
    )
    return guarded(partial(EXECUTE[type(options)], options))

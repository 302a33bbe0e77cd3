"""The subcommands of `aesjax`, one module each, of which only the chosen one imports what it needs.

Nothing here starts JAX before the number of devices is set.
"""

import dataclasses
import sys
from functools import partial
from importlib import metadata
from typing import Annotated, get_args

import tyro

from experiments.cli import (
    audit,
    bench,
    calibrate,
    export,
    join,
    listing,
    replay,
    report,
    run,
    status,
    submit,
    table,
    verify,
    video,
)
from experiments.cli.errors import DONE, WRONG, guarded, say

_Command = (
    Annotated[run.RunOptions, tyro.conf.subcommand("run")]
    | Annotated[submit.SubmitOptions, tyro.conf.subcommand("submit")]
    | Annotated[status.Status, tyro.conf.subcommand("status")]
    | Annotated[join.Join, tyro.conf.subcommand("join")]
    | Annotated[report.Report, tyro.conf.subcommand("report")]
    | Annotated[replay.Replay, tyro.conf.subcommand("replay")]
    | Annotated[calibrate.Calibrate, tyro.conf.subcommand("calibrate")]
    | Annotated[audit.Audit, tyro.conf.subcommand("audit")]
    | Annotated[table.Table, tyro.conf.subcommand("table")]
    | Annotated[verify.Verify, tyro.conf.subcommand("verify")]
    | Annotated[video.Video, tyro.conf.subcommand("video")]
    | Annotated[export.Export, tyro.conf.subcommand("export")]
    | Annotated[listing.List, tyro.conf.subcommand("list")]
    | Annotated[bench.Bench, tyro.conf.subcommand("bench")]
)
_EXECUTE = {
    run.RunOptions: run.execute,
    submit.SubmitOptions: submit.execute,
    status.Status: status.execute,
    join.Join: join.execute,
    report.Report: report.execute,
    replay.Replay: replay.execute,
    calibrate.Calibrate: calibrate.execute,
    audit.Audit: audit.execute,
    table.Table: table.execute,
    verify.Verify: verify.execute,
    video.Video: video.execute,
    export.Export: export.execute,
    listing.List: listing.execute,
    bench.Bench: bench.execute,
}
_NAMES = [get_args(part)[1].name for part in get_args(_Command)]


def command(argv: list[str] | None = None) -> int:
    """Run what was typed; returns the exit code."""
    typed = sys.argv[1:] if argv is None else argv
    if typed[:1] == ["--plugins"] and len(typed) > 2:
        from experiments.study.plugins import trust

        trust(typed[1])
        argv = typed = typed[2:]
    if typed[:1] == ["--version"]:
        print(f"aesjax {metadata.version('aesjax')}")
        return DONE
    if typed and not typed[0].startswith("-") and typed[0] not in _NAMES:
        from aesjax.registry import hint

        say(f"unknown command '{typed[0]}'{hint(typed[0], _NAMES)} commands: {', '.join(_NAMES)}")
        return WRONG
    about = (
        "Drift-aware exploration in JAX. Before the command, --plugins MODULE,... lets studies import these modules."
    )
    if typed[:1] == ["table"]:  # what it does not know are options of `aesjax run`
        options, rest = tyro.cli(
            _Command,  # type: ignore
            prog="aesjax",
            args=argv,
            description=about,
            return_unknown_args=True,
        )
        options = dataclasses.replace(options, rest=tuple(rest))
    else:
        options = tyro.cli(_Command, prog="aesjax", args=argv, description=about)  # type: ignore
    return guarded(partial(_EXECUTE[type(options)], options))

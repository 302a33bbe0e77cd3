"""The subcommands of `aesjax`; only the chosen one imports its dependencies.

JAX starts after the number of devices is set.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from experiments.cli import bench, finished, listing, run, submit, table, tune
from experiments.cli.errors import DONE, WRONG, guarded, say
from experiments.session.study import folder

#: Command -> the class that tyro parses, and the function that executes it.
_COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "run": (run.Run, run.execute),
    "tune": (tune.Tune, tune.execute),
    "submit": (submit.Submit, submit.execute),
    "status": (submit.Status, submit.status),
    "join": (submit.Join, submit.join),
    "report": (finished.Report, finished.report),
    "compare": (finished.Compare, finished.compare),
    "calibrate": (finished.Calibrate, finished.calibrate),
    "audit": (finished.Audit, finished.audit),
    "table": (table.Table, table.execute),
    "video": (finished.Video, finished.video),
    "export": (finished.Export, finished.export),
    "list": (listing.List, listing.execute),
    "bench": (bench.Bench, bench.execute),
}
_Command: Any = Union[  # noqa: UP007
    tuple(Annotated[options, tyro.conf.subcommand(name)] for name, (options, _) in _COMMANDS.items())
]
_PATHS = tyro.constructors.ConstructorRegistry()


@_PATHS.primitive_rule
def _path(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    spec = tyro.constructors.PrimitiveConstructorSpec
    known = spec(1, "PATH", lambda words: folder(words[0]), lambda value: isinstance(value, Path), lambda v: [str(v)])
    return known if info.type is Path else None


_EXECUTE = dict(_COMMANDS.values())


def command(argv: list[str] | None = None) -> int:
    """Parse and run a command line; returns the exit code."""
    typed = sys.argv[1:] if argv is None else argv
    if typed[:1] == ["--version"]:
        print(f"aesjax {metadata.version('aesjax')}")
        return DONE
    if typed and not typed[0].startswith("-") and typed[0] not in _COMMANDS:
        from aesjax.registry import hint

        say(f"unknown command '{typed[0]}'{hint(typed[0], _COMMANDS)} commands: {', '.join(_COMMANDS)}")
        return WRONG
    options = tyro.cli(
        _Command, prog="aesjax", args=argv, description="Drift-aware exploration in JAX.", registry=_PATHS
    )
    return guarded(partial(_EXECUTE[type(options)], options))

"""`aesjax replay`"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


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
    """Folder for the results, new or empty; by default DIR/replay, or the first of DIR/replay-2, ... that is free."""


def execute(options: Replay) -> int:
    """Replay and print the summary."""
    from experiments.report import replay

    out = options.out or _free(options.directory / "replay")
    with refusing():
        summary = replay.run(options.directory, options.schedules, options.methods, out)
    print(f"{summary}\nreplay: {out / replay.SUMMARY}\npage: {out / replay.PAGE}")
    return DONE


def _free(out: Path) -> Path:
    """The folder, or the next one of its name that nothing was written to."""
    names = itertools.chain([out.name], (f"{out.name}-{n}" for n in itertools.count(2)))
    return next(path for path in map(out.with_name, names) if not path.exists())

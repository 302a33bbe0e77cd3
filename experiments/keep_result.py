"""Copy a finished study beside the code, for `aesjax audit`: configuration, curves and manifest, sealed anew.

Usage: python experiments/keep_result.py DIR experiments/results/NAME [--streams] [--command "python ..."]
Agents, checkpoints, policies and reports stay behind; the proxies of every update come with --streams. Of folders that
the study was made from only their names are kept.
"""

import json
import sys
from functools import partial
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, guarded, refusing
from experiments.report.origins import command_by_names, config_by_names
from experiments.study import checksums, store
from experiments.study.results import open_results


def keep(
    directory: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    streams: bool = False,
    command: str | None = None,
) -> int:
    """Copy what an audit reads; returns the exit code.

    Args:
      directory: folder of a finished study.
      out: where it goes; must be new or empty.
      streams: also the proxies of every update.
      command: what makes it again, of a study whose manifest does not tell.
    """
    with refusing():
        store.check_new(out, "OUT")
        results = open_results(directory)
        names = (store.CONFIG, store.CURVES, *((store.STREAMS,) if streams else ()))
        contents = {name: results.check(name) for name in names}
        config = json.loads(contents.pop(store.CONFIG))
        manifest = config_by_names(results.manifest)  # it tells, too, whose agents the runs began with
        if told := command or manifest.get("command"):
            manifest["command"] = command_by_names(told, config)
        out.mkdir(parents=True, exist_ok=True)
        store.write_json(out / store.CONFIG, config_by_names(config))
        for name, data in contents.items():
            store.write_bytes(out / name, data)
        checksums.write_manifest(out, manifest)
    print(f"kept: {out}; made again by: {manifest.get('command', 'a command that it does not tell')}")
    return DONE


if __name__ == "__main__":
    sys.exit(guarded(partial(tyro.cli, keep, description=__doc__)))

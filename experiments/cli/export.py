"""`aesjax export`: trained agents on their own, to begin other studies with"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Export:
    """Write the agents that studies on the pattern steady ended with into a small folder for `--warm-start`."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of finished studies of one task; every carrier is taken from the first that trained it."""
    out: Path
    """Folder for the agents; must be new or empty."""
    seeds: str | None = None
    """Training seeds of the agents wanted, such as 1:5; by default all."""
    moments: bool = False
    """With Adam's moments, which are twice the parameters; else Adam begins again."""
    results: bool = False
    """Instead copy the results of one study, for `aesjax audit`: configuration, curves and manifest. Folders of other
    studies in them become names."""
    streams: bool = False
    """With --results: also the proxies of every update."""


def execute(options: Export) -> int:
    """Write them and say how large they are."""
    from experiments.study.text import parse_seeds
    from experiments.study.warm import export

    with refusing():
        if options.results:
            if len(options.folders) != 1 or options.seeds is not None or options.moments:
                raise ValueError("--results copies one study as it is; leave out other folders, --seeds and --moments")
            print(f"results: {_results(options.folders[0], options.out, options.streams)}")
            return DONE
        if options.streams:
            raise ValueError("--streams is an option of --results")
        seeds = None if options.seeds is None else parse_seeds(options.seeds)
        if not options.folders:
            raise ValueError("give the folder of a finished study")
        size = export(options.folders, options.out, seeds=seeds, moments=options.moments)
    print(f"agents: {options.out} ({size / 1e6:.2f} MB)")
    return DONE


def _by_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration or manifest in which folders of other studies are names: no file names a place on a machine.

    Digests beside the names tell the studies apart.
    """
    parts = {part: data[part] for part in ("controls", "warm_start") if data.get(part)}
    return {**data, **{part: {**own, "from": Path(own["from"]).name} for part, own in parts.items()}}


def _results(directory: Path, out: Path, streams: bool) -> Path:
    """Copy the result files of a finished study into ``out``, which must be new or empty."""
    from experiments.study import store
    from experiments.study.store import open_results, write_manifest

    store.check_new(out, "--out")
    results = open_results(directory)
    names = (store.CURVES, *((store.STREAMS,) if streams else ()))
    contents = {name: results.check(name) for name in names}
    config, manifest = _by_names(results.config), _by_names(results.manifest)
    for part in ("controls", "warm_start"):
        if results.config.get(part) and manifest.get("command"):
            manifest["command"] = manifest["command"].replace(results.config[part]["from"], config[part]["from"])
    out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / store.CONFIG, config)
    for name, data in contents.items():
        store.write_bytes(out / name, data)
    write_manifest(out, manifest)
    return out

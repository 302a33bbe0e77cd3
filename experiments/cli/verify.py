"""`aesjax verify`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Verify:
    """Check every file and every checkpoint of studies against their checksums."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of studies, finished or interrupted, or of exported agents."""


def execute(options: Verify) -> int:
    """Check the folders in their order, up to the first that is damaged."""
    with refusing():
        if not options.directories:
            raise ValueError("verify needs the folder of a study")
        for directory in options.directories:
            print(f"{directory}: {_verified(directory)}")
    return DONE


def _verified(directory: Path) -> str:
    """A few words on the parts of a folder that were checked."""
    from experiments.study import checkpoint, checksums, store
    from experiments.study.config import check_stored, fingerprint_of
    from experiments.study.folder import open_study
    from experiments.study.results import open_results
    from experiments.study.sources import EXPORTED
    from experiments.study.warm import check_exported

    if (directory / EXPORTED).is_file():
        return f"{check_exported(directory)} exported agents are complete"
    words = []
    if (directory / store.MANIFEST).exists():
        results = open_results(directory)
        if found := checksums.faults(directory, results.manifest):
            raise ValueError(f"{directory}: {'; '.join(found)}")
        for name in (store.CURVES, store.STREAMS):
            if (directory / name).exists():
                results.rows(name)
        words.append(f"{len(results.manifest[checksums.FILES])} files match their checksums")
        if "merged" in results.config:
            return words[0]
    data, found = store.read_json(directory / store.CONFIG), []
    check_stored(data)
    if not data.get("plugins"):  # their code is not imported
        open_study(directory)
    for carrier in data["carriers"]:
        place = directory / store.CHECKPOINTS / carrier
        found += [f"{place}: {fault}" for fault in checkpoint.check(place, fingerprint_of(data))]
        words += [f"the checkpoints of {carrier} match theirs"] if place.exists() else []
    if found:
        raise ValueError("; ".join(found))
    return "; ".join(words) or "the study has not begun"

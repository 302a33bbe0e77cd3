"""Whether a study's folder is whole: every file against its seal, every checkpoint against its own."""

from pathlib import Path

from experiments.study import checkpoint, seals, store
from experiments.study.folder import open_study
from experiments.study.results import open_results
from experiments.study.sealed import EXPORTED
from experiments.study.warm import check_exported


def verify(directory: Path) -> str:
    """What was checked, in a few words.

    Args:
      directory: a study, finished or interrupted, several merged into one, or exported agents.

    Raises:
      ValueError: something is damaged, missing or too much; one sentence that names it.
    """
    if (directory / EXPORTED).is_file():
        return f"{check_exported(directory)} exported agents are whole"
    words = []
    if (directory / store.MANIFEST).exists():
        results = open_results(directory)
        if found := seals.faults(directory, results.manifest):
            raise ValueError(f"{directory}: {'; '.join(found)}")
        for name in (store.CURVES, store.STREAMS):
            if (directory / name).exists():
                results.rows(name)
        words.append(f"{len(results.manifest[seals.FILES])} files are what was sealed")
        if "merged" in results.config:
            return words[0]
    config, found = open_study(directory).config, []
    for carrier in config.carriers:
        place = directory / store.CHECKPOINTS / carrier
        found += [f"{place}: {fault}" for fault in checkpoint.check(place, config.fingerprint())]
        words += [f"the checkpoints of {carrier} are whole"] if place.exists() else []
    if found:
        raise ValueError("; ".join(found))
    return "; ".join(words) or "the study has not begun"

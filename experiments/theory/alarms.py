"""Alarms of `aes_c` as shipped in the proxies of finished studies: changes found, delays, alarms without a change.

python -m experiments.theory.alarms --out FILE.json STUDY ...   # studies with runs of the patterns steady and abrupt
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.measure.curves import change_steps
from experiments.study import store
from experiments.study.config import config_from_json
from experiments.study.results import open_results
from experiments.theory.detection_methods import METHODS
from experiments.theory.detection_parts import SHIPPED, delays
from experiments.theory.detection_streams import check_patterns, sorted_streams
from experiments.theory.findings import Finding, claim, paired, show

_LOOK = 0.1  # of the updates: an alarm within this after a change counts as its detection


def alarms(folders: Sequence[Path]) -> dict[str, Any]:
    """Counts by study and proxy.

    Args:
      folders: finished studies with runs of the patterns steady and abrupt.

    Raises:
      ValueError: a folder cannot be read or lacks one of the patterns; one sentence.
    """
    return {folder.name: _of_study(folder) for folder in folders}


def _of_study(folder: Path) -> dict[str, Any]:
    results = open_results(folder)
    config = config_from_json(results.config)
    check_patterns(folder, config.patterns)
    rows = results.rows(store.STREAMS)
    out: dict[str, Any] = {}
    # Methods that differ in what their schedule reads have equal agents: one of them has every proxy.
    for name, streams in sorted_streams(rows.unique(["carrier", "pattern", "seed"], keep="first")).items():
        quiet, jumps = streams["steady"], streams["abrupt"]
        updates = jumps.shape[1]
        begun = 1 - updates / config.vector_steps(name.partition(" ")[0])  # without updates
        at = [round((share - begun) / (1 - begun) * updates) for share in change_steps(1.0, config.segments)]
        late = delays(METHODS["aes_c"].alarms(jumps, SHIPPED)[0], at, round(_LOOK * updates))
        hit, near = np.isfinite(late), max(1, updates // 50)
        rises = [jumps[:, k : k + near].mean(1) - jumps[:, k - near : k].mean(1) for k in at]
        out[name] = {
            "found": hit.sum(1).tolist(),  # by run
            "changes": len(at),
            "median_delay": float(np.median(late[hit])) if hit.any() else None,
            "false": int(METHODS["aes_c"].alarms(quiet, SHIPPED).sum()),
            "observations": int(quiet.size),
            "rise": float(np.exp(np.median(rises))),
        }
    return out


def findings(data: Mapping[str, Any]) -> list[Finding]:
    """Whether the error of the model finds more changes than the TD errors do."""
    found = []
    for study, of in data.items():
        carriers = {name.partition(" ")[0] for name in of if name.endswith(" dynamics/fresh")}
        for carrier in sorted(carriers):
            model = of[f"{carrier} dynamics/fresh"]
            for name in (f"{carrier} td_quantile/{place}" for place in ("fresh", "update")):
                if name in of:
                    gain = paired(model["found"], of[name]["found"])
                    found.append(
                        claim(
                            study,
                            f"dynamics/fresh finds more changes than {name}",
                            gain.low > 0 if gain.low > 0 or gain.high < 0 else None,
                            f"{sum(model['found'])} and {sum(of[name]['found'])} of "
                            f"{len(model['found']) * model['changes']}; {show(gain)} a run",
                        )
                    )
    return found


def tables(data: Mapping[str, Any]) -> str:
    """Markdown: a row for every study and proxy."""
    lines = [
        "Found: changes with an alarm within a tenth of the updates. Rise: median factor of the proxy over a change,",
        "means of the logarithm over a fiftieth of the updates before and after.",
        "",
        "| study | proxy | found | median delay, updates | false alarms | rise |",
        "|---|---|---|---|---|---|",
    ]
    for study, of in data.items():
        for name, row in of.items():
            delay = "-" if row["median_delay"] is None else f"{row['median_delay']:.0f}"
            share = f"{sum(row['found'])} of {len(row['found']) * row['changes']}"
            quiet = f"{row['false']} in {row['observations']:,}"
            lines.append(f"| {study} | {name} | {share} | {delay} | {quiet} | {row['rise']:.2f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the record and print its table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+", help="folders of finished studies")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write; must not exist")
    given = parser.parse_args(arguments)
    try:
        store.check_new(given.out, "--out")
        data = alarms(given.studies)
    except (ValueError, OSError) as error:
        print(f"aesjax: {error}", file=sys.stderr)
        return 2
    found = findings(data)
    record = {"environment": store.environment(), "findings": [each._asdict() for each in found], "data": data}
    store.write_json(given.out, record)
    print(
        tables(data), *(f"{each.name}: {each.prediction}: {each.outcome}; {each.measured}" for each in found), sep="\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

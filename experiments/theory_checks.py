"""What the recorded theory studies say with other seeds for tuning, equal steps, grid edges and Holm; nothing is run.

Usage: python experiments/theory_checks.py --out DIR [--records benchmarks]
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

RECORDS = Path(__file__).resolve().parent.parent / "benchmarks"


@dataclass(frozen=True)
class Checks:
    """Where the checks are written, and of which records."""

    out: Path
    """Folder for ``theory_checks.md``; must be new or empty."""
    records: Path = RECORDS
    """Folder with ``theory_oco.json`` and ``theory_softmdp.json``, as the theory scripts write them."""


def main(checks: Checks) -> None:
    """Read both records and write the tables."""
    from experiments.study import store
    from experiments.theory.findings import TheoryStudy, open_folder
    from experiments.theory.rechecks import tables

    try:
        data = [json.loads((checks.records / f"theory_{n}.json").read_text())["data"] for n in ("oco", "softmdp")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"aesjax: --records {checks.records}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    open_folder(TheoryStudy(checks.out))
    text = tables(*data)
    store.write_text(checks.out / "theory_checks.md", text)
    print(text)


if __name__ == "__main__":
    main(tyro.cli(Checks, description=__doc__))

"""Studies of the paper's theory: regret of schedules under drift, the soft-MDP bridge, calibration of a proxy.

Usage: python -m experiments.theory oco|softmdp|calibration [--seeds 20] [--out DIR]
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class TheoryStudy:
    """Options of a theory study."""

    name: tyro.conf.Positional[Literal["oco", "softmdp", "calibration"]]
    """oco: regret of schedules and constants. softmdp: claims M1 to M19. calibration: coverage of calibrated bounds."""
    seeds: int = 20
    """Repetitions of oco; the other two studies draw a fixed number of instances per seed."""
    out: Path | None = None
    """Folder for NAME.json and NAME.md, new or empty; default: only print."""


def table(rows: dict[str, dict[str, float | str]]) -> str:
    """Rows as Markdown, numbers to three significant digits."""
    head = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for name, row in rows.items():
        cells = [x if isinstance(x, str) else f"{x:.3g}" for x in row.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(study: TheoryStudy) -> int:
    """Run a study, print its table and write its record; returns the exit code."""
    from experiments.study import store

    try:
        if study.seeds < 2:
            raise ValueError(f"--seeds must be at least 2, for intervals over paired seeds; got {study.seeds}")
        if study.out is not None:
            store.check_new(study.out, "--out")
    except (ValueError, OSError) as error:
        print(f"aesjax: {error}", file=sys.stderr)
        return 2
    import jax

    from experiments.theory import calibration_study, oco, softmdp_study

    run = {"oco": oco.run, "softmdp": softmdp_study.run, "calibration": calibration_study.run}[study.name]
    with jax.enable_x64(True):
        rows = run(study.seeds)
    print(table(rows))
    if study.out is not None:
        record = {"study": study.name, "seeds": study.seeds, "environment": store.environment(), "data": rows}
        study.out.mkdir(parents=True, exist_ok=True)
        store.write_json(study.out / f"{study.name}.json", record)
        store.write_text(study.out / f"{study.name}.md", table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(TheoryStudy, description=__doc__)))

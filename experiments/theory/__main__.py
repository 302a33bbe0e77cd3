"""Studies of the paper's theory: predictions written down before, each with its outcome and a 95 % interval.

Usage: python -m experiments.theory oco|detection --out DIR [--seeds 20] [--quick]
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import tyro

from experiments.theory.findings import RECORD, Finding, TheoryStudy, open_folder, start_double_precision, write


def _run(parts: dict[str, Callable[[], tuple[Any, list[Finding]]]]) -> tuple[dict[str, Any], list[Finding]]:
    """The data of every part by its name, and all findings."""
    data, findings = {}, []
    for part, run in parts.items():
        print(f"{part}:", flush=True)
        data[part], found = run()
        findings += found
    return data, findings


def _oco(study: TheoryStudy) -> tuple[dict[str, Any], list[Finding], str]:
    open_folder(study)
    start_double_precision()
    from experiments.theory import oco_grid, oco_parts

    rounds = 256 if study.quick else 4096
    horizons = [128, 256] if study.quick else [2**k for k in range(9, 15)]
    data, findings = _run(
        {
            "grid": lambda: oco_grid.main_grid(study, rounds),
            "rates": lambda: oco_grid.rates(study, horizons),
            "observed": lambda: oco_parts.observed(study, rounds),
        }
    )
    return data, sorted(findings, key=lambda finding: finding.name), oco_grid.tables(data["grid"])


def _detection(study: TheoryStudy) -> tuple[dict[str, Any], list[Finding], str]:
    """In single precision, as the schedules run in an agent."""
    from experiments.theory import detection_parts as parts
    from experiments.theory import detection_streams as made

    try:
        rows = made.read(study.recorded)
    except ValueError as error:
        raise ValueError(f"--recorded {error}") from None
    open_folder(study)
    if study.recorded != (RECORD,):
        rows.write_parquet(study.out / RECORD.name, compression_level=22)
    if study.quick:
        seeds = sorted(set(rows["seed"]))
        rows = rows.filter(rows["apart"] == 1000, rows["seed"].is_in(seeds[len(seeds) // 2 - 1 : len(seeds) // 2 + 2]))
    families = ["Pareto 1.2"] if study.quick else list(made.FAMILIES)
    streams = {family: made.synthetic(family, 2 if study.quick else 2 * study.seeds) for family in families}
    streams |= made.recorded(rows)
    data = parts.compare(streams)
    found, record = parts.findings(data), parts.plain(data)
    parts.draw(record, streams, study.out / "theory_detection.png")
    return record, found, parts.tables(record)


def main(study: TheoryStudy) -> int:
    """Run a study and write its record; returns the exit code."""
    try:
        began = time.monotonic()
        data, findings, tables = {"oco": _oco, "detection": _detection}[study.name](study)
    except (ValueError, OSError) as error:
        print(f"aesjax: {error}", file=sys.stderr)
        return 2
    write(study, f"theory_{study.name}", findings, data, time.monotonic() - began, tables=tables)
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(TheoryStudy, description=__doc__)))

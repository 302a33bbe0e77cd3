"""Which drift signal can be trusted: AES-C and AES-R beside CUSUM, Page-Hinkley and ADWIN at equal false alarms.

Usage: python experiments/theory_detection.py --out DIR [--seeds 20] [--quick] [--recorded STREAMS.parquet]
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.theory.findings import TheoryStudy, open_folder, write

RECORD = Path(__file__).resolve().parent.parent / "benchmarks" / "recorded_proxies.parquet"


@dataclass(frozen=True)
class DetectionStudy(TheoryStudy):
    """The options of every theory script, and which recorded proxies are looked at."""

    recorded: Path = RECORD
    """``streams.parquet`` of a study with the patterns steady and abrupt."""


def main(study: DetectionStudy) -> None:
    """Run every part and write the record."""
    import matplotlib

    matplotlib.use("Agg")
    from experiments.theory import detection_figures as figures
    from experiments.theory import detection_parts as parts
    from experiments.theory.detection_streams import recorded

    try:
        streams = recorded(study.recorded)
    except ValueError as error:
        print(f"aesjax: --recorded {study.recorded}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    open_folder(study)

    started = time.time()
    data, findings = {}, []
    for name, run in (
        ("synthetic", lambda: parts.synthetic(study)),
        ("no_change", lambda: parts.no_change(study)),
        ("recorded", lambda: parts.on_records(study, streams)),
    ):
        print(f"{name}:", flush=True)
        data[name], found = run()
        findings += found
    drawn = figures.draw(streams)
    seconds = time.time() - started
    write(study, "detection", findings, parts.plain(data), drawn, seconds, tables=figures.tables(data))


if __name__ == "__main__":
    main(tyro.cli(DetectionStudy, description=__doc__))

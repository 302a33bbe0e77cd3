"""What calibrated drift proxies cover: conformal fits with and without a split, rare drift, and the run-level scale

Usage: python experiments/theory_calibration.py --out DIR [--seeds 20] [--quick]
"""

import time

import tyro

from experiments.theory.findings import TheoryStudy, open_folder, start_double_precision, write


def main(study: TheoryStudy) -> None:
    """Run everything and write findings and figures."""
    open_folder(study)
    start_double_precision()
    from experiments.theory.calibration_figures import draw
    from experiments.theory.calibration_findings import findings_of, measure

    began = time.monotonic()
    data = measure(study)
    kept = {name: {k: v for k, v in part.items() if k not in ("ratios", "per run")} for name, part in data.items()}
    write(study, "theory_calibration", findings_of(data), kept, draw(data), time.monotonic() - began)


if __name__ == "__main__":
    main(tyro.cli(TheoryStudy, description=__doc__))

"""Online learning under drift: what the paper's schedule, its repairs and its rivals pay, beside what was predicted.

Usage: python experiments/theory_oco.py --out DIR [--seeds 20] [--quick]
"""

import time

import tyro

from experiments.theory.findings import TheoryStudy, open_folder, start_double_precision, write


def main(study: TheoryStudy) -> None:
    """Run every part and write the record."""
    open_folder(study)
    start_double_precision()
    from experiments.theory import oco_figures as figures
    from experiments.theory import oco_grid as grid
    from experiments.theory import oco_parts as parts

    started = time.time()
    rounds = 256 if study.quick else 4096
    horizons = [128, 256] if study.quick else [2**k for k in range(9, 15)]
    data, findings = {}, []
    for name, run in (
        ("grid", lambda: grid.main_grid(study, rounds)),
        ("rates", lambda: grid.rates(study, horizons)),
        ("full_simplex", lambda: parts.full_simplex(study, rounds)),
        ("bursts", lambda: parts.bursts(study, rounds)),
        ("observed", lambda: parts.observed(study, rounds)),
        ("proxies", lambda: parts.proxies(study, rounds)),
        ("other_losses", lambda: parts.other_losses(study, rounds)),
    ):
        print(f"{name}:", flush=True)
        data[name], found = run()
        findings += found
    findings.sort(key=lambda f: f.name)
    drawn = figures.draw(data, parts.traces(rounds))
    write(study, "theory_oco", findings, data, drawn, time.time() - started, tables=figures.tables(data))


if __name__ == "__main__":
    main(tyro.cli(TheoryStudy, description=__doc__))

"""Tabular soft MDPs that drift: exact tracking, noisy tracking and soft Q-learning (5.2 to 5.4 of `docs/theory.md`).

Usage: python experiments/theory_softmdp.py --out DIR [--seeds 20] [--quick]
"""

import time

import tyro

from experiments.theory.findings import TheoryStudy, open_folder, start_double_precision, write


def main(study: TheoryStudy) -> None:
    """Run all three parts."""
    open_folder(study)
    start_double_precision()
    from experiments.theory import softmdp_figures as figures
    from experiments.theory.softmdp_control import control, thinned
    from experiments.theory.softmdp_noise import noisy_evaluation
    from experiments.theory.softmdp_tracking import planning

    began = time.monotonic()
    parts, findings = {}, []
    for name, part in (("planning", planning), ("noisy", noisy_evaluation), ("control", control)):
        found, parts[name] = part(study)
        findings += found
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    drawn = {
        "planning_regret": figures.planning(parts["planning"]),
        "noisy_exponents": figures.exponents(parts["noisy"]),
        "noisy_ratios": figures.ratios(parts["noisy"]),
        "noisy_gains": figures.weights(parts["noisy"]),
        "control_learning": figures.learning(parts["control"]),
        "gridworld": figures.worlds(),
    }
    parts["control"] = thinned(parts["control"])
    for row in parts["noisy"]["arms"].values():
        for entry in row.values():
            entry.pop("weight", None)  # drawn above
    write(study, "theory_softmdp", findings, parts, drawn, time.monotonic() - began)


if __name__ == "__main__":
    main(tyro.cli(TheoryStudy, description=__doc__))

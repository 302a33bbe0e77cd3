"""Constant weights and controls: what a schedule has to beat."""

import shlex
from collections.abc import Sequence

from experiments.audit.evidence import CARRIERS, PATTERNS, Evidence, gather
from experiments.audit.measured import atoms, best_constant, expected, missing, nothing
from experiments.measure.patterns import STEADY
from experiments.paper.printing import look_of, show
from experiments.paper.studies import RECOMMENDED, Made, Options, Study, main_studies, named_studies, run_table
from experiments.report.tables import hindsight_table
from experiments.study import store

#: Whose timing and level are put to the test, where the studies have them.
_PLAYED = ("aes", "aes_r", RECOMMENDED)
_KINDS = ("constant_at_mean", "permuted")


def fixed_grid(description: str | None, argv: Sequence[str] | None = None) -> int:
    """The best constant weight in hindsight under every pattern; returns the exit code."""
    return run_table(lambda options: named_studies(options, "fixed_grid"), _tell_grid, description, argv)


def _tell_grid(made: Made) -> None:
    look, constants = look_of(made.folders)
    lacking = _lacking(gather(made.folders), list(dict.fromkeys(study.task for study in made.studies)))
    show(made.options.out, "fixed_grid", "Constant weights", [hindsight_table(look, constants)], lacking, made.folders)


def _lacking(evidence: Evidence, tasks: Sequence[str]) -> str:
    places = expected((STEADY, *PATTERNS), CARRIERS, tasks)
    return missing(places, atoms(evidence, best_constant, nothing, "mean_return", places))


def controls(description: str | None, argv: Sequence[str] | None = None) -> int:
    """The methods of the main table beside controls that play their own record; returns the exit code."""
    return run_table(lambda options: main_studies(options, ("toy",)), _tell_controls, description, argv, then=_played)


def _tell_controls(made: Made) -> None:
    from experiments.report.questions import answer, markdown, plain

    out = made.options.out
    words = ["python", "experiments/controls.py", "--out", "DIR", "--preset", made.options.preset, *made.rest]
    command = [shlex.join(words)]
    half = len(made.studies) // 2
    for study, *pair in zip(made.studies[:half], made.folders[:half], made.folders[half:], strict=True):
        for carrier in study.carriers:
            found = answer(pair, carrier)
            place = out / f"controls-{study.task}-{carrier}.md"
            store.write_text(place, markdown(found, command))
            store.write_json(place.with_suffix(".json"), plain(found, command))
            print(f"{markdown(found, command)}\nanswers: {place}")


def _played(options: Options, study: Study) -> Study:
    """The controls of a finished study's methods, of the same size."""
    words = list(study.words)
    there = words[words.index("--schedules") + 1].split(",")
    entries = ",".join(f"{kind}:of={of}" for kind in _KINDS for of in _PLAYED if of in there)
    words[words.index("--schedules") + 1] = entries
    record = options.out / study.name
    return study._replace(name=f"controls/{record.name}", words=(*words, "--controls-from", str(record)))

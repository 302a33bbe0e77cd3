"""Constant weights and controls: what a schedule has to beat."""

import shlex
from collections.abc import Sequence

from aesjax.audit.evidence import CARRIERS, PATTERNS, Evidence, gather
from aesjax.audit.measured import atoms, best_constant, expected, missing, nothing
from aesjax.lab import store
from aesjax.measure.patterns import STEADY
from aesjax.report.tables import hindsight_table
from experiments.cli.errors import DIVERGED, DONE, guarded, refusing
from experiments.tables.printing import look_of, show
from experiments.tables.studies import Options, Study, main_studies, named_studies, parsed, train

__all__ = ["controls", "fixed_grid"]

#: Whose timing and level are put to the test, where the studies have them.
PLAYED = ("aes", "aes_r", "aes_r+window")
KINDS = ("constant_at_mean", "permuted")


def fixed_grid(description: str | None, argv: Sequence[str] | None = None) -> int:
    """The best constant weight in hindsight under every pattern; returns the exit code."""
    return guarded(lambda: _fixed_grid(description, argv))


def _fixed_grid(description: str | None, argv: Sequence[str] | None) -> int:
    options, rest = parsed(description, argv)
    studies = named_studies(options, "fixed_grid")
    with refusing():
        code = train(options, studies, rest)
        if code not in (DONE, DIVERGED):
            return code
        folders = [options.out / study.name for study in studies]
        look, constants = look_of(folders)
        lacking = _lacking(gather(folders), list(dict.fromkeys(study.task for study in studies)))
        table = hindsight_table(look, constants)
        show(options.out, "fixed_grid", "Constant weights", [table], lacking, folders)
    return code


def _lacking(evidence: Evidence, tasks: Sequence[str]) -> str:
    places = expected((STEADY, *PATTERNS), CARRIERS, tasks)
    return missing(places, atoms(evidence, best_constant, nothing, "mean_return", places))


def controls(description: str | None, argv: Sequence[str] | None = None) -> int:
    """The methods of the main table beside controls that play their own record; returns the exit code."""
    return guarded(lambda: _controls(description, argv))


def _controls(description: str | None, argv: Sequence[str] | None) -> int:
    from experiments.analysis.questions import answer, markdown, plain

    options, rest = parsed(description, argv)
    methods = main_studies(options, ("toy",))
    with refusing():
        code = train(options, methods, rest)
        if code not in (DONE, DIVERGED):
            return code
        played = [_played(options, study) for study in methods]
        code = max(code, train(options, played, rest))
        if code not in (DONE, DIVERGED):
            return code
        command = [shlex.join(["python", "experiments/controls.py", "--out", "DIR", "--preset", options.preset, *rest])]
        for study, control in zip(methods, played, strict=True):
            pair = [options.out / study.name, options.out / control.name]
            for carrier in study.carriers:
                found = answer(pair, carrier)
                place = options.out / f"controls-{study.task}-{carrier}.md"
                store.write_text(place, markdown(found, command))
                store.write_json(place.with_suffix(".json"), plain(found, command))
                print(f"{markdown(found, command)}\nanswers: {place}")
    return code


def _played(options: Options, study: Study) -> Study:
    """The controls of a finished study's methods, of the same size."""
    words = list(study.words)
    there = words[words.index("--schedules") + 1].split(",")
    entries = ",".join(f"{kind}:of={of}" for kind in KINDS for of in PLAYED if of in there)
    words[words.index("--schedules") + 1] = entries
    record = options.out / study.name
    return study._replace(name=f"controls/{record.name}", words=(*words, "--controls-from", str(record)))

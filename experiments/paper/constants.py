"""Constant weights and controls: what a schedule has to beat."""

from dataclasses import replace

from experiments.measure.study import STEADY
from experiments.paper.evidence import CARRIERS, PATTERNS, gather
from experiments.paper.measured import NOTHING, Side, atoms, expected, missing
from experiments.paper.printing import look_of, show
from experiments.paper.studies import (
    COMBINED,
    Made,
    Options,
    PaperTable,
    Part,
    main_studies,
    named_studies,
    split_studies,
)
from experiments.report.tables import hindsight_table, paired_table, table_of
from experiments.study.method import Control, Method
from experiments.study.text import parse_method

#: Whose timing and level are put to the test, where the studies have them.
_PLAYED = ("aes", "aes_r", COMBINED)
_KINDS = ("constant_at_mean", "permuted")


def _show_grid(made: Made) -> None:
    look = look_of(made.folders)
    places = expected((STEADY, *PATTERNS), CARRIERS, {part.study.task for part in made.parts})
    lacking = missing(places, atoms(gather(made.folders), Side(hindsight=True), NOTHING, "mean_return", places))
    show(made.options.out, "fixed_grid", "Constant weights", [hindsight_table(look)], lacking, made.folders)


def _show_controls(made: Made) -> None:
    look = look_of(made.folders)
    tables = [paired_table(look), table_of(look, "main")]
    show(made.options.out, made.name, "Schedules compared with their controls", tables, "", made.folders)


def _played(options: Options, part: Part) -> Part:
    """The controls of a finished study's methods, of the same size."""
    record, of = options.out / part.name, [parse_method(text, "sac") for text in _PLAYED]
    methods = [
        Method(method.carrier, control=Control(kind, method))
        for method in part.study.methods
        for kind in _KINDS
        if any(replace(method, carrier=each.carrier) == each for each in of)
    ]
    study = replace(part.study, methods=methods, controls_from=record)
    return part._replace(name=f"controls/{record.name}", study=study)


FIXED_GRID = PaperTable(
    "Constant weights: the best in hindsight", lambda options: named_studies(options, "fixed_grid"), _show_grid
)
CONTROLS = PaperTable(
    "Timing or level: schedules compared with their mean-matched and time-permuted controls",
    lambda options: main_studies(options, ("toy",)),
    _show_controls,
    _played,
)
RESPONSES = PaperTable(
    "Schedules and adaptations compared with constants and with their controls",
    lambda options: split_studies(options, "responses", "responses_ppo"),
    _show_controls,
    _played,
)

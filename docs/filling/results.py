"""Tables of the results: settings of the grid, claims of the paper, rivals of AES, robots that have learned."""

import json
import re
from functools import cache

import numpy as np

from experiments.measure import comparisons
from experiments.paper import early, helps, tables
from experiments.paper.evidence import CARRIERS, NAMES, having
from experiments.study.text import parse_method
from filling.cells import starred
from filling.records import PATTERNS, ROOT, audited, compared, every_run, grid, measured, runs_of, stored
from filling.registry import table


@table
def weight() -> str:
    """Mean weight of AES, share of updates at the upper clip, and rise after a change."""
    body = []
    for carrier in CARRIERS:
        own = runs_of(f"grid/A-toy-100000-{NAMES[carrier]}", "toy")
        own = own.filter(having(own, parse_method("aes", NAMES[carrier]).__eq__), pattern="abrupt")
        shares = (100 * own[name].mean() for name in ("saturation_max", "responsiveness"))
        body.append([carrier, f"{own['mean_entropy_weight'].mean():.2f}", *(f"{share:.1f}" for share in shares)])
    return tables.markdown(
        ["`aes`, abrupt drift", "mean weight", "at the upper clip, %", "rise after a change, %"], body
    )


@table
def paper_tables() -> str:
    """The paper's two main tables, ours beside the paper's."""
    return tables.paper_tables(every_run())


@table
def appendix() -> str:
    """The paper's tables of Appendix B, ours beside the paper's."""
    return tables.appendix_tables(every_run())


@table
def audit() -> str:
    """Each task family alone, as the audit judges it."""
    from experiments.paper.audit import FAMILIES, families

    return tables.markdown(FAMILIES, families(audited()))


def _claims(verdict: str) -> list[list[str]]:
    """Claims with a verdict as the audit prints them, without their families: cells by column."""
    from experiments.paper.audit import tables as of_the_audit

    _, found, _ = of_the_audit(audited())
    cells = ([cell.text for cell in row] for row in found.rows if not row[0].text.startswith("·"))
    return [row for row in cells if row[1].startswith(verdict)]


def _settled(verdict: str) -> str:
    """A row per claim; the reason without the settings that do not count."""
    body = []
    for claim, _, paper, ours, counts, _, why in _claims(verdict):
        body.append([claim, paper, ours, counts, re.split("; (?:judged|settings)", why)[0]])
    return tables.markdown(["claim", "paper", "ours", "settings + / − / ?", "why"], body)


@table
def claims_reproduced() -> str:
    """Claims that are reproduced."""
    return _settled("reproduced")


@table
def claims_contradicted() -> str:
    """Claims that are contradicted."""
    return _settled("contradicted")


#: What would decide a claim, by the reason for which it is undecided; `horizon` states hours, `no data` says why.
_DECIDED_BY = {
    "power": "more seeds",
    "premise": "a task on which the part that is taken away matters",
    "lower level": "methods that return to an equal level",
}


@table
def claims_undecided() -> str:
    """Claims that are undecided, with what would decide them."""
    body = []
    for claim, verdict, paper, ours, counts, _, why in _claims("undecided"):
        reason = verdict.partition(": ")[2]
        hours = re.search(r"about ([\d,]+ h)", why)
        by = f"trained agents: {hours[1]}" if hours else _DECIDED_BY.get(reason, why)
        body.append([claim, paper, ours, counts, by])
    return tables.markdown(["claim", "paper", "ours", "settings + / − / ?", "would be decided by"], body)


@table
def trained() -> str:
    """The stored trained agents: their last returns, seeds 1 to 5."""
    body = []
    for task in ("halfcheetah", "hopper"):
        stored = json.loads((ROOT / "experiments" / "warm" / task / "warm.json").read_text())["carriers"]
        for carrier, own in stored.items():
            returns = ", ".join(f"{run['return_mean']:,.0f}" for run in own["runs"])
            link = f"[`{task}`](../experiments/warm/{task})"
            body.append([link, carrier.upper(), f"{own['runs'][0]['step']:,}", returns])
    return tables.markdown(["folder", "agent", "steps", "returns, seeds 1 to 5"], body)


@table
def rivals() -> str:
    """A section with the rivals of AES; nothing without part H."""
    return f"## Head to head\n\n{text}\n" if (text := helps.overview(compared())) else ""


@cache
def confirmed() -> dict[tuple[str, str, str], comparisons.Contrast]:
    """(label, pattern, metric) -> a method minus its alternative on the notebook's environment, after Holm over all."""
    found = measured("own_environment")
    one, constant = found["one"], found["constant"]
    tuned = {choice["method"]: one[choice["chosen"]] for choice in found["choices"]}
    sides = {
        "tuned constant (minus own weight)": (one[constant], one["SAC"]),
        "one gradient step per environment step (minus a quarter of one)": (one[constant], found["quarter"][constant]),
        "newer data `fixed+recent` (minus `fixed`)": (tuned["SAC+fixed+recent"], one[constant]),
        "`fixed+geometric` (minus `fixed`)": (tuned["SAC+fixed+geometric"], one[constant]),
        "`aes` (minus `fixed`)": (tuned["SAC+AES"], one[constant]),
    }
    differences = {
        (label, pattern, metric): np.subtract(ours[pattern][metric], theirs[pattern][metric])
        for label, (ours, theirs) in sides.items()
        for pattern in ("steady", "abrupt")
        for metric in helps.METRICS
    }
    return comparisons.contrasts(differences)


@table
def confirmation() -> str:
    """The recommendations on the notebook's environment."""

    def cell(label: str, pattern: str) -> str:
        return " / ".join(starred(confirmed()[label, pattern, metric]) for metric in helps.METRICS)

    labels = dict.fromkeys(label for label, _, _ in confirmed())
    body = [[label, cell(label, "steady"), cell(label, "abrupt")] for label in labels]
    return tables.markdown(["difference, evaluation / online", "no drift", "abrupt"], body)


@table
def rivals_by_task() -> str:
    """The rivals of AES with intervals, a table per task."""
    return helps.by_task(compared())


@table
def overview() -> str:
    """Outcomes of every task and carrier of the grid."""
    return tables.overview(grid())


@table
def by_metric() -> str:
    """Outcomes in the paper's metrics."""
    return tables.by_metric(stored().runs)


@table
def the_grid() -> str:
    """Differences of every task and carrier of the grid."""
    return "\n".join(map(tables.tables_of, grid()))


@table
def verdict() -> str:
    """The answer in words: outcomes of published and tuned AES, counted over tasks and patterns, by carrier."""
    return tables.verdict(grid())


@table
def aes() -> str:
    """Published AES minus its carrier on the toy task."""
    own = {each.methods[tables.BASELINE]: each.published for each in grid() if each.task == "toy"}
    body = [[c, *(starred(own[c][tables.BASELINE, pattern]) for pattern in PATTERNS)] for c in CARRIERS]
    return tables.markdown(["AES minus the agent alone, toy task", "no drift", *PATTERNS[1:]], body)


@table
def reached() -> str:
    """Returns of our agents on MuJoCo's robots beside public ones."""
    return tables.reached(stored().runs, stored().curves)


@table
def trained_robots() -> str:
    """Methods on robots that have learned, minus the tuned constant."""
    return tables.robots(tables.longest(grid()), tables.longest(grid("online_return")))


@table
def power() -> str:
    """Detectable differences of the contrasts of AES by task."""
    return tables.power(grid())


@table
def early_tuning() -> str:
    """AES minus a constant, both chosen on the beginning of runs."""
    return early.table(grid(), stored().curves)

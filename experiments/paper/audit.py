"""The audit as plain JSON, as tables, as a page in the report's style, and as one sentence."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from aesjax.registry import lookup
from experiments.measure.catalog import CATALOG
from experiments.measure.comparisons import BETTER, ENOUGH, UNDECIDED, WORSE
from experiments.paper.claims import CLAIMS, QUESTIONS
from experiments.paper.design import TASKS
from experiments.paper.evidence import FEWEST, Evidence, Measured
from experiments.paper.judge import (
    CODE,
    CONTRADICTED,
    RELEASED,
    REPRODUCED,
    VERDICTS,
    Finding,
    Part,
    judge,
    settings,
)
from experiments.paper.record import gather
from experiments.report.cells import NONE, Cell, Table, number
from experiments.report.page import Page

_READING = (
    "Arrows lead from the second method to the first, as the claim names them, followed by the paired difference with "
    "its 95 % interval over seeds. nAUC and DropRatio are floor-corrected, with the raw difference in the next column; "
    "recovery is the raw time in % of training, followed by the robust difference and the difference that the "
    "noise floor alone makes; settings of other records come last. Settings are significant at 5 % after Holm's "
    "correction."
)
_LIMITS = (
    "A setting counts where its agent learned, the weight of AES moves, the evaluations are dense enough, drift costs "
    "something to repair, and the claim's premise holds. A claim about all families needs settings of at least half "
    "of its pairs of task and carrier. Claims of the paper's Appendix B and about the movement of the weight, and "
    "families alone, are judged on the runs that exist.",
    "Contradicted: the interval is on the other side of zero, or excludes the paper's difference, rounding included. "
    "Undecided: neither.",
    f"{CODE.capitalize()} exists for "
    + "; ".join(f"{family}: {', '.join(carriers)}" for family, carriers in RELEASED.items())
    + ".",
    f"A setting needs {FEWEST} pairs of runs with equal seeds. Fewer than {ENOUGH} settle nothing.",
    "The paper states neither the horizon nor the spread over seeds: directions are compared, not digits.",
    "A claim is judged on the runs of one record. Runs are pooled only within equal task, preset, horizon, sizes and "
    "settings; of several such groups the fullest counts, then the longest.",
    "Verdicts are not corrected for the number of claims; within a claim its settings are.",
)
_SETTINGS = (
    "Better: on the claimed side, after Holm's correction over the settings that count. Other settings have the reason "
    "why they do not count."
)
_KINDS = {REPRODUCED: "better", BETTER: "better", CONTRADICTED: "worse", WORSE: "worse"}
FAMILIES = ["family", "tasks with results", "seeds", *VERDICTS]
_HEADER = ["claim", "verdict", "paper", "ours", "settings + / − / ?", "pairs", "why"]


def audit(places: Sequence[Path], key: str | None = None) -> dict[str, Any]:
    """Judge every claim by the runs of records and studies: sentence, claims, questions and evidence as plain JSON.

    Args:
      key: of the only claim or question to judge, such as "B1", which then also has its ``settings``.

    Raises:
      UnknownNameError: unknown key.
      ValueError: as in `experiments.paper.record.gather`.
    """
    by_key = {claim.key: claim for claim in (*CLAIMS, *QUESTIONS)}
    chosen = by_key if key is None else {key: lookup("claim", by_key, key)}
    evidence = Evidence(gather(places))
    judged = [[_finding(judge(claim, evidence)) for claim in of if claim.key in chosen] for of in (CLAIMS, QUESTIONS)]
    claims, questions = judged
    if key is not None:
        (claims or questions)[0]["settings"] = settings(chosen[key], evidence)
    data = {"audited": [place.as_posix() for place in places], "claims": claims, "questions": questions}
    data["evidence"] = [_rests_on(runs) for runs in evidence.groups()]
    return {"sentence": sentence(data), **data}


def _finding(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    head = {"key": claim.key, "section": claim.section, "claim": claim.text, "paper": claim.paper}
    whole, *families = (_plain(part) for part in (finding.whole, *finding.families))
    released = _plain(finding.released) if finding.released else None
    return {**head, "metric": claim.metric, **whole, "families": families, "released": released}


def _plain(part: Part) -> dict[str, Any]:
    out: dict[str, Any] = {"scope": part.scope, "verdict": part.verdict, "reason": part.reason, "why": part.why}
    out["left_out"] = dict(part.left_out)
    if part.measured is not None:
        out |= _numbers(part.measured)
        out["beside"] = {label: _numbers(other) for label, other in part.beside}
    return out


def _numbers(m: Measured) -> dict[str, Any]:
    """Six digits: what else there is differs between machines."""

    def short(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.6g}")

    return {
        "difference": short(m.value),
        "interval": [short(m.low), short(m.high)],
        "second": short(m.levels[0]),
        "first": short(m.levels[1]),
        "better": m.better,
        "worse": m.worse,
        "undecided": m.undecided,
        "no_data": m.no_data,
        "within_margin": m.within,
        "pairs": m.fewest,
    }


def _rests_on(runs: pl.DataFrame) -> dict[str, Any]:
    """The runs of a group in short."""
    lists = {f"{name}s": runs[name].unique(maintain_order=True).to_list() for name in ("method", "pattern")}
    return {
        **runs.select("task", "preset", "steps", "trained").row(0, named=True),
        **lists,
        "seeds": sorted(runs["seed"].unique()),
        "runs": runs.height,
        "broken": int((runs["status"] != "finished").sum()),
        "studies": runs["study"].unique(maintain_order=True).to_list(),
    }


def sentence(data: dict[str, Any]) -> str:
    """How many of the claims have which verdict, and the reasons of undecided ones; of a single claim why."""
    if "settings" in (finding := (data["claims"] + data["questions"])[0]):
        return "{key}, {claim}: {verdict}; {why}.".format(**finding)
    verdicts = Counter(claim["verdict"] for claim in data["claims"])
    reasons = Counter(claim["reason"] for claim in data["claims"] if claim["verdict"] == UNDECIDED)
    counts = ", ".join(f"{verdicts[kind]} are {kind}" for kind in VERDICTS)
    why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return (
        f"Of the paper's {verdicts.total()} quantitative claims {counts} at the scale of the runs in "
        f"{' and '.join(data['audited'])}" + (f" ({why})." if why else ".")
    )


def families(data: dict[str, Any]) -> list[list[str]]:
    """A row per task family, from the plain record: name, tasks with results, seeds, claims by verdict.

    A family alone is judged on its results, whatever other tasks a claim names. The last row has the tasks and carriers
    of the authors' code.
    """
    out, every = [], [task for tasks in TASKS.values() for task in tasks]
    for family, tasks in [*TASKS.items(), (CODE, every)]:
        groups = [group for group in data["evidence"] if group["task"] in tasks]
        seeds = [len(group["seeds"]) for group in groups]
        parts = [part for claim in data["claims"] for part in [*claim["families"], claim["released"]] if part]
        verdicts = [part["verdict"] for part in parts if part["scope"].partition(" (")[0] == family]
        ran = f"{len({group['task'] for group in groups})} of {len(tasks)}"
        counts = [f"{verdicts.count(kind)} of {len(verdicts)}" for kind in VERDICTS]
        spread = NONE if not seeds else str(seeds[0]) if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"
        out.append([family, ran, spread, *counts])
    return out


def tables(data: dict[str, Any]) -> list[Table]:
    """The families, the claims by section, and the project's own questions; of a single claim its settings."""
    if "settings" in (finding := (data["claims"] + data["questions"])[0]):
        return [_settings(finding)]
    claims = Table("claims", "The paper's claims", _READING, _HEADER)
    for finding in data["claims"]:
        _add(claims, finding["section"], finding, f"{finding['key']} {finding['claim']}")
    ours = Table(
        "ours",
        "Further questions",
        "Mean floor-corrected nAUC under the drifting patterns, or recovery after abrupt changes; better or worse "
        "where the interval of the pooled difference leaves zero out. The best constant is chosen on the very runs it "
        "is compared on, so it looks a little better than it is.",
        _HEADER,
    )
    for finding in data["questions"]:
        method = finding["claim"].split()[1]
        _add(ours, method, finding, finding["claim"].replace(method, "it", 1))
    return [_by_family(data), claims, ours]


def summary(data: dict[str, Any]) -> list[Table]:
    """The families, and the claims and questions by verdict and reason."""
    by_verdict = Table(
        "verdicts",
        "Claims by verdict",
        "--claim KEY prints one with its settings, --out FILE.html writes all.",
        ["verdict", "", "keys"],
        labels=4,
    )
    for title in ("claims", "questions"):
        keys: dict[str, list[str]] = {}
        for finding in sorted(data[title], key=_verdict):
            keys.setdefault(_verdict(finding), []).append(finding["key"])
        rows = [[Cell(verdict), Cell(str(len(of))), Cell(", ".join(of))] for verdict, of in keys.items()]
        by_verdict.groups.append((title, rows))
    return [_by_family(data), by_verdict]


def _by_family(data: dict[str, Any]) -> Table:
    reading = "Claims judged on the results of one family, whatever other tasks they name."
    rows = [[Cell(cell) for cell in row] for row in families(data)]
    return Table("families", "Each task family alone", reading, FAMILIES, [("", rows)])


def _verdict(part: dict[str, Any]) -> str:
    return part["verdict"] + (f": {part['reason']}" if part["reason"] else "")


def _settings(finding: dict[str, Any]) -> Table:
    scale, places = _printed(finding["metric"])
    names, rows = ["task", "carrier", "pattern"], []
    for setting in finding["settings"]:
        outcome = setting.get("outcome", "")
        cells = [Cell(outcome or setting["reason"], kind=_KINDS.get(outcome, "muted")), Cell(NONE), Cell(NONE)]
        if outcome:
            levels = " → ".join(number(setting[side] * scale, places) for side in ("second", "first"))
            cells[1:] = Cell(levels), Cell(_signed(setting, scale, places))
        rows.append([*(Cell(setting[name]) for name in names), *cells])
    header, title = [*names, "outcome", "second → first", "difference"], f"Settings of claim {finding['key']}"
    return Table("settings", title, _SETTINGS, header, [("", rows)], labels=4)


def _printed(metric: str) -> tuple[float, int]:
    """Factor and digits of a printed metric."""
    row = CATALOG.get(metric)
    return (100.0, row.digits) if row and row.percent else (1.0, 2)


def _add(table: Table, group: str, finding: dict[str, Any], text: str) -> None:
    parts, metric = finding["families"], finding["metric"]
    scope = "" if finding["scope"] == "all" else f", on {finding['scope']}"
    rows = [_row(f"{text}{scope}", finding["paper"], finding, metric)]
    alone = len(parts) == 1 and finding["verdict"] == parts[0]["verdict"]
    rows += [_row(f"· {part['scope']}", "", part, metric) for part in parts if not alone]
    rows += [_row(f"· {CODE}", "", part, metric)] if (part := finding["released"]) else []
    if table.groups and table.groups[-1][0] == group:
        table.groups[-1][1].extend(rows)
    else:
        table.groups.append((group, rows))


def _row(name: str, paper: str, part: dict[str, Any], metric: str) -> list[Cell]:
    verdict = Cell(_verdict(part), kind=_KINDS.get(part["verdict"], "muted"))
    head = [Cell(name), verdict, Cell(paper, kind="paper")]
    if "difference" not in part:
        return [*head, *(Cell(NONE, kind="muted"),) * 3, Cell(part["why"])]
    scale, places = _printed(metric)
    first = " → ".join(number(part[side] * scale, places) for side in ("second", "first"))
    rest = [f"{label} {_signed(other, scale, places)}".strip() for label, other in {"": part, **part["beside"]}.items()]
    cells = Cell(" / ".join(str(part[outcome]) for outcome in ("better", "worse", "undecided")))
    return [*head, Cell(first, "; ".join(rest)), cells, Cell(str(part["pairs"]), kind="muted"), Cell(part["why"])]


def _signed(m: dict[str, Any], scale: float, places: int) -> str:
    """A difference with its sign and its interval, if there is one."""
    value, ends = number(m["difference"] * scale, places), m["interval"]
    text = value if value.startswith("-") or value == NONE else f"+{value}"
    return text if None in ends else f"{text} [{', '.join(number(end * scale, places) for end in ends)}]"


def _size(group: dict[str, Any]) -> str:
    """How much there is of a group, and where."""
    steps = f"{group['steps']:,}".replace(",", " ")
    broken = f", {group['broken']} of them broken" if group["broken"] else ""
    counts = f"{steps} steps, {len(group['seeds'])} seeds, {group['runs']} runs{broken}"
    return f"{counts}: {'; '.join(group['studies'])}"


def page(data: dict[str, Any]) -> Page:
    """The audit as a page of the report."""
    verdicts = [finding["verdict"] for finding in data["claims"]]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in VERDICTS)
    facts = [
        (f"{group['task']}, {group['preset']}" + (", trained agents" if group["trained"] else ""), _size(group))
        for group in data["evidence"]
    ]
    return Page(
        title="The claim audit",
        subtitle=f"Results in {', '.join(data['audited'])}",
        status=f"{len(verdicts)} claims: {counts}",
        conclusion=data["sentence"],
        tables=tables(data),
        facts=facts,
        limits=_LIMITS,
        footer="Every number can be computed again with `aesjax audit` from the folders named above.",
    )

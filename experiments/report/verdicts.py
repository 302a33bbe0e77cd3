"""Outcomes of a study: per method and opponent under every pattern, after Holm's correction."""

import math
from typing import Any, NamedTuple

from experiments.measure.catalog import FALLBACK, MAIN, SENTENCE, Metric
from experiments.measure.comparisons import DECIDED, DETECTABLE, EQUAL, OUTCOMES, UNDECIDED, outcome_of
from experiments.measure.stats import Interval
from experiments.report.cells import NONE, Lookup, marked, number

SIGNS: dict[str, str] = dict(zip(OUTCOMES, "▲▼≈=○·", strict=True))


class Compared(NamedTuple):
    """A method against its opponent in one metric under one pattern."""

    pattern: str
    row: dict[str, Any]  # of the mean difference, in the tidy frame
    p: float  # after Holm; NaN if not tested
    outcome: str  # one of `OUTCOMES`
    opponent: str  # the method
    value: float  # mean difference
    pairs: int  # of runs
    runs: int  # of the method, paired or not
    ends: tuple[float, float] | None  # 95 % interval of the mean difference; None for one pair
    detectable: float  # smallest difference that is detected with probability 0.8; NaN for one pair
    gain: float  # of the agent without drift; NaN in other units, or unless clearly positive

    @property
    def sentence(self) -> str:
        """The comparison in one sentence."""
        interval = f", 95 % interval {_exact(self.ends[0])} to {_exact(self.ends[1])}" if self.ends else ""
        p = "not tested" if math.isnan(self.p) else "p < 0.001" if self.p < 0.001 else f"p = {number(self.p, 3)}"
        count = f"{self.pairs} of {self.runs} runs paired" if self.pairs < self.runs else f"{self.pairs} pairs"
        head = f"{self.pattern}, against {self.opponent}: {self.outcome}"
        power = "" if math.isnan(self.detectable) else f"; detectable {_exact(self.detectable)}"
        power += "" if math.isnan(self.gain) else f" ({number(100 * self.detectable / self.gain, 1)} % of the gain)"
        return f"{head}, {_exact(self.value)}{interval}; {p} after Holm; {count}{power}"


def _exact(value: float) -> str:
    """Three decimals, or two digits of a value that would be printed as zero."""
    return f"{value:.2g}" if 0.0 < abs(value) < 0.0005 else number(value, 3)


class Verdict(NamedTuple):
    """One method against one opponent in one metric."""

    method: str
    against: str  # the carrier's baseline by name, or "best constant", "constant at mean", "permuted", "playback"
    metric: str  # as in the tidy frame
    title: str  # of the metric
    patterns: dict[str, tuple[str, ...]]  # outcome -> patterns
    n: int  # smallest number of pairs of the comparisons

    @property
    def significant(self) -> bool:
        """Whether the method is better or worse under any pattern."""
        return any(self.patterns[outcome] for outcome in DECIDED)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        parts = [f"{outcome} on {', '.join(names)}" for outcome, names in self.patterns.items() if names]
        count = f"{self.n} pair{'s' if self.n > 1 else ''} of runs"
        head = f"{self.method} against {self.against}, {self.title}"
        return f"{head}: {'; '.join(parts)} ({count}, after Holm)"


def verdicts(look: Lookup) -> list[Verdict]:
    """Verdicts in the order of the study's methods, against the baseline first, the main metric first.

    A Holm family is one metric and kind of opponent over all methods and patterns of the study; constants and controls
    are a separate family. Families of tasks are not pooled; with several families a pattern has its family's name.
    """
    main = next((name for name in look.verdict(MAIN, FALLBACK) if has_verdicts(look, name)), None)
    if main is None:
        return []
    judged = {key[2] for key in look.cells if key[4].startswith("paired:")}
    # Constants and controls have verdicts only if the study has no other methods.
    methods = [m for m in look.methods if m in judged and m not in look.asides] or look.methods
    requested = []
    for name in (main, *look.verdict(SENTENCE)):
        metric = look.metric(name)
        requested += [(metric, kind) for kind in ("", *(look.opponents if metric.versus else ()))]
    reached = (_verdict(look, method, metric, kind) for method in methods for metric, kind in requested)
    return [verdict for verdict in reached if verdict is not None]


def compared(look: Lookup, scope: tuple, method: str, pattern: str, metric: str, kind: str) -> Compared | None:
    """Comparison with an opponent of a kind (empty: the baseline); None if there is none."""
    suffix = f":vs={kind}" if kind else ""
    kinds = ("paired", "p_holm", DETECTABLE, "gain")
    rows = {of: look.get(scope, method, pattern, f"{of}:{metric}{suffix}") for of in kinds}
    row, power = rows["paired"], rows[DETECTABLE]
    if row is None or not math.isfinite(row["value"]):
        return None
    p, detectable, gain = (other["value"] if other else math.nan for other in map(rows.get, kinds[1:]))
    value, pairs, seeds = row["value"], row["n_valid"], power["n_valid"] if power else 0
    opponent = next((part[9:] for part in row["flag"].split(";") if part.startswith("baseline=")), NONE)
    ends = None if pairs < 2 or row["low"] is None else (row["low"], row["high"])
    interval = Interval(value, *(ends or (math.nan, math.nan)))
    about = {"equal": EQUAL in row["flag"].split(";"), "lower_is_better": look.metric(metric).lower_is_better}
    outcome = UNDECIDED if marked(row) else outcome_of(interval, p, seeds, gain=gain, **about)
    return Compared(pattern, row, p, outcome, opponent, value, pairs, row["n_total"], ends, detectable, gain)


def has_verdicts(look: Lookup, metric: str) -> bool:
    """Whether methods are compared with their baselines in a metric, without marked ratios."""
    known = any(m == f"paired:{metric}" and math.isfinite(r["value"]) for (*_, m), r in look.cells.items())
    return known and not look.is_marked(metric)


def _verdict(look: Lookup, method: str, metric: Metric, kind: str) -> Verdict | None:
    """Verdict of one method; None without comparisons."""
    groups: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    pairs, against = [], kind.replace("_", " ")
    for family in look.tasks:
        for pattern in look.patterns:
            found = compared(look, (family, None), method, pattern, metric.name, kind)
            if found is not None and not marked(found.row):
                groups[found.outcome].append(pattern if len(look.tasks) == 1 else f"{family} {pattern}")
                pairs.append(found.pairs)
                against = against or found.opponent
    if not pairs:
        return None
    patterns = {outcome: tuple(names) for outcome, names in groups.items()}
    return Verdict(method, against, metric.name, metric.title, patterns, min(pairs))

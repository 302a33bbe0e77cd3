"""The tuned constant and kappa chosen on the beginning of some seeds, compared on the rest of the run of others."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from experiments.measure.comparisons import Contrast, contrasts
from experiments.paper.record import RUN, methods_of
from experiments.paper.tables import BASELINE, CHOOSING, REPORTING, Setting, acted, counted, kappa_of, longest, markdown
from experiments.study.text import number

#: Shares of a run on which the constant and kappa are chosen; the last is tuning on complete runs.
SHARES = (0.05, 0.1, 0.2, 1.0)


class Early(NamedTuple):
    """Kappa and a constant, chosen on the beginning of seeds 1 to 5."""

    kappa: float
    weight: float  # of the constant
    contrasts: dict[str, Contrast]  # pattern -> AES minus the constant on the rest of seeds 6 to 10; Holm over patterns
    costs: list[float]  # mean return there, over patterns, that AES and the constant chosen on complete runs have more


def parts(curves: pl.DataFrame, split: float) -> pl.DataFrame:
    """Mean return of every run before and after a step: columns ``early`` and ``late``, by the trapezoid rule.

    Args:
      curves: a row per run and evaluation.
      split: environment step; 1 and later for complete runs in both columns if it is the last evaluation.
    """
    step, value = pl.col("step").cast(pl.Float64), pl.col("return_mean").cast(pl.Float64)
    length = (step - step.shift()).over(RUN)
    rows = curves.sort(*RUN, "step").with_columns(length=length, area=length * ((value + value.shift()) / 2).over(RUN))
    rows = rows.drop_nulls("length")
    complete = split >= rows["step"].to_numpy().max()

    def mean(part: pl.Expr) -> pl.Expr:
        return pl.col("area").filter(part).sum() / pl.col("length").filter(part).sum()

    early = pl.col("step") <= split
    return rows.group_by(RUN).agg(early=mean(early), late=mean(early if complete else ~early))


def early(setting: Setting, curves: pl.DataFrame, share: float) -> Early:
    """Choose by the mean over patterns of the first ``share`` of seeds 1 to 5, and compare on the rest of 6 to 10."""
    means = parts(curves.join(setting.runs.select(RUN), on=RUN, how="semi"), share * setting.steps)
    definitions, logs = methods_of(setting.runs), acted(setting.runs)
    weights = {name: np.mean([logs[place].weight for place in logs if place[0] == name]) for name in definitions}

    def best(score: pl.Expr) -> tuple[str, str]:
        """AES and the constant with the highest score."""
        first = (
            means.filter(pl.col("seed").is_in(list(CHOOSING)))
            .group_by("method")
            .agg(score=score.mean().fill_nan(-np.inf))
        )
        ranked = first.sort("score", "method", descending=True)["method"].to_list()
        constants = [name for name in ranked if definitions[name].follows("fixed") and weights[name] > 0.0]
        return next(name for name in ranked if definitions[name].follows("aes")), constants[0]

    late = means.filter(pl.col("seed").is_in(list(REPORTING))).sort("seed")
    rule, constant = best(pl.col("early"))
    rows = late.select("method", "pattern", "seed", "late").iter_rows()
    values = {(method, pattern, seed): value for method, pattern, seed, value in rows}

    def difference(pattern: str) -> np.ndarray:
        """(n,) at equal seeds; NaN where a run is missing."""
        ours, theirs = ([values.get((name, pattern, s), np.nan) for s in REPORTING] for name in (rule, constant))
        return np.subtract(ours, theirs)

    differences = {pattern: difference(pattern) for pattern in setting.patterns}
    equal = [pattern for pattern in differences if logs[rule, pattern].equals(logs[constant, pattern])]
    level = dict(late.group_by("method").agg(pl.col("late").mean()).iter_rows())
    complete = best(share * pl.col("early") + (1 - share) * pl.col("late"))
    costs = [level[full] - level[name] for full, name in zip(complete, (rule, constant), strict=True)]
    compared = contrasts(differences, gain=setting.gain, equal=equal)
    return Early(kappa_of(definitions[rule]), float(weights[constant]), compared, costs)


def judged(found: Sequence[Setting]) -> list[Setting]:
    """Settings whose numbers are chosen on seeds 1 to 5, of agents with a clear gain."""
    return [setting for setting in longest(found) if setting.tuned and not setting.tuned_before and setting.gain > 0]


def table(found: Sequence[Setting], curves: pl.DataFrame) -> str:
    """Differences of AES from a constant by the share of the run on which both were chosen, and what this costs."""
    body, choices = [], []
    for setting in judged(found):
        line, chosen = ([f"`{setting.task}` {setting.methods[BASELINE]}"] for _ in range(2))
        for result in (early(setting, curves, share) for share in SHARES):
            values = [each.interval.value for each in result.contrasts.values()]
            outcomes = counted([each.outcome for each in result.contrasts.values()])
            line.append(f"{min(values):+,.1f} to {max(values):+,.1f}; {outcomes}")
            ours, theirs = (f"{cost:.1f}".replace("-0.0", "0.0") for cost in result.costs)
            chosen.append(f"{number(result.kappa)} ({ours}), {result.weight:.2g} ({theirs})")
        body.append(line)
        choices.append(chosen)
    head = [f"first {100 * share:.0f} %" for share in SHARES[:-1]] + ["complete runs"]
    tables = markdown(["AES minus constant", *head], body), markdown(["kappa (cost), constant (cost)", *head], choices)
    return "\n".join(tables)

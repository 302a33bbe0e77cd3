"""Which settings of a claim count: a comparison is evidence only where the claim's effect could have shown."""

import polars as pl

from experiments.measure.comparisons import NO_DATA
from experiments.measure.metrics import clearly_positive
from experiments.measure.runs import can_respond
from experiments.paper.claims import Claim
from experiments.paper.evidence import CELL, Evidence, Place
from experiments.study.config import StudyConfig

#: Reasons why a setting does not count, of which the first that applies is reported.
HORIZON = "horizon"  # the carrier had not learned before the first change
PINNED = "pinned"  # the weight of AES is at a clip, so that a constant is compared
SPARSE = "evaluations"  # too few of them for the effect
NO_LOSS = "no loss"  # drift costs the second method nothing, so that nothing can be repaired
LOWER = "lower level"  # the method that should recover faster returns to a clearly lower level
PREMISE = "premise"  # the claim's own does not hold
POWER = "power"  # of a claim whose settings count: neither reproduced nor contradicted
#: Effect on recovery that has to be resolved where a claim has no number: the paper's mean over all tasks.
_RECOVERY = 0.0527


def counted(
    claim: Claim, evidence: Evidence, compared: pl.DataFrame, places: set[Place]
) -> tuple[pl.DataFrame, dict[Place, str]]:
    """The methods of the settings that count, and the reasons why the others do not.

    Args:
      compared: the methods of both sides in one record, as `Evidence.compared`.
      places: settings of the claim; one without runs has no data.

    Returns:
      Some rows of ``compared``, of one group of runs for every task and carrier; setting -> reason, empty if it counts.
    """
    compared = evidence.fullest(compared, claim.metric)
    cells = {(task, carrier, pattern): rank for task, carrier, pattern, rank in compared.select(CELL).iter_rows()}
    idle = set(evidence.idle.select("rank", "carrier").iter_rows())
    values = evidence.values(compared, claim.metric)
    failing = {
        HORIZON: {place for place, rank in cells.items() if (rank, place[1]) in idle},
        PINNED: evidence.pinned(compared),
        SPARSE: {place for place, rank in cells.items() if _is_sparse(claim, evidence.configs[rank, place[1]])},
        NO_DATA: cells.keys() - set(values.select(CELL[:3]).iter_rows()),
    }
    if "drop_run" in claim.metric:
        drops = evidence.values(compared, "drop_run_safe")
        failing[NO_LOSS] = cells.keys() - _clear(drops, pl.col("second"))
    if claim.metric.startswith("recovery"):
        floors = evidence.values(compared, "recovery_null").select(*CELL, "seed", floor=pl.col("second"))
        both = evidence.values(compared, "recovery").join(floors, on=[*CELL, "seed"])
        failing[NO_LOSS] = cells.keys() - _clear(both, pl.col("second") - pl.col("floor"))
        failing[LOWER] = _clear(evidence.values(compared, "mean_return"), claim.sign * pl.col("difference"))
    if claim.premise:
        premise = evidence.values(compared, claim.premise.metric)
        failing[PREMISE] = cells.keys() - _clear(premise, claim.premise.sign * pl.col("difference"))
    reasons = {place: next((reason for reason, those in failing.items() if place in those), "") for place in cells}
    counts = [place for place, reason in reasons.items() if not reason]
    rows = pl.DataFrame(counts, CELL[:3], orient="row", schema_overrides=dict.fromkeys(CELL[:3], pl.String))
    return compared.join(rows, on=CELL[:3], how="semi"), dict.fromkeys(places, NO_DATA) | reasons


def _clear(rows: pl.DataFrame, difference: pl.Expr) -> set[Place]:
    """Settings in which a difference is clearly positive over the seeds."""
    cells = rows.group_by(CELL[:3]).agg(difference.alias("difference"))
    return {(task, carrier, pattern) for task, carrier, pattern, d in cells.iter_rows() if clearly_positive(d)}


def _is_sparse(claim: Claim, config: StudyConfig) -> bool:
    """Whether evaluations are further apart than the effect of one change, or too far for a response of the weight."""
    if claim.metric == "responsiveness":
        return not can_respond(config.evaluations)
    effect = abs(_RECOVERY if claim.effect is None else claim.effect)
    return claim.metric.startswith("recovery") and config.segments - 1 > effect * config.evaluations

"""From return curves to the metrics, intervals and comparisons of a study."""

from experiments.measure.curves import (
    Curve,
    IncompleteRunError,
    Metric,
    auc,
    change_steps,
    final_return,
    later_return,
    mean_return,
)
from experiments.measure.metrics import drop_family, drop_run, drop_task, nauc_family, nauc_task
from experiments.measure.patterns import STEADY, PatternFacts, describe
from experiments.measure.recovery import (
    companions,
    expected_null_wait,
    null_recovery,
    recovery,
    recovery_robust,
    recovery_vs_steady,
)
from experiments.measure.stats import (
    Interval,
    bootstrap_interval,
    holm,
    iqm,
    paired_differences,
    paired_probability_of_improvement,
    probability_of_improvement,
    probability_of_improvement_interval,
    t_interval,
)
from experiments.measure.summary import summarise
from experiments.measure.tables import paper_table, round_half_up
from experiments.measure.weights import responsiveness, saturation

__all__ = [
    "STEADY",
    "Curve",
    "IncompleteRunError",
    "Interval",
    "Metric",
    "PatternFacts",
    "auc",
    "bootstrap_interval",
    "change_steps",
    "companions",
    "describe",
    "drop_family",
    "drop_run",
    "drop_task",
    "expected_null_wait",
    "final_return",
    "holm",
    "iqm",
    "later_return",
    "mean_return",
    "nauc_family",
    "nauc_task",
    "null_recovery",
    "paired_differences",
    "paired_probability_of_improvement",
    "paper_table",
    "probability_of_improvement",
    "probability_of_improvement_interval",
    "recovery",
    "recovery_robust",
    "recovery_vs_steady",
    "responsiveness",
    "round_half_up",
    "saturation",
    "summarise",
    "t_interval",
]

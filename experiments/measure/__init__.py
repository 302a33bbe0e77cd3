"""Metrics, intervals and comparisons of a study from its return curves."""

from experiments.measure.stats import holm, paired_differences, t_interval
from experiments.measure.summary import summarise
from experiments.measure.tables import paper_table, round_half_up

__all__ = ["holm", "paired_differences", "paper_table", "round_half_up", "summarise", "t_interval"]

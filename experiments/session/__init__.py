"""A study as an object: describe it, train it, look at its results."""

from experiments.session.policy import Policy
from experiments.session.results import Results
from experiments.session.study import Study
from experiments.study.method import Control, Method

__all__ = ["Control", "Method", "Policy", "Results", "Study"]

"""What a worker has imported before its first command, see `tests.campaign.worker`; nothing here starts JAX."""

import matplotlib.pyplot
import orbax.checkpoint
import polars

import aesjax.report
import experiments.analysis.calibration
import experiments.analysis.replay
import experiments.analysis.video
import experiments.cli
import experiments.study.export
import experiments.study.train

__all__ = ["aesjax", "experiments", "matplotlib", "orbax", "polars"]

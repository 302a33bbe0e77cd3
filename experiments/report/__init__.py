"""The report of a study: one page, its tables and figures as files, its metrics as Parquet."""

from experiments.report.write import write_report

__all__ = ["write_report"]

"""The report of a study: one page, tables and figures as files, and metrics as Parquet."""

from experiments.report.write import write_report

__all__ = ["write_report"]

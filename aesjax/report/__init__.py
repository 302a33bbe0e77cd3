"""The report of a study: one page, its tables in Markdown, its metrics as Parquet, its figures."""

from aesjax.report.write import write_report

__all__ = ["write_report"]

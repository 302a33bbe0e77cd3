"""Tables and sentences of README and pages, made from stored records and from the registries.

`docs/fill_pages.py` writes a table between `<!-- table: NAME -->` and `<!-- /table -->`, and sentences between
`<!-- text: NAME -->` and `<!-- /text -->`.
"""

from filling import benchmarks, definitions, differences, durations, results, sentences
from filling.registry import TABLES, TEXTS

__all__ = ["TABLES", "TEXTS", "benchmarks", "definitions", "differences", "durations", "results", "sentences"]

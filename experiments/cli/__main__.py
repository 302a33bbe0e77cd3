"""`python -m experiments.cli` is `aesjax`."""

from experiments.cli import entry

entry()

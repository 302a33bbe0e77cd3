"""The command line: `aesjax run | report | replay | calibrate | video | list | bench`."""

from experiments.cli.main import main

__all__ = ["main"]

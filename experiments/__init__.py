"""Experiment scripts, presets and the command line."""

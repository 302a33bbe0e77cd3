"""Runs, sweeps, files and reports."""

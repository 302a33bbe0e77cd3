"""Runs, sweeps and their files."""

"""Drift-aware exploration in JAX: entropy schedules, their theory, and the measurement around them."""

__version__ = "0.1.0"

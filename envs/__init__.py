"""Drifting tasks."""

"""Adapters between drifting tasks and other libraries, in both directions; each module needs its library."""

"""Drifting tasks in the interfaces of other libraries, and the other way round; each module needs its library."""

"""The 2-D multi-goal task and its relatives."""

"""`aesjax bench` and the records in `benchmarks/`."""

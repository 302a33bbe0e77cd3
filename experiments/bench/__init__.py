"""`aesjax bench` and the scripts behind the records in `benchmarks/`."""

"""Studies that prove, refute or measure statements of the paper; run them with `python -m experiments.theory`."""

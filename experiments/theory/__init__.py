"""Studies that prove, refute or measure a statement of the paper; `python -m experiments.theory` runs them."""

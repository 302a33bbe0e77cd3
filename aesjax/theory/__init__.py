"""The paper's theory as running code: online mirror descent with its bounds, tabular soft MDPs, and the learners.

Everything here is written for double precision: switch it on (``jax.enable_x64(True)`` or the configuration of the
same name) before calling, as the tests and the scripts `experiments/theory_*.py` do.
"""

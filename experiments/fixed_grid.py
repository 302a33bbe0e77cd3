"""Constant entropy weights under every drift: which is the best in hindsight.

Usage: python experiments/fixed_grid.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.constants import fixed_grid

if __name__ == "__main__":
    sys.exit(fixed_grid(__doc__))

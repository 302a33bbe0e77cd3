"""Is it the timing or the level? Every schedule of the main table against a constant at its own mean, and permuted.

Usage: python experiments/controls.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
In the folder of the main table only the controls are trained.
"""

import sys

from experiments.paper.constants import controls

if __name__ == "__main__":
    sys.exit(controls(__doc__))

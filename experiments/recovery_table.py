"""Times of recovery after abrupt changes on the twelve tasks, with the noise floor beside them.

Usage: python experiments/recovery_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
In the folder of the three main tables nothing needs training any more.
"""

import sys

from experiments.paper.main_tables import recovery

if __name__ == "__main__":
    sys.exit(recovery(__doc__))

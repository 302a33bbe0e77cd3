"""nAUC and DropRatio of the toy task: four carriers, each by itself, with AES, with AES-R and with what is recommended.

Usage: python experiments/toy_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.main_tables import family

if __name__ == "__main__":
    sys.exit(family("toy", __doc__))

"""nAUC and DropRatio of the six Isaac tasks: four carriers, each by itself, with AES, AES-R and what is recommended.

Usage: python experiments/isaac_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.main_tables import family

if __name__ == "__main__":
    sys.exit(family("isaac", __doc__))

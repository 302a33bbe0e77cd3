"""nAUC and DropRatio of the five MuJoCo tasks: four carriers, each by itself, with AES, AES-R and what is recommended.

Usage: python experiments/mujoco_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.main_tables import family

if __name__ == "__main__":
    sys.exit(family("mujoco", __doc__))

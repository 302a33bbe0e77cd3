"""SAC under every drift of the toy task: its own temperature against `aes` and `aes_r`. A script to copy and change.

Usage: python experiments/toy_sac.py --out DIR [any option of `aesjax run`]
"""

import sys

from experiments.cli import main

DEFAULTS = ["--task", "toy", "--carriers", "sac", "--schedules", "baseline,aes,aes_r", "--patterns", "all"]

if __name__ == "__main__":
    sys.exit(main(["run", *DEFAULTS, *sys.argv[1:]]))

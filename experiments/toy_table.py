"""Four carriers, each by itself, with AES and with AES-R, under every drift of the toy task

Usage: python experiments/toy_table.py --out DIR [any option of `aesjax run`]
"""

import sys

from experiments.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--study", "toy_table", *sys.argv[1:]]))

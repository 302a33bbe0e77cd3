"""The paper's mechanism ablation: what coupling, clipping and the proxy contribute.

Usage: python experiments/ablation.py --out DIR [any option of `aesjax run`]
"""

import sys

from experiments.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--study", "ablation", *sys.argv[1:]]))

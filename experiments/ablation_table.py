"""The paper's mechanism ablation: what coupling, clipping, the proxy and the schedule itself contribute.

Usage: python experiments/ablation_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.ablations import appendix

if __name__ == "__main__":
    sys.exit(appendix("ablation", "ablation", "Ablation of AES", __doc__))

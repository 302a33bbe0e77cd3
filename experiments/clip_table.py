"""The paper's sensitivity table over the range that the entropy weight is clipped to.

Usage: python experiments/clip_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.ablations import appendix

if __name__ == "__main__":
    sys.exit(appendix("clip", "sensitivity_clip", "Sensitivity to the clip range", __doc__))

"""The paper's sensitivity table over the smoothing of the drift proxy.

Usage: python experiments/ema_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.ablations import appendix

if __name__ == "__main__":
    sys.exit(appendix("ema", "sensitivity_beta", "Sensitivity to smoothing", __doc__))

"""The paper's sensitivity table over the quantile of TD errors that AES reads.

Usage: python experiments/quantile_table.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.ablations import appendix

if __name__ == "__main__":
    sys.exit(appendix("quantile", "sensitivity_q", "Sensitivity to the quantile of TD errors", __doc__))

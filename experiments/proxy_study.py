"""Drift proxies side by side, on the update batch and on the newest transitions: rise, detection delay, false alarms.

Usage: python experiments/proxy_study.py --out DIR [--preset quick|cpu|paper] [any option of `aesjax run`]
"""

import sys

from experiments.paper.proxies import proxies

if __name__ == "__main__":
    sys.exit(proxies(__doc__))

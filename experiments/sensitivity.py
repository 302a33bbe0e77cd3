"""The paper's sensitivity tables: quantile level, smoothing and clip range of AES, one study each.

Usage: python experiments/sensitivity.py --out DIR [any option of `aesjax run`]
Writes DIR/q, DIR/beta and DIR/clip.
"""

import argparse
import sys
from pathlib import Path

from experiments.cli import main


def run_all(argv: list[str]) -> int:
    """Run the three studies one after another; the first exit code that is not 0 ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the three studies")
    arguments, rest = parser.parse_known_args(argv)
    for axis in ("q", "beta", "clip"):
        code = main(["run", "--study", f"sensitivity_{axis}", "--out", str(arguments.out / axis), *rest])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))

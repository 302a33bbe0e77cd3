"""The five MuJoCo tasks under every drift, one study each, and one report of the family beside the paper's block.

Usage: python experiments/mujoco_family.py --out DIR [any option of `aesjax run`]
Writes DIR/hopper ... DIR/humanoid and DIR/family.
"""

import argparse
import sys
from pathlib import Path

from envs.mujoco import TASKS
from experiments.cli import main
from experiments.cli.errors import DIVERGED, DONE


def run_all(argv: list[str]) -> int:
    """Run the studies one after another, then merge them; a study that could not run ends it with its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the studies")
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated tasks, by default all five")
    arguments, rest = parser.parse_known_args(argv)
    names = arguments.tasks.split(",")
    codes = []
    for name in names:
        codes.append(main(["run", "--task", name, "--out", str(arguments.out / name), *rest]))
        if codes[-1] not in (DONE, DIVERGED):
            return codes[-1]
    if len(names) > 1:
        folders = [str(arguments.out / name) for name in names]
        codes.append(main(["report", *folders, "--out", str(arguments.out / "family")]))
    return max(codes)


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))

"""Time to solve many random soft MDPs of mixed sizes to an error of 1e-10, and to compile the programs for it.

python experiments/bench/soft_mdps.py --out FILE.json [--count 10000] [--rounds 5]

The MDPs are those of the tests (`experiments.theory.instances`), 1 to 7 states and 1 to 5 actions in equal shares. One
program per number of actions; fewer than 7 states are filled up with copies that no action leads to.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

from experiments.study import store
from experiments.theory import softmdp
from experiments.theory.instances import random_mdps

MOST_STATES, ACTIONS = 7, range(1, 6)
ERROR = 1e-10  # required of Q*, as residual / (1 - gamma)


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Seconds to compile and to solve ``count`` MDPs, the latter in every round, and the largest error bound."""
    rng = np.random.default_rng(0)
    problems = []
    for actions in ACTIONS:
        share = len(range(actions - 1, count, len(ACTIONS)))
        live = 1 + np.arange(share) % MOST_STATES
        problems.append(jax.device_put(random_mdps(rng, share, MOST_STATES, actions, live)))
    solve = jax.jit(jax.vmap(softmdp.solve))
    start = time.perf_counter()
    programs = [solve.lower(mdps).compile() for mdps in problems]
    compile_seconds = time.perf_counter() - start
    seconds, solutions = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        solutions = jax.block_until_ready([program(mdps) for program, mdps in zip(programs, problems, strict=True)])
        seconds.append(round(time.perf_counter() - start, 4))
    errors = [np.asarray(s.residual / (1.0 - m.discount)) for s, m in zip(solutions, problems, strict=True)]
    largest = float(np.max(np.concatenate(errors)))
    if not largest <= ERROR:
        raise SystemExit(f"the largest error bound is {largest:.3g}; required: at most {ERROR:g}")
    return {
        "count": count,
        "programs": len(problems),
        "compile_seconds": round(compile_seconds, 2),
        "solve_seconds": median(seconds),
        "rounds": seconds,
        "largest_error_bound": largest,
    }


def main() -> None:
    """Parse the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.count < len(ACTIONS) or args.rounds < 1:
        parser.error(
            f"--count must be at least {len(ACTIONS)} and --rounds at least 1; got {args.count}, {args.rounds}"
        )
    jax.config.update("jax_enable_x64", True)
    record = {
        "command": shlex.join(["python", "experiments/bench/soft_mdps.py", *sys.argv[1:]]),
        "environment": store.environment(),
        **measure(args.count, args.rounds),
    }
    store.write_json(args.out, record)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()

"""Time of an environment step of the rivals of AES, relative to SAC with a constant weight.

    python benchmarks/rivals.py --out benchmarks/rivals.json

The toy task at the sizes of part H, ten runs each, one gradient step per environment step. Contestants are interleaved
in every round, each in a program of its own.
"""

import argparse
from pathlib import Path
from typing import Any

from experiments.bench.timing import interleaved, measure, timed
from experiments.session.study import Study
from experiments.study.process import start_jax

BASE = "`fixed`"
#: Label of `experiments.paper.helps` -> method, and options of the study.
CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: ("sac+fixed", {}),
    "own weight": ("sac", {}),
    "`aes`": ("sac+aes", {}),
    "`aes_r`": ("sac+aes_r", {}),
    "`trend`": ("sac+trend", {}),
    "CrossQ `fixed`": ("crossq+fixed", {}),
    "`fixed+recent`": ("sac+fixed+recent", {}),
    "`fixed+geometric`": ("sac+fixed+geometric", {}),
    "`fixed`, short replay": ("sac+fixed", {"replay": 512}),
    "`fixed+fire_reset`": ("sac+fixed+fire_reset:every=0.17", {}),
    "`aes_c+fire`": ("sac+aes_c+fire", {}),
    "`fixed`, drift observed": ("sac+fixed", {"observe": "drift"}),
    "`fixed`, last 4 observations": ("sac+fixed", {"history": 4}),
}


def measured(rounds: int) -> dict[str, Any]:
    """Rates of all contestants, and the times of a step relative to the first."""
    sizes = {"patterns": "abrupt", "seeds": "1:10", "steps": 40_000, "evaluations": 100, "onset": 0.4}
    contestants = {
        label: timed(Study("toy", method, **sizes, **options).config)
        for label, (method, options) in CONTESTANTS.items()
    }
    ratios = {f"time of {label} / {BASE}": (BASE, label) for label in CONTESTANTS if label != BASE}
    return {"unit": "environment steps", "runs": 10, **interleaved(contestants, rounds, ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    start_jax(None)
    measure([("rivals", lambda: measured(options.rounds))], options.out, {"options": {"rounds": options.rounds}})


if __name__ == "__main__":
    main()

"""The recommendations on an environment that they were not chosen on: the drone of the notebook, under drift.

    python benchmarks/own_environment.py --runs runs/own_environment --out benchmarks/own_environment.json

Every method has one number that is chosen from five on the first tenth of runs without drift, with other seeds. A
second study takes a quarter of a gradient step per environment step, with the chosen constant. All of it takes a
quarter of an hour on two cores; the same command continues it.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl

from aesjax import aes, fixed
from aesjax.adaptations import geometric, recent
from experiments import Method, Results, Study
from experiments.paper.helps import METRICS
from experiments.study import store

ROOT = Path(__file__).resolve().parents[1]
STEPS, ONSET, SEEDS, CHOOSING = 10_000, 0.4, "1:10", "101:105"
NUMBERS = ["fixed.base=0.02:0.5:5", "aes.kappa=0.003:0.3:5"]
SIZES = {"patterns": "steady,abrupt", "seeds": SEEDS, "steps": STEPS, "replay": STEPS, "onset": ONSET}
SIZES |= {"changes": "random", "evaluations": 50, "episodes": 3}
CHANNELS = {"gravity": (0.1, 0.9), "gain": (0.5, 1.5)}


def environment(folder: Path) -> Callable:
    """The function that makes the environment, from the cell that readers of the notebook see.

    The cell becomes a module in the folder of the runs: a later process recognises the runs of a module, not of a cell.
    """
    notebook = json.loads((ROOT / "experiments" / "notebooks" / "own_environment.ipynb").read_text())
    cell = next(cell for cell in notebook["cells"] if "class Hover" in "".join(cell["source"]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hover.py").write_text("".join(cell["source"]))
    sys.path.insert(0, str(folder))
    return importlib.import_module("hover").make


def by_seed(results: Results) -> dict:
    """Method -> pattern -> metric -> values of the seeds in their order; returns are those from the onset on."""
    runs = results.metrics.filter(pl.col("metric").is_in(list(METRICS)), level="run")
    found: dict = {}
    for (method, pattern, metric), rows in runs.group_by("method", "pattern", "metric", maintain_order=True):
        found.setdefault(method, {}).setdefault(pattern, {})[metric] = rows.sort("seed")["value"].to_list()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the studies")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    make = environment(options.runs)
    methods = [Method("sac"), Method("sac", fixed()), Method("sac", aes())]
    methods += [Method("sac", fixed(), lever()) for lever in (recent, geometric)]
    tuning = Study(make, methods, channels=CHANNELS, **SIZES).tune(
        NUMBERS, choosing=CHOOSING, shares="0.1", choosing_patterns="steady", clipped=0.1, out=options.runs / "one"
    )
    constant = next(choice for choice in tuning.chosen if choice.method == "SAC+fixed")
    fewer = Study(make, [constant.setting], channels=CHANNELS, num_envs=4, **SIZES)
    record = {
        "environment": store.environment(),
        "steps": STEPS,
        "constant": constant.chosen,
        "choices": tuning.choices.to_dicts(),
        "one": by_seed(tuning.results),
        "quarter": by_seed(fewer.run(options.runs / "quarter")),
    }
    store.write_json(options.out, record)


if __name__ == "__main__":
    main()

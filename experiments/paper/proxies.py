"""Each drift proxy as a detector, on the baselines' records."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.measure.curves import change_steps
from experiments.paper.evidence import CARRIERS
from experiments.paper.printing import show
from experiments.paper.studies import Made, PaperTable, split_studies
from experiments.report.cells import NONE, Cell, Table, number
from experiments.study import store
from experiments.study.config import config_from_json
from experiments.study.results import Results, open_results
from experiments.theory.detection_methods import METHODS
from experiments.theory.detection_parts import SHIPPED, delays
from experiments.theory.detection_streams import sorted_streams

_REACTION = 0.02  # share of a run on both sides of a change over which a proxy's rise is taken
LOOK = 0.1  # share of a run within which an alarm counts for a change
_BUDGET = 1e5  # updates on the steady pattern to one false alarm
KINDS = ("shipped", "aes_r", "cusum")
READING = (
    "On the records of the carrier's baseline, which hears no schedule. Rise: median over changes and seeds of the "
    "proxy's mean in the 2 % of the run after an abrupt change over that before. AES-C as shipped: false alarms in "
    "100,000 updates without drift, share of the changes found within a tenth of the run, median delay in % of it; "
    "AES-R and CUSUM: the same with the most sensitive setting that gives at most one such alarm on these very records."
)


def _show(made: Made) -> None:
    table = Table(
        "proxies",
        "Drift proxies as alarms",
        READING,
        ["proxy", "runs", "rise %", *(f"{kind}: {what}" for kind in ("AES-C", "AES-R", "CUSUM") for what in _WHAT)],
    )
    there: list[str] = []
    for folder in made.folders:
        results = open_results(folder)
        for carrier in results.config["carriers"]:
            there.append(carrier)
            table.groups.append((f"{results.config['task']} · {carrier}", _rows(results, carrier)))
    lacking = ", ".join(name for name in CARRIERS if name.lower() not in there)
    show(made.options.out, "proxy_study", "What a drift proxy is worth", [table], lacking, made.folders)


_WHAT = ("false", "found %", "delay %")


def _rows(results: Results, carrier: str) -> list[list[Cell]]:
    import polars as pl

    config = config_from_json(results.config)
    label = next(name for name in CARRIERS if name.lower() == carrier)
    rows = results.rows(store.STREAMS).filter(pl.col("carrier") == carrier, pl.col("method") == label)
    finished = [(seed, pattern) for method, pattern, seed in results.runs("finished") if method == label]
    known = pl.DataFrame(finished, schema={"seed": pl.Int64, "pattern": pl.String}, orient="row")
    streams = sorted_streams(rows.join(known, on=["seed", "pattern"], how="semi"))
    begun = 0.0 if "rollout" in config.settings[carrier]["config"] else config.warmup_of(carrier) / config.steps
    changes = change_steps(1.0, config.segments)
    shares = [(float(change) - begun) / (1 - begun) for change in changes]
    return [_row(name.partition(" ")[2], of, shares) for name, of in streams.items()]


def _row(name: str, of: Mapping[str, np.ndarray], shares: Sequence[float]) -> list[Cell]:
    steady, abrupt = of["steady"], of["abrupt"]
    length = abrupt.shape[1]
    at = [round(share * length) for share in shares]
    near = max(1, round(_REACTION * length))
    rises = [abrupt[:, c : c + near].mean(1) - abrupt[:, max(0, c - near) : c].mean(1) for c in at]
    cells = [Cell(name), Cell(str(len(abrupt)), kind="muted"), Cell(number(100 * (math.exp(np.median(rises)) - 1), 1))]
    for kind in KINDS:
        cells += _alarms(kind, steady, abrupt, at)
    return cells


def _alarms(kind: str, steady: np.ndarray, abrupt: np.ndarray, changes: Sequence[int]) -> list[Cell]:
    """False alarms in 100,000 updates, share of the changes found, and the median delay."""
    method = METHODS["aes_c" if kind == "shipped" else kind]
    settings = SHIPPED if kind == "shipped" else method.settings
    quiet = method.alarms(steady, settings).sum((1, 2))
    enough = np.flatnonzero(quiet <= steady.size / _BUDGET)
    best = 0 if kind == "shipped" else int(enough[0]) if len(enough) else len(settings) - 1
    length = abrupt.shape[1]
    late = delays(method.alarms(abrupt, settings[[best]])[0], changes, max(1, round(LOOK * length)))
    hit: Any = np.isfinite(late)
    delay = number(100 * float(np.median(late[hit])) / length, 1) if hit.any() else NONE
    return [Cell(number(quiet[best] / steady.size * _BUDGET, 1)), Cell(number(100 * hit.mean(), 0)), Cell(delay)]


PROXIES = PaperTable(
    "Drift proxies as alarms: rise, delay, false alarms",
    lambda options: split_studies(options, "proxies", "proxies_ppo"),
    _show,
)

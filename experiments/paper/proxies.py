"""Each drift proxy as a detector, on the baselines' records."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.schedules import aes_c, value_loss
from aesjax.types import Signals
from experiments.measure.curves import change_steps
from experiments.paper.evidence import CARRIERS
from experiments.paper.printing import show
from experiments.paper.studies import Made, PaperTable, split_studies
from experiments.report.cells import NONE, Cell, Table, number
from experiments.study import store
from experiments.study.config import StudyConfig, config_from_json
from experiments.study.store import Results, open_results

if TYPE_CHECKING:
    import polars as pl

_REACTION = 0.02  # share of a run on both sides of a change over which a proxy's rise is taken
_LOOK = 0.1  # share of a run within which a detection counts for a change
_UNIT = 1e5  # updates without drift that false detections are counted in
_READING = (
    "On the records of the carrier's baseline, whose weight reads no proxy. Rise: median over changes and seeds of the "
    "proxy's mean in the 2 % of the run after an abrupt change over that before. AES-C as shipped: false detections in "
    "100,000 updates without drift, share of the changes found within a tenth of the run, median delay in % of it."
)


def _show(made: Made) -> None:
    table = Table(
        "proxies",
        "Drift proxies as detectors",
        _READING,
        ["proxy", "runs", "rise %", "false", "found %", "delay %"],
    )
    there: list[str] = []
    for folder in made.folders:
        results = open_results(folder)
        config = config_from_json(results.config)
        for carrier in config.carriers:
            there.append(carrier)
            table.groups.append((f"{config.task} · {carrier}", _rows(results, config, carrier)))
    lacking = ", ".join(name for name in CARRIERS if name.lower() not in there)
    show(made.options.out, "proxy_study", "Drift proxies", [table], lacking, made.folders)


def _rows(results: Results, config: StudyConfig, carrier: str) -> list[list[Cell]]:
    import polars as pl

    label = next(name for name in CARRIERS if name.lower() == carrier)
    rows = results.rows(store.STREAMS).filter(pl.col("carrier") == carrier, pl.col("method") == label)
    finished = [(seed, pattern) for method, pattern, seed in results.runs("finished") if method == label]
    known = pl.DataFrame(finished, schema={"seed": pl.Int64, "pattern": pl.String}, orient="row")
    streams = _sorted(rows.join(known, on=["seed", "pattern"], how="semi"))
    if carrier == "ppo":  # a rollout is the newest data there is: both sources are the same
        streams.pop("td_quantile/fresh", None)
    begun = 0.0 if "rollout" in config.settings[carrier].config else config.warmup_of(carrier) / config.steps
    changes = change_steps(1.0, config.segments)
    shares = [(float(change) - begun) / (1 - begun) for change in changes]
    return [_row(name, of, shares) for name, of in streams.items()]


def _row(name: str, of: Mapping[str, np.ndarray], shares: Sequence[float]) -> list[Cell]:
    steady, abrupt = of["steady"], of["abrupt"]
    length = abrupt.shape[1]
    at = [round(share * length) for share in shares]
    near = max(1, round(_REACTION * length))
    rises = [abrupt[:, c : c + near].mean(1) - abrupt[:, max(0, c - near) : c].mean(1) for c in at]
    late = _delays(detections(abrupt), at, max(1, round(_LOOK * length)))
    hit, false = np.isfinite(late), detections(steady).mean() * _UNIT
    return [
        Cell(name),
        Cell(str(len(abrupt)), kind="muted"),
        Cell(number(100 * (math.exp(np.median(rises)) - 1), 1)),
        Cell(number(false, 1)),
        Cell(number(100 * hit.mean(), 0)),
        Cell(number(100 * float(np.median(late[hit])) / length, 1) if hit.any() else NONE),
    ]


def _sorted(rows: "pl.DataFrame") -> dict[str, dict[str, np.ndarray]]:
    """``{"td_quantile/fresh": {"steady": (N, T), "abrupt": (N, T)}, ...}``: logarithms, from the first update on.

    A proxy that is shown to many updates unchanged (on-policy carriers) is one observation here.
    """
    streams: dict[str, dict[str, np.ndarray]] = {}
    for proxy in (name for name in rows.columns if "/" in name):
        for pattern in ("steady", "abrupt"):
            values = np.array(rows.filter(pattern=pattern).sort("seed")[proxy].to_list(), np.float64)
            values = values[:, np.isfinite(values).all(0)]
            changes = np.any(np.diff(values, axis=1) != 0, axis=0)
            if changes.mean() < 0.5:
                values = values[:, np.r_[True, changes]]
            streams.setdefault(proxy, {})[pattern] = np.log(values)
    return streams


def detections(logs: np.ndarray) -> np.ndarray:
    """(N, T) bool: the first rounds of the raised weights of `aes_c` as shipped, from logarithms of proxies (N, T)."""
    schedule = aes_c(value_loss(source="update"), 1.0, float(logs.shape[1]), lambda_max=np.inf)

    def run(stream: jax.Array) -> jax.Array:
        def step(state, v):
            state = schedule.update(Signals(value_loss=v), state)
            return state, state.weight

        return jax.lax.scan(step, schedule.init(), stream)[1]

    raised = np.asarray(jit(jax.vmap(run))(jnp.asarray(np.exp(logs), jnp.float32))) > 1
    return raised & ~np.concatenate([np.zeros_like(raised[:, :1]), raised[:, :-1]], axis=1)


def _delays(begun: np.ndarray, changes: Sequence[int], look: int) -> np.ndarray:
    """(N, K): rounds from every change to the first detection, infinite where none begins within ``look``."""
    seen = [begun[:, at : at + look] for at in changes]
    return np.stack([np.where(x.any(1), x.argmax(1) + 1.0, np.inf) for x in seen], axis=1)


PROXIES = PaperTable(
    "Drift proxies as detectors: rise, delay, false detections",
    lambda options: split_studies(options, "proxies", "proxies_ppo"),
    _show,
)

"""Replay of recorded proxies: the weights and levers that other methods would have set in a finished study.

Nothing is trained. The records of controls are made in the same way.
"""

import dataclasses
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import adaptations
from aesjax.adaptations import CONTROLS, Played
from aesjax.compiling import jit
from aesjax.registry import listed
from aesjax.schedules import DriftProxy, together
from aesjax.types import Levers, Signals
from experiments.study import store
from experiments.study.config import STEADY, StudyConfig, check_unchanged
from experiments.study.folder import StudyFolder, open_study
from experiments.study.method import Control, Method
from experiments.study.process import check_numerics
from experiments.study.program import UNTOUCHED, Plan, Records, Share

if TYPE_CHECKING:
    import polars as pl


#: Shared with the record of controls.
_ALIKE = ("task", "steps", "horizon", "evaluations", "onset", "changes", "proxy", "source", "drift_seed")


class Recorded(NamedTuple):
    """A finished study with recorded proxies."""

    config: StudyConfig
    strides: Mapping[str, int]  # updates per recorded sample of each carrier
    finished: set[tuple[str, str, int]]  # method, pattern and seed of the runs that did not diverge
    curves: "pl.DataFrame"
    streams: "pl.DataFrame"


class Replayed(NamedTuple):
    """One schedule with its adaptations on R recorded runs of n samples; NumPy, float32.

    Levers are as logged by a run: window and recency after a sample as shares of the stored transitions; the
    strength of a refresh in the sample in which it is due; rate factor and gradient steps per update after the sample.
    """

    initial: np.ndarray  # (R,) weight of the first update; reward per nat
    weight: np.ndarray  # (R, n) weight after the updates of a sample; reward per nat
    levers: Levers  # (R, n) each


def load(study: StudyFolder) -> Recorded:
    """The records of a finished study.

    Raises:
      ValueError: it recorded no proxies, is damaged or has other random draws.
    """
    check_numerics(study.directory, study.ended.manifest)
    if not (study.directory / store.STREAMS).exists():
        raise ValueError(
            f"{study.directory} has no {store.STREAMS}: its proxies were not recorded, run the study again"
        )
    strides = {name: part["updates_per_stream_sample"] for name, part in study.ended.manifest["parts"].items()}
    curves, streams = (study.ended.rows(name) for name in (store.CURVES, store.STREAMS))
    return Recorded(study.config, strides, study.ended.runs("finished"), curves, streams)


def proxies_in(rows: "pl.DataFrame") -> list[str]:
    """Proxies that all these runs recorded."""
    return [name for name in rows.columns if "/" in name and not rows[name].null_count()]


def samples_of(rows: "pl.DataFrame", name: str) -> np.ndarray:
    """One proxy of all runs, (R, S) float32."""
    return rows[name].explode().fill_null(np.nan).to_numpy().astype(np.float32).reshape(rows.height, -1)


def share_of_method(study: Recorded, method: Method) -> Share:
    """A method on the runs of its carrier; ValueError for a control or a feature that the carrier lacks."""
    carrier = method.carrier.name
    if carrier not in study.config.carriers:
        raise ValueError(f"the study has no run of carrier '{carrier}'; carriers: {', '.join(study.config.carriers)}")
    if method.control is not None:
        raise ValueError(f"control '{method.control.name}' plays a record; there is nothing to replay")
    settings = {carrier: study.config.settings[carrier]}
    alone = {"methods": (method,), "patterns": (STEADY,), "sweep": {}, "block": (), "settings": settings}
    return Plan(dataclasses.replace(study.config, **alone)).shares[carrier]


def measured_for(study: Recorded, share: Share, method: Method, rows: "pl.DataFrame") -> "pl.DataFrame":
    """The runs among ``rows`` that measured every quantile that a method reads at its level."""
    read = [each.reads for each in (share.schedule(method), share.signal(method)) if each is not None]
    needed = {float(proxy.q) for proxy in read if isinstance(proxy, DriftProxy) and "q" in proxy.factory.takes}
    trained = Plan(study.config).share(share.carrier)
    levels = {row.name: _level(trained, row.method) for row in trained.rows}
    return rows.filter(rows["method"].is_in([name for name, level in levels.items() if needed <= {level}]))


def _level(share: Share, method: Method) -> float:
    """Quantile level of the proxies that a run of a method records."""
    proxy: Any = share.schedule(method).proxy
    return float(proxy.q)


def obstacle(share: Share, method: Method, rows: "pl.DataFrame") -> str:
    """Reason why these runs, of `measured_for`, allow no replay, as the end of a sentence; empty if they do."""
    schedule, signal, recorded = share.schedule(method), share.signal(method), proxies_in(rows)
    if method.coupling:
        return "coupling changes how the agent learns, which takes training"
    for each in filter(None, (schedule, signal)):
        of = "" if each is schedule else f"of its signal '{each.factory.name}': "
        proxy = each.reads
        if each.factory.needs:
            return f"{of}it reads {', '.join(sorted(each.factory.needs))}, which is not recorded"
        if isinstance(proxy, DriftProxy) and rows.is_empty():
            return (
                f"{of}no run measured its quantile, q={proxy.q:g}; the quantile was measured while training, at the "
                "run's own q, so q cannot be varied"
            )
        if isinstance(proxy, DriftProxy) and proxy.key not in recorded:
            return f"{of}it reads the proxy {proxy.key}, which was not recorded; recorded: {listed(recorded) or 'none'}"
    return ""


def replay_runs(share: Share, method: Method, rows: "pl.DataFrame", stride: int) -> tuple[Replayed, int]:
    """Replay a method that `obstacle` allows on recorded runs; also returns the samples before their first update.

    The weight after a sample is the next weight of the training, which an evaluation records. A sample that is the mean
    of several updates is repeated, so that update counts are correct; the weights are then an approximation. Values
    that are not finite are passed on, and schedules keep their weight.

    Args:
      rows: streams of runs of the method's carrier.
      stride: updates per sample.
    """
    run = jax.tree.map(jnp.asarray, share.run(method, 0, None, None, 1))
    recorded = proxies_in(rows)
    read = [proxy.key for each in (*run.schedules, *run.signals) if isinstance(proxy := each.reads, DriftProxy)]
    streams = {key: samples_of(rows, key) for key in read if key in recorded} or {"": samples_of(rows, recorded[0])}
    skipped = min(_first_update(values) for values in streams.values())
    schedule, adaptation = together(run.schedules), None
    if method.adaptations:
        supply = share.learner.supply
        adaptation = adaptations.together(run.adaptations, run.signals, run.driver, run.updates, supply)

    def one(measured: dict[str, jax.Array]) -> tuple[Any, ...]:
        def sample(states: Any, measured: dict[str, jax.Array]) -> tuple[Any, Any]:
            signals = Signals(measured=measured)

            def update(_: Any, carry: Any) -> Any:
                (state, turned), due = carry
                state = schedule.update(signals, state)
                if adaptation is not None:
                    turned, now = _done(adaptation.update(signals, turned))
                    due = jax.tree.map(jnp.maximum, due, now)
                return (state, turned), due

            due = {} if adaptation is None else _done(states[1])[1]
            states, due = jax.lax.fori_loop(0, stride, update, (states, due))
            levers = Levers() if adaptation is None else _as_logged(states[1], due)
            return states, (states[0].weight, levers)

        states = (schedule.init(), None if adaptation is None else adaptation.init())
        return states[0].weight, *jax.lax.scan(sample, states, measured)[1]

    measured = {key: values[:, skipped:] for key, values in streams.items()}
    return Replayed(*jax.device_get(jit(jax.vmap(one))(measured))), skipped


def _first_update(streams: np.ndarray) -> int:
    """Number of samples before the first update of any run: the common leading NaNs of streams (R, n)."""
    seen = np.any(np.isfinite(streams), axis=0)
    return int(np.argmax(seen)) if np.any(seen) else len(seen)


def _done(state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """State of an adaptation after its due refresh, and the refresh."""
    due = {k: v for k, v in state.levers._asdict().items() if k in adaptations.ONCE and v is not None}
    return state._replace(levers=state.levers._replace(**jax.tree.map(jnp.zeros_like, due))), due


def _as_logged(state: Any, due: dict[str, jax.Array]) -> Levers:
    window, recency = state.levers.window, state.levers.recency
    share = None if window is None else jnp.minimum(window, state.stored) / state.stored
    scale = None if recency is None else recency / state.stored
    return state.levers._replace(window=share, recency=scale, **due)


def records_of(share: Share) -> Records:
    """Record that each control of one carrier plays in every run; empty without controls.

    A record is replayed from the proxies, so it has a value for every recorded sample. A schedule that cannot be
    replayed and has no adaptations uses its weights at the evaluations.
    """
    controls = {row.name: row.method.control for row in share.rows if row.method.control is not None}
    source = _source(share.config, share.carrier) if controls else None
    played: dict[tuple[str, str, int], Played] = {}
    for name, control in controls.items():
        for (pattern, seed), record in _record(source, share.config, control).items():
            # One order per run, for all of its quantities.
            key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(pattern.encode()))
            played[name, pattern, seed] = CONTROLS[control.name].change(record, key, control.blocks)
    return played


def _source(config: StudyConfig, carrier: str) -> Recorded:
    directory = Path(config.controls["from"])
    path = directory / store.STREAMS
    if not path.is_file() or store.sha256(path) != config.controls["streams"]:
        raise ValueError(f"the record in {directory} is missing, or changed after the study was configured")
    source = load(open_study(directory, config.at_hand))
    check_unchanged(store.read_json(directory / store.CONFIG), config.to_json())
    apart = [name for name in _ALIKE if getattr(source.config, name) != getattr(config, name)]
    if source.config.settings.get(carrier) != config.settings[carrier]:
        apart.append(f"settings of carrier '{carrier}'")
    if apart:
        raise ValueError(f"--controls-from {directory}: its {', '.join(apart)} differ from this study's")
    return source


def _record(source: Any, config: StudyConfig, control: Control) -> dict[tuple[str, int], Played]:
    """Runs of one method by pattern and seed."""
    share = share_of_method(source, control.of)
    row, stride = share.rows[0], source.strides[share.carrier]
    labels = [(pattern, seed) for pattern in config.patterns for seed in config.seeds]
    if missing := [label for label in labels if (row.name, *label) not in source.finished]:
        pattern, seed = missing[0]
        raise ValueError(f"--controls-from has no finished run of {row.name} on '{pattern}' with seed {seed}")
    rows = source.streams.filter(carrier=share.carrier, method=row.name)
    at = {label: i for i, label in enumerate(zip(rows["pattern"], rows["seed"], strict=True))}
    if not (reason := obstacle(share, control.of, measured_for(source, share, control.of, rows))):
        result, _ = replay_runs(share, control.of, rows, stride)
        return {label: _from_replay(result, at[label], stride) for label in labels}
    if control.of.adaptations:
        raise ValueError(f"control '{control.name}' of '{row.rule}' cannot be made: {reason}")
    streams = samples_of(rows, proxies_in(rows)[0])
    samples = streams.shape[1] - _first_update(streams)
    played = {}
    for pattern, seed in labels:  # between two evaluations the weight of the second is used
        curve = source.curves.filter(carrier=share.carrier, method=row.name, pattern=pattern, seed=seed).sort("step")
        weight = curve["entropy_weight"].to_numpy()[1:].astype(np.float32)
        weight = weight[np.isfinite(weight)]  # the first evaluations may be in the warm-up
        index = np.minimum(np.arange(samples) * len(weight) // samples, len(weight) - 1)
        played[pattern, seed] = Played(np.float32(1), np.int32(stride), weight[index])
    return played


def _from_replay(result: Replayed, run: int, stride: int) -> Played:
    """Values in force in a sample, which are those after the previous sample."""

    def shifted(values: Any, first: Any) -> Any:
        return np.concatenate([[first], values[run, :-1]]).astype(np.float32)

    levers = {
        name: shifted(values, UNTOUCHED[name]) if name in UNTOUCHED else values[run].astype(np.float32)
        for name, values in result.levers._asdict().items()
        if values is not None
    }
    return Played(np.float32(1), np.int32(stride), shifted(result.weight, result.initial[run]), Levers(**levers))

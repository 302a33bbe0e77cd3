"""Replay of recorded proxies: a finished study in, the entropy weights and levers that other schedules and adaptations
would have given out. Nothing is trained."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import adaptations
from aesjax.compiling import jit
from aesjax.schedules import DriftProxy, together
from aesjax.types import Levers, Signals
from experiments.study import store
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.method import Method
from experiments.study.program import Share, check
from experiments.study.warm import STEADY

if TYPE_CHECKING:
    import polars as pl


_UNRECORDED = {
    "log_prob": "the log-density of the policy's actions (log_prob)",
    "reward": "the rewards of the newest transitions",
    "true_drift": "the true drift at every update",
}


class Recorded(NamedTuple):
    """A finished study, or the runs of some of its methods."""

    config: StudyConfig
    parts: Mapping[str, Any]  # per carrier: updates, updates_per_stream_sample
    finished: set[tuple[str, str, int]]  # method, pattern and seed of the runs that did not diverge
    curves: "pl.DataFrame"
    streams: "pl.DataFrame"

    def stride(self, carrier: str) -> int:
        """Updates per recorded sample."""
        return self.parts[carrier]["updates_per_stream_sample"]

    def limited_to(self, methods: list[str]) -> "Recorded":
        """The runs of these methods."""
        import polars as pl

        curves, streams = (rows.filter(pl.col("method").is_in(methods)) for rows in (self.curves, self.streams))
        return self._replace(curves=curves, streams=streams)


def load(directory: Path, config: StudyConfig | None = None) -> Recorded:
    """The finished study in ``directory``.

    Args:
      config: its configuration with the objects from outside that it uses; None: the stored one.

    Raises:
      ValueError: it has not ended, is damaged, or recorded no proxies.
    """
    study = open_study(directory)
    if not (directory / store.STREAMS).exists():
        raise ValueError(f"{directory} has no {store.STREAMS}: its proxies were not recorded, run the study again")
    config = config or study.config
    parts = {name: study.ended.manifest.get("parts", {}).get(name, {}) for name in config.carriers}
    if any({"updates", "updates_per_stream_sample"} - set(part) for part in parts.values()):
        raise ValueError(f"{directory} cannot be replayed: {store.MANIFEST} lacks the number of updates per sample")
    curves, streams = (study.ended.rows(name) for name in (store.CURVES, store.STREAMS))
    return Recorded(config, parts, study.ended.runs("finished"), curves, streams)


def proxies_in(rows: "pl.DataFrame") -> list[str]:
    """The proxies that all these runs recorded."""
    return [name for name in rows.columns if "/" in name and not rows[name].null_count()]


def samples_of(rows: "pl.DataFrame", name: str) -> np.ndarray:
    """One proxy of all runs, (R, S) float32."""
    return rows[name].explode().fill_null(np.nan).to_numpy().astype(np.float32).reshape(rows.height, -1)


def obstacle(share: Share, method: Method, recorded: list[str]) -> str:
    """Why these recorded proxies do not allow a replay, as the end of a sentence; empty if they do."""
    schedule, signal = share.schedule(method), share.signal(method)
    if method.coupling:
        return "coupling changes how the agent learns, which takes training"
    for each in filter(None, (schedule, signal)):
        of = "" if each is schedule else f"of its signal '{each.factory.name}': "
        proxy = each.reads
        if each.factory.needs:
            names = ", ".join(_UNRECORDED.get(field, field) for field in sorted(each.factory.needs))
            return f"{of}it reads {names}, which is not recorded"
        if isinstance(proxy, DriftProxy) and proxy.q != 0.9 and "q" in proxy.factory.takes:
            return "the quantile was measured while training, at the run's own q, so q cannot be varied"
        if isinstance(proxy, DriftProxy) and proxy.key not in recorded:
            names = ", ".join(recorded) or "none"
            return f"{of}it reads the proxy {proxy.key}, which was not recorded; recorded: {names}"
    return ""


class Replayed(NamedTuple):
    """One schedule with its adaptations on R recorded runs of n samples; NumPy, float32.

    Levers are as a run logs them: the window after a sample as a share of the stored transitions, 1 for all; a
    refresh, with its strength, in the sample in which it fell due; rate factor and gradient steps per update after it.
    """

    initial: np.ndarray  # (R,) weight of the first update; reward per nat
    weight: np.ndarray  # (R, n) weight after the updates of a sample; reward per nat
    levers: Levers  # (R, n) each


def share_of_method(study: Recorded, method: Method) -> Share:
    """A method on the runs of its carrier (ValueError for a control or something that the carrier lacks)."""
    carrier = method.carrier.name
    if carrier not in study.config.carriers:
        raise ValueError(f"the study has no run of carrier '{carrier}'; carriers: {', '.join(study.config.carriers)}")
    if method.control is not None:
        raise ValueError(f"control '{method.control.name}' plays a record; there is nothing to replay")
    settings = {carrier: study.config.settings[carrier]}
    alone = {"methods": (method,), "patterns": (STEADY,), "sweep": {}, "block": (), "settings": settings}
    return check(dataclasses.replace(study.config, **alone))[carrier]


def replay_runs(study: Recorded, share: Share, method: Method) -> tuple[Replayed, int]:
    """A method that `obstacle` allows on all runs of its carrier, and the samples before their first update.

    The weight after a sample is the one that training would have used next and that it records at an evaluation. A
    sample that is the mean of several updates is passed as often, so that clocks count updates; the weights are then
    an approximation. A value that is not finite is passed on: schedules hold.
    """
    rows, stride = study.streams.filter(carrier=share.carrier), study.stride(share.carrier)
    recorded = proxies_in(rows)
    if not recorded:
        raise ValueError(f"{store.STREAMS} holds no proxy of carrier '{share.carrier}'")
    run = jax.tree.map(jnp.asarray, share.run(method, 0, None, None, 1))
    read = [proxy.key for each in (*run.schedules, *run.signals) if isinstance(proxy := each.reads, DriftProxy)]
    streams = {key: samples_of(rows, key) for key in read if key in recorded} or {"": samples_of(rows, recorded[0])}
    skipped = min(first_update(values) for values in streams.values())
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


def first_update(streams: np.ndarray) -> int:
    """Number of samples before the first update of any run: the leading NaNs that (R, n) streams have in common."""
    seen = np.any(np.isfinite(streams), axis=0)
    return int(np.argmax(seen)) if np.any(seen) else len(seen)


def _done(state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """An adaptation's state after its due refresh, and that refresh."""
    due = {k: v for k, v in state.levers._asdict().items() if k.startswith("refresh") and v is not None}
    return state._replace(levers=state.levers._replace(**jax.tree.map(jnp.zeros_like, due))), due


def _as_logged(state: Any, due: dict[str, jax.Array]) -> Levers:
    window = state.levers.window
    share = None if window is None else jnp.minimum(window, state.stored) / state.stored
    return state.levers._replace(window=share, **due)

"""Replay of recorded proxies: a finished study in, the entropy weights and levers that other schedules and adaptations
would have given out. Nothing is trained."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import adaptations
from aesjax.adaptations import AdaptationData
from aesjax.compiling import jit
from aesjax.schedules import SCHEDULES, ScheduleData, build
from aesjax.types import DriftAdaptation, Levers, Signals
from experiments.study import store
from experiments.study.arms import Arm, arms_of, check_levers
from experiments.study.build import check, common, numbers_of, set_up
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.method import COUPLING, Method
from experiments.study.plugins import is_ours

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


def load(directory: Path) -> Recorded:
    """The finished study in ``directory``.

    Raises:
      ValueError: it has not ended, is damaged, or recorded no proxies.
    """
    study = open_study(directory, ended=True)
    if not (directory / store.STREAMS).exists():
        raise ValueError(f"{directory} has no {store.STREAMS}: its proxies were not recorded, run the study again")
    parts = {name: study.ended.manifest.get("parts", {}).get(name, {}) for name in study.config.carriers}
    if any({"updates", "updates_per_stream_sample"} - set(part) for part in parts.values()):
        raise ValueError(f"{directory} cannot be replayed: {store.MANIFEST} lacks the number of updates per sample")
    curves, streams = (study.ended.rows(name) for name in (store.CURVES, store.STREAMS))
    return Recorded(study.config, parts, study.ended.runs("finished"), curves, streams)


def proxies_in(rows: "pl.DataFrame") -> list[str]:
    """The proxies that all these runs recorded."""
    return [name for name in rows.columns if "/" in name and not rows[name].null_count()]


def samples_of(rows: "pl.DataFrame", name: str) -> np.ndarray:
    """One proxy of all runs, (R, S) float32."""
    return rows[name].explode().fill_null(np.nan).to_numpy().astype(np.float32).reshape(rows.height, -1)


class Request(NamedTuple):
    """One schedule, with its adaptations, to replay on one carrier's runs."""

    method: Method
    arm: Arm
    given: Mapping[str, float]  # that every run has, whatever it was trained with


def request_of(config: StudyConfig, method: Method) -> Request:
    """A method as a replay on the runs of its carrier (ValueError for a control or a lever that the carrier lacks)."""
    if method.carrier not in config.carriers:
        raise ValueError(f"the study has no run of carrier '{method.carrier}'; carriers: {', '.join(config.carriers)}")
    if method.control is not None:
        raise ValueError(f"control '{method.control.name}' plays a record; there is nothing to replay")
    alone = dataclasses.replace(config, methods=(method,), sweep={}, block=None)
    arm = arms_of(alone, method.carrier)[0]
    check_levers(arm)
    if not all(is_ours("schedule", schedule) for schedule in arm.schedules):
        check(alone)  # nobody has trained with it yet
    return Request(method, arm, {name: value for name, value in method.values if name != COUPLING})


def obstacle(request: Request, recorded: list[str]) -> str:
    """Why these recorded proxies do not allow a replay, as the end of a sentence; empty if they do."""
    given, arm = dict(request.method.values), request.arm
    choices = [choice for choice in (arm.choice, arm.signal) if choice is not None]
    if "q" in given and any(choice.proxy == "td_quantile" for choice in choices):
        return "the quantile was measured while training, at the run's own q, so q cannot be varied"
    if given.get(COUPLING):
        return "coupling changes how the agent learns, which takes training"
    for choice in choices:
        spec = SCHEDULES[choice.schedule]
        of = "" if choice is arm.choice else f"of its signal '{choice.schedule}': "
        if spec.needs:
            names = ", ".join(_UNRECORDED.get(field, field) for field in sorted(spec.needs))
            return f"{of}it reads {names}, which is not recorded"
        if spec.uses_proxy and choice.key not in recorded:
            names = ", ".join(recorded) or "none"
            return f"{of}it reads the proxy {choice.key}, which was not recorded; recorded: {names}"
    return ""


class Replayed(NamedTuple):
    """One schedule with its adaptations on R recorded runs of n samples; NumPy, float32.

    Levers are as a run logs them: the window after a sample as a share of the stored transitions, 1 for all; a
    refresh, with its strength, in the sample in which it fell due; rate factor and gradient steps per update after it.
    """

    initial: np.ndarray  # (R,) weight of the first update; reward per nat
    weight: np.ndarray  # (R, n) weight after the updates of a sample; reward per nat
    levers: Levers  # (R, n) each


def replay_runs(study: Recorded, carrier: str, request: Request) -> tuple[Replayed, int]:
    """A method that `obstacle` allows on all runs of one carrier, and the samples before their first update.

    The weight after a sample is the one that training would have used next and that it records at an evaluation. A
    sample that is the mean of several updates is passed as often, so that clocks count updates; the weights are then
    an approximation. A value that is not finite is passed on: schedules hold.
    """
    rows, stride = study.streams.filter(carrier=carrier), study.stride(carrier)
    recorded = proxies_in(rows)
    if not recorded:
        raise ValueError(f"{store.STREAMS} holds no proxy of carrier '{carrier}'")
    read = [choice.key for choice in (request.arm.choice, request.arm.signal) if choice is not None]
    streams = {key: samples_of(rows, key) for key in read if key in recorded} or {"": samples_of(rows, recorded[0])}
    skipped = min(first_update(values) for values in streams.values())
    schedules, adapted, build_adaptation = _data(study, carrier, rows, request)

    def one(own: ScheduleData, run: Any, measured: dict[str, jax.Array]) -> tuple[Any, ...]:
        schedule, adaptation = build([request.arm.choice], own), build_adaptation(run)

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
    return Replayed(*jax.device_get(jit(jax.vmap(one))(schedules, adapted, measured))), skipped


def _data(
    study: Recorded, carrier: str, rows: "pl.DataFrame", request: Request
) -> tuple[ScheduleData, AdaptationData | None, Callable[[Any], DriftAdaptation | None]]:
    """Stacked, (R,) each: the study's numbers, overridden by a run's own values, overridden by the request's."""
    config, arm = study.config, request.arm
    setup, both = set_up(config, carrier), common([arm])
    trained = {each.name: each for each in setup.arms}
    # The options of a schedule from elsewhere mean nothing to another one, though they may have the same names.
    foreign = {name for name in SCHEDULES if not is_ours("schedule", name)}

    def data_of(other: Arm) -> tuple[ScheduleData, AdaptationData]:
        strange = other.choice.schedule != arm.choice.schedule and other.choice.schedule in foreign
        shared = {} if strange else dict(other.values)
        own = arm._replace(values=tuple((shared | dict(request.given)).items()))
        numbers = numbers_of(config, own, setup.facts, ())
        return both.schedule(own, numbers), both.adaptation(own, numbers)

    data = [data_of(trained[name]) for name in rows["method"]]
    schedules, adapted = jax.tree.map(lambda *values: np.stack(values), *data)
    if not arm.adaptations:
        return schedules, None, lambda run: None
    return schedules, adapted, lambda run: adaptations.build(both.adaptations, both.signals, run, setup.supply)


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

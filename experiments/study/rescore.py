"""Replay of recorded proxies: a finished study in, the entropy weights and levers that other schedules and adaptations
would have given out. Nothing is trained."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import adaptations
from aesjax.adaptations import AdaptationData
from aesjax.registry import Registry
from aesjax.schedules import SCHEDULES, Choice, ScheduleData, build
from aesjax.types import DriftAdaptation, Levers, Signals
from experiments.measure.curves import nan_mean
from experiments.measure.patterns import PatternFacts, describe_runs
from experiments.study import store
from experiments.study.arms import Arm, arms_of, check_levers
from experiments.study.build import check, common, numbers_of, set_up
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.method import COUPLING, Method
from experiments.study.plugins import origin_of

if TYPE_CHECKING:
    import polars as pl


LOGGED = ("entropy_weight", "at_min", "at_max")  # at every evaluation of every run
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
    patterns: Mapping[str, PatternFacts]

    def stride(self, carrier: str) -> int:
        """Updates per recorded sample."""
        return self.parts[carrier]["updates_per_stream_sample"]

    def limited_to(self, methods: list[str]) -> "Recorded":
        """The runs of these methods."""
        import polars as pl

        curves, streams = (rows.filter(pl.col("method").is_in(methods)) for rows in (self.curves, self.streams))
        return self._replace(curves=curves, streams=streams)


def load(directory: Path, methods: str | None = None) -> Recorded:
    """The finished study in ``directory``, limited to the comma-separated methods."""
    study = open_study(directory, ended=True)
    if not (directory / store.STREAMS).exists():
        raise ValueError(f"{directory} has no {store.STREAMS}: its proxies were not recorded, run the study again")
    manifest = study.ended.manifest
    parts = {name: manifest.get("parts", {}).get(name, {}) for name in study.config.carriers}
    if any({"updates", "updates_per_stream_sample"} - set(part) for part in parts.values()):
        raise ValueError(f"{directory} cannot be replayed: {store.MANIFEST} lacks the number of updates per sample")
    curves, streams = (study.ended.rows(name) for name in (store.CURVES, store.STREAMS))
    patterns = describe_runs(manifest, study.config.patterns)
    recorded = Recorded(study.config, parts, study.ended.runs("finished"), curves, streams, patterns)
    if methods is None:
        return recorded
    known = Registry("method", **{name: None for name in streams["method"].unique(maintain_order=True)})
    wanted = [part.strip() for part in re.split(r",(?![^\[]*\])", methods)]  # a variant has commas of its own
    for name in wanted:
        known[name]
    return recorded.limited_to(wanted)


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
    alone = dataclasses.replace(config, methods=(method,), sweep={}, together=None)
    arm = arms_of(alone, method.carrier)[0]
    check_levers(arm)
    if any(origin_of("schedule", schedule) is not None for schedule in arm.schedules):
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
    """One schedule on R recorded runs of n samples; NumPy, float32."""

    initial: np.ndarray  # (R,) weight of the first update; reward per nat
    weight: np.ndarray  # (R, n) weight after the updates of a sample; reward per nat
    at_min: np.ndarray  # (R, n) fraction of a sample's updates that lambda_min bound
    at_max: np.ndarray  # (R, n) the same of lambda_max
    levers: Levers = Levers()  # (R, n) each, see `Adaptations`


class Adaptations(NamedTuple):
    """Adaptations to replay with a schedule.

    Their levers are returned as a run logs them: the window after a sample as a share of what is stored then, 1 for
    all; a refresh, with its strength, in the sample in which it fell due; the rate factor and
    gradient steps per update after it.
    """

    build: Callable[[AdaptationData], DriftAdaptation]
    runs: AdaptationData  # (R,) each
    streams: Mapping[str, np.ndarray]  # (R, n) float32, by key: the proxies that drive them


def replay_runs(study: Recorded, carrier: str, request: Request) -> tuple[Replayed, int]:
    """One schedule with its adaptations on all runs of one carrier, and the samples before their first update."""
    rows, choice, signal = study.streams.filter(carrier=carrier), request.arm.choice, request.arm.signal
    recorded = proxies_in(rows)
    if not recorded:
        raise ValueError(f"{store.STREAMS} holds no proxy of carrier '{carrier}'")
    streams = samples_of(rows, choice.key if choice.key in recorded else recorded[0])
    skipped = first_update(streams)
    data, driven = _data(study, carrier, rows, request)
    if driven is not None and signal is not None and SCHEDULES[signal.schedule].uses_proxy:
        driven = driven._replace(streams={signal.key: samples_of(rows, signal.key)[:, skipped:]})
    return replay(choice, data, streams[:, skipped:], study.stride(carrier), driven), skipped


def _data(
    study: Recorded, carrier: str, rows: "pl.DataFrame", request: Request
) -> tuple[ScheduleData, Adaptations | None]:
    """Stacked, (R,) each: the study's numbers, overridden by a run's own values, overridden by the request's."""
    config, arm = study.config, request.arm
    setup, both = set_up(config, carrier), common([arm])
    trained = {each.name: each for each in setup.arms}
    # The options of a schedule from elsewhere mean nothing to another one, though they may have the same names.
    foreign = {name for name in SCHEDULES if origin_of("schedule", name) is not None}

    def data_of(other: Arm) -> tuple[ScheduleData, AdaptationData]:
        strange = other.choice.schedule != arm.choice.schedule and other.choice.schedule in foreign
        shared = {} if strange else dict(other.values)
        own = arm._replace(values=tuple((shared | dict(request.given)).items()))
        numbers = numbers_of(config, own, setup.facts, ())
        return both.schedule(own, numbers), both.adaptation(own, numbers)

    data = [data_of(trained[name]) for name in rows["method"]]
    stacked, runs = jax.tree.map(lambda *values: np.stack(values), *data)
    if not arm.adaptations:
        return stacked, None

    def build(run: AdaptationData) -> DriftAdaptation:
        return adaptations.build(both.adaptations, both.signals, run, setup.supply)

    return stacked, Adaptations(build, runs, {})


def first_update(streams: np.ndarray) -> int:
    """Number of samples before the first update of any run: the leading NaNs that (R, n) streams have in common."""
    seen = np.any(np.isfinite(streams), axis=0)
    return int(np.argmax(seen)) if np.any(seen) else len(seen)


def replay(
    choice: Choice, data: ScheduleData, streams: np.ndarray, stride: int = 1, adapted: Adaptations | None = None
) -> Replayed:
    """The weights of one schedule on many recorded runs, in one compiled scan.

    The weight after a sample is the one that training would have used next and that it records at an evaluation. With
    a stride above 1 a sample is the mean of that many updates and is passed to the schedule as often, so that its clock
    counts updates; the weights are then an approximation. A value that is not finite is passed on: schedules hold.

    Args:
      choice: a schedule that `obstacle` allows.
      data: (R,) each, one entry per run.
      streams: (R, n) float32, the values of the proxy ``choice.key`` from the first update on; a schedule without a
        proxy reads only their number.
      stride: updates per sample.
      adapted: further levers, driven by signals that `obstacle` allows.
    """
    more = {} if adapted is None else {key: jnp.asarray(x, jnp.float32) for key, x in adapted.streams.items()}

    def one(own: ScheduleData, run: Any, measured: dict[str, jax.Array]) -> tuple[Any, ...]:
        schedule = build([choice], own)
        adaptation = None if adapted is None else adapted.build(run)
        zero = jnp.zeros(())

        def sample(states: Any, measured: dict[str, jax.Array]):
            signals = Signals(measured=measured)

            def update(_: Any, carry: Any):
                (state, turned), low, high, due = carry
                state = schedule.update(signals, state)
                if adaptation is not None:
                    turned, now = _done(adaptation.update(signals, turned))
                    due = jax.tree.map(jnp.maximum, due, now)
                return (state, turned), low + state.logs.at_min, high + state.logs.at_max, due

            due = {} if adaptation is None else _done(states[1])[1]
            states, low, high, due = jax.lax.fori_loop(0, stride, update, (states, zero, zero, due))
            levers = Levers() if adaptation is None else _as_logged(states[1], due)
            return states, (states[0].weight, low / stride, high / stride, levers)

        states = (schedule.init(), None if adaptation is None else adaptation.init())
        _, logs = jax.lax.scan(sample, states, measured)
        return states[0].weight, *logs

    measured = {choice.key: jnp.asarray(streams, jnp.float32)} | more
    run = None if adapted is None else adapted.runs
    return Replayed(*jax.device_get(jax.jit(jax.vmap(one))(data, run, measured)))


def _done(state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """An adaptation's state after its due refresh, and that refresh."""
    due = {k: v for k, v in state.levers._asdict().items() if k.startswith("refresh") and v is not None}
    return state._replace(levers=state.levers._replace(**jax.tree.map(jnp.zeros_like, due))), due


def _as_logged(state: Any, due: dict[str, jax.Array]) -> Levers:
    window = state.levers.window
    share = None if window is None else jnp.minimum(window, state.stored) / state.stored
    return state.levers._replace(window=share, **due)


def at_evaluations(replayed: Replayed, skipped: int, evaluations: int, stride: int = 1) -> dict[str, np.ndarray]:
    """The logs of a training at its evaluations after the one at step 0, (R, E) float64 each.

    Args:
      skipped: samples before the first update; with them the samples are a multiple of ``evaluations``.
      evaluations: E.
      stride: updates per sample.
    """
    (runs, samples), levers = replayed.weight.shape, replayed.levers
    refreshes = [values > 0 for values in (levers.refresh, levers.refresh_units) if values is not None]

    def per_evaluation(values: Any, before: np.ndarray) -> np.ndarray:
        padded = np.concatenate([np.broadcast_to(before, (runs, skipped)), values], axis=1).astype(np.float64)
        return padded.reshape(runs, evaluations, (skipped + samples) // evaluations)

    none = np.full((runs, 1), np.nan)
    return {
        "entropy_weight": per_evaluation(replayed.weight, replayed.initial[:, None])[:, :, -1],
        "at_min": nan_mean(per_evaluation(replayed.at_min, none), axis=-1),
        "at_max": nan_mean(per_evaluation(replayed.at_max, none), axis=-1),
    } | {
        name: fold(per_evaluation(value, none), axis=-1)
        for name, value, fold in (
            ("window_share", levers.window, nan_mean),
            ("refreshes", np.logical_or.reduce(refreshes) if refreshes else None, np.nansum),
            ("rate_factor", levers.rate, nan_mean),
            ("gradient_steps", None if levers.updates is None else levers.updates * stride, np.nansum),
        )
        if value is not None
    }

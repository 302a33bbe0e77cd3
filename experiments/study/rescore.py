"""Replay: recorded proxies in, the entropy weights and levers that a schedule and responses would have given out.
Nothing is trained."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper, build
from aesjax.types import DriftResponse, Levers, Signals
from experiments.measure.curves import nan_mean

_UNRECORDED = {
    "log_prob": "the log-density of the policy's actions (log_prob)",
    "reward": "the rewards of the newest transitions",
    "true_drift": "the true drift at every update",
}


class Replayed(NamedTuple):
    """One schedule on R recorded runs of n samples; NumPy, float32."""

    initial: np.ndarray  # (R,) weight of the first update; reward per nat
    weight: np.ndarray  # (R, n) weight after the updates of a sample; reward per nat
    at_min: np.ndarray  # (R, n) fraction of a sample's updates that lambda_min bound
    at_max: np.ndarray  # (R, n) the same of lambda_max
    levers: Levers = Levers()  # (R, n) each, see `Responses`


class Responses(NamedTuple):
    """Responses to replay beside a schedule.

    Their levers come out as a run logs them: the window after a sample as a share of what is stored then, 1 for all;
    a refresh, with its strength, in the sample in which it fell due; the rate factor after a sample.
    """

    build: Callable[[ScheduleHyper, Any], DriftResponse]  # run's hyper-parameters, its responses as data
    runs: Any  # (R,) each, of `aesjax.adaptations.ResponseHyper`
    streams: Mapping[str, np.ndarray]  # (R, n) float32, by key: the proxies that drive them


def obstacle(choice: Choice, recorded: list[str]) -> str:
    """Why a schedule cannot be replayed on these recorded proxies, as the end of a sentence; empty if it can.

    >>> obstacle(Choice("aes_r"), ["td_quantile/update"])
    "it reads the proxy td_quantile/fresh, which was not recorded; recorded: td_quantile/update"
    """
    spec = SCHEDULES[choice.schedule]
    if spec.needs:
        names = ", ".join(_UNRECORDED.get(field, field) for field in sorted(spec.needs))
        return f"it reads {names}, which is not recorded"
    if spec.uses_proxy and choice.key not in recorded:
        names = ", ".join(recorded) or "none"
        return f"it reads the proxy {choice.key}, which was not recorded; recorded: {names}"
    return ""


def first_update(streams: np.ndarray) -> int:
    """Number of samples before the first update of any run: the leading NaNs that (R, n) streams have in common."""
    seen = np.any(np.isfinite(streams), axis=0)
    return int(np.argmax(seen)) if np.any(seen) else len(seen)


def replay(
    choice: Choice, hyper: ScheduleHyper, streams: np.ndarray, stride: int = 1, responses: Responses | None = None
) -> Replayed:
    """The weights of one schedule on many recorded runs, in one compiled scan.

    The weight after a sample is the one that training would have used next and that it records at an evaluation. With
    a stride above 1 a sample is the mean of that many updates and is shown to the schedule as often, so that its clock
    counts updates; the weights are then an approximation. A value that is not finite is shown as it is: schedules hold.

    Args:
      choice: a schedule without `obstacle`.
      hyper: (R,) float32 each, one entry per run.
      streams: (R, n) float32, the values of the proxy ``choice.key`` from the first update on; a schedule without a
        proxy reads only their number.
      stride: updates per sample.
      responses: what else is turned, by signals without `obstacle`.
    """
    more = {} if responses is None else {key: jnp.asarray(x, jnp.float32) for key, x in responses.streams.items()}

    def one(hyper: ScheduleHyper, run: Any, measured: dict[str, jax.Array]) -> tuple[Any, ...]:
        schedule = build(choice, hyper)
        response = None if responses is None else responses.build(hyper, run)
        zero = jnp.zeros(())

        def sample(states: Any, measured: dict[str, jax.Array]):
            signals = Signals(measured=measured)

            def update(_: Any, carry: Any):
                (state, turned), low, high, due = carry
                state = schedule.update(signals, state)
                if response is not None:
                    turned, now = _done(response.update(signals, turned))
                    due = jax.tree.map(jnp.maximum, due, now)
                return (state, turned), low + state.logs.at_min, high + state.logs.at_max, due

            due = {} if response is None else _done(states[1])[1]
            states, low, high, due = jax.lax.fori_loop(0, stride, update, (states, zero, zero, due))
            levers = Levers() if response is None else _as_logged(states[1], due)
            return states, (states[0].weight, low / stride, high / stride, levers)

        states = (schedule.init(), None if response is None else response.init())
        _, logs = jax.lax.scan(sample, states, measured)
        return states[0].weight, *logs

    measured = {choice.key: jnp.asarray(streams, jnp.float32)} | more
    run = None if responses is None else responses.runs
    return Replayed(*jax.device_get(jax.jit(jax.vmap(one))(hyper, run, measured)))


def _done(state: Any) -> tuple[Any, dict[str, jax.Array]]:
    """A response's state with its due refresh done, and that refresh."""
    due = {k: v for k, v in state.levers._asdict().items() if k.startswith("refresh") and v is not None}
    return state._replace(levers=state.levers._replace(**jax.tree.map(jnp.zeros_like, due))), due


def _as_logged(state: Any, due: dict[str, jax.Array]) -> Levers:
    window = state.levers.window
    share = None if window is None else jnp.minimum(window, state.stored) / state.stored
    return state.levers._replace(window=share, **due)


def _events(levers: Levers) -> Any:
    """Where a refresh of either kind fell due, None where nothing refreshes."""
    kinds = [values > 0 for values in (levers.refresh, levers.refresh_units) if values is not None]
    return np.logical_or.reduce(kinds) if kinds else None


def at_evaluations(replayed: Replayed, skipped: int, evaluations: int) -> dict[str, np.ndarray]:
    """What training would have logged at its evaluations after the one at step 0, (R, E) float64 each.

    Args:
      skipped: samples before the first update; with them the samples are a multiple of ``evaluations``.
      evaluations: E.
    """
    runs, samples = replayed.weight.shape

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
            ("window_share", replayed.levers.window, nan_mean),
            ("refreshes", _events(replayed.levers), np.nansum),
            ("rate_factor", replayed.levers.rate, nan_mean),
        )
        if value is not None
    }

"""Replay: recorded proxies in, the entropy weights that a schedule would have given out. Nothing is trained."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.measure.curves import nan_mean
from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper, build
from aesjax.types import Signals

__all__ = ["Replayed", "at_evaluations", "first_update", "obstacle", "replay"]

UNRECORDED = {
    "log_prob": "the log-density of the policy's actions (log_prob)",
    "true_drift": "the true drift at every update",
}


class Replayed(NamedTuple):
    """One schedule on R recorded runs of n samples; NumPy, float32."""

    initial: np.ndarray  # (R,) weight of the first update; reward per nat
    weight: np.ndarray  # (R, n) weight after the updates of a sample; reward per nat
    at_min: np.ndarray  # (R, n) fraction of a sample's updates that lambda_min bound
    at_max: np.ndarray  # (R, n) the same of lambda_max


def obstacle(choice: Choice, recorded: list[str]) -> str:
    """Why a schedule cannot be replayed on these recorded proxies, as the end of a sentence; empty if it can.

    >>> obstacle(Choice("aes_r"), ["td_quantile/update"])
    "it reads the proxy td_quantile/fresh, which was not recorded; recorded: td_quantile/update"
    """
    spec = SCHEDULES[choice.schedule]
    if spec.needs:
        names = ", ".join(UNRECORDED.get(field, field) for field in sorted(spec.needs))
        return f"it reads {names}, which is not recorded"
    if spec.uses_proxy and choice.key not in recorded:
        names = ", ".join(recorded) or "none"
        return f"it reads the proxy {choice.key}, which was not recorded; recorded: {names}"
    return ""


def first_update(streams: np.ndarray) -> int:
    """Number of samples before the first update of any run: the leading NaNs that (R, n) streams have in common."""
    seen = np.any(np.isfinite(streams), axis=0)
    return int(np.argmax(seen)) if np.any(seen) else len(seen)


def replay(choice: Choice, hyper: ScheduleHyper, streams: np.ndarray, stride: int = 1) -> Replayed:
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
    """

    def one(hyper: ScheduleHyper, stream: jax.Array) -> tuple[jax.Array, ...]:
        schedule = build(choice, hyper)
        zero = jnp.zeros(())

        def sample(state: Any, value: jax.Array):
            def update(_: Any, carry: Any):
                state, low, high = carry
                state = schedule.update(Signals(measured={choice.key: value}), state)
                return state, low + state.logs.at_min, high + state.logs.at_max

            state, low, high = jax.lax.fori_loop(0, stride, update, (state, zero, zero))
            return state, (state.weight, low / stride, high / stride)

        state = schedule.init()
        _, logs = jax.lax.scan(sample, state, stream)
        return state.weight, *logs

    return Replayed(*jax.device_get(jax.jit(jax.vmap(one))(hyper, jnp.asarray(streams, jnp.float32))))


def at_evaluations(replayed: Replayed, skipped: int, evaluations: int) -> dict[str, np.ndarray]:
    """What training would have logged at its evaluations after the one at step 0, (R, E) float64 each.

    Args:
      skipped: samples before the first update; with them the samples are a multiple of ``evaluations``.
      evaluations: E.
    """
    runs, samples = replayed.weight.shape

    def per_evaluation(values: np.ndarray, before: np.ndarray) -> np.ndarray:
        padded = np.concatenate([np.broadcast_to(before, (runs, skipped)), values], axis=1).astype(np.float64)
        return padded.reshape(runs, evaluations, (skipped + samples) // evaluations)

    none = np.full((runs, 1), np.nan)
    return {
        "entropy_weight": per_evaluation(replayed.weight, replayed.initial[:, None])[:, :, -1],
        "at_min": nan_mean(per_evaluation(replayed.at_min, none), axis=-1),
        "at_max": nan_mean(per_evaluation(replayed.at_max, none), axis=-1),
    }

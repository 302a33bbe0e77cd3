"""Learners on the simplex: entropy mirror descent under a schedule, and what it has to be compared with."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.schedules import AnySchedule, Schedule
from aesjax.schedules.accumulated import aes_d
from aesjax.schedules.rule import bounded, read_signal
from aesjax.types import Array, EntropySchedule, ScheduleState, Signals
from experiments.theory.oco import Feedback, Learner
from experiments.theory.simplex import fixed_share, mirror_step


def drift_proxy(signals: Signals) -> Array:
    """The proxy that reads ``Signals.true_drift``, where games and sequences report theirs; () float32."""
    return read_signal("drift_proxy", signals, "true_drift")


def _uniform(size: int) -> Array:
    return jnp.full(size, -jnp.log(float(size)))


def frozen() -> Learner:
    """Plays the uniform point for ever."""
    return Learner(_uniform, lambda log_x: log_x, lambda log_x, feedback: (log_x, jnp.zeros(())))


class _MirrorState(NamedTuple):
    """State of `mirror`."""

    log_x: Array  # (K,)
    schedule: ScheduleState


def mirror(
    schedule: AnySchedule,
    c: Array | float,
    floor: Array | float,
    *,
    entropy: Array | float = 1.0,
    restart: bool = False,
) -> Learner:
    """Entropy mirror descent on ``f_t + entropy * lam_t * Psi`` with coupled steps ``eta_t = c * lam_t``.

    AES paper Section 3. The schedule is any of `aesjax.schedules`, the same object that drives the deep agents; it
    reads the proxy through `drift_proxy`. Weight t uses the proxy of round t, as the theorems need.

    Args:
      schedule: gives ``lam_t``, reward per nat.
      c: () step per weight; stable for ``c * lam**2 < 2``, without oscillation for at most 1.
      floor: () of the truncated simplex.
      entropy: () 0 leaves the entropy term out and keeps the steps: the twin that tells step size from entropy.
      restart: return to the uniform point at every true change of the comparator; a reference.
    """

    def init(size: int) -> _MirrorState:
        return _MirrorState(_uniform(size), schedule.init())

    def update(state: _MirrorState, feedback: Feedback) -> tuple[_MirrorState, Array]:
        scheduled = schedule.update(Signals(true_drift=feedback.proxy.astype(jnp.float32)), state.schedule)
        weight = scheduled.weight.astype(state.log_x.dtype)
        gradient = feedback.gradient + entropy * weight * state.log_x
        log_x = mirror_step(state.log_x, gradient, c * weight, floor)
        if restart:
            log_x = jnp.where(feedback.drift > 0.0, _uniform(log_x.shape[0]), log_x)
        return _MirrorState(log_x, scheduled), weight

    return Learner(init, lambda state: state.log_x, update)


def hedge(eta: Array | float, *, share: Array | float = 0.0, floor: Array | float = 0.0) -> Learner:
    """Exponential weights with constant step ``eta``, mixed with the uniform point by ``share`` after every step.

    ``share > 0`` is the fixed share of Herbster and Warmuth (1998).
    """

    def update(log_x: Array, feedback: Feedback) -> tuple[Array, Array]:
        return fixed_share(mirror_step(log_x, feedback.gradient, eta, floor), share), jnp.zeros(())

    return Learner(_uniform, lambda log_x: log_x, update)


class _AderState(NamedTuple):
    """State of `ader`."""

    log_x: Array  # (N, K) points of the experts
    log_weight: Array  # (N,) of the experts


def ader(horizon: int, floor: Array | float, *, scale: Array | float = 1.0) -> Learner:
    """Aggregation of mirror descents with steps ``scale * 2**i * sqrt(log K / T)``, i = 0 ... log2(T)/2 + 1.

    Zhang, Lu and Zhou 2018 (Ader, with the gradient at the aggregate for all experts). Needs no drift signal. The
    experts' first weights fall like 1/i^2; the meta learner is exponential weights with step ``sqrt(8 / T)``.
    """
    count = round(math.log2(horizon) / 2) + 2

    def init(size: int) -> _AderState:
        rank = jnp.arange(1, count + 1)
        prior = -jnp.log(rank * (rank + 1.0))
        return _AderState(jnp.tile(_uniform(size)[None], (count, 1)), jax.nn.log_softmax(prior))

    def point(state: _AderState) -> Array:
        return jax.nn.logsumexp(state.log_weight[:, None] + state.log_x, axis=0)

    def update(state: _AderState, feedback: Feedback) -> tuple[_AderState, Array]:
        size = state.log_x.shape[-1]
        losses = jnp.sum(jnp.exp(state.log_x) * feedback.gradient[None], axis=-1)
        log_weight = jax.nn.log_softmax(state.log_weight - jnp.sqrt(8.0 / horizon) * losses)
        etas = scale * 2.0 ** jnp.arange(count) * jnp.sqrt(jnp.log(float(size)) / horizon)
        log_x = jax.vmap(lambda point, eta: mirror_step(point, feedback.gradient, eta, floor))(state.log_x, etas)
        return _AderState(log_x, log_weight), jnp.zeros(())

    return Learner(init, point, update)


def per_round_oracle(*, beta: float = 0.0, **rule: Any) -> Schedule:
    """``clip(kappa * sqrt(xi_t))``: the paper's per-round oracle, Eq. (lambda-star), as a schedule.

    It is `aes_d` with a memory of one round and no prior; ``rule`` are kappa, lambda_min and lambda_max.
    """
    return aes_d(drift_proxy, 1.0, window=1.0, prior=0.0, beta=beta, **rule)


class _EnvelopeMemory(NamedTuple):
    """Memory of `envelope`."""

    schedule: ScheduleState
    highest: Array  # () float32


def envelope(schedule: AnySchedule) -> EntropySchedule:
    """The running maximum of a schedule's weight: the monotone envelope that the paper suggests for its lemma."""

    def show(inner: ScheduleState, highest: Array) -> ScheduleState:
        weight, logs = bounded(highest, 0.0, jnp.inf, inner.logs.proxy, inner.logs.proxy_smooth)
        return ScheduleState(weight, inner.count, _EnvelopeMemory(inner, highest), logs)

    def init() -> ScheduleState:
        return show(schedule.init(), jnp.zeros((), jnp.float32))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        inner = schedule.update(signals, state.inner.schedule)
        return show(inner, jnp.maximum(state.inner.highest, inner.weight))

    return EntropySchedule(init, update)

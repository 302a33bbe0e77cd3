"""Shared data types: signals, weights, and programs of one run."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

Array = jax.Array

#: Prefix of metrics that hold many values per evaluation: one for every update, or a mean of several.
STREAM = "stream_"


class Signals(NamedTuple):
    """Quantities of one gradient step that a schedule may read; ``None`` means not reported.

    A schedule or proxy that needs an absent field raises when it is traced and names the field.
    B = residuals of the update batch (``2 * batch`` for twin critics), W = newest transitions stored.
    """

    td_error: Array | None = None  # (B,) float32, raw temporal-difference errors of the update batch; reward
    value_loss: Array | None = None  # () float32, critic loss of the update batch; reward squared
    critic_drift: Array | None = None  # () float32, norm of the critic's parameter change in this step
    log_prob: Array | None = None  # (B,) float32, log-density of actions drawn from the current policy; nats
    fresh_td_error: Array | None = None  # (W,) float32, residuals of the newest transitions when they arrived; reward
    fresh_critic_drift: Array | None = None  # () float32, mean |Q_new - Q_old| on the newest transitions; reward
    model_error: Array | None = None  # () float32, one-step prediction error on the newest transitions; variances
    true_drift: Array | None = None  # () float32, size of the last change of the environment; only `oracle` may read it
    reward: Array | None = None  # (N,) float32, rewards of the newest transitions, in the units of the entropy weight
    online_reward: Array | None = None  # () float32, mean reward of the newest transitions, in the task's units
    measured: Mapping[str, Array] | None = None  # () float32 each: proxies computed already, by "proxy/source"


class ScheduleLogs(NamedTuple):
    """Diagnostics of a schedule's last update, all () float32."""

    proxy: Array  # raw drift proxy of the step; 0 for schedules without one
    proxy_smooth: Array  # the proxy after smoothing
    weight_raw: Array  # entropy weight before clipping
    at_min: Array  # 1 where the clip lifted the weight to lambda_min, else 0
    at_max: Array  # 1 where the clip cut the weight to lambda_max, else 0


class ScheduleState(NamedTuple):
    """Complete memory of a schedule; a leaf of the caller's scan carry."""

    weight: Array  # () float32, the entropy weight for the step about to run; reward per nat
    count: Array  # () int32, updates so far that the schedule has counted
    inner: Any  # the schedule's own memory, float32 scalars and small vectors
    logs: ScheduleLogs


class EntropySchedule(NamedTuple):
    """A pair of pure functions, in the manner of an optax transformation.

    ``state = init()`` holds ``lambda_0``. ``state = update(signals, state)`` turns the signals of the step that
    ran under ``state.weight`` into the weight of the *next* step (a lag of one; the paper states no order). Both are
    safe under ``jit``, ``vmap`` and ``scan``. ``measure(signals)`` fills ``signals.measured``, so that a loop which
    feeds one long signal to many updates computes it once.
    """

    init: Callable[[], ScheduleState]
    update: Callable[[Signals, ScheduleState], ScheduleState]
    measure: Callable[[Signals], Signals] = lambda signals: signals


class Levers(NamedTuple):
    """Values that adaptations adjust besides the entropy weight, for the step about to run.

    ``None``: no adaptation of the program adjusts it, and nothing is computed for it.
    """

    window: Array | None = None  # () float32, number of newest transitions that batches are drawn from; inf: all
    refresh: Array | None = None  # () float32 in [0, 1], step of the critic's parameters towards fresh ones; 0: none
    refresh_actor: Array | None = None  # () float32 in [0, 1], step of the actor's parameters; present if `refresh` is
    rate: Array | None = None  # () float32, factor of every learning rate
    recency: Array | None = None  # () float32, scale of sampling weights exp(-age / scale), transitions; inf: uniform
    isometry: Array | None = None  # () float32 in [0, 1], step of hidden kernels to their nearest isometry; 0: none
    updates: Array | None = None  # () float32 >= 1, gradient steps per vector step; a fraction: the chance of one more


class AdaptationState(NamedTuple):
    """Memory of all adaptations of a run; a leaf of the caller's scan carry."""

    levers: Levers  # a due refresh stays due until the caller has done it and set it to 0
    ratio: Array  # () float32 >= 1, drift relative to its usual level
    stored: Array  # () float32, transitions in the replay in the step about to run; 0 without a replay
    count: Array  # () int32, updates seen so far
    signal: Any  # state of the schedules behind the ratio
    memory: Any  # of the single adaptations


class DriftAdaptation(NamedTuple):
    """A pair of pure functions like `EntropySchedule`, from the same signals to `Levers`, with the same lag of one.

    An entropy schedule adjusts the entropy weight; an adaptation adjusts a field of `Levers`.
    """

    init: Callable[[], AdaptationState]
    update: Callable[[Signals, AdaptationState], AdaptationState]


#: Maps one step's signals to a drift magnitude, () float32, >= 0; raises when traced if its signal is absent.
Proxy = Callable[[Signals], Array]


class Program(NamedTuple):
    """One run as pure functions. ``run`` is constant data, ``state`` is all that changes.

    ``step`` () int32 is the number of vector steps done, from the host and equal for all runs of a batch.
    """

    init: Callable[[Any], Any]  # run -> state
    chunk: Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]  # state, run, step -> state, metrics
    evaluate: Callable[[Any, Any, Array], dict[str, Array]]  # state, run, step -> metrics

"""Parts shared by all schedules: smoothing, running means, clipping and logs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.types import Array, EntropySchedule, ScheduleLogs, ScheduleState, Signals

#: Fields of `Signals` that are vectors (B,); all others are scalars.
VECTORS = ("td_error", "log_prob", "fresh_td_error", "reward")


def float32(x: Any) -> Array:
    """``x`` as float32."""
    return jnp.asarray(x, jnp.float32)


class Mean(NamedTuple):
    """A running mean that stays exact to float32 rounding over billions of updates."""

    value: Array  # (...) float32
    lost: Array  # (...) float32, rounding error of `value` so far (Kahan), so that small late steps are not lost

    @classmethod
    def zero(cls, *shape: int) -> "Mean":
        """Mean before the first value."""
        return cls(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))

    def moved(self, step: Array) -> "Mean":
        """The mean after a ``step`` (...), which may be below the rounding of its value."""
        step = step - self.lost
        total = self.value + step
        return Mean(total, (total - self.value) - step)


def ema(previous: Array, value: Array, beta: Array | float, first: Array) -> Array:
    """Exponential moving average, AES paper Eq. (ema); it starts at the first value, so EMA_1 = v_1."""
    beta = float32(beta)
    return jnp.where(first, value, beta * previous + (1.0 - beta) * value)


def running_mean(mean: Mean, value: Array, count: Array) -> Mean:
    """``Mean`` after the ``count``-th value (() int32, >= 1), AES paper Eq. (proxy_accum) divided by t."""
    return mean.moved((value - mean.value) / count.astype(jnp.float32))


def discounted_count(count: Array, window: Array) -> Array:
    """``sum_{i<t} (1 - 1/window)^i`` for t = ``count`` >= 1: number of updates that a discounted mean holds.

    The closed form: in float32 a recursion with ``1 - 1/window`` is off by percents for windows of 1e6.
    """
    return -window * jnp.expm1(count.astype(jnp.float32) * jnp.log1p(-1.0 / window))


def bounded(
    raw: Array, low: Array | float, high: Array | float, proxy: Array, smooth: Array
) -> tuple[Array, ScheduleLogs]:
    """Clipped weight, () reward per nat, and its logs; ``low = 0`` and ``high = inf`` do not clip."""
    low, high = float32(low), float32(high)
    logs = ScheduleLogs(proxy, smooth, raw, at_min=float32(raw < low), at_max=float32(raw > high))
    return jnp.minimum(jnp.maximum(raw, low), high), logs


def bounded_above_base(
    base: Array, ratio: Array, high: Array | float, proxy: Array, smooth: Array
) -> tuple[Array, ScheduleLogs]:
    """`bounded` of ``base * ratio``, ratio >= 1, where the clip limits the raised part and never moves the base."""
    return bounded(base * ratio, 0.0, jnp.maximum(float32(high), base), proxy, smooth)


def base_weight(
    base: Array | float | EntropySchedule, signals: Signals | None = None, state: Any = None
) -> tuple[Array, ScheduleState | None]:
    """Weight that a schedule modulates, and its state; from a number, or from another schedule after ``signals``."""
    if not hasattr(base, "init"):
        return float32(base), None
    state = base.init() if signals is None else base.update(signals, state)  # type: ignore
    return state.weight, state


def start(weight: Array | float, inner: Any = (), raw: Array | float | None = None) -> ScheduleState:
    """State before the first update; the logs are zero except for the weight."""
    zero = jnp.zeros((), jnp.float32)
    weight = float32(weight)
    raw = weight if raw is None else float32(raw)
    return ScheduleState(weight, jnp.zeros((), jnp.int32), inner, ScheduleLogs(zero, zero, raw, zero, zero))


def held(ok: Array, new: ScheduleState, old: ScheduleState) -> ScheduleState:
    """``new`` where ``ok``, else ``old`` unchanged, counter included, so that a non-finite signal is ignored."""
    return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, old)


def read_signal(reader: str, signals: Signals, field: str) -> Array:
    """The field as float32; ValueError when traced if the carrier does not report it or its rank is wrong."""
    value, rank = getattr(signals, field), int(field in VECTORS)
    shape = "(B,)" if rank else "()"
    if value is None:
        raise ValueError(f"{reader} needs Signals.{field} of shape {shape}, which the carrier does not report (None).")
    value = jnp.asarray(value)
    if value.ndim != rank or value.size == 0:
        hint = " Flatten it: td_error.ravel()." if value.ndim > rank else ""
        raise ValueError(f"{reader} needs Signals.{field} of shape {shape}; got {value.shape}.{hint}")
    return value.astype(jnp.float32)

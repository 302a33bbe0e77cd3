"""Schedules that modulate another weight: `aes_r`, and the `oracle` that reads the true drift."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.factory import AT_LEAST_1, NOT_NEGATIVE, POSITIVE, SHARE_OF_UPDATES
from aesjax.schedules.basic import auto
from aesjax.schedules.rule import (
    Mean,
    base_weight,
    bounded_above_base,
    discounted_count,
    ema,
    float32,
    read_signal,
    start,
)
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals

TINY = float(np.finfo(np.float32).tiny)
_RATIO = {"gain": NOT_NEGATIVE, "r_max": AT_LEAST_1, "margin": NOT_NEGATIVE, "e_max": NOT_NEGATIVE}
# Constants of the proofs, which are not options.
_WINDOWS = 8
_LONGEST_WINDOW = 0.25  # largest window after the first, as a share of the updates
_BASELINE_GAIN, _BASELINE_STEP = 4.0, 0.5  # the median moves by min(step, gain / t) / 2 in log units per update


class _RelativeMemory(NamedTuple):
    """Memory of `aes_r`."""

    smooth: Array  # () float32, EMA of the proxy
    unit: Array  # () float32, the first proxy; logarithms are taken relative to it, which keeps them small and exact
    log_baseline: Mean  # () running median of log(smooth / unit)
    bank: Mean  # (J,) discounted means of the excess
    base: Any  # state of the base schedule, None for a number


@as_schedule(
    label="AES-R",
    source="fresh",
    ranges=_RATIO,
    relative=True,
)
def aes_r(
    proxy: Proxy,
    base: Array | float | EntropySchedule,
    updates: Array | float,
    *,
    gain: Array | float = 2.0,
    r_max: Array | float = 5.0,
    margin: Array | float = 0.25,
    e_max: Array | float = 8.0,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """Raise the base weight by the proxy's excess over its running median.

    With s the EMA of the proxy (decay ``1 - 1/clip(updates/500, 2, 20)``) and B its running median, the excess
    ``e = clip(s/B/(1+margin) - 1, 0, e_max)`` is averaged over dyadic windows, the shortest of ``max(8, updates/1000)``
    updates. E is the largest of these means, and the weight is ``base * min(sqrt(1 + gain * E), r_max)``. Multiplying
    all rewards by c leaves ``weight / base`` as it is; without excess the weight is exactly the base. One-sided: it
    cannot lower a base that is too large.

    Not in the paper. The clip never moves the base itself, so only ``lambda_max`` acts, on the raised part. At a proxy
    that is zero or not finite, EMA and median stay as they are, and the update counts as one without excess.
    Proofs: docs/proofs/relative.md.

    Args:
      proxy: drift proxy, () >= 0; on the newest transitions it answers fastest.
      base: () reward per nat, or a schedule whose weight is modulated, for instance `auto`.
      updates: () planned number of updates; sets only how long smoothing and windows are.
      gain: () a; at most 2 keeps the loop through TD errors stable.
      r_max: () largest ratio to the base weight.
      margin, e_max: () dead zone and cap of the excess, as shares of the baseline.
      lambda_max: () reward per nat. A lower bound would do nothing: the weight is never below its base.

    >>> from aesjax.schedules.proxies import td_quantile
    >>> schedule = aes_r(td_quantile(source="fresh"), base=0.05, updates=40_000)
    >>> state = schedule.update(Signals(fresh_td_error=jnp.ones(8)), schedule.init())
    >>> print(state.weight)
    0.05
    """
    gain, r_max, margin, e_max, updates = (float32(x) for x in (gain, r_max, margin, e_max, updates))
    beta = 1.0 - 1.0 / jnp.clip(updates / 500.0, 2.0, 20.0)
    first = jnp.maximum(8.0, updates / 1000.0)
    windows = first * float32(2.0 ** np.arange(_WINDOWS))
    admitted = (windows <= _LONGEST_WINDOW * updates) | (jnp.arange(_WINDOWS) == 0)

    def init() -> ScheduleState:
        weight, base_state = base_weight(base)
        zero = float32(0.0)
        return start(weight, _RelativeMemory(zero, zero, Mean.zero(), Mean.zero(_WINDOWS), base_state))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old = state.inner
        lam0, base_state = base_weight(base, signals, old.base)
        v = proxy(signals)
        unstarted = state.count == 0
        finite = jnp.isfinite(v)
        ok = finite & ~(v <= 0.0)  # so written the compiled rule keeps every bit it had for valid proxies
        count = state.count + ok.astype(jnp.int32)
        smooth = ema(old.smooth, v, beta, first=unstarted)
        unit = jnp.where(unstarted, v, old.unit)
        log_smooth = jnp.log(jnp.maximum(smooth / unit, TINY))
        above = log_smooth - old.log_baseline.value
        excess = jnp.clip(jnp.exp(above) / (1.0 + margin) - 1.0, 0.0, e_max)
        step = jnp.minimum(_BASELINE_STEP, _BASELINE_GAIN / count.astype(jnp.float32))
        log_baseline = old.log_baseline.moved(step * (jnp.where(above > 0.0, 1.0, 0.0) - 0.5))

        memory = _RelativeMemory(smooth, unit, log_baseline, old.bank, None)
        memory = jax.tree.map(lambda new, kept: jnp.where(ok, new, kept), memory, old._replace(base=None))
        # Windows also forget while the proxy is invalid, so that the raised part stays bounded by the observed excess
        # (docs/proofs/relative.md, claim 3).
        held = discounted_count(jnp.maximum(count, 1), windows)
        bank = old.bank.moved((jnp.where(ok, excess, 0.0) - old.bank.value) / held)
        # A window shorter than the first has its length, so that one early excess is not a complete window.
        filled = jnp.minimum(1.0, held / first)
        level = jnp.max(jnp.where(admitted, bank.value * filled, 0.0))
        ratio = jnp.minimum(jnp.sqrt(1.0 + gain * level), r_max)
        v = jnp.where(finite, v, state.logs.proxy)
        weight, logs = bounded_above_base(lam0, ratio, lambda_max, v, memory.smooth)
        return ScheduleState(weight, count, memory._replace(bank=bank, base=base_state), logs)

    return EntropySchedule(init, update)


class _OracleMemory(NamedTuple):
    """Memory of `oracle`."""

    level: Mean  # () leaky sum of the true drift
    base: Any  # state of the base schedule, None for a number


@as_schedule(
    label="auto+AES-R",
    needs=("log_prob",),
    source="fresh",
    ranges={**_RATIO, "auto_learning_rate": POSITIVE, "auto_initial": POSITIVE},
)
def aes_r_auto(
    proxy: Proxy,
    target_entropy: Array | float,
    updates: Array | float,
    *,
    auto_learning_rate: Array | float = 1e-3,
    auto_initial: Array | float = 1.0,
    gain: Array | float = 2.0,
    r_max: Array | float = 5.0,
    margin: Array | float = 0.25,
    e_max: Array | float = 8.0,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """`aes_r` with the weight of `auto` as base; arguments of `aes_r` and `auto`."""
    base = auto.make(target_entropy, auto_learning_rate=auto_learning_rate, auto_initial=auto_initial)
    ratio = {"gain": gain, "r_max": r_max, "margin": margin, "e_max": e_max}
    return aes_r.make(proxy, base, updates, lambda_max=lambda_max, **ratio)


@as_schedule(
    needs=("true_drift",),
    ranges={
        "oracle_gain": NOT_NEGATIVE,
        "r_max": AT_LEAST_1,
        "oracle_memory": SHARE_OF_UPDATES,
    },
    relative=True,
)
def oracle(
    base: Array | float | EntropySchedule,
    updates: Array | float,
    *,
    oracle_gain: Array | float = 16.0,
    r_max: Array | float = 5.0,
    oracle_memory: Array | float = 0.02,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """Reference: raise the base weight with the speed of the true drift.

    ``E = rho * E + d`` with ``rho = 1 - 1/(oracle_memory * updates)`` and d the size of this step's change as a
    share of the channel's range; weight ``base * min(sqrt(1 + oracle_gain * E), r_max)``, () reward per nat, clipped as
    in `aes_r`. A non-finite drift is taken as none. Its logs hold d as proxy and E as smoothed proxy.
    """
    gain, r_max = float32(oracle_gain), float32(r_max)
    remembered = jnp.maximum(float32(oracle_memory) * float32(updates), 1.0)

    def init() -> ScheduleState:
        weight, base_state = base_weight(base)
        return start(weight, _OracleMemory(Mean.zero(), base_state))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        lam0, base_state = base_weight(base, signals, state.inner.base)
        drift = read_signal("schedule 'oracle'", signals, "true_drift")
        drift = jnp.where(jnp.isfinite(drift), drift, 0.0)
        level = state.inner.level.moved(drift - state.inner.level.value / remembered)
        ratio = jnp.minimum(jnp.sqrt(1.0 + gain * level.value), r_max)
        weight, logs = bounded_above_base(lam0, ratio, lambda_max, drift, level.value)
        return ScheduleState(weight, state.count + 1, _OracleMemory(level, base_state), logs)

    return EntropySchedule(init, update)

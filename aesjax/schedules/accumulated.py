"""The paper's schedule `aes` and its three repairs of memory: unit prior mass, discounting, and the maximal mean."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from aesjax.factory import NOT_NEGATIVE, POSITIVE, SHARE_OF_UPDATES, Range
from aesjax.schedules.rule import Mean, bounded, discounted_count, ema, float32, held, running_mean, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals

_TINY = float(np.finfo(np.float32).tiny)

_RULE = {
    "kappa": POSITIVE,
    "beta": Range(0.0, 1.0, "in [0, 1); larger is smoother (paper: 0.95)", open_high=True),
}
_PRIOR = {**_RULE, "prior": NOT_NEGATIVE}

_Level = Callable[[Any, Array, Array], tuple[Any, Array]]  # (memory, smoothed proxy, t) -> (memory, drift level)


@as_schedule(label="AES", ranges=_RULE)
def aes(
    proxy: Proxy,
    *,
    kappa: Array | float = 1.0,
    beta: Array | float = 0.95,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
    base: Array | float = 0.2,
) -> EntropySchedule:
    """The paper's rule: kappa times the root of the running mean of the proxy.

    ``clip(kappa * sqrt(A_t / t))`` with ``A_t`` the sum of the smoothed proxy. AES paper Eq. (ema), (proxy_accum) and
    (aes_schedule), Appendix C. Deviations: none in value; the mean is carried instead of the sum, and a non-finite
    proxy keeps the whole state. All defaults are the paper's for SAC, SQL and MEow; for PPO ``lambda_max`` is 0.1.

    The authors' code (github.com/WtxwNs/AES) begins at ``lambda_min``, here ``base=1e-4``, and uses a weight one update
    earlier, in the update of its errors: at most 0.16 % from update 500 on, on recorded proxies.

    Args:
      proxy: drift proxy, () >= 0.
      kappa: () reward per nat per root of the proxy's unit.
      beta: () EMA decay in [0, 1); the EMA starts at the first raw value.
      lambda_min, lambda_max: () reward per nat; 0 and ``inf`` remove the clip.
      base: () reward per nat, weight of the first step (clipped). A run sets it to the carrier's weight; the default
        holds outside runs.

    >>> from aesjax.schedules.proxies import td_quantile
    >>> schedule = aes(td_quantile(q=0.9))
    >>> state = schedule.update(Signals(td_error=jnp.full(8, 0.25)), schedule.init())
    >>> print(state.weight)
    0.5
    """
    return _schedule(proxy, Mean.zero(), _averaged(None), kappa, beta, lambda_min, lambda_max, base)


@as_schedule(label="AES-P", ranges=_PRIOR)
def aes_prior(
    proxy: Proxy,
    *,
    prior: Array | float = 1.0,
    kappa: Array | float = 1.0,
    beta: Array | float = 0.95,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
    base: Array | float = 0.2,
) -> EntropySchedule:
    """`aes` with prior mass, which its regret bound needs.

    ``kappa * sqrt((prior + A_t) / t)``. Replaces AES paper Theorem 3.4, whose weight is zero before the first drift.
    ``prior`` is in units of the proxy; zero gives `aes`. Other arguments as there.
    """
    return _schedule(proxy, Mean.zero(), _averaged(float32(prior)), kappa, beta, lambda_min, lambda_max, base)


@as_schedule(
    label="AES-D",
    ranges={**_PRIOR, "window": SHARE_OF_UPDATES},
)
def aes_d(
    proxy: Proxy,
    updates: Array | float,
    *,
    window: Array | float = 0.02,
    prior: Array | float = 1.0,
    kappa: Array | float = 1.0,
    beta: Array | float = 0.95,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
    base: Array | float = 0.2,
) -> EntropySchedule:
    """`aes` with a discounted mean, in which old drift decays.

    Discounted `aes_prior`, ``kappa * sqrt((prior + num_t) / den_t)``: ``num_t = rho num + v``, ``den_t = rho den + 1``
    with ``rho = 1 - 1/L`` and ``L = window * updates``. Not in the paper. As the window grows it becomes `aes_prior`;
    the weight never falls below ``kappa * sqrt(prior / L)``.

    Args:
      updates: () planned number of updates.
      window: () memory as a share of the updates, at least one update. Do not forget faster than the learner tracks:
        ``L >= (kappa / weight)**2``.
      prior: () units of the proxy. Others as in `aes`.
    """
    remembered, prior = jnp.maximum(float32(window) * float32(updates), 1.0), float32(prior)

    def level(mean: Mean, smooth: Array, count: Array) -> tuple[Mean, Array]:
        held_updates = discounted_count(count, remembered)
        mean = mean.moved((smooth - mean.value) / held_updates)
        return mean, mean.value + prior / held_updates

    return _schedule(proxy, Mean.zero(), level, kappa, beta, lambda_min, lambda_max, base)


class _BankMemory(NamedTuple):
    """Memory of `aes_m`."""

    whole: Mean  # mean over all updates
    bank: Mean  # (J,) discounted means over windows 1, 2, 4, ..., 2**(J-1)
    level: Array | None = None  # () float32, the level, with `hold`; else None


@as_schedule(
    label="AES-M",
    ranges={**_PRIOR, "updates": POSITIVE._replace(infinite=True)},
    static=("levels", "hold"),
)
def aes_m(
    proxy: Proxy,
    *,
    levels: int = 20,
    updates: Array | float = np.inf,
    prior: Array | float = 1.0,
    hold: bool = False,
    kappa: Array | float = 1.0,
    beta: Array | float = 0.95,
    lambda_min: Array | float = 1e-4,
    lambda_max: Array | float = 1.0,
    base: Array | float = 0.2,
) -> EntropySchedule:
    """`aes` with the largest mean over windows of past updates.

    ``kappa * sqrt(max over windows of the mean)``: jumps at a spike, then relaxes. The larger of `aes_prior`'s mean and
    of the discounted means over windows ``2**j`` whose mass is at least ``prior``, so it is never below `aes_prior`.
    Not in the paper. Without prior it is at least 1/(2e) of the exact maximum over all windows (Theorem M). With it, a
    window is dropped as soon as its discounted mass falls below ``prior``, and no regret bound is known. ``hold``
    corrects both: windows are admitted from a mass of ``prior/e``, and ``1/level`` rises by at most ``e/prior`` per
    update (docs/proofs/schedules.md#held-bank).

    Args:
      levels: static number of windows; 20 covers 5e5 updates.
      updates: () planned number of updates; longer windows are left out.
      prior: () units of the proxy; zero admits every window, also the last value alone. Others as in `aes`.
      hold: static; False is the rule of all recorded studies. Without prior it changes nothing.
    """
    if levels < 1:
        raise ValueError(f"aes_m: levels must be at least 1; got {levels}. 20 windows cover 5e5 updates.")
    windows = float32(2.0 ** np.arange(levels))
    prior, updates = float32(prior), float32(updates)
    least = prior * np.float32(np.exp(-1.0)) if hold else prior  # smallest discounted mass of an admitted window

    def level(memory: _BankMemory, smooth: Array, count: Array) -> tuple[_BankMemory, Array]:
        whole = running_mean(memory.whole, smooth, count)
        held_updates = discounted_count(count, windows)
        bank = memory.bank.moved((smooth - memory.bank.value) / held_updates)
        counts = (bank.value * held_updates >= least) & (windows <= updates)
        recent = jnp.max(jnp.where(counts, bank.value, 0.0))
        top = jnp.maximum(whole.value + prior / count.astype(jnp.float32), recent)
        if memory.level is None:
            return _BankMemory(whole, bank), top
        # 1 / (1 / level + 1 / least), also where either is zero.
        top = jnp.maximum(top, memory.level * (least / jnp.maximum(memory.level + least, _TINY)))
        return _BankMemory(whole, bank, top), top

    empty = _BankMemory(Mean.zero(), Mean.zero(levels), float32(0.0) if hold else None)
    return _schedule(proxy, empty, level, kappa, beta, lambda_min, lambda_max, base)


class _AesMemory(NamedTuple):
    """Memory of every schedule here."""

    smooth: Array  # () float32, EMA of the proxy
    past: Any  # memory of the drift level


def _schedule(proxy: Proxy, empty: Any, level: _Level, kappa, beta, lambda_min, lambda_max, base) -> EntropySchedule:
    base = float32(base)

    def init() -> ScheduleState:
        return start(jnp.clip(base, lambda_min, lambda_max), _AesMemory(float32(0.0), empty), raw=base)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        v = proxy(signals)
        count = state.count + 1
        smooth = ema(state.inner.smooth, v, beta, first=state.count == 0)
        past, mean = level(state.inner.past, smooth, count)
        weight, logs = bounded(float32(kappa) * jnp.sqrt(mean), lambda_min, lambda_max, v, smooth)
        return held(jnp.isfinite(v), ScheduleState(weight, count, _AesMemory(smooth, past), logs), state)

    return EntropySchedule(init, update)


def _averaged(prior: Array | None) -> _Level:
    def level(memory: Mean, smooth: Array, count: Array) -> tuple[Mean, Array]:
        memory = running_mean(memory, smooth, count)
        return memory, memory.value if prior is None else memory.value + prior / count.astype(jnp.float32)

    return level

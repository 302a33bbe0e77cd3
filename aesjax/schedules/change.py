"""`aes_c`: the base weight, raised after detections by a change detector with a bounded false-alarm rate."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.factory import AT_LEAST_1, NOT_NEGATIVE, POSITIVE
from aesjax.schedules.rule import base_weight, bounded_above_base, float32, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals

TINY, LARGE = (float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
LEVELS = 8  # tested block lengths, up to 128 observations
_LONGEST_MEMORY = 0.25  # longest memory of the location of levels after the first, as a share of the updates
_BET = 0.5  # lambda: standard deviations become nats
_MEMORY = 64  # memory of location and scale, in blocks
_SPAN = 5  # a level's scale uses blocks up to 2**SPAN times its own, to include autocorrelation of that length
WARM = 96  # blocks of a level before it is tested: three of the longest blocks of its scale
_FARTHEST = 10.0  # standard deviations; a detection takes at least six observations
_CAP = 6.0  # largest evidence above the threshold, nats, which delays the end of a detection
_SETTLED = 3.0  # largest difference of neighbouring blocks of 2**SPAN observations of a settled level, deviations
_LONGEST_HOLD = 16  # such blocks; after a permanent increase of the noise a level never settles on the old scale
_CALM = 3  # successive pairs of neighbouring blocks without a difference in a settled level
_AGAIN = 8  # blocks of a level before it is tested again
FLOOR = 1e-3  # smallest standard deviation of a log proxy


class ChangeMemory(NamedTuple):
    """Memory of `aes_c`; L levels are tested, K = L + 5 are measured, level j in blocks of ``2**j`` observations."""

    unit: Array  # () float32, the first observation; logarithms are taken relative to it
    last: Array  # () float32, the newest observation
    seen: Array  # () int32, observations so far
    total: Array  # (K,) float32, sum of the log proxies of the unfinished block
    before: Array  # (2, K) float32, the last two finished block means, the newer one first
    location: Array  # (K,) float32, running mean of the block means
    spread: Array  # (K,) float32, running variance of a block mean, from second differences
    evidence: Array  # (L,) float32, nats of the CUSUM
    excess: Array  # (L,) float32, running mean of the newest block means above the location
    held: Array  # () int32, observations since a detection froze location and spread; 0: not frozen
    calm: Array  # () int32, neighbouring blocks of 2**SPAN observations in that time without a difference
    learned: Array  # () int32, observation from which the location is learned; 0 before the first detection
    base: Any  # state of the base schedule, None for a number


def compensator(levels: int) -> np.ndarray:
    """Charge on the evidence per block, nats: ``log E exp(z/2)`` for the mean z of ``2**j`` standard exponentials.

    ``psi_j = n (-x - log(1 - x))`` with ``n = 2**j``, ``x = 1/(2 sqrt(n))``; .193 to .125.
    """
    n = 2.0 ** np.arange(levels)
    x = _BET / np.sqrt(n)
    return n * (-x - np.log1p(-x))


@as_schedule(
    label="AES-C",
    source="fresh",
    ranges={"threshold": POSITIVE, "gain": NOT_NEGATIVE, "r_max": AT_LEAST_1, "e_max": NOT_NEGATIVE},
    relative=True,
)
def aes_c(
    proxy: Proxy,
    base: Array | float | EntropySchedule,
    updates: Array | float,
    *,
    threshold: Array | float = 25.0,
    gain: Array | float = 2.0,
    r_max: Array | float = 5.0,
    e_max: Array | float = 8.0,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """Raise the base weight after a detected change of the proxy.

    The proxy's excess over its location is used while a CUSUM of the log proxy is above its threshold. An observation
    is a finite, positive proxy that differs from the last one, because on-policy carriers report the proxy of one
    rollout at many updates. On blocks of ``2**j`` observations, j = 0 ... 7, with b the mean of the log proxy in a
    block::

        z    = clip((b - m) / s, -10, 10)
        S    = clip(S + z/2 - psi_j, 0, threshold + 6)            # after 96 blocks; psi_j: `compensator`
        u    = u + (z s - u) / 4
        m    = m + eta clip(b - m, -3s, 3s)                       # eta = max(1/k, 1/64), k blocks
        V    = V + eta (min((b - 2b' + b'')^2 / 6, 9V) - V)       # b', b'' the two blocks before
        s^2  = max_{i <= 5} 2^i V_{j+i} (1 + 4/k)
        E    = max_j [S_j >= threshold] clip(exp(u_j) - 1, 0, e_max)
        lam  = base * min(sqrt(1 + gain E), r_max)

    For m and s, k counts blocks since the last relearning, and m is clipped from its eighth block on; for V it counts
    those since the start. m moves at a quarter of eta while ``threshold/4 < S < threshold``. A detection freezes m and
    V of every level until three successive pairs of neighbouring blocks of 32 observations differ by at most 3 s, or
    512 observations have passed. Then S and u return to zero, the weight returns to the base, and a level is tested
    again after 8 blocks.

    False alarms. If block means are independent and no heavier than standardised exponentials, S is a
    supermartingale, and the rate of false alarms per update is at most 1.1 exp(-threshold) (Lorden 1971; Shin, Ramdas
    and Rinaldo 2023). The default threshold was chosen on correlated streams; ``docs/detectors.md`` has measured rates.

    Multiplying rewards by c leaves ``weight / base``. A falling proxy never raises the weight. No change is
    detected in the first 96 observations, nor between a detection and the end of the relearning.

    Args:
      proxy, base, gain, r_max, e_max, lambda_max: as in `aes_r`.
      updates: () planned number of updates; sets only the longest memory.
      threshold: () evidence for a detection, nats.

    >>> from aesjax.schedules.proxies import td_quantile
    >>> schedule = aes_c(td_quantile(source="fresh"), base=0.05, updates=40_000)
    >>> state = schedule.update(Signals(fresh_td_error=jnp.ones(8)), schedule.init())
    >>> print(state.weight)
    0.05
    """
    threshold, gain, r_max, e_max = (float32(x) for x in (threshold, gain, r_max, e_max))
    measured = LEVELS + _SPAN
    lengths = np.asarray(2 ** np.arange(measured), np.int32)
    longest = _LONGEST_MEMORY * float32(updates)
    admitted = (_MEMORY * lengths[:LEVELS].astype(np.float32) <= longest) | (np.arange(LEVELS) == 0)
    price = float32(compensator(LEVELS))

    def init() -> ScheduleState:
        weight, base_state = base_weight(base)
        zero, wide, narrow = (jnp.zeros(shape, jnp.float32) for shape in ((), measured, LEVELS))
        none, before = jnp.int32(0), jnp.stack([wide, wide])
        return start(
            weight,
            ChangeMemory(zero, zero, none, wide, before, wide, wide, narrow, narrow, none, none, none, base_state),
        )

    def observe(old: ChangeMemory, v: Array) -> ChangeMemory:
        unit = jnp.where(old.seen == 0, v, old.unit)
        seen = old.seen + 1
        blocks = (seen // lengths).astype(jnp.float32)  # finished blocks, including a block that ends now
        total = old.total + jnp.log(jnp.clip(v / unit, TINY, LARGE))
        mean = total / lengths
        past = jnp.maximum(blocks - 1.0, 0.0)
        age = jnp.maximum((seen // lengths - old.learned // lengths).astype(jnp.float32), 1.0)  # blocks of the location
        learns = old.held == 0

        far = mean - old.location
        scale = _long_run(jnp.where(past >= 6, old.spread, 0.0)) * jnp.sqrt(1.0 + 4.0 / jnp.maximum(age - 1.0, 1.0))
        scale = jnp.maximum(scale, FLOOR)
        z = jnp.clip(far / scale, -_FARTHEST, _FARTHEST)[:LEVELS]
        tested = ((past >= WARM) & ((old.learned == 0) | (age > _AGAIN)))[:LEVELS]
        evidence = jnp.where(tested, jnp.clip(old.evidence + _BET * z - price, 0.0, threshold + _CAP), 0.0)
        excess = jnp.where(tested, old.excess + 0.25 * (z * scale[:LEVELS] - old.excess), 0.0)

        rate = jnp.where(learns, 1.0 / jnp.clip(age, 1.0, _MEMORY), 0.0)
        weighing = (evidence > threshold / 4.0) & (evidence < threshold)
        patience = jnp.concatenate([jnp.where(weighing, 0.25, 1.0), jnp.ones(_SPAN, jnp.float32)])
        step = jnp.where(age >= 8, jnp.clip(far, -3.0 * scale, 3.0 * scale), far)
        location = old.location + rate * patience * step
        square = jnp.square(mean - 2.0 * old.before[0] + old.before[1]) / 6.0  # no slope, no slow wave
        square = jnp.where(blocks > 10, jnp.minimum(square, 9.0 * old.spread), square)
        differences = jnp.maximum(blocks - 2.0, 0.0)
        spread = old.spread + (square - old.spread) / jnp.clip(differences, 1.0, _MEMORY)
        spread = jnp.where(learns, jnp.where(differences >= 1, spread, 0.0), old.spread)

        ended = seen % lengths == 0
        before = jnp.stack([mean, old.before[0]])
        learned = {"location": location, "spread": spread, "evidence": evidence, "excess": excess}
        new = old._replace(total=jnp.zeros_like(total), before=before, **learned)
        kept = old._replace(total=total)
        ended_of = {measured: ended, LEVELS: ended[:LEVELS]}
        new = jax.tree.map(lambda a, b: jnp.where(ended_of[a.shape[-1]], a, b) if a.ndim else b, new, kept)
        new = new._replace(unit=unit, last=v, seen=seen)

        found = jnp.any(admitted & (new.evidence >= threshold))
        held = jnp.where(learns, found.astype(jnp.int32), old.held + 1)
        differ = jnp.abs(mean - old.before[0])[_SPAN] > _SETTLED * scale[_SPAN]
        calm = jnp.where(ended[_SPAN], jnp.where(differ, 0, old.calm + 1), old.calm)
        calm = jnp.where(learns, 0, calm)
        over = (calm >= _CALM) | (held >= _LONGEST_HOLD * 2**_SPAN)
        return new._replace(
            held=jnp.where(over, 0, held),
            calm=jnp.where(over, 0, calm),
            learned=jnp.where(over, seen, old.learned),
            evidence=jnp.where(over, 0.0, new.evidence),
            excess=jnp.where(over, 0.0, new.excess),
        )

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        lam0, base_state = base_weight(base, signals, state.inner.base)
        old = state.inner._replace(base=None)
        v = proxy(signals)
        finite = jnp.isfinite(v)
        news = finite & (v > 0.0) & (v != old.last)
        memory = jax.tree.map(lambda a, b: jnp.where(news, a, b), observe(old, jnp.where(news, v, 1.0)), old)
        v = jnp.where(finite, v, state.logs.proxy)
        alarm = admitted & (memory.evidence >= threshold)
        size = jnp.where(alarm, jnp.expm1(jnp.minimum(memory.excess, jnp.log1p(e_max))), 0.0)
        ratio = jnp.minimum(jnp.sqrt(1.0 + gain * jnp.maximum(jnp.max(size), 0.0)), r_max)
        smooth = jnp.exp(jnp.log(memory.unit) + memory.location[0])
        weight, logs = bounded_above_base(lam0, ratio, lambda_max, v, smooth)
        count = state.count + finite.astype(jnp.int32)
        return ScheduleState(weight, count, memory._replace(base=base_state), logs)

    return EntropySchedule(init, update)


def _long_run(spread: Array) -> Array:
    """(K,) standard deviation of a block mean as the variance of sums of up to ``2**SPAN`` of them asks for."""
    padded = jnp.concatenate([spread, jnp.zeros(_SPAN, jnp.float32)])
    variances = [2.0**i * padded[i : i + spread.shape[0]] for i in range(_SPAN + 1)]
    return jnp.sqrt(jnp.max(jnp.stack(variances), axis=0))

"""`trend`: the base weight, raised while the return that the agent earns in training falls or stalls."""

from typing import NamedTuple

import jax.numpy as jnp

from aesjax.factory import AT_LEAST_1, FINITE, SHARE_OF_UPDATES
from aesjax.schedules.rule import Mean, bounded_above_base, float32, held, read_signal, start
from aesjax.schedules.schedule import as_schedule
from aesjax.types import Array, EntropySchedule, ScheduleState, Signals

_SLOW, _USUAL = 4.0, 16.0  # memories of the slow mean and of the usual change, in windows


class _TrendMemory(NamedTuple):
    """Memory of `trend`."""

    fast: Mean  # () reward over the newest window
    slow: Mean  # () reward over `_SLOW` windows
    usual: Mean  # () absolute difference of the two over `_USUAL` windows
    rise: Mean  # () logarithm of weight over base


@as_schedule(
    needs=("online_reward",),
    ranges={
        "window": SHARE_OF_UPDATES,
        "margin": FINITE,
        "r_max": AT_LEAST_1,
    },
)
def trend(
    base: Array | float,
    updates: Array | float,
    *,
    window: Array | float = 0.02,
    margin: Array | float = 0.5,
    r_max: Array | float = 5.0,
    lambda_max: Array | float = 1.0,
) -> EntropySchedule:
    """Raise the base weight while the return earned in training falls or stalls.

    The return is that of `online_return`, per step: the mean reward of the newest transitions. With d the difference
    of its means over one window and over four, it improves while ``d > margin * mean |d|``. Then the logarithm of
    ``weight / base`` falls by 1 per window to 0 at least, else it rises by 1 to ``log r_max`` at most. It is 0 in the
    first four windows. Multiplying all rewards by c leaves ``weight / base``.

    The idea is of Farrahi and Mahmood 2026 (CoLLAs, arXiv 2512.06252), who raise the entropy of SAC's policy while its
    performance trends worse or remains static. Deviations: the weight is raised instead of a target entropy, so that it
    suits every carrier; the rule, its windows and its bounds are ours.

    Args:
      base: () reward per nat.
      updates: () planned number of updates; sets only the length of the window.
      window: () share of the updates; longer than an episode.
      margin: () least improvement, in usual changes; below 0 a stall is no reason to rise, but a fall is.
      r_max: () largest ratio to the base weight.
      lambda_max: () reward per nat, bound of the raised part.
    """
    length, margin, most = jnp.maximum(float32(window) * updates, 1.0), float32(margin), jnp.log(float32(r_max))

    def init() -> ScheduleState:
        return start(base, _TrendMemory(Mean.zero(), Mean.zero(), Mean.zero(), Mean.zero()))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        old, done = state.inner, (state.count + 1).astype(jnp.float32)
        reward = read_signal("schedule 'trend'", signals, "online_reward")

        def moved(mean: Mean, value: Array, windows: float) -> Mean:
            return mean.moved((value - mean.value) / jnp.minimum(done, windows * length))

        fast, slow = moved(old.fast, reward, 1.0), moved(old.slow, reward, _SLOW)
        change = fast.value - slow.value
        usual = moved(old.usual, jnp.abs(change), _USUAL)
        improves = change > margin * usual.value
        step = jnp.where(done < _SLOW * length, 0.0, jnp.where(improves, -1.0, 1.0)) / length
        rise = old.rise.moved(jnp.clip(step, -old.rise.value, most - old.rise.value))
        weight, logs = bounded_above_base(float32(base), jnp.exp(rise.value), lambda_max, reward, slow.value)
        new = ScheduleState(weight, state.count + 1, _TrendMemory(fast, slow, usual, rise), logs)
        return held(jnp.isfinite(reward), new, state)

    return EntropySchedule(init, update)

"""Change detectors side by side: streams in, alarms out, for every setting from sensitive to cautious."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import AnySchedule, aes_c, aes_r, value_loss
from aesjax.types import Signals

LEARN = 500  # rounds from which CUSUM takes location and scale


class Method(NamedTuple):
    """A detector. ``alarms(logs, settings)``: (N, T) logarithms of proxies to (H, N, T) bool, where alarms begin."""

    label: str
    settings: np.ndarray  # (H,), from the most sensitive to the most cautious
    alarms: Callable[[np.ndarray, np.ndarray], np.ndarray]


def cusum(logs: np.ndarray, thresholds: np.ndarray, *, slack: float = 0.25) -> np.ndarray:
    """One-sided CUSUM (Page 1954) of standardised logarithms, begun anew after an alarm.

    Args:
      logs: (N, T).
      thresholds: (H,) standard deviations.
      slack: standard deviations that every round costs; half the shift it is best for.
    """
    first = logs[:, :LEARN]
    location, variance = first.mean(1), first.var(1)
    total = np.zeros((len(thresholds), len(logs)))
    begun = np.zeros((*total.shape, logs.shape[1]), bool)
    for t in range(LEARN, logs.shape[1]):
        far = logs[:, t] - location
        total = np.maximum(total + far / np.sqrt(np.maximum(variance, 1e-12)) - slack, 0.0)
        begun[..., t] = total >= thresholds[:, None]
        total[begun[..., t]] = 0.0
    return begun


def cusum_restarted(logs: np.ndarray, thresholds: np.ndarray, *, slack: float = 0.5, warm: int = 100) -> np.ndarray:
    """The same with location and variance of the last 500 rounds, learned again from ``warm`` rounds after an alarm."""
    shape = (len(thresholds), len(logs))
    count, location, variance, total = (np.zeros(shape) for _ in range(4))
    begun = np.zeros((*shape, logs.shape[1]), bool)
    for t in range(logs.shape[1]):
        far, ready = logs[:, t] - location, count >= warm
        total = np.where(ready, np.maximum(total + far / np.sqrt(np.maximum(variance, 1e-12)) - slack, 0.0), 0.0)
        begun[..., t] = alarm = ready & (total >= thresholds[:, None])
        count += 1
        rate = 1.0 / np.minimum(count, LEARN)
        location = location + rate * far
        variance = variance + rate * ((1.0 - rate) * far**2 - variance)
        for state in (count, location, variance, total):
            state[alarm] = 0.0
    return begun


def page_hinkley(
    logs: np.ndarray, thresholds: np.ndarray, *, delta: float = 0.005, alpha: float = 0.9999
) -> np.ndarray:
    """Page-Hinkley test for a rising mean, step by step that of river 0.26 with ``mode="up"``; many thresholds."""
    shape = (len(thresholds), len(logs))
    count, mean, total, least = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.full(shape, np.inf)
    begun = np.zeros((*shape, logs.shape[1]), bool)
    for t in range(logs.shape[1]):
        x = logs[None, :, t]
        count += 1
        mean += (x - mean) / count
        total = alpha * total + (x - mean - delta)
        least = np.minimum(least, total)
        alarm = (count >= 30) & (total - least > thresholds[:, None])
        begun[..., t] = alarm
        for state, start in ((count, 0.0), (mean, 0.0), (total, 0.0), (least, np.inf)):
            state[alarm] = start
    return begun


def adwin(logs: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """ADWIN (Bifet and Gavalda 2007) of river, looking every 8 rounds; alarms are the cuts that raise its mean."""
    try:
        from river.drift import ADWIN
    except ImportError:
        raise ValueError("ADWIN is river's: pip install 'aesjax[dev]'") from None

    begun = np.zeros((len(deltas), *logs.shape), bool)
    for h, delta in enumerate(deltas):
        for i, stream in enumerate(logs.tolist()):
            detector = ADWIN(delta=float(delta), clock=8)
            for t in range(0, len(stream) - 7, 8):
                before = detector.estimation
                for x in stream[t : t + 8]:
                    detector.update(x)
                begun[h, i, t + 7] = detector.drift_detected and detector.estimation > before
    return begun


def ratios(make: Callable[[jax.Array], AnySchedule], logs: np.ndarray, settings: np.ndarray) -> np.ndarray:
    """(H, N, T): weight over base of a schedule with base 1, one for every setting."""

    def run(setting: jax.Array, stream: jax.Array) -> jax.Array:
        schedule = make(setting)

        def step(state, v):
            state = schedule.update(Signals(value_loss=v), state)
            return state, state.weight

        return jax.lax.scan(step, schedule.init(), stream)[1]

    over = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))
    return np.asarray(over(jnp.asarray(settings, jnp.float32), jnp.asarray(np.exp(logs), jnp.float32)))


def _schedule(kind: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def alarms(logs: np.ndarray, settings: np.ndarray) -> np.ndarray:
        length, proxy = float(logs.shape[1]), value_loss(source="update")
        if kind == "aes_r":  # its alarm: the ratio leaves a limit behind
            one = ratios(lambda _: aes_r(proxy, 1.0, length, lambda_max=np.inf), logs, np.zeros(1))
            up = one > settings[:, None, None]
        else:
            up = ratios(lambda h: aes_c(proxy, 1.0, length, threshold=h, lambda_max=np.inf), logs, settings) > 1
        return up & ~np.concatenate([np.zeros_like(up[..., :1]), up[..., :-1]], axis=-1)

    return alarms


METHODS = {
    "aes_r": Method("AES-R", 1.0 + np.geomspace(1e-3, 3.1, 40), _schedule("aes_r")),
    "aes_c": Method("AES-C", np.linspace(4.0, 40.0, 13), _schedule("aes_c")),
    "cusum": Method("CUSUM", np.geomspace(3.0, 1000.0, 50), cusum),
    "cusum_restarted": Method("CUSUM", np.geomspace(3.0, 1000.0, 50), cusum_restarted),
    "page_hinkley": Method("Page-Hinkley", np.geomspace(1.0, 1000.0, 41), partial(page_hinkley, delta=0.05)),
    "adwin": Method("ADWIN", np.array([0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-5, 1e-8, 1e-15, 1e-30, 1e-60, 1e-120]), adwin),
}

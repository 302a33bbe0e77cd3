"""The registered schedules and their hyper-parameters as one traced tuple."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jax.core import Tracer

from aesjax.registry import Registry
from aesjax.schedules.accumulated import aes, aes_d, aes_m, aes_prior
from aesjax.schedules.basic import auto, fixed, linear
from aesjax.schedules.change import aes_c
from aesjax.schedules.cost import budget
from aesjax.schedules.floor import auto_floor
from aesjax.schedules.relative import aes_r, oracle
from aesjax.types import Array, EntropySchedule, Proxy


class ScheduleHyper(NamedTuple):
    """Every number that a registered schedule reads, () float32 each, all may be traced and swept.

    Defaults are the paper's where it gives one. A carrier sets ``base``, ``target_entropy`` and ``updates``.
    """

    base: Array | float = 0.2  # carrier's static weight; reward per nat
    lambda_min: Array | float = 1e-4  # reward per nat; 0 and inf remove the clip
    lambda_max: Array | float = 1.0  # reward per nat; the paper's PPO has 0.1
    q: Array | float = 0.9  # level of td_quantile
    beta: Array | float = 0.95  # EMA decay of the proxy
    kappa: Array | float = 1.0  # scale of the square-root rule
    slope: Array | float = 0.1  # k of the linear heuristic; the paper gives no value
    prior: Array | float = 1.0  # prior mass; units of the proxy
    window: Array | float = 0.02  # memory of aes_d as a share of `updates`
    gain: Array | float = 2.0  # a of aes_r and aes_c
    r_max: Array | float = 5.0  # largest ratio of aes_r, aes_c and oracle to their base
    margin: Array | float = 0.25  # dead zone of aes_r's excess
    e_max: Array | float = 8.0  # cap of the excess of aes_r and aes_c
    threshold: Array | float = 11.4  # evidence that aes_c's alarm takes; nats
    auto_learning_rate: Array | float = 1e-3  # Adam step of the log weight
    auto_initial: Array | float = 1.0  # first auto-tuned weight; reward per nat
    cost: Array | float = 0.1  # what exploring may cost under budget and auto_floor, as a share of the reward
    action_size: Array | float = 1.0  # action dimensions
    target_entropy: Array | float = -1.0  # nats; minus the number of action dimensions
    oracle_gain: Array | float = 16.0  # gain of oracle
    oracle_memory: Array | float = 0.02  # memory of oracle as a share of `updates`
    updates: Array | float = 1e5  # planned number of updates
    own: Mapping[str, Array | float] | None = None  # options of schedules from elsewhere; None: there are none


_POSITIVE = (lambda x: x > 0, "positive and finite")
_NOT_NEGATIVE = (lambda x: x >= 0, "finite and at least 0")
_RANGES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "base": _NOT_NEGATIVE,
    "lambda_min": _NOT_NEGATIVE,
    "lambda_max": (lambda x: x > 0, "positive (inf: no clip)"),
    "q": (lambda x: (x >= 0) & (x <= 1), "in [0, 1] (paper: 0.9)"),
    "beta": (lambda x: (x >= 0) & (x < 1), "in [0, 1); larger is smoother (paper: 0.95)"),
    "kappa": _POSITIVE,
    "slope": _NOT_NEGATIVE,
    "prior": _NOT_NEGATIVE,
    "window": (lambda x: (x > 0) & (x <= 1), "in (0, 1], a share of the updates"),
    "gain": _NOT_NEGATIVE,
    "r_max": (lambda x: x >= 1, "finite and at least 1"),
    "margin": _NOT_NEGATIVE,
    "e_max": _NOT_NEGATIVE,
    "threshold": _POSITIVE,
    "auto_learning_rate": _POSITIVE,
    "auto_initial": _POSITIVE,
    "cost": (lambda x: (x > 0) & (x <= 1), "in (0, 1], a share of the reward"),
    "action_size": (lambda x: x >= 1, "finite and at least 1"),
    "target_entropy": (lambda x: x == x, "finite"),
    "oracle_gain": _NOT_NEGATIVE,
    "oracle_memory": (lambda x: (x > 0) & (x <= 1), "in (0, 1], a share of the updates"),
    "updates": (lambda x: x >= 1, "finite and at least 1"),
}


def check(hyper: ScheduleHyper) -> ScheduleHyper:
    """``hyper`` unchanged, if every concrete value is allowed; traced values are not looked at.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    fields = hyper._replace(own=None)._asdict().items()  # own options: `aesjax.schedules.adopt`
    concrete = {k: np.asarray(v) for k, v in fields if v is not None and not isinstance(v, Tracer)}
    for field, value in concrete.items():
        inside, allowed = _RANGES[field]
        finite = np.isfinite(value) | (np.isposinf(value) & (field == "lambda_max"))
        if not np.all(finite & inside(value)):
            raise ValueError(f"ScheduleHyper.{field} must be {allowed}; got {value}.")
    if {"lambda_min", "lambda_max"} <= set(concrete):
        low, high = concrete["lambda_min"], concrete["lambda_max"]
        if not np.all(low <= high):
            raise ValueError(f"ScheduleHyper.lambda_min must not exceed lambda_max ({high}); got {low}.")
    return hyper


class ScheduleSpec(NamedTuple):
    """A registered schedule."""

    build: Callable[[ScheduleHyper, Proxy], EntropySchedule]
    needs: frozenset[str]  # Signals fields read besides the proxy's
    uses_proxy: bool
    default_source: str  # "update" or "fresh", the proxy's source unless overridden
    label: str  # name in tables
    hyper: tuple[str, ...]  # options it reads, fields of ScheduleHyper or `own`; q only through the proxy td_quantile
    summary: str  # one line for listings
    own: Mapping[str, float] = MappingProxyType({})  # options that are no field of ScheduleHyper, with their defaults
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})  # of own options, both ends allowed
    relative: bool = False  # the weight is `base` times a ratio >= 1 of drift, which may then turn other levers too


def _bounds(h: ScheduleHyper) -> dict:
    return {"lambda_min": h.lambda_min, "lambda_max": h.lambda_max}


def _rule(h: ScheduleHyper) -> dict:
    return {"kappa": h.kappa, "beta": h.beta, "initial": h.base, **_bounds(h)}


def _relative(h: ScheduleHyper, proxy: Proxy, base: Array | float | EntropySchedule) -> EntropySchedule:
    return aes_r(
        proxy,
        base,
        h.updates,
        gain=h.gain,
        r_max=h.r_max,
        margin=h.margin,
        e_max=h.e_max,
        lambda_max=h.lambda_max,
    )


def _auto(h: ScheduleHyper) -> EntropySchedule:
    return auto(h.target_entropy, learning_rate=h.auto_learning_rate, initial=h.auto_initial)


def _budget(h: ScheduleHyper) -> EntropySchedule:
    return budget(h.cost, h.action_size, h.updates, initial=h.base)


_CLIP = ("lambda_min", "lambda_max")
_RULE = ("base", *_CLIP, "q", "beta", "kappa")
_AUTO = ("target_entropy", "auto_learning_rate", "auto_initial")
_RELATIVE = ("updates", "q", "gain", "r_max", "margin", "e_max", "lambda_max")
_NONE: frozenset[str] = frozenset()
_LOG_PROB = frozenset({"log_prob"})
_REWARD = frozenset({"reward"})
_BUDGET = ("base", "cost", "action_size", "updates")

SCHEDULES: Registry[ScheduleSpec] = Registry(
    "schedule",
    fixed=ScheduleSpec(
        lambda h, proxy: fixed(h.base), _NONE, False, "update", "fixed", ("base",), "the carrier's constant weight"
    ),
    auto=ScheduleSpec(
        lambda h, proxy: _auto(h), _LOG_PROB, False, "update", "auto", _AUTO, "SAC's tuning towards a target entropy"
    ),
    budget=ScheduleSpec(
        lambda h, proxy: _budget(h), _REWARD, False, "update", "budget", _BUDGET,
        "what exploring costs is a share of the reward: no weight to tune",
    ),
    auto_floor=ScheduleSpec(
        lambda h, proxy: auto_floor(_budget(h), h.target_entropy, learning_rate=h.auto_learning_rate),
        _LOG_PROB | _REWARD, False, "update", "auto-F", (*_BUDGET, "target_entropy", "auto_learning_rate"),
        "auto over budget: never below it",
    ),
    linear=ScheduleSpec(
        lambda h, proxy: linear(proxy, weight0=h.base, slope=h.slope, **_bounds(h)),
        _NONE, True, "update", "linear", ("base", "slope", "q", *_CLIP), "paper's heuristic: base + slope * proxy",
    ),
    aes=ScheduleSpec(
        lambda h, proxy: aes(proxy, **_rule(h)),
        _NONE, True, "update", "AES", _RULE, "the paper: root of the running mean of the proxy",
    ),
    aes_prior=ScheduleSpec(
        lambda h, proxy: aes_prior(proxy, prior=h.prior, **_rule(h)),
        _NONE, True, "update", "AES-P", (*_RULE, "prior"), "AES with prior mass, which its regret bound needs",
    ),
    aes_d=ScheduleSpec(
        lambda h, proxy: aes_d(proxy, window=h.window * h.updates, prior=h.prior, **_rule(h)),
        _NONE, True, "update", "AES-D", (*_RULE, "prior", "window", "updates"), "AES that forgets old drift",
    ),
    aes_m=ScheduleSpec(
        lambda h, proxy: aes_m(proxy, horizon=h.updates, prior=h.prior, **_rule(h)),
        _NONE, True, "update", "AES-M", (*_RULE, "prior", "updates"), "AES restarted at the best past time",
    ),
    aes_r=ScheduleSpec(
        lambda h, proxy: _relative(h, proxy, h.base),
        _NONE, True, "fresh", "AES-R", ("base", *_RELATIVE), "recommended: base weight raised by the proxy's excess",
        relative=True,
    ),
    aes_r_auto=ScheduleSpec(
        lambda h, proxy: _relative(h, proxy, _auto(h)),
        _LOG_PROB, True, "fresh", "auto+AES-R", (*_AUTO, *_RELATIVE), "AES-R over the auto-tuned weight",
    ),
    aes_c=ScheduleSpec(
        lambda h, proxy: aes_c(
            proxy, h.base, h.updates,
            threshold=h.threshold, gain=h.gain, r_max=h.r_max, e_max=h.e_max, lambda_max=h.lambda_max,
        ),
        _NONE, True, "fresh", "AES-C", ("base", "updates", "q", "threshold", "gain", "r_max", "e_max", "lambda_max"),
        "base weight raised at a change, with few false alarms",
        relative=True,
    ),
    oracle=ScheduleSpec(
        lambda h, proxy: oracle(
            h.base, h.updates, gain=h.oracle_gain, r_max=h.r_max, memory=h.oracle_memory, lambda_max=h.lambda_max
        ),
        frozenset({"true_drift"}), False, "update", "oracle",
        ("base", "updates", "r_max", "oracle_gain", "oracle_memory", "lambda_max"), "reference: reads the true drift",
        relative=True,
    ),
)  # fmt: skip

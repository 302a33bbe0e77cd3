"""Entropy schedules: drift proxies, the paper's rule and its repairs, controls, and the registry of all of them."""

from aesjax.schedules import calibration
from aesjax.schedules.accumulated import aes, aes_d, aes_m, aes_prior
from aesjax.schedules.adopt import adopt_proxy, adopt_schedule, check_own, own_defaults, verify
from aesjax.schedules.assemble import Choice, build, required_signals
from aesjax.schedules.basic import auto, fixed, linear
from aesjax.schedules.catalogue import SCHEDULES, ScheduleHyper, ScheduleSpec, check
from aesjax.schedules.change import aes_c
from aesjax.schedules.combine import switch
from aesjax.schedules.controls import constant_at_mean, overridden, permuted, playback
from aesjax.schedules.cost import budget
from aesjax.schedules.declare import declare
from aesjax.schedules.floor import auto_floor
from aesjax.schedules.order import order_statistic, quantile
from aesjax.schedules.proxies import PROXIES, ProxySpec, critic_drift, td_mean, td_quantile, value_loss
from aesjax.schedules.relative import aes_r, oracle

__all__ = [
    "PROXIES",
    "SCHEDULES",
    "Choice",
    "ProxySpec",
    "ScheduleHyper",
    "ScheduleSpec",
    "adopt_proxy",
    "adopt_schedule",
    "aes",
    "aes_c",
    "aes_d",
    "aes_m",
    "aes_prior",
    "aes_r",
    "auto",
    "auto_floor",
    "budget",
    "build",
    "calibration",
    "check",
    "check_own",
    "constant_at_mean",
    "critic_drift",
    "declare",
    "fixed",
    "linear",
    "oracle",
    "order_statistic",
    "overridden",
    "own_defaults",
    "permuted",
    "playback",
    "quantile",
    "required_signals",
    "switch",
    "td_mean",
    "td_quantile",
    "value_loss",
    "verify",
]

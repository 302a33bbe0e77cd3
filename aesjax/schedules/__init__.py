"""Entropy schedules: drift proxies, the paper's rule and its repairs, controls, and their registry."""

from aesjax.schedules import calibration
from aesjax.schedules.accumulated import aes, aes_d, aes_m, aes_prior
from aesjax.schedules.basic import auto, auto_floor, budget, fixed, linear
from aesjax.schedules.change import aes_c
from aesjax.schedules.fresh import fresh_residuals
from aesjax.schedules.order import quantile
from aesjax.schedules.proxies import (
    PROXIES,
    DriftProxy,
    ProxyFactory,
    as_proxy,
    critic_drift,
    dynamics,
    td_mean,
    td_quantile,
    value_loss,
)
from aesjax.schedules.registered import SCHEDULES, overridden, required_signals, switch, together
from aesjax.schedules.relative import aes_r, aes_r_auto, oracle
from aesjax.schedules.returns import trend
from aesjax.schedules.schedule import AnySchedule, Schedule, ScheduleFactory, as_schedule, check_schedule

__all__ = [
    "PROXIES",
    "SCHEDULES",
    "AnySchedule",
    "DriftProxy",
    "ProxyFactory",
    "Schedule",
    "ScheduleFactory",
    "aes",
    "aes_c",
    "aes_d",
    "aes_m",
    "aes_prior",
    "aes_r",
    "aes_r_auto",
    "as_proxy",
    "as_schedule",
    "auto",
    "auto_floor",
    "budget",
    "calibration",
    "check_schedule",
    "critic_drift",
    "dynamics",
    "fixed",
    "fresh_residuals",
    "linear",
    "oracle",
    "overridden",
    "quantile",
    "required_signals",
    "switch",
    "td_mean",
    "td_quantile",
    "together",
    "trend",
    "value_loss",
]

"""Drift-aware exploration in JAX: entropy schedules, their theory, and the measurement around them."""

from aesjax.schedules import (
    PROXIES,
    SCHEDULES,
    aes,
    aes_c,
    aes_d,
    aes_m,
    aes_r,
    auto,
    critic_drift,
    declare,
    fixed,
    linear,
    oracle,
    quantile,
    switch,
    td_mean,
    td_quantile,
    value_loss,
)
from aesjax.types import EntropySchedule, Signals

__version__ = "0.1.0"

__all__ = [
    "PROXIES",
    "SCHEDULES",
    "EntropySchedule",
    "Signals",
    "aes",
    "aes_c",
    "aes_d",
    "aes_m",
    "aes_r",
    "auto",
    "critic_drift",
    "declare",
    "fixed",
    "linear",
    "oracle",
    "quantile",
    "switch",
    "td_mean",
    "td_quantile",
    "value_loss",
]

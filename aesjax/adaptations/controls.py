"""Controls: the weights and levers of a recorded run, played to another one without listening to any signal."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from aesjax.registry import Registry
from aesjax.schedules.controls import block_order
from aesjax.types import Levers


class Played(NamedTuple):
    """One run's record as data; entry i is in force during the updates of sample i, the last one thereafter."""

    on: Any  # () float32; 0: the run follows its own schedule and adaptations
    stride: Any  # () int32, updates per sample
    weight: Any  # (n,) float32, entropy weight; reward per nat
    levers: Levers = Levers()  # (n,) float32 each; the window as a share of what is stored, a refresh where it was due


class ControlSpec(NamedTuple):
    """A registered control."""

    change: Callable[[Played, jax.Array, int], Played]  # NumPy record, key, blocks -> what is played instead
    summary: str  # one line for listings


def _constant_at_mean(record: Played, *_: Any) -> Played:
    """Refreshes are events: as many, evenly spaced, each with the strength of one of them in turn."""
    length = len(record.weight)

    def held(values: Any) -> np.ndarray:
        return np.full(length, np.mean(values), np.float32)

    events = np.zeros(length, bool)
    for values in (record.levers.refresh, record.levers.refresh_units):
        events |= False if values is None else np.asarray(values) > 0

    def spaced(values: Any) -> np.ndarray:
        due, even = values[events], np.zeros(length, np.float32)
        even[((np.arange(len(due)) + 0.5) * length / max(len(due), 1)).astype(int)] = due
        return even

    turned = {name: value for name, value in record.levers._asdict().items() if value is not None}
    levers: dict[str, Any] = {name: spaced(x) if name.startswith("refresh") else held(x) for name, x in turned.items()}
    return record._replace(weight=held(record.weight), levers=Levers(**levers))


def _permuted(record: Played, key: jax.Array, blocks: int) -> Played:
    order = np.asarray(block_order(key, len(record.weight), blocks))
    return record._replace(weight=record.weight[order], levers=jax.tree.map(lambda x: x[order], record.levers))


CONTROLS: Registry[ControlSpec] = Registry(
    "control",
    playback=ControlSpec(lambda record, *_: record, "the recorded weights and levers at their times, whatever happens"),
    constant_at_mean=ControlSpec(_constant_at_mean, "their means, held; as many refreshes, evenly spaced"),
    permuted=ControlSpec(_permuted, "the same in blocks of time put into random order: same values, wrong times"),
)

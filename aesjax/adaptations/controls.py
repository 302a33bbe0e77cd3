"""Controls: recorded weights and levers of a run, played in another run without reading any signal."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.adaptations.rules import ONCE
from aesjax.registry import Registry
from aesjax.types import Levers


class Played(NamedTuple):
    """Record of one run as data; entry i is in force during the updates of sample i, the last entry thereafter."""

    on: Any  # () float32; 0: the run follows its own schedule and adaptations
    stride: Any  # () int32, updates per sample
    weight: Any  # (n,) float32, entropy weight; reward per nat
    levers: Levers = Levers()  # (n,) float32 each; window and recency as shares of the replay, refresh where it was due


class ControlSpec(NamedTuple):
    """A registered control."""

    change: Callable[[Played, jax.Array, int], Played]  # NumPy record, key, blocks -> played record
    summary: str  # one line for listings


def _constant_at_mean(record: Played, *_: Any) -> Played:
    """Means of the record, held; refreshes are spaced evenly and keep their number and strengths."""
    length = len(record.weight)

    def held(values: Any) -> np.ndarray:
        acting = np.asarray(values)[np.isfinite(values)]  # infinite: not yet restricted
        return np.full(length, np.mean(acting) if acting.size else np.inf, np.float32)

    events = np.zeros(length, bool)
    for values in (record.levers.refresh, record.levers.isometry):
        events |= False if values is None else np.asarray(values) > 0

    def spaced(values: Any) -> np.ndarray:
        due, even = values[events], np.zeros(length, np.float32)
        even[((np.arange(len(due)) + 0.5) * length / max(len(due), 1)).astype(int)] = due
        return even

    turned = {name: value for name, value in record.levers._asdict().items() if value is not None}
    levers: dict[str, Any] = {name: spaced(x) if name in ONCE else held(x) for name, x in turned.items()}
    return record._replace(weight=held(record.weight), levers=Levers(**levers))


def _permuted(record: Played, key: jax.Array, blocks: int) -> Played:
    order = np.asarray(_block_order(key, len(record.weight), blocks))
    return record._replace(weight=record.weight[order], levers=jax.tree.map(lambda x: x[order], record.levers))


def _block_order(key: jax.Array, length: int, blocks: int) -> jax.Array:
    """Positions (length,) of the steps of a record whose ``blocks`` of time are in random order."""
    if not 1 <= blocks <= length:
        raise ValueError(f"permuted: blocks must lie in [1, {length}], the number of weights; got {blocks}")
    block = jnp.arange(length) * blocks // length
    # Stable, so that the steps of one block stay together and in order.
    return jnp.argsort(jax.random.permutation(key, blocks)[block], stable=True)


CONTROLS: Registry[ControlSpec] = Registry(
    "control",
    playback=ControlSpec(lambda record, *_: record, "recorded weights and levers at their recorded times"),
    constant_at_mean=ControlSpec(_constant_at_mean, "recorded means, held; equally many refreshes, evenly spaced"),
    permuted=ControlSpec(_permuted, "recorded values in blocks of time, in random order"),
)

"""The drift responses of a study's methods as a program and its runs need them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aesjax.adaptations import RESPONSES, Played, ResponseHyper, Supply
from aesjax.schedules import SCHEDULES, Choice
from aesjax.types import Levers
from agents import Carrier, OnPolicyCarrier
from agents.common import LoopConfig
from experiments.study.config import StudyConfig
from experiments.study.methods import Method

#: What controls play, by method, pattern and seed.
Records = Mapping[tuple[str, str, int], Played]


class Together(NamedTuple):
    """What the methods of one program have among them."""

    responses: tuple[str, ...]
    signals: tuple[Choice, ...]  # what drives them
    turned: frozenset[str]  # of `aesjax.adaptations.LEVERS`, by responses or by controls; maybe "units"
    controls: bool

    @property
    def proxies(self) -> list[str]:
        """Keys of the proxies that the signals read."""
        return [choice.key for choice in self.signals if SCHEDULES[choice.schedule].uses_proxy]

    def hyper_of(self, names: Sequence[str], signal: Choice | None, values: Iterable) -> ResponseHyper:
        """The responses ``names`` of one run as data, with options "window.power" among ``values``."""
        given = dict(values)
        options = {
            name: {o: np.float32(given.get(f"{name}.{o}", v)) for o, v in RESPONSES[name].options.items()}
            for name in self.responses
        }
        index = 0 if signal is None else self.signals.index(signal)
        on = {name: np.float32(name in names) for name in self.responses}
        return ResponseHyper(np.int32(index), on, options)

    def played(self, record: Played | None, length: int) -> Played | None:
        """``record`` with every lever that the program turns; for None one that plays nothing, if any run plays one.

        Args:
          length: entries of all records.
        """
        if not self.controls:
            return None
        if record is None:
            record = Played(np.float32(0), np.int32(1), np.zeros(length, np.float32))
        names = {"window": ("window",), "refresh": ("refresh", "refresh_actor"), "rate": ("rate",)}
        names |= {"units": ("refresh_units",)}
        neutral: dict[str, Any] = {
            name: np.full(length, name in ("window", "rate"), np.float32)
            for lever in sorted(self.turned)
            for name in names[lever]
        }
        given = {name: value for name, value in record.levers._asdict().items() if value is not None}
        return record._replace(levers=Levers(**neutral | given))


def together(methods: Sequence[Method]) -> Together:
    """What ``methods`` have among them."""
    return Together(
        responses=tuple(name for name in RESPONSES if any(name in method.responses for method in methods)),
        signals=tuple(dict.fromkeys(method.signal for method in methods if method.signal is not None)),
        turned=frozenset().union(*(method.turned for method in methods)),
        controls=any(method.control is not None for method in methods),
    )


def supply_of(config: StudyConfig, carrier: str, built: Carrier | OnPolicyCarrier) -> Supply:
    """What one carrier's runs have to draw batches from."""
    if isinstance(built, OnPolicyCarrier):
        return Supply()
    num, newest = config.envs_of(carrier), LoopConfig.fresh_window
    floor = min(max(built.batch_size, 4 * newest), config.replay_capacity)
    stored = min(config.stored_of(carrier) + config.warmup_of(carrier) + num, config.replay_capacity)
    return Supply(stored, num, config.replay_capacity, floor)

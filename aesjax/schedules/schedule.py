"""Schedules as objects: a registered factory, and a schedule that stores its arguments."""

import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.factory import AT_LEAST_1, FINITE, NOT_NEGATIVE, SHARE, Factory, Made, Range
from aesjax.schedules.proxies import DriftProxy, td_quantile
from aesjax.schedules.rule import VECTORS
from aesjax.typed import require
from aesjax.types import EntropySchedule, Proxy, ScheduleState, Signals

_TRIALS = (1.0, 1.0, 10.0, 1.0, np.nan, 1.0)  # errors after which every schedule must return a weight
#: Numbers of a run in a check of a schedule that does not set them.
_TRIAL_RUN = {"base": 0.1, "target_entropy": -1.0, "action_size": 1.0, "updates": 1000.0}
_PACKAGE = str(Path(__file__).resolve().parents[1])


@dataclass(eq=False)
class ScheduleFactory(Factory):
    """A registered schedule: call it for a `Schedule`, with options by name, ``aes(kappa=0.3)``."""

    kind = "schedule"
    #: Numbers of a run that a schedule requests by a parameter of this name; set by the carrier or its preset.
    fillable = ("base", "lambda_min", "lambda_max", "target_entropy", "action_size", "updates")
    usual = MappingProxyType({"lambda_min": 1e-4, "lambda_max": 1.0})  # the paper's
    traits = ("label", "relative", "uses_proxy")
    known_ranges = MappingProxyType(
        {
            "base": NOT_NEGATIVE,
            "lambda_min": NOT_NEGATIVE,
            "lambda_max": Range(0.0, text="positive (inf: no clip)", open_low=True, infinite=True),
            "target_entropy": FINITE,
            "action_size": AT_LEAST_1,
            "updates": AT_LEAST_1,
            "q": SHARE,
        }
    )

    label: str  # in tables, as in "SAC+LABEL"
    needs: frozenset[str] = frozenset()  # fields of `Signals` that it reads besides those of its proxy
    source: str = "update"  # of its proxy, unless another is given
    relative: bool = False  # its weight is ``base`` times a ratio >= 1, which may also drive adaptations

    @property
    def uses_proxy(self) -> bool:
        return "proxy" in self.signature.others

    @property
    def options(self) -> tuple[str, ...]:
        """Names of all options; ``q`` is that of the proxy `td_quantile`."""
        return (*self.signature.names, *(("q",) if self.uses_proxy else ()))

    @property
    def accepts(self) -> set[str]:
        """Names of arguments: options, static parameters and the proxy."""
        return {*self.options, *self.signature.others}

    def __call__(self, *positional: Any, **given: Any) -> "Schedule":
        """A schedule with these arguments; a study sets the others, or their defaults are used.

        Raises:
          ValueError, TypeError: an unknown or repeated argument, or a value outside its range.
        """
        names = [*(("proxy",) if self.uses_proxy else ()), *self.signature.names]
        by_place = dict(zip(names, positional, strict=False))
        if len(positional) > len(names) or by_place.keys() & given:
            raise TypeError(f"schedule '{self.name}' takes each of {', '.join(names)} once; got {positional}, {given}")
        given = by_place | given
        proxy: Any = given.pop("proxy", None) if self.uses_proxy else None
        if isinstance(proxy, str | int | float):
            named = ", ".join(names[1:])
            raise TypeError(f"schedule '{self.name}' takes a proxy first; got {proxy!r}. By name it takes {named}")
        if "q" in given and self.uses_proxy and "q" not in self.signature.defaults:
            if proxy is not None:
                raise TypeError(f"schedule '{self.name}' got both 'q' and a proxy; write td_quantile(q=...)")
            proxy = td_quantile(given.pop("q"))
        self.check(given)
        return Schedule(self, given, proxy)


@jax.tree_util.register_pytree_node_class
@dataclass(eq=False, repr=False)
class Schedule(Made):
    """An entropy schedule: ``init`` and ``update`` as in `EntropySchedule`, and its arguments.

    A pytree whose leaves are the given numbers: it may be an argument of a compiled function, and numbers may be
    traced, swept and mapped over. In a study the run sets the others; elsewhere their defaults are used.
    """

    factory: ScheduleFactory
    given: Mapping[str, Any]
    proxy: Proxy | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Given numbers by option."""
        return {name: value for name, value in self.given.items() if name in self.factory.options}

    @property
    def static(self) -> dict[str, Any]:
        """Other given arguments."""
        return {name: value for name, value in self.given.items() if name not in self.factory.options}

    @property
    def reads(self) -> Proxy | None:
        """The proxy that it reads, with its source; None for a schedule without a proxy."""
        if not self.factory.uses_proxy:
            return None
        proxy = td_quantile() if self.proxy is None else self.proxy
        return proxy.at(self.factory.source) if isinstance(proxy, DriftProxy) else proxy

    def filled(self, facts: Mapping[str, Any] = MappingProxyType({}), proxy: DriftProxy | None = None) -> "Schedule":
        """The schedule with all of its options, see `Made.filled`, and its proxy.

        Args:
          facts: the run's numbers by name.
          proxy: used if the schedule names none. A schedule without a proxy stores it too, because `together`
        measures proxies at its quantile level.

        Raises:
          ValueError: numbers that do not fit together.
        """
        filled = replace(super().filled(facts), proxy=proxy if self.proxy is None else self.proxy)
        self.factory.check(filled.given)  # a bound that the run set may cross a given one
        return replace(filled, proxy=filled.reads) if self.factory.uses_proxy else filled

    def built(self, proxy: Proxy | None) -> EntropySchedule:
        """The pure functions with ``proxy`` in place of the schedule's proxy."""
        read = {"proxy": proxy} if self.factory.uses_proxy else {}
        return self.factory.make(**super().filled().given, **read)

    @property
    def pair(self) -> EntropySchedule:
        """The pure functions; not stored, because inside a trace they hold constants of that trace."""
        return self.built(self.reads)

    def init(self) -> ScheduleState:
        """State before the first update; it holds the first weight."""
        return self.pair.init()

    def update(self, signals: Signals, state: ScheduleState) -> ScheduleState:
        """State with the weight of the next step, from the signals of the step that ran under ``state.weight``."""
        return self.pair.update(signals, state)

    def measure(self, signals: Signals) -> Signals:
        """``signals`` with the proxies that the schedule will compute from them."""
        return self.pair.measure(signals)

    def __repr__(self) -> str:
        text = super().__repr__()
        comma = ", " if self.given else ""
        return text if self.proxy is None else text.replace("(", f"({self.proxy!r}{comma}", 1)

    def tree_flatten(self) -> tuple[Any, Any]:
        """The given numbers and a `DriftProxy`'s level as leaves; see `jax.tree_util`."""
        registered = self.proxy if isinstance(self.proxy, DriftProxy) else None
        plain = self.proxy if registered is None else None  # a function is structure
        return (self.options, registered), (self.factory, tuple(sorted(self.static.items())), plain)

    @classmethod
    def tree_unflatten(cls, structure: Any, leaves: Any) -> "Schedule":
        """The inverse of `tree_flatten`."""
        (factory, static, plain), (options, registered) = structure, leaves
        return cls(factory, {**options, **dict(static)}, registered if plain is None else plain)


AnySchedule = Schedule | EntropySchedule


def as_schedule(
    make: Any = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    needs: Collection[str] = (),
    source: str = "update",
    ranges: Mapping[str, Any] | None = None,
    relative: bool = False,
    static: Collection[str] = (),
) -> Any:
    """Turn a function that returns an `EntropySchedule` into a schedule's factory; also a decorator.

    Of the function's parameters ``proxy`` is the drift proxy. ``base``, ``lambda_min``, ``lambda_max``,
    ``target_entropy``, ``action_size`` and ``updates`` are numbers of the run. Every other one with a number as default
    is an option. The first line of the docstring is the summary in listings.

    Args:
      name: by default the function's.
      label: name in tables, as in "SAC+LABEL"; by default the name.
      needs: fields of `Signals` that it reads besides its proxy's, such as ``("log_prob",)``. Carriers that cannot
        report one are refused before training.
      source: of its proxy, "update" (the update batch) or "fresh" (the newest transitions).
      ranges: allowed values of options, such as ``{"decay": (0.0, 1.0)}``, both ends included.
      relative: the weight is its parameter ``base`` times a drift ratio >= 1, which may also drive adaptations.
      static: parameters that are structure, not options.

    Raises:
      ValueError: a range of an unknown option, or a parameter without a value.

    >>> @as_schedule(label="CALM", ranges={"decay": (0.0, 1.0)})
    ... def calm(proxy, *, base, decay=0.99): ...
    >>> calm.options
    ('base', 'decay', 'q')
    """
    traits = {"label": label, "needs": frozenset(needs), "source": source, "relative": relative}
    return ScheduleFactory.of(make, name, ranges, static, **traits)


def check_schedule(schedule: Any) -> None:
    """Raise a ValueError unless a schedule and its proxy keep their contract on test signals; takes a second.

    Only declared signals are read. State and proxy have the right shapes and types. Weights are finite and at least 0,
    also after an error that is not finite. Equal runs are equal.

    Args:
      schedule: a `Schedule`, its factory or its function; options without a value have typical ones.

    Raises:
      ValueError: one sentence with the first violation, caused by the error of the schedule's code if it has one.

    >>> from aesjax import aes
    >>> check_schedule(aes(kappa=0.3))
    """
    made = schedule if isinstance(schedule, Schedule) else as_schedule(schedule)()
    made = made.filled(_TRIAL_RUN)
    name, read, sizes = f"schedule '{made.factory.name}'", made.reads, jnp.array(_TRIALS)
    if made.factory.relative and "base" not in made.factory.signature.names:
        raise ValueError(f"{name} is relative and has no parameter 'base', which its ratio raises")
    fields = set(made.factory.needs)
    if isinstance(made.proxy, DriftProxy):
        proxy, field = made.proxy, made.proxy.field
        with working(f"proxy '{proxy.factory.name}' (it declares that it reads {field})"):
            values = np.asarray(jit(jax.vmap(lambda size: proxy(_signals({field}, size))))(sizes))
        _check_numbers(f"proxy '{proxy.factory.name}': its value", values, finite=np.isfinite(_TRIALS))
    if isinstance(read, DriftProxy):
        fields.add(read.field)
    elif read is not None:  # a plain function may read any
        fields = set(Signals._fields) - {"measured"}

    def weights(sizes: jax.Array) -> jax.Array:
        built = made.built(read)
        if not isinstance(built, AnySchedule):
            raise TypeError(f"its factory returned {type(built).__name__}, not an EntropySchedule")

        def step(state: ScheduleState, size: jax.Array) -> tuple[ScheduleState, jax.Array]:
            state = built.update(_signals(fields, size), state)
            return state, state.weight

        first = built.init()
        if not isinstance(first, ScheduleState) or first.weight.shape != ():
            raise TypeError(f"init must return a ScheduleState with a scalar weight; got {first}")
        return jnp.append(jax.lax.scan(step, first, sizes)[1], first.weight)

    declared = ", ".join(sorted(fields)) or "no signal"
    with working(f"{name} (it declares that it reads {declared})"):
        first, again = np.asarray(jit(lambda sizes: jnp.stack([weights(sizes), weights(sizes)]))(sizes))
    _check_numbers(f"{name}: its weight", first[:-1])
    require(0.0 <= first[-1] < np.inf, f"{name}: its first weight", "finite and 0 or more", float(first[-1]))
    if not np.array_equal(first, again):
        raise ValueError(f"{name}: two equal runs have different weights; keep all memory in the state")


def _signals(fields: Collection[str], size: jax.Array) -> Signals:
    """Test signals in which every value is ``size`` ()."""
    values: dict[str, Any] = {field: jnp.full(8 if field in VECTORS else (), size) for field in fields}
    return Signals(**values)


def _check_numbers(what: str, values: np.ndarray, finite: Any = True) -> None:
    """Raise for a number, one after each of `_TRIALS`, that is negative or not finite; ``finite`` masks the trials."""
    if values.ndim != 1:
        raise ValueError(f"{what} must be a scalar; got shape {values.shape[1:]}")
    wrong = np.flatnonzero(np.logical_and(finite, ~(np.isfinite(values) & (values >= 0.0))))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"{what} after update {at + 1}, of errors of size {_TRIALS[at]:g}, is {values[at]:g}; it must be finite "
            "and 0 or more" + "; `held` ignores such an update" * (not np.isfinite(_TRIALS[at]))
        )


@contextmanager
def working(what: str) -> Iterator[None]:
    """Raise a ValueError that begins with ``what``, with the user's line, for any error of user code in the block."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ValueError(f"{what} does not work: {_raised(error)}") from error


def _raised(error: BaseException) -> str:
    """Error of user code in one line, with its location."""
    text = shorten(str(error), 400) or type(error).__name__
    if isinstance(error, jax.errors.TracerBoolConversionError):
        text = "Python's if, and, or cannot read a traced value; use jnp.where and &."
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith((_PACKAGE, "<"))]
    return f"{text} ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else text

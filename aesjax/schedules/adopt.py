"""Schedules and proxies of other packages: a factory's signature becomes what the registry holds of its own ones.

A schedule's factory takes keyword arguments. ``proxy`` is the drift proxy of the study; `SHARED` names are the study's
own numbers; every other parameter with a number as default is an option of the schedule, traced and swept like those of
the schedules of this package.
"""

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from aesjax.schedules.catalogue import SCHEDULES, ScheduleHyper, ScheduleSpec
from aesjax.schedules.declare import declaration_of
from aesjax.schedules.proxies import PROXIES, ProxySpec
from aesjax.types import EntropySchedule, Proxy, ScheduleState, Signals

SHARED = ("base", "lambda_min", "lambda_max", "target_entropy", "updates")
_RANK_1 = ("td_error", "log_prob", "fresh_td_error")
_LABELS = {spec.label: name for name, spec in SCHEDULES.items()}  # of the schedules of this package
_TRIALS = (1.0, 1.0, 10.0, 1.0)  # errors that any schedule must have an answer to
_PACKAGE = str(Path(__file__).resolve().parents[1])


def adopt_schedule(name: str, plugin: Any) -> ScheduleSpec:
    """The registry's entry for a schedule from elsewhere.

    Args:
      name: under which it will be registered.
      plugin: a factory that returns an `EntropySchedule`, or a complete `ScheduleSpec`.

    Raises:
      ValueError: it is neither, a parameter of the factory cannot be filled, or its label is taken.
    """
    if isinstance(plugin, ScheduleSpec):
        return plugin
    parameters = _parameters("schedule", name, plugin)
    told, own, taken = declaration_of(plugin), {}, []
    for parameter in parameters:
        default = parameter.default
        if parameter.name == "proxy" or parameter.name in SHARED:
            taken.append(parameter.name)
        elif isinstance(default, int | float | np.floating) and not isinstance(default, bool):
            own[parameter.name] = float(default)
        elif default is inspect.Parameter.empty:
            raise ValueError(
                f"schedule '{name}': parameter '{parameter.name}' of its factory has no default; give it a number, or "
                f"name one of those that a study fills in: proxy, {', '.join(SHARED)}"
            )
    if unknown := sorted(set(told.ranges) - set(own)):
        raise ValueError(f"schedule '{name}' declares a range of '{unknown[0]}', which is no option of its factory")
    label = told.label or name.rpartition(":")[2]
    if label in _LABELS:
        raise ValueError(f"schedule '{name}': its label '{label}' is that of '{_LABELS[label]}'; declare another")
    uses_proxy = "proxy" in taken
    shared = [parameter for parameter in taken if parameter != "proxy"]

    def build(hyper: ScheduleHyper, proxy: Proxy) -> EntropySchedule:
        numbers = {parameter: getattr(hyper, parameter) for parameter in shared}
        numbers |= {parameter: (hyper.own or own)[parameter] for parameter in own}
        return plugin(**numbers, **({"proxy": proxy} if uses_proxy else {}))

    return ScheduleSpec(
        build=build,
        needs=frozenset(told.needs),
        uses_proxy=uses_proxy,
        default_source=told.source,
        label=label,
        hyper=(*shared, *(("q",) if uses_proxy else ()), *own),
        summary=told.summary or _first_line(plugin),
        own=own,
        ranges=told.ranges,
    )


def adopt_proxy(name: str, plugin: Any) -> ProxySpec:
    """The registry's entry for a proxy from elsewhere: a complete `ProxySpec`, or a factory of a `Proxy`.

    The factory may take ``source`` ("update" or "fresh") and ``q`` (the study's quantile level, traced).

    Raises:
      ValueError: it is neither, or takes another parameter without a default.
    """
    if isinstance(plugin, ProxySpec):
        return plugin
    parameters = _parameters("proxy", name, plugin)
    names = {parameter.name for parameter in parameters}
    for parameter in parameters:
        if parameter.default is inspect.Parameter.empty and parameter.name not in ("q", "source"):
            raise ValueError(f"proxy '{name}': parameter '{parameter.name}' of its factory has no default")
    told = declaration_of(plugin)

    def build(q: Any, source: str) -> Proxy:
        if source not in told.fields:
            raise ValueError(f"proxy '{name}' has no source '{source}'; sources: {', '.join(told.fields)}")
        return plugin(**{k: v for k, v in (("q", q), ("source", source)) if k in names})

    return ProxySpec(build, told.fields, told.label or name.rpartition(":")[2], told.summary or _first_line(plugin))


def own_defaults(schedules: Sequence[str], first: str | None = None) -> dict[str, float] | None:
    """Options that are not fields of `ScheduleHyper`, of all these registered schedules together; None: there are none.

    Stacked runs share one structure, so every run carries every option, and reads those of its own schedule.

    Args:
      first: the schedule whose defaults win where two schedules have an option of one name.
    """
    together: dict[str, float] = {}
    for name in (*schedules, *(() if first is None else (first,))):
        together |= SCHEDULES[name].own
    return together or None


def check_own(schedule: str, own: Mapping[str, Any] | None) -> None:
    """Refuse concrete values of a schedule's own options that it does not allow; traced ones are not looked at.

    Raises:
      ValueError: naming the option, its value and what is allowed.
    """
    spec = SCHEDULES[schedule]
    for option in spec.own:
        value = (own or spec.own)[option]
        if isinstance(value, Tracer):
            continue
        low, high = spec.ranges.get(option, (-np.inf, np.inf))
        if np.isnan(value) or not low <= value <= high:
            allowed = f"in [{low:g}, {high:g}]" if option in spec.ranges else "a number"
            raise ValueError(f"option '{option}' of schedule '{schedule}' must be {allowed}; got {float(value):g}")


def verify(schedule: str, hyper: ScheduleHyper, proxy: str = "td_quantile", source: str | None = None) -> None:
    """Try a schedule: what it declares must be all that it reads, its state must last, its weights must be weights.

    Args:
      hyper: concrete values.

    Raises:
      ValueError: it cannot be built, reads a signal that it does not declare, or its update returns another structure,
        shape or type than its init, or answers errors of ordinary size with a weight that is none; one sentence.
    """
    spec = SCHEDULES[schedule]
    fields = set(spec.needs)
    field = PROXIES[proxy].fields.get(source or spec.default_source)
    if spec.uses_proxy and field is not None:
        fields.add(field)
    told = ", ".join(sorted(fields)) or "no signal"

    def signals(size: Any) -> Signals:
        values: dict[str, Any] = {name: jnp.full(8 if name in _RANK_1 else (), size) for name in fields}
        return Signals(**values)

    def run() -> tuple[Any, Any]:
        built = spec.build(hyper, PROXIES[proxy].build(hyper.q, source or spec.default_source))
        if not isinstance(built, EntropySchedule):
            raise TypeError(f"its factory returned {type(built).__name__}, not an EntropySchedule")
        state = built.init()
        return state, built.update(signals(1.0), state)

    def weights() -> jax.Array:
        built = spec.build(hyper, PROXIES[proxy].build(hyper.q, source or spec.default_source))

        def step(state: ScheduleState, size: jax.Array) -> tuple[ScheduleState, ScheduleState]:
            state = built.update(signals(size), state)
            return state, state

        return jax.lax.scan(step, built.init(), jnp.array(_TRIALS))[1].weight

    try:
        before, after = jax.eval_shape(run)
    except Exception as error:  # whatever a stranger's code raises
        raise ValueError(
            f"schedule '{schedule}' (it declares that it reads {told}) does not work: {_told(error)}"
        ) from None
    if not isinstance(before, ScheduleState) or not isinstance(after, ScheduleState):
        raise ValueError(f"schedule '{schedule}': init and update must return a ScheduleState")
    if before.weight.shape != ():
        raise ValueError(f"schedule '{schedule}': its weight must be a scalar; got shape {before.weight.shape}")
    shapes = [
        {jax.tree_util.keystr(path): (leaf.shape, str(leaf.dtype)) for path, leaf in jax.tree.leaves_with_path(state)}
        for state in (before, after)
    ]
    for at in {**shapes[0], **shapes[1]}:
        if shapes[0].get(at) != shapes[1].get(at):
            raise ValueError(
                f"schedule '{schedule}': state{at} is {shapes[0].get(at, 'absent')} after init and "
                f"{shapes[1].get(at, 'absent')} after update; a scan needs both alike"
            )
    for at, weight in enumerate(np.asarray(jax.jit(weights)())):
        if not (np.isfinite(weight) and weight >= 0.0):
            raise ValueError(
                f"schedule '{schedule}': its weight after update {at + 1}, of errors between {min(_TRIALS):g} and "
                f"{max(_TRIALS):g}, is {weight:g}; a weight is finite and 0 or more"
            )


def _told(error: Exception) -> str:
    """What a stranger's code raised, in one line, and where."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, jax.errors.TracerBoolConversionError):
        text += " Python's if, and, or cannot ask a traced value; jnp.where and & can."
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith((_PACKAGE, "<"))]
    return f"{text} ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else text


def _parameters(kind: str, name: str, plugin: Callable[..., Any]) -> list[inspect.Parameter]:
    if not callable(plugin):
        raise ValueError(f"{kind} '{name}' must be a function that builds one; got {type(plugin).__name__}")
    try:
        parameters = list(inspect.signature(plugin).parameters.values())
    except (ValueError, TypeError) as error:
        raise ValueError(f"{kind} '{name}': its parameters cannot be read: {error}") from None
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.default is inspect.Parameter.empty:
            raise ValueError(f"{kind} '{name}': parameter '{parameter.name}' cannot be given by name")
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter for parameter in parameters if parameter.kind in named]


def _first_line(plugin: Any) -> str:
    return (inspect.getdoc(plugin) or "").partition("\n")[0]

"""Tables of what can be chosen: tasks, protocols, schedules, proxies, adaptations; and files that pages show."""

import inspect
import re
from collections.abc import Callable

from experiments.paper.tables import markdown
from filling.cells import number
from filling.records import ROOT
from filling.registry import table


@table
def tasks() -> str:
    """A row per task: sizes, time limit and drifting parameters with their default ranges."""
    import envs

    body = []
    for name in envs.TASKS:
        task = envs.make(name)
        spec = task.env.spec
        drift = [
            f"`{c.name}` {number(c.low)} to {number(c.high)}" + (" (2-D radius)" if c.kind == "planar" else "")
            for c in task.channels
        ]
        sizes = [str(spec.obs_size), str(spec.action_size), f"{spec.time_limit:,}"]
        body.append([f"`{name}`", *sizes, ", ".join(drift)])
    return markdown(["task", "observation", "action", "time limit", "drifting parameters"], body)


@table
def general_sizes() -> str:
    """Sizes of a study of a task without presets, by its time limit."""
    from experiments.presets.general import general

    body = []
    for episodes, limit in (("up to 200 steps", 200), ("longer", 201)):
        for name, preset in general(limit).items():
            sizes = [f"{preset.steps:,}", f"{preset.evaluations} of {preset.episodes} episodes"]
            body.append([episodes, f"`{name}`", *sizes, f"{100 * preset.replay_fraction:g} % of the steps"])
    return markdown(["episodes", "`--preset`", "steps of a run", "evaluations", "replay"], body)


@table
def protocols() -> str:
    """The published protocols and their deviations; those that differ in the task alone share a row."""
    import envs

    members: dict[tuple[str, ...], list[tuple[str, str]]] = {}  # cells of a row -> its names and tasks
    for name, protocol in envs.PROTOCOLS.items():
        channels = envs.make(protocol.task, **protocol.options).channels
        drift = ", ".join(f"`{c.name}` {number(c.low)} to {number(c.high)}" for c in channels)
        patterns = ", ".join(f"`{pattern}`" for pattern in protocol.patterns)
        cells = (drift, patterns, f"{protocol.period:,}", f"{protocol.steps:,}", protocol.source, protocol.deviations)
        members.setdefault(cells, []).append((f"`{name}`", f"`{protocol.task}`"))
    drifts, sources = [], []
    for (drift, patterns, segment, steps, source, deviations), own in members.items():
        names, tasks = (", ".join(texts) for texts in zip(*own, strict=True))
        drifts.append([names, f"{tasks}: {drift}", patterns, segment, steps])
        sources.append([names, source, deviations])
    first = markdown(["name", "drifts", "patterns", "steps of a segment", "steps"], drifts)
    return first + "\n" + markdown(["name", "source", "deviations from the source"], sources)


def defaults(function: Callable, options: tuple[str, ...] | None = None) -> str:
    """Options of a factory with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    own = [p for p in parameters if p.name not in ("proxy", "now", "memory") and (not options or p.name in options)]
    study = [f"`{p.name}`" for p in own if p.default is p.empty]
    typed = [f"`{p.name}={number(p.default)}`" for p in own if isinstance(p.default, int | float)]
    return " ".join([*study, *typed])


@table
def schedules() -> str:
    """A row per schedule: rule, options, default source."""
    from aesjax.schedules import SCHEDULES

    body = []
    for name, factory in SCHEDULES.items():
        options = tuple(o for o in factory.options if o != "q")
        body.append([f"`{name}`", factory.label, factory.summary, defaults(factory.__wrapped__, options)])
    return markdown(["name", "label", "rule", "options"], body)


@table
def proxies() -> str:
    """A row per proxy."""
    from aesjax.schedules import PROXIES

    return markdown(
        ["proxy", "value"],
        [[f"`{name}`", factory.summary.replace("|", r"\|")] for name, factory in PROXIES.items()],
    )


@table
def adaptations() -> str:
    """A row per adaptation: rule and options."""
    from aesjax.adaptations import ADAPTATIONS

    body = [[f"`{n}`", rule.lever, rule.summary, defaults(rule.__wrapped__)] for n, rule in ADAPTATIONS.items()]
    return markdown(["`+`", "adjusts", "rule", "options"], body)


@table
def single_file_lines() -> str:
    """Lines of the single-file SAC that an entropy schedule adds or changes: those with a number or "here"."""
    lines = (ROOT / "experiments" / "single_file_sac.py").read_text().splitlines()
    marked = [line.strip() for line in lines if re.search(r"  # (\d\b|.*\bhere$)", line)]
    return "\n".join(["```text", marked[0], "", *marked[1:], "```", ""])


@table
def policy_reader() -> str:
    """The reader of exported policies."""
    text = (ROOT / "experiments" / "session" / "reader.py").read_text()
    return f"```python\n{text}```\n"

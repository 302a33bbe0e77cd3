"""`aesjax list`: every name that may be typed"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.study.devices import LARGEST_CACHE, cache_folder

KINDS = (
    *("tasks", "simulators", "carriers", "schedules", "adaptations", "controls", "proxies", "studies", "patterns"),
    *("tables", "presets", "programs"),
)
KINDS_OF_OBJECTS = ("schedule", "adaptation", "proxy", "task", "pattern", "carrier")
_Names = dict[str, dict[str, str]]  # kind -> name -> one line about it


@dataclass
class List:
    """Print the names that may be typed, each with one line about it: tasks, simulators, carriers, schedules,
    adaptations, controls, proxies, studies, patterns, tables, presets, and where compiled programs are stored."""

    kind: tyro.conf.Positional[str | None] = None
    """One of the kinds above; by default all."""
    json: bool = False
    """Print an object: kind, name, line."""


def execute(options: List) -> int:
    """Print one section per kind of name."""
    with refusing():
        if options.kind not in (None, *KINDS):
            from aesjax.registry import UnknownNameError, unknown  # imports JAX

            raise UnknownNameError(unknown("kind of name", KINDS, options.kind))
        names = _collected()
        chosen = names if options.kind is None else {options.kind: names[options.kind]}
        if options.json:
            print(json.dumps(chosen, indent=1))
            return DONE
        for title, lines in chosen.items():
            print(f"{title}:")
            width = max(map(len, lines), default=0)
            for name, text in lines.items():
                print(f"  {name:<{width}}  {text}".rstrip())
    return DONE


def _collected() -> _Names:
    import envs
    from aesjax.adaptations import ADAPTATIONS, CONTROLS
    from aesjax.schedules import PROXIES, SCHEDULES
    from agents import CARRIERS
    from experiments.paper.tables import TABLES
    from experiments.presets import PRESETS
    from experiments.presets.studies import STUDIES

    sections = {
        "tasks": ("task", {name: _about(name) for name in envs.TASKS} | {f"{envs.GYMNASIUM}ID": "any of Gymnasium's"}),
        "simulators": ("simulator", _simulators()),
        "carriers": ("carrier", {n: f"{spec.label}; baseline = {spec.baseline}" for n, spec in CARRIERS.items()}),
        "schedules": ("schedule", {"baseline": "the carrier's own weight"} | _summaries(SCHEDULES)),
        "adaptations": ("adaptation", {f"+{name}": text for name, text in _summaries(ADAPTATIONS).items()}),
        "controls": ("control", {f"{name}:of=...": text for name, text in _summaries(CONTROLS).items()}),
        "proxies": ("proxy", _summaries(PROXIES)),
        "studies": ("study", _summaries(STUDIES)),
        "patterns": ("pattern", _summaries(envs.PATTERNS)),
        "tables": ("table", _summaries(TABLES)),
    }
    presets = {
        f"{task}/{name}": f"{preset.steps:,} steps, {preset.evaluations} evaluations of {preset.episodes} episodes"
        for task, presets in PRESETS.items()
        for name, preset in presets.items()
    }
    return {
        title: lines | (_offered(kind) if kind in KINDS_OF_OBJECTS else {}) for title, (kind, lines) in sections.items()
    } | {
        "presets": presets | {"any other task": "quick and paper, sized by the length of its episodes"},
        "programs": {str(cache_folder()): f"JAX's cache of compiled programs, at most {LARGEST_CACHE >> 20} MiB"},
    }


def _simulators() -> dict[str, str]:
    """Names that ``bridge:`` can address; no simulator is started."""
    from envs.bridge.names import GYM_TASKS, LAB_TASKS, NATIVE, PREFIX

    return {f"{PREFIX}{name}": f"Isaac Gym's, which {own} follows" for name, own in GYM_TASKS.items()} | {
        f"{PREFIX}Isaac-...": f"Isaac Lab's: any of its ids, such as {', '.join(LAB_TASKS)}",
        f"{PREFIX}{NATIVE}TASK": "a task from above on the surface of Isaac Gym, to try the bridge",
        f"{PREFIX}MODULE:FUNCTION": "the environment that this function of num_envs and seed returns",
    }


def _about(task: str) -> str:
    import envs

    try:
        return envs.make(task).description
    except (ModuleNotFoundError, ValueError) as error:
        return f"({error})"


def _summaries(registry: Mapping[str, Any]) -> dict[str, str]:
    return {name: entry.summary for name, entry in registry.items()}


def _offered(kind: str) -> dict[str, str]:
    """The names that installed packages offer, with their place or the reason why they cannot be used."""
    from experiments.study.plugins import code_of, find, offered

    lines = {}
    for name in offered(kind):
        try:
            entry = find(kind, name)
            made = getattr(entry, "factory", entry)
            code = code_of(made)
            made = made() if kind == "task" and callable(made) else made
            text = getattr(made, "summary", getattr(made, "description", getattr(made, "label", "")))
            lines[name] = f"{text} [{code.__module__}:{code.__qualname__}]".lstrip()
        except ValueError as error:
            lines[name] = f"({error})"
    return lines

"""`aesjax list`: all available names"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.study.process import LARGEST_CACHE, cache_folder

_Names = dict[str, dict[str, str]]  # kind -> name -> description in one line


@dataclass
class List:
    """Print the available names, each with a short description: tasks, simulators, carriers, schedules,
    adaptations, controls, proxies, patterns, protocols, tables, presets, and the cache of compiled programs."""

    kind: tyro.conf.Positional[str | None] = None
    """One of the kinds above; by default all."""
    json: bool = False
    """Print as JSON: kind, name, description."""


def execute(options: List) -> int:
    """Print one section per kind of name."""
    with refusing():
        from aesjax.registry import lookup

        names = _collected()
        chosen = names if options.kind is None else {options.kind: lookup("kind of name", names, options.kind)}
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
    from envs.bridge.names import GYM_TASKS, LAB_TASKS, NATIVE, PREFIX
    from experiments.paper.design import PARTS
    from experiments.presets import PRESETS
    from experiments.study.method import KINDS

    def about(task: str) -> str:
        try:
            family = import_module(str(envs.TASKS[task]).partition(":")[0])
            kind = getattr(family, "TASKS", {}).get(task)  # of a physics task, without loading its model
            kind = envs.attribute(kind) if isinstance(kind, str) else kind or envs.make(task)
            return kind.description
        except (ModuleNotFoundError, ValueError) as error:
            return f"({error})"

    def summaries(registry: Mapping[str, Any], name: str = "{}") -> dict[str, str]:
        return {name.format(key): entry.summary for key, entry in registry.items()}

    names = {
        "tasks": {name: about(name) for name in envs.TASKS} | {f"{envs.GYMNASIUM}ID": "any of Gymnasium's"},
        "simulators": {f"{PREFIX}{name}": f"Isaac Gym's, which {own} follows" for name, own in GYM_TASKS.items()}
        | {
            f"{PREFIX}Isaac-...": f"Isaac Lab's: any of its ids, such as {', '.join(LAB_TASKS)}",
            f"{PREFIX}{NATIVE}TASK": "a task from above with Isaac Gym's interface, to test the bridge",
            f"{PREFIX}MODULE:FUNCTION": "the environment returned by a function of num_envs and seed",
        },
        "carriers": {n: f"{spec.label}; baseline = {spec.baseline}" for n, spec in CARRIERS.items()},
        "schedules": {"baseline": "the carrier's own weight"} | summaries(SCHEDULES),
        "adaptations": summaries(ADAPTATIONS, "+{}"),
        "controls": summaries(CONTROLS, "{}:of=..."),
        "proxies": summaries(PROXIES),
        "patterns": summaries(envs.PATTERNS),
        "protocols": summaries(envs.PROTOCOLS),
        "tables": summaries(PARTS, "grid --part {}"),
        "presets": {
            f"{task}/{name}": f"{preset.steps:,} steps, {preset.evaluations} evaluations of {preset.episodes} episodes"
            for task, presets in PRESETS.items()
            for name, preset in presets.items()
        }
        | {"any other task": "quick and paper, sized by the length of its episodes"},
        "programs": {str(cache_folder()): f"JAX's cache of compiled programs, at most {LARGEST_CACHE >> 20} MiB"},
    }
    for kind in KINDS:
        names["proxies" if kind == "proxy" else f"{kind}s"] |= _offered(kind)
    return names


def _offered(kind: str) -> dict[str, str]:
    """Names that installed packages register, with their module or the reason why they cannot be used."""
    from experiments.study.method import code_of, find, offered

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

"""`aesjax list`: every name that may be typed"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.cli.errors import DONE
from experiments.study.devices import LARGEST_CACHE, cache_folder


@dataclass
class List:
    """Print tasks, simulators, carriers, schedules, adaptations, controls, proxies, studies, patterns, tables and
    presets, and where compiled programs are stored."""


def execute(options: List) -> int:
    """Print one section per kind of name."""
    del options
    import envs
    from aesjax.adaptations import ADAPTATIONS, CONTROLS
    from aesjax.schedules import PROXIES, SCHEDULES
    from agents import CARRIERS
    from experiments.paper.tables import TABLES
    from experiments.presets import PRESETS
    from experiments.study.named import STUDIES
    from experiments.study.plugins import KINDS

    unusable = {kind: _plug_in(kind) for kind in KINDS}
    for title, kind, entries in (
        ("tasks", "task", {name: _about(name) for name in envs.TASKS}),
        ("simulators", "simulator", _simulators()),
        ("carriers", "carrier", {n: f"{spec.label}; baseline = {spec.baseline}" for n, spec in CARRIERS.items()}),
        ("schedules", "schedule", {"baseline": "the carrier's own weight"} | _summaries(SCHEDULES)),
        ("adaptations", "adaptation", {f"+{name}": text for name, text in _summaries(ADAPTATIONS).items()}),
        ("controls", "control", {f"{name}:of=...": text for name, text in _summaries(CONTROLS).items()}),
        ("proxies", "proxy", _summaries(PROXIES)),
        ("studies", "study", _summaries(STUDIES)),
        ("patterns", "pattern", _summaries(envs.PATTERNS)),
        ("tables", "table", _summaries(TABLES)),
    ):
        _section(
            title, {name: _with_origin(kind, name, text) for name, text in entries.items()} | unusable.get(kind, {})
        )
    _section(
        "presets",
        {
            f"{task}/{name}": f"{preset.steps:,} steps, {preset.evaluations} evaluations of {preset.episodes} episodes"
            for task, presets in PRESETS.items()
            for name, preset in presets.items()
        }
        | {"any other task": "quick and paper, sized by the length of its episodes"},
    )
    _section("compiled programs", {str(cache_folder()): f"JAX's cache, at most {LARGEST_CACHE >> 20} MiB"})
    return DONE


def _section(title: str, lines: dict[str, str]) -> None:
    print(f"{title}:")
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"  {name:<{width}}  {text}".rstrip())


def _simulators() -> dict[str, str]:
    """What ``bridge:`` can address; no simulator is asked."""
    from envs.bridge.names import GYM_TASKS, LAB_TASKS, NATIVE, PREFIX

    return {f"{PREFIX}{name}": f"Isaac Gym's, which {own} follows" for name, own in GYM_TASKS.items()} | {
        f"{PREFIX}Isaac-...": f"Isaac Lab's: any of its ids, such as {', '.join(LAB_TASKS)}",
        f"{PREFIX}{NATIVE}TASK": "a task from above on the surface of Isaac Gym, to try the bridge",
        f"{PREFIX}MODULE:FUNCTION": "what that function of num_envs and seed returns, on the surface of either",
    }


def _about(task: str) -> str:
    import envs

    try:
        return envs.make(task).description
    except (ModuleNotFoundError, ValueError) as error:
        return f"({error})"


def _summaries(registry: Mapping[str, Any]) -> dict[str, str]:
    return {name: entry.summary for name, entry in registry.items()}


def _plug_in(kind: str) -> dict[str, str]:
    """Plug in all that installed packages offer; what cannot be used, with the reason."""
    unusable = {}
    from experiments.study.plugins import find, offered

    for name in offered(kind):
        try:
            find(kind, name)
        except ValueError as error:
            unusable[name] = f"({error})"
    return unusable


def _with_origin(kind: str, name: str, text: str) -> str:
    from experiments.study.plugins import origin_of

    origin = origin_of(kind, name)
    return text if origin is None else f"{text} [{origin.sentence}]".lstrip()

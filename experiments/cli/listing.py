"""`aesjax list`: every name that may be typed"""

from dataclasses import dataclass

from experiments.cli.errors import DONE

__all__ = ["List", "execute"]


@dataclass
class List:
    """Print the tasks, carriers, schedules, proxies, patterns and presets there are."""


def execute(options: List) -> int:
    """Print one section per kind of name."""
    del options
    import envs
    from aesjax.schedules import PROXIES, SCHEDULES
    from agents import CARRIERS
    from experiments.presets import PRESETS
    from experiments.study.named import STUDIES

    _section("tasks", {name: _about(name) for name in envs.TASKS})
    _section("carriers", {name: f"{spec.label}; baseline = {spec.baseline}" for name, spec in CARRIERS.items()})
    _section("schedules", {"baseline": "the carrier's own weight"} | {n: s.summary for n, s in SCHEDULES.items()})
    _section("proxies", {name: spec.summary for name, spec in PROXIES.items()})
    _section("studies", {name: study.summary for name, study in STUDIES.items()})
    _section("patterns", {name: _first_line(entry) for name, entry in envs.PATTERNS.items()})
    _section(
        "presets",
        {
            f"{task}/{name}": f"{preset.steps:,} steps, {preset.evaluations} evaluations of {preset.episodes} episodes"
            for task, presets in PRESETS.items()
            for name, preset in presets.items()
        },
    )
    return DONE


def _section(title: str, lines: dict[str, str]) -> None:
    print(f"{title}:")
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"  {name:<{width}}  {text}".rstrip())


def _about(task: str) -> str:
    import envs

    try:
        return envs.make(task).description
    except ModuleNotFoundError as error:
        return f"({error})"


def _first_line(entry: object) -> str:
    for part in (entry, *(entry if isinstance(entry, tuple) else ())):
        doc = getattr(part, "__doc__", None)
        if callable(part) and doc:
            return doc.strip().splitlines()[0]
    return ""

"""The import graph of the checkout, read from the sources: every arrow, wherever in a file it is written.

`python -m tests.imports` prints it folder by folder.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("aesjax", "agents", "envs", "experiments")
#: Runs in an environment of its own, with libraries that this one does not have.
APART = ROOT / "experiments" / "bench" / "rejax_worker.py"

#: Rooms of each package from the ground up. An arrow points to a lower line; rooms on one line do not know each other.
#: A room is a folder or a module directly in the package; `__init__` is the package's own front door.
FLOORS: dict[str, tuple[str, ...]] = {
    "aesjax": ("compiling registry seeding typed types", "factory", "schedules", "adaptations", "__init__"),
    "agents": ("common", "sac ppo meow", "sql crossq", "discrete", "carriers", "contract train", "__init__"),
    "envs": (
        "core timeline protocols",
        "patterns",
        "adopt drift",
        "world",
        "physics toy",
        "contract isaac mujoco",
        "__init__",
        "render",
        "adapters bridge",
    ),
    "experiments": (
        "presets",
        "study",
        "measure",
        "report theory",
        "session",
        "paper bench",
        "cli",
        "scripts",
        "__init__",
    ),
}


def sources() -> dict[str, Path]:
    """Module name -> file; a package's name stands for its `__init__`."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path != APART:
                parts = path.relative_to(ROOT).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Names a file imports from, anywhere in it; in full where what is imported is a module of ``known``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


@functools.cache
def arrows() -> dict[str, set[str]]:
    """Module -> modules of this checkout that it imports, inside functions and for type checkers too."""
    known = sources()
    return {name: {m for m in imported(path, known) if m in known} - {name} for name, path in known.items()}


def room(module: str) -> str:
    """Where a module lives: ``package.folder`` or ``package.module``; all scripts are one, ``experiments.scripts``."""
    package, _, rest = module.partition(".")
    if not rest:
        return f"{package}.__init__"
    first = rest.partition(".")[0]
    path = ROOT / package / first
    return f"{package}.scripts" if package == "experiments" and not path.is_dir() else f"{package}.{first}"


def floor(name: str) -> int:
    """Height of a folder in its package; raises KeyError for a folder that `FLOORS` lacks."""
    package, _, inside = name.partition(".")
    for height, line in enumerate(FLOORS[package]):
        if inside in line.split():
            return height
    raise KeyError(name)


def between_rooms() -> dict[str, set[str]]:
    """Room -> rooms it imports from."""
    drawn: dict[str, set[str]] = {room(module): set() for module in sources()}
    for module, targets in arrows().items():
        drawn[room(module)] |= {room(target) for target in targets} - {room(module)}
    return drawn


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components of more than one node)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in number:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == number[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in number:
            visit(node)
    return found


if __name__ == "__main__":
    for name, targets in sorted(between_rooms().items()):
        print(f"{name:<24} -> {', '.join(sorted(targets)) or '(nothing)'}")

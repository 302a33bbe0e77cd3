"""The arrows between the packages, the sizes of files, and what an import may cost."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("aesjax", "agents", "envs", "experiments")
MAY_IMPORT = {
    "aesjax": set(),
    "envs": set(),
    "agents": {"aesjax"},
    "experiments": {"aesjax", "agents", "envs"},
}
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def modules(path):
    """Full names of the modules a file imports, wherever in the file; what is taken from one counts as a module too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(path):
    """Top-level names a file imports."""
    return (name.split(".")[0] for name in modules(path))


def test_there_are_sources_to_check():
    assert len(SOURCES) > 30
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_point_one_way(package):
    forbidden = set(PACKAGES) - MAY_IMPORT[package] - {package}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] == package:
            assert not forbidden & set(imported(path)), f"{path.relative_to(ROOT)} imports {forbidden}"


@pytest.mark.parametrize(("lower", "higher"), [("measure", ("lab", "report")), ("lab", ("report",))])
def test_measures_know_no_files_and_files_no_report(lower, higher):
    for path in (ROOT / "aesjax" / lower).rglob("*.py"):
        wrong = [name for name in modules(path) for layer in higher if f"{name}.".startswith(f"aesjax.{layer}.")]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_readable(path):
    lines = len(path.read_text().splitlines())
    carrier = path.parent == ROOT / "agents" and path.stem in {"sac", "ppo", "sql", "meow"}
    assert lines <= (250 if carrier else 320), f"{path.relative_to(ROOT)} has {lines} lines"


def modules_after(statement):
    code = f"{statement}; import sys; print(' '.join(sorted(m.split('.')[0] for m in sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(result.stdout.split())


@pytest.mark.parametrize("statement", ["import aesjax", "import aesjax.schedules, aesjax.measure", "import envs"])
def test_importing_the_method_is_light(statement):
    heavy = {"mujoco", "brax", "polars", "matplotlib", "orbax", "scipy", "gymnasium", "torch", "tyro", "rich", "jinja2"}
    baseline = modules_after("import jax, optax")
    assert not (modules_after(statement) - baseline) & heavy


def test_importing_a_package_changes_no_global_setting_of_jax():
    code = (
        "import jax; before = dict(jax.config.values);"
        "import aesjax, agents, envs, experiments.cli, experiments.study.train;"
        "changed = {k for k, v in jax.config.values.items() if before.get(k, v) != v}; assert not changed, changed"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_packages_are_those_of_this_checkout():
    import agents
    import envs

    for package in (agents, envs):
        assert Path(package.__file__).resolve().is_relative_to(ROOT)


def test_both_kinds_of_registry_word_their_errors_alike():
    import envs
    from agents import CARRIERS

    with pytest.raises(KeyError) as ours:
        CARRIERS["saac"]
    with pytest.raises(KeyError) as theirs:
        envs.make("tooy")
    assert str(ours.value) == "unknown carrier 'saac'; did you mean 'sac'? registered: " + ", ".join(sorted(CARRIERS))
    assert str(theirs.value).startswith("unknown task 'tooy'; did you mean 'toy'? registered: ")

"""Dependencies between packages, and the cost of an import."""

import subprocess
import sys

import pytest

from tests.imports import PACKAGES, ROOT, arrows, circles, imported

MAY_IMPORT = {
    "aesjax": set(),
    "envs": {"aesjax"},
    "agents": {"aesjax", "envs"},
    "experiments": {"aesjax", "agents", "envs"},
}
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_point_one_way(package):
    """Between the packages; in the sources apart, too."""
    forbidden = set(PACKAGES) - MAY_IMPORT[package] - {package}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] == package:
            words = {name.split(".")[0] for name in imported(path, {})}
            assert not forbidden & words, f"{path.relative_to(ROOT)} imports {forbidden & words}"


def test_no_module_reaches_itself_by_a_detour():
    assert circles(arrows()) == []


def run(code):
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_importing_tasks_and_measures_is_light_and_starts_no_device():
    run("""
import sys, jax, optax
before = set(sys.modules)
import envs
jax.config.update("jax_platforms", "cpu")
envs.make("toy"), envs.make("toy_multigoal_classic"), envs.pattern_index("mixed")
jax.config.update("jax_num_cpu_devices", 3)
apart = {"agents", "experiments"} & set(sys.modules)
assert not apart, apart
assert jax.device_count() == 3
import experiments.measure
heavy = "mujoco brax polars matplotlib orbax scipy gymnasium torch tyro rich jinja2".split()
heavy = set(heavy) & {name.split(".")[0] for name in set(sys.modules) - before}
assert not heavy, heavy
""")


def test_help_and_wrong_arguments_are_answered_without_jax():
    run("""
import sys, experiments.cli.commands
heavy = {"jax", "flax", "mujoco", "polars", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
""")


NAMES = {"list": 0, "run --task toi": 2, "run --schedules aess": 2}
ABSENT = dict.fromkeys(("report nothing", "calibrate nothing", "video nothing", "export nothing --out new"), 2)


@pytest.mark.parametrize(
    ("codes", "heavy"),
    [(NAMES, "mujoco gymnasium polars scipy matplotlib jinja2 orbax"), (ABSENT, "jax numpy polars jinja2 matplotlib")],
)
def test_names_and_errors_import_no_more_than_they_need(codes, heavy):
    run(f"""
import sys
from experiments.cli import main
for words, code in {codes}.items():
    assert main(words.split()) == code, words
    heavy = set("{heavy}".split()) & set(sys.modules)
    assert not heavy, (words, heavy)
""")


def test_importing_everything_changes_no_setting_of_jax_and_leaves_out_what_one_carrier_alone_needs():
    """distrax, and with it TensorFlow Probability, is a third of all imports; only MEow uses it."""
    run("""
import sys, jax
before = dict(jax.config.values)
import aesjax, agents, envs, experiments.cli, experiments.study.train
changed = {k for k, v in jax.config.values.items() if before.get(k, v) != v}
assert not changed, changed
unused = {"distrax", "tensorflow_probability"} & set(sys.modules)
assert not unused, unused
""")

"""`aesjax bench --compile`: what is refused, and in a process of its own what is read back."""

import json
import os
import subprocess
import sys

import pytest

from experiments.bench import compiling


def test_what_cannot_be_measured_is_refused(tmp_path):
    (tmp_path / "there.json").touch()
    with pytest.raises(ValueError, match="--engines must name some of toy, mujoco, mjx; got 'mujuco'"):
        compiling.run(carriers="sac", engines="mujuco", out=None)
    with pytest.raises(ValueError, match="exists"):
        compiling.run(carriers="sac", engines="toy", out=tmp_path / "there.json")
    with pytest.raises(KeyError, match="did you mean 'sac'"):
        compiling.run(carriers="sak", engines="toy", out=None)


@pytest.mark.slow
def test_programs_are_compiled_once_and_read_back(tmp_path):
    words = ["bench", "--compile", "--carriers", "ppo", "--engines", "toy", "--out", str(tmp_path / "record.json")]
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    subprocess.run([sys.executable, "-m", "experiments.cli", *words], env=env, check=True)
    [case] = json.loads((tmp_path / "record.json").read_text())["cases"]
    assert (case["carrier"], case["task"]) == ("ppo", "toy")
    for name in ("init", "chunk", "evaluate"):
        assert case["cold"][name]["kept"]
        assert case["warm"][name]["compiling"] < case["cold"][name]["compiling"]

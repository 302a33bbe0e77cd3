"""The bridge costs nothing to those who do not use it."""

import subprocess
import sys

import pytest

from tests.envs.bridge.common import ROOT


@pytest.mark.parametrize("statement", ["import aesjax, envs", "import envs.bridge, envs.bridge.env, envs.bridge.host",
                                       "import experiments.cli, experiments.presets"])  # fmt: skip
def test_no_import_brings_pytorch_or_a_simulator(statement):
    code = f"{statement}; import sys; assert not {{'torch', 'isaacgym', 'isaaclab'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_machine_without_pytorch_is_told_so_on_use_and_not_on_import():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import envs.bridge, envs.bridge.host, envs.bridge.tensors, envs.bridge.torch_tasks, envs.bridge.compiled\n"
        "try:\n    envs.bridge.host.InProcess(None)\n"
        "except ModuleNotFoundError as error:\n    assert 'pip install torch==2.13.0' in str(error)\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

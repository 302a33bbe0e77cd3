"""The Python blocks of every page run in order, as a reader pastes them, with the results that the page states."""

import ast
import re
import runpy
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest

import envs
from envs.adapters.gymnasium import DriftingVectorEnv
from experiments import Results
from tests.pages import NEEDS, PAGES, ROOT, blocks

BEYOND = {*NEEDS.values(), "gymnax", "rejax"}  # packages that requirements.lock lacks
FILE = re.compile(r"# (\w+\.py)\n")  # first line of a block that the reader saves
ELSEWHERE = {
    "docs/write_schedule.md": "tests/test_readme.py runs it between its commands, whose results it reads",
}


def packages(block):
    """Packages beyond requirements.lock that a block imports."""
    nodes = list(ast.walk(ast.parse(block)))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return tuple(sorted(BEYOND & {NEEDS.get(module, module.partition(".")[0]) for module in modules}))


def readme(left, printed):
    for folder in ("python", "pendulum"):
        assert Results.open(f"runs/{folder}").methods[:2] == ["SAC", "SAC+AES"]


def bridge(left, printed):
    assert printed.startswith("(16, 60) [ True")
    assert "\ntorch.Size([4, 13]) torch.int64" in printed


def compare_logs(left, printed):
    assert "ppo-reset" in Path("report/tables.md").read_text()


def discrete_actions(left, printed):
    _, curves = jax.eval_shape(left["train"], 1)
    assert curves["return_mean"].shape == (11,)  # one before training


def elsewhere(left, printed):
    assert left["info"]["drift_step"] == 0
    assert isinstance(left["many"], DriftingVectorEnv)
    assert [picture.shape for picture in left["pictures"]] == [(480, 480, 3)] * 2
    np.testing.assert_allclose(left["infos"]["drift"], [[0.3, -0.2]] * 2)


def elsewhere_sb3(left, printed):
    assert left["env"].unwrapped._copies.clock.steps == 2_500
    assert 5 < left["mean"] < 48  # untrained: 4


def elsewhere_brax(left, printed):
    assert left["state"].info["drift_step"].tolist() == [1] * 4
    assert left["state"].info["drift"].shape == (4, 2)


def import_task(left, printed):
    assert left["study"].config.built.channels == (envs.Channel("body_mass", 0.5, 1.5, 1.0),)
    assert left["driving"].config.built.channels[0][:3] == ("power", 0.001, 0.002)
    assert left["task"].env.spec == envs.EnvSpec(obs_size=4, action_size=1, time_limit=500)
    assert [channel.name for channel in left["task"].channels] == ["body_mass", "gravity"]
    assert left["env"].num_envs == 4


def import_task_playground(left, printed):
    assert left["study"].config.built.channels == (envs.Channel("body_mass.pole_1", 0.5, 3.0, 1.0),)


def own_task(left, printed):
    study, pendulum = left["study"].config, left["pendulum"].config
    assert study.options == {"channels": ("gain=0.5:1.5",)}
    assert pendulum.options == {"channels": ("g=8:12",)}
    assert study.build_task().env.spec == envs.EnvSpec(obs_size=2, action_size=1, time_limit=100)


def protocols_sb3(left, printed):
    """The friction of the last step of each part is that of its segment, and that in MuJoCo's model."""
    assert len(set(left["frictions"])) == 3
    model = left["env"].unwrapped._copies.task.env.engine._free[1][0].fields["geom_friction"]
    np.testing.assert_allclose(model[0, :, 0], left["frictions"][-1], rtol=1e-6)


def study_in_python(left, printed):
    assert "def burst(proxy, *, base, decay=0.9):" in Path("runs/python/config.json").read_text()
    assert Path("runs/python/report/index.html").exists()
    assert left["returns"].shape == (2, 5)
    assert "--warm-start runs/python" in printed


def theory(left, printed):
    paper, prior, maximal = (float(line.split()[1]) for line in printed.splitlines())
    assert maximal < prior < paper


def tuning(left, printed):
    choices = left["tuning"].choices
    assert choices["method"].to_list() == ["SAC+AES"] * 2 + ["SAC+fixed"] * 2
    assert choices["share"].to_list() == [0.1, 1.0] * 2
    assert set(left["tuning"].results.methods) == {"SAC", *choices["chosen"]}


def use_in_library_sb3(left, printed):
    assert float(printed) == pytest.approx(0.1)


def use_in_pytorch_cost(left, printed):
    rows = [line.split() for line in printed.splitlines()]
    assert [row[0] for row in rows] == ["aes_r", "aes_c"]
    assert all(10 * float(compiled) < float(plain) for _, compiled, plain in rows)


def use_in_pytorch(left, printed):
    weights, change = np.asarray(left["weights"]), left["change"]
    assert weights.shape == (left["STEPS"],)
    np.testing.assert_allclose(weights[change - 100 : change], 0.05, rtol=0.1)
    assert weights[change:].max() > 0.12
    assert weights[-1] < 0.7 * weights.max()


#: Of a page and packages: a function of the variables that the blocks leave and of the text that they print.
CHECKS = {
    ("README.md",): readme,
    ("docs/bridge.md", "torch"): bridge,
    ("docs/compare_logs.md",): compare_logs,
    ("docs/discrete_actions.md", "gymnax"): discrete_actions,
    ("docs/elsewhere.md",): elsewhere,
    ("docs/elsewhere.md", "brax"): elsewhere_brax,
    ("docs/elsewhere.md", "stable_baselines3"): elsewhere_sb3,
    ("docs/import_task.md", "brax", "gymnax"): import_task,
    ("docs/import_task.md", "mujoco_playground"): import_task_playground,
    ("docs/own_task.md",): own_task,
    ("docs/protocols.md", "stable_baselines3"): protocols_sb3,
    ("docs/study_in_python.md",): study_in_python,
    ("docs/theory.md",): theory,
    ("docs/tuning.md",): tuning,
    ("docs/use_in_library.md", "stable_baselines3"): use_in_library_sb3,
    ("docs/use_in_pytorch.md",): use_in_pytorch_cost,
    ("docs/use_in_pytorch.md", "torch"): use_in_pytorch,
}
SLOW = {
    ("README.md",),
    ("docs/elsewhere.md",),
    ("docs/elsewhere.md", "stable_baselines3"),
    ("docs/protocols.md", "stable_baselines3"),
    ("docs/study_in_python.md",),
    ("docs/tuning.md",),
    ("docs/use_in_library.md", "stable_baselines3"),
    ("docs/use_in_pytorch.md",),
    ("docs/use_in_pytorch.md", "torch"),
}


def cases():
    """Parameters of the test: each page with blocks, once for every set of packages that some of its blocks need."""
    parameters = []
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        if name not in ELSEWHERE:
            for needs in sorted({packages(block) for block in blocks(page, "python")}):
                marks = [pytest.mark.slow] if (name, *needs) in SLOW else []
                parameters.append(pytest.param(page, needs, marks=marks, id="+".join((name, *needs))))
    return parameters


CASES = cases()
assert {*CHECKS, *SLOW} <= {(str(case.values[0].relative_to(ROOT)), *case.values[1]) for case in CASES}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that Brax imports
@pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning")
@pytest.mark.parametrize(("page", "needs"), CASES)
@pytest.mark.usefixtures("registries")
def test_blocks_run_in_order_as_a_reader_pastes_them(page, needs, tmp_path, monkeypatch, capsys):
    for package in needs:
        pytest.importorskip(package, reason="`make test-all` installs it")
    if {"stable_baselines3", "torch"} & set(needs):
        import torch

        torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    pasted, saved = [], []
    for block in blocks(page, "python"):
        name = FILE.match(block)
        if name:
            Path(name[1]).write_text(block)
        if packages(block) == needs:
            (saved if name else pasted).append(name[1] if name else block)
    for name in saved:
        import_module(name.removesuffix(".py"))
    Path("page.py").write_text("\n".join(pasted))
    left = runpy.run_path("page.py")
    CHECKS.get((str(page.relative_to(ROOT)), *needs), lambda left, printed: None)(left, capsys.readouterr().out)

"""A study as an object: trained once, continued, compared, drawn, acted with, described as a command and as a file."""

import shutil
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import envs
from aesjax import EntropySchedule, aes, as_schedule, fixed
from aesjax.adaptations import refresh
from aesjax.registry import UnknownNameError
from aesjax.schedules.rule import held, start
from envs.patterns import Pattern
from envs.toy.multigoal import TASK
from experiments import Method, Results, Study
from experiments.paper.record import read
from experiments.study.config import config_from_json
from tests.imports import ROOT


def burst(proxy, *, base, decay=0.9):
    """A weight that follows the newest error."""

    def update(signals, state):
        weight = jnp.clip(decay * state.weight + 0.01 * (1.0 - decay) * proxy(signals), 1e-4, 1.0)
        return held(jnp.isfinite(weight), state._replace(weight=weight, count=state.count + 1), state)

    return EntropySchedule(lambda: start(base), update)


SIZES = {"patterns": ["steady", "abrupt"], "seeds": 2, "steps": 800, "evaluations": 10}


@pytest.fixture(scope="module")
def study():
    methods = ["sac", "sac+aes", Method("sac", aes(kappa=0.3)), Method("ppo", burst, label="BURST")]
    methods.append(Method("sac", "aes_c", ["recent", refresh(strength=0.5)]))
    return Study("toy", methods=methods, preset="quick", sweep={"kappa": [0.1, 0.3]}, **SIZES)


@pytest.fixture(scope="module")
def results(study, tmp_path_factory):
    return study.run(out=tmp_path_factory.mktemp("session") / "a", quiet=True)


def test_a_finished_study_is_opened_and_another_one_refused(study, results):
    assert study.run(out=results.directory).curves.equals(results.curves)
    assert Results.open(results.directory).methods == results.methods
    with pytest.raises(ValueError, match=r"has another configuration .*steps: 800 -> 4000"):
        Study("toy", methods=study.methods, **{**SIZES, "steps": 4000}).run(out=results.directory)


def test_frames_have_a_row_per_run_and_evaluation(results):
    runs = 5 * 2 * 2
    assert results.curves.height == runs * 11
    assert results.streams.height == runs
    assert set(results.metrics["level"]) == {"run", "method"}
    assert results.methods[-1] == "PPO+BURST"
    assert "SAC+AES-C+refresh+recent" in results.methods


def test_results_open_where_a_schedule_is_not_defined(results):
    code = f"from experiments import Results; print(Results.open({str(results.directory)!r}).curves.height)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert int(process.stdout) == results.curves.height


def test_a_comparison_is_the_reports_own(results):
    frame = results.compare("SAC+AES[kappa=0.1]", "SAC", metric="return")
    numbers = ["difference", "low", "high", "p", "p_holm", "detectable", "detectable_share"]
    assert frame.columns == ["metric", "pattern", "pairs", *numbers, "outcome"]
    reported = results.metrics.filter(level="method", method="SAC+AES[kappa=0.1]", metric="paired:mean_return")
    for row in frame.to_dicts():
        (own,) = reported.filter(pl.col("task").is_not_null(), pattern=row["pattern"]).to_dicts()
        np.testing.assert_allclose(
            [row[n] for n in ("difference", "low", "high")], [own[n] for n in ("value", "low", "high")]
        )
    assert (frame["p_holm"] >= frame["p"]).all()
    assert results.compare(Method("sac", aes(kappa=0.1)), Method("sac"), metric="return").equals(frame)
    one = results.compare("SAC+AES[kappa=0.1]", "SAC", metric="return", patterns="abrupt")
    assert one["difference"].to_list() == frame.filter(pattern="abrupt")["difference"].to_list()
    for wrong in ("SAC+AESS", "PPO"):
        with pytest.raises(UnknownNameError, match="unknown method of this study"):
            results.compare(wrong, "SAC")
    with pytest.raises(ValueError, match=r"name one of SAC\+AES\[kappa=0.1\], SAC\+AES\[kappa=0.3\]"):
        results.compare("SAC+AES", "SAC")
    with pytest.raises(ValueError, match=r"no pairs of runs of .* have a value of 'drop_ratio'"):
        results.compare("SAC+AES[kappa=0.1]", "SAC", metric="drop_ratio", patterns="steady")


def test_a_plot_marks_the_changes(results):
    for column in ("return_mean", "entropy_weight", "proxy"):
        (axes,) = results.plot(column, pattern="abrupt", methods=["SAC", "SAC+AES[kappa=0.1]"]).axes
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 11]
        assert [line.get_label() for line in lines] == ["SAC", "SAC+AES[kappa=0.1]"]
        assert sum(len(set(line.get_xdata())) == 1 for line in axes.get_lines()) == 4


def test_a_policy_acts_and_is_evaluated(results):
    policy = results.policy("SAC+AES[kappa=0.1]", pattern="abrupt", seed=1, at="end")
    obs = jnp.zeros((3, 2))
    np.testing.assert_array_equal(policy(obs), policy(obs))
    assert policy(obs[0]).shape == (2,)
    assert not np.allclose(policy(obs), policy(obs, key=jax.random.key(0)))
    np.testing.assert_array_equal(policy(obs, key=0), policy(obs, key=jax.random.key(0)))
    with pytest.raises(ValueError, match=r"episodes must be a whole number; got 2\.5"):
        policy.evaluate("end", 2.5)
    # The last evaluation of the training had the same drift and other initial states.
    row = results.curves.filter(method=policy.method, pattern="abrupt", seed=1, step=800).row(0, named=True)
    assert abs(policy.evaluate(drift="end", episodes=64).mean() - row["return_mean"]) < 4 * row["return_std"]
    assert policy.evaluate(drift=[1.0, 0.0], episodes=2).shape == (2,)
    np.testing.assert_array_equal(policy.evaluate("nominal", episodes=2), policy.evaluate([0.0, 0.0], episodes=2))
    np.testing.assert_allclose(jax.vmap(policy)(obs), policy(obs), rtol=1e-6, atol=1e-6)
    earlier = results.policy("PPO+BURST", pattern="abrupt", seed=1, at=320)
    assert earlier.step == 320
    assert earlier(obs, key=jax.random.key(0)).shape == (3, 2)
    with pytest.raises(ValueError, match=r"stored at the end and at steps 160, 320, .*; got 401"):
        results.policy("SAC", pattern="abrupt", seed=1, at=401)
    with pytest.raises(ValueError, match=r"are \(2,\) or \(N, 2\); got \(3,\)"):
        policy(jnp.zeros(3))


def test_agents_of_a_study_begin_another(results):
    config = Study("toy", methods="sac", patterns="steady", seeds=2, steps=800, start=results).config
    assert config.warm_start["from"] == str(results.directory)


def test_a_report_and_the_verdicts_of_a_notebook(results):
    assert results.report() == results.directory / "report" / "index.html"
    assert "SAC+AES[kappa=0.1] against SAC" in results._repr_html_()


def test_a_study_is_its_command_and_its_file(tmp_path):
    study = Study("hopper", ["sac", "sac+aes:kappa=0.3"], channels=["body_mass"], engine="mjx", seeds=[1, 4])
    words = "--task hopper --schedules baseline,aes:kappa=0.3 --seeds 1,4 --engine mjx --channels body_mass --out x"
    assert study.command(out="x") == f"aesjax run {words}"
    for name in ("a.toml", "a.json"):
        text = study.to_toml() if name.endswith("toml") else '{"task": "hopper", "methods": ["ppo"]}'
        (tmp_path / name).write_text(text)
        again = Study.from_file(tmp_path / name).config
        assert again == (study.config if name.endswith("toml") else Study("hopper", "ppo").config)
    (tmp_path / "bad.toml").write_text("sedes = 3")
    with pytest.raises(ValueError, match="'sedes' is not an option of a study; did you mean 'seeds'"):
        Study.from_file(tmp_path / "bad.toml")
    sweep = {"kappa": [0.1234567, 2]}
    assert Study("toy", "sac+aes", sweep=sweep).to_toml().endswith('sweep = ["kappa=0.1234567,2"]\n')
    assert Study("toy", Method("sac", burst)).command() == f"aesjax run --schedules {__name__}:burst"
    with pytest.raises(ValueError, match="'other' is defined only in this process; save it in a module"):
        Study("toy", Method("sac", as_schedule(lambda *, base: fixed(base), name="other"))).command()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("methods = 3", "a method must be a Method or a text such as 'sac.aes'; got int"),
        ('steps = "1600"', "steps must be a whole number; got '1600'"),
        ("steps = 1600.5", "steps must be a whole number"),
        ("observe = 1", "observe must be text"),
        ('timeout = "x"', "timeout must be a number"),
        ('layer_norm = "no"', "layer_norm must be true or false"),
        ("seeds = [1.5]", "each of seeds must be a whole number; got 1.5"),
        ("sweep = {kappa = 1}", "--sweep takes NAME=VALUE"),
    ],
)
def test_a_file_with_a_value_of_another_kind_is_refused(tmp_path, line, wanted):
    (tmp_path / "a.toml").write_text(line)
    with pytest.raises(ValueError, match=wanted):
        assert Study.from_file(tmp_path / "a.toml").config


KEPT = {
    "responses-toy-sql-threshold": Study(
        "toy",
        [Method("sql", "aes_c", ["recent", refresh(threshold=3)])],
        seeds=range(1, 11),
        preset="paper",
        steps=40_000,
        num_envs=4,
    ),
    "responses-isaac-ant-ppo": Study(
        envs.make("isaac_ant"),
        ["ppo", "ppo+aes", "ppo+aes_r", Method("ppo", fixed(base=0.1))],
        patterns=["steady", "abrupt", "periodic"],
        seeds=5,
        preset="isaac-quick",
        steps=512_000,
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_typed_study_has_the_configuration_of_a_kept_one(name):
    stored = read(ROOT / "experiments" / "results" / "earlier").studies[name]["config"]
    assert config_from_json(KEPT[name].config.to_json()) == config_from_json(stored)


@pytest.mark.parametrize(
    ("file", "installed"),
    [("agents/__init__.py", False), ("envs/__init__.py", False), ("envs.py", False), ("agents/__init__.py", True)],
)
def test_a_foreign_module_that_hides_a_package_is_named(file, installed, tmp_path):
    """Beside a script, or installed over ours."""
    foreign = tmp_path / file
    if installed:
        for name in ("agents", "envs", "experiments"):
            (tmp_path / name).mkdir()
            shutil.copy(ROOT / name / "__init__.py", tmp_path / name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text('"""Agents of a language model."""\n')
    (tmp_path / "script.py").write_text("import experiments\n")
    words = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.run(words, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False)
    (line,) = [line for line in process.stderr.splitlines() if line.startswith("ImportError")]
    assert f"'{foreign}' hides aesjax's package '{foreign.relative_to(tmp_path).parts[0].split('.')[0]}'" in line


def first(share):
    return 0.5 + 0.4 * share


def jump(channel, leg):
    """To half the bound at a random time of the first segment, and back in the fourth."""
    time = leg.segment + leg.phase
    late = (leg.segment > 0) | (time >= first(leg.end[0] / channel.high))
    return jnp.zeros(channel.size).at[0].set(jnp.where(late & (time < 3.5), channel.high / 2.0, 0.0))


def unstated(channel, leg):
    """The same without a statement."""
    return jump(channel, leg)


@pytest.mark.slow
def test_changes_of_a_pattern_are_those_of_each_run_or_none(tmp_path):
    bound = TASK.channels[0].high
    stated = Pattern(jump, True, True, changes=lambda sample, n: jnp.stack([first(sample.levels[1, 0] / bound), 3.5]))
    patterns = ["steady", "abrupt", stated, Pattern(unstated, True, True)]
    options = {"seeds": 2, "steps": 800, "num_envs": 8, "evaluations": 20, "episodes": 1}
    study = Study("toy", "ppo", patterns=patterns, **options)
    results = study.run(tmp_path / "a", quiet=True)
    changes = results.manifest["changes"]["toy"]
    assert {name: len(set(map(tuple, runs.values()))) for name, runs in changes.items()} == {"jump": 2, "unstated": 1}
    for seed in (1, 2):
        rows = results.curves.filter(pattern="jump", seed=seed).sort("step")
        begin, end = changes["jump"][str(seed)]
        assert rows.filter(pl.col("drift_0") != 0)["step"].to_list() == [
            step for step in rows["step"] if begin <= step < end
        ]
        reached = Results.open(tmp_path / "a", study).policy("PPO", "jump", seed, at=end)
        assert reached.step == end // 40 * 40
    values = results.metrics.filter(level="run", metric="recovery")
    known = dict(values.group_by("pattern").agg(pl.col("value").is_finite().all()).iter_rows())
    assert known == {"steady": False, "abrupt": True, "jump": True, "unstated": False}
    lines = {name: len(results.plot(pattern=name).axes[0].get_lines()) - 1 for name in known}
    assert lines == {"steady": 0, "abrupt": 4, "jump": 3, "unstated": 0}
    with pytest.raises(ValueError, match="changes of pattern 'jump' must increase"):
        Study("toy", "ppo", patterns=stated._replace(changes=lambda sample, n: [3.5, 0.5]), **options).run(quiet=True)


def test_a_protocol_is_what_the_study_does_not_type():
    """A study of a published drift, with the equal command; what is typed wins, but for another task."""
    study = Study(protocol="SlipperyAnt-v0", methods="ppo", seeds=1, steps=4_096_000, channels="geom_friction=0.1:2")
    config = study.config
    assert (config.task, config.patterns, config.segments, config.steps) == ("ant", ("redrawn",), 10, 4_096_000)
    assert config.options["channels"] == ("geom_friction=0.1:2",)
    assert "--protocol SlipperyAnt-v0" in study.command()
    assert "--task" not in study.command()
    with pytest.raises(ValueError, match="protocol 'SlipperyAnt-v0' is on task 'ant'; leave out task 'hopper'"):
        _ = replace(study, task="hopper").config
    with pytest.raises(KeyError, match="unknown protocol 'SliperyAnt-v0'; did you mean 'SlipperyAnt-v0'"):
        _ = replace(study, protocol="SliperyAnt-v0").config


def test_given_options_that_equal_the_defaults_replace_those_of_a_protocol():
    study = Study(protocol="AESReleaseToy-v0", methods="sac", seeds=1)
    assert "sawtooth" in study.config.patterns
    given = replace(study, patterns="all")
    assert given.config.patterns == Study("toy", patterns="all").config.patterns == Study().config.patterns
    assert "--patterns all" in given.command()
    with pytest.raises(ValueError, match="leave out task 'toy'"):
        _ = replace(study, task="toy").config
    assert Study("toy", patterns="all").command() == Study().command()

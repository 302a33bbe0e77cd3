"""Studies that begin with trained agents: the agents are those, everything else is new, and what does not fit is
refused by name.
"""

import dataclasses
import functools
import json
import os
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
import pytest

import envs
from agents import CARRIERS
from envs.world import World
from experiments import Results, Study
from experiments.cli import main
from experiments.session.reader import act
from experiments.study import replay
from experiments.study.checkpoint import load_agent
from experiments.study.config import config_from_json
from experiments.study.folder import open_study, writing
from experiments.study.process import DRAWS, numerics
from experiments.study.program import Plan, runs_of
from experiments.study.run import compile_program, take
from experiments.study.train import Interrupted, Progress
from experiments.study.warm import Agents, export_agents, nature_of, read, warm_of, widened
from tests.agents.small import small as small_carrier
from tests.experiments.configs import config_of, small_ppo, train_study
from tests.imports import ROOT
from tests.refusals import refused

pytestmark = pytest.mark.slow

STEPS, EVALUATIONS = 1680, 10  # 210 vector steps of PPO: not a multiple of an episode's 50
ARMS = "baseline,auto,aes_r,auto:auto_initial=0.5"


def small(**options):
    """The task has no oracle, whose solution is not what is tested."""
    options = {"task": "toy_multigoal_classic", "seeds": 2} | options
    config = small_ppo(evaluations=EVALUATIONS, rollout=7, **options)
    return dataclasses.replace(config, steps=STEPS, replay_capacity=320, warmup=168)


def arms(directory, **options):
    """A drift study of one seed more than there are agents."""
    return small(schedules=ARMS, patterns="steady,abrupt", seeds="1:3", start=directory, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("warm") / "trained"
    train_study(small(), directory)
    return directory


@pytest.fixture(scope="module")
def begun(trained):
    directory = trained.parent / "begun"
    train_study(arms(trained), directory)
    return directory


@pytest.fixture(scope="module")
def exported(trained):
    out = trained.parent / "exported"
    assert main(["export", str(trained), "--out", str(out)]) == 0
    return out


def test_a_policy_starts_a_study_and_so_do_runs_on_one_other_pattern(begun, tmp_path):
    results = Results.open(begun)
    policy = results.policy("PPO+auto", "abrupt", 2)
    config = Study("toy_multigoal_classic", "ppo", patterns="linear", start=policy).config
    assert config.warm_start["run"] == {"method": "PPO+auto", "pattern": "abrupt", "seed": 2, "step": STEPS}
    assert config_from_json(config.to_json()) == config
    assert [run["seed"] for run in read(begun, "ppo", policy.run).runs] == [2]
    with pytest.raises(ValueError, match="a Policy as start has no text"):
        Study("toy_multigoal_classic", "ppo", start=policy).to_toml()
    with pytest.raises(ValueError, match="has, of carrier 'ppo', no finished run of"):
        read(begun, "ppo", policy.run | {"step": 5})
    train_study(small(patterns="abrupt", seeds="1"), tmp_path / "abrupt")
    assert [run["seed"] for run in read(tmp_path / "abrupt", "ppo").runs] == [1]


@pytest.mark.parametrize("name", DRAWS)
def test_other_random_draws_than_those_of_a_study_refuse_its_policies_agents_and_drift(begun, exported, tmp_path, name):
    """Each setting alone; rounding and versions may differ, because these numbers are stored."""
    study, agents = shutil.copytree(begun, tmp_path / "study"), shutil.copytree(exported, tmp_path / "agents")
    ours = numerics()
    for path in (study / "manifest.json", agents / "warm.json"):
        facts = json.loads(path.read_text())
        entry = facts["carriers"]["ppo"] if "carriers" in facts else facts
        assert entry["numerics"] == ours
        entry["numerics"] = dict.fromkeys(ours, "other") | {n: ours[n] for n in DRAWS if n != name}
        path.write_text(json.dumps(facts))
    uses = {
        "policy": lambda: Results.open(study).policy("PPO+auto", "abrupt", 2),
        "warm start": lambda: read(study, "ppo"),
        "warm start from exported agents": lambda: read(agents, "ppo"),
        "export": lambda: export_agents([study], tmp_path / "out"),
        "replay and controls": lambda: replay.load(open_study(study)),
    }
    for use, call in uses.items():
        with pytest.raises(ValueError, match=f" needs {name}=other, with which it was made; {ours[name]} gives other"):
            pytest.fail(f"{use}: {call()}")


def test_a_policy_is_written_at_the_shell_by_its_run(trained, tmp_path, capsys):
    out, words = tmp_path / "policy.npz", ["export", str(trained), "--out"]
    assert main([*words, str(out), "--policy", "PPO", "--seed", "2"]) == 0
    obs = np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32)
    np.testing.assert_allclose(act(np.load(out), obs), Results.open(trained).policy("PPO", "steady", 2)(obs), atol=1e-6)
    capsys.readouterr()
    for wrong in (["--seed", "2"], ["--policy", "PPO", "--results"], ["--policy", "PPP"]):
        assert refused(capsys, *words, tmp_path / "a.npz", *wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["policy.npz"]


def test_two_exports_into_one_folder_lose_nothing(trained, tmp_path):
    with writing(tmp_path / "out"), pytest.raises(ValueError, match="is not an empty folder"):
        export_agents([trained], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert export_agents([trained], tmp_path / "out") > 0
    with pytest.raises(ValueError, match="is not an empty folder"):
        export_agents([trained], tmp_path / "out")


@functools.cache
def first_states(directory):
    """Labels, and the states that all runs of a study begin with that starts from this folder's agents."""
    config = arms(directory)
    share = Plan(config).share("ppo")
    warm = warm_of(share, runs_of(share, {}))
    executables = compile_program(share.program(), jax.local_devices()[:1])
    members = list(range(len(share.labels)))
    fresh = executables.init(executables.place(take(warm.runs, members)))
    return share.labels, jax.device_get(fresh), jax.device_get(warm.begin(members, fresh))


def test_agents_start_another_optimiser_anew(trained):
    share = Plan(arms(trained)).share("ppo")
    agent = dataclasses.replace(share.learner.agent, optimiser=optax.scale_by_rms())
    other = dataclasses.replace(share, learner=share.learner._replace(agent=agent))
    for each, adam in ((share, "continued"), (other, "anew")):
        warm = warm_of(each, runs_of(share, {}))
        assert {agent["adam"] for agent in warm.agents} == {adam}


def curves(directory):
    return pl.read_parquet(directory / "curves.parquet")


def test_runs_begin_with_the_agent_of_their_seed_and_nothing_else(trained):
    labels, fresh, states = first_states(trained)
    source = small()
    share = Plan(source).share("ppo")
    ended = {label["seed"]: load_agent(trained, source, share.learner, label).agent for label in share.labels}
    assert len(labels) == 4 * 2 * 3
    for i, label in enumerate(labels):
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], states.agent)
        given = ended[{3: 1}.get(label["seed"], label["seed"])]  # there is no third agent: the first again
        for name, value in mine._asdict().items():
            if name == "discounted":
                assert np.all(value == 0.0)  # of episodes that are over
                assert np.any(given.discounted != 0.0)
            else:
                jax.tree.map(np.testing.assert_array_equal, value, getattr(given, name))
    assert states.agent.opt.count.min() > 0
    rest = [state._replace(agent=None) for state in (fresh, states)]
    jax.tree.map(np.testing.assert_array_equal, *rest)
    assert np.all(states.schedule.count == 0)


def test_all_arms_of_a_seed_begin_alike_and_only_tuning_knows_the_weight_it_ended_with(trained, begun):
    first = curves(begun).filter(step=0).group_by("seed").agg(pl.col("return_mean").n_unique())
    assert first["return_mean"].to_list() == [1, 1, 1]
    labels, _, states = first_states(trained)
    weights = {}
    for label, weight in zip(labels, states.schedule.weight, strict=True):
        weights.setdefault(label["method"], set()).add(float(weight))
    last = sorted(curves(trained).filter(step=STEPS)["entropy_weight"].unique())
    np.testing.assert_allclose(sorted(weights["PPO+auto"]), last, rtol=1e-6)
    assert weights["PPO+auto[auto_initial=0.5]"] == {0.5}
    assert weights["PPO"] == weights["PPO+AES-R"] == {np.float32(0.01)}


def test_config_and_manifest_name_the_agents(trained, begun):
    given = json.loads((begun / "config.json").read_text())["warm_start"]
    assert (given["from"], given["replay"], len(given["sha256"])) == (str(trained), False, 64)
    warm_start = json.loads((begun / "manifest.json").read_text())["warm_start"]
    assert warm_start["sha256"] == given["sha256"]
    which = [(one["seed"], one["trained"]["seed"], one["shared"], one["adam"]) for one in warm_start["agents"]["ppo"]]
    assert which == [(1, 1, False, "continued"), (2, 2, False, "continued"), (3, 1, True, "continued")]
    ended = curves(trained).filter(step=STEPS, seed=2).row(0, named=True)
    assert warm_start["agents"]["ppo"][1]["trained"] == {
        name: ended[name] for name in ("seed", "method", "step", "entropy_weight", "return_mean")
    }


@pytest.mark.slow
def test_an_interrupted_study_goes_on_to_the_same_bytes(trained, begun, tmp_path, monkeypatch):
    config, folder, tick = arms(trained), tmp_path / "study", Progress.tick

    def interrupting(self, now):
        tick(self, now)
        if now.number == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Progress, "tick", interrupting)
    with pytest.raises(Interrupted):
        train_study(config, folder)
    monkeypatch.undo()
    train_study(arms(trained), folder, resume=True)
    for name in ("curves.parquet", "streams.parquet"):
        assert (folder / name).read_bytes() == (begun / name).read_bytes()


def test_exported_agents_are_the_same_but_for_adam(trained, exported):
    assert {path.name for path in exported.iterdir()} == {"ppo.npz", "warm.json"}
    complete, small_ones = read(trained, "ppo"), read(exported, "ppo")
    assert (small_ones.nature, small_ones.runs) == (complete.nature, complete.runs)
    gone = set(complete.leaves) - set(small_ones.leaves)
    assert gone == {name for name in complete.leaves if name.startswith(".opt") or name.endswith(".lost")}
    for name, leaf in small_ones.leaves.items():
        assert leaf.dtype == np.float32
        np.testing.assert_array_equal(leaf, complete.leaves[name])
    assert "trained" not in (exported / "warm.json").read_text()  # no path of this machine
    _, _, states = first_states(exported)
    assert np.all(states.agent.opt.count == 0)
    _, _, before = first_states(trained)
    jax.tree.map(np.testing.assert_array_equal, states.agent.params, before.agent.params)


@pytest.mark.parametrize("name", CARRIERS)
def test_an_agent_that_also_observes_the_drift_acts_as_before(name):
    world = World(envs.make("toy"), 40)
    size, drift = world.obs_size, dataclasses.replace(world, observe="drift").obs_size - world.obs_size
    narrow, wide = (small_carrier(name, inputs, world.action_size) for inputs in (size, size + drift))
    start = (jax.random.key(1), *([4] if name == "ppo" else []))
    state = narrow.init(*start)
    leaves = {jax.tree_util.keystr(path): np.asarray(x)[None] for path, x in jax.tree_util.tree_leaves_with_path(state)}
    like = jax.eval_shape(lambda: wide.init(*start))
    shapes = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(like)}
    found = widened(Agents({"observation_size": size}, [], leaves), shapes, name, drift).leaves
    seeing = jax.tree_util.tree_map_with_path(lambda path, x: jnp.asarray(found[jax.tree_util.keystr(path)][0]), like)

    obs, action = jax.random.normal(jax.random.key(2), (4, size)), jnp.full((4, world.action_size), 0.3)
    for value in (-1.0, 1.0):
        both = jnp.concatenate([obs, jnp.full((4, drift), value)], 1)
        np.testing.assert_allclose(
            wide.act_deterministic(seeing, both), narrow.act_deterministic(state, obs), atol=1e-6
        )
        if name != "ppo":
            given = {"entropy_weight": jnp.float32(0.1), "hyper": CARRIERS[name].hyper()}
            np.testing.assert_allclose(
                wide.q_value(seeing, both, action, **given), narrow.q_value(state, obs, action, **given), atol=1e-5
            )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--carriers", "sac"], "it has no agents of carrier 'sac'; carriers: ppo"),
        (
            ["--task", "pendulum"],
            'have task "toy_multigoal_classic", not "pendulum"; options {"goal_shift": 3.5, "time_limit": 30}, not {}; '
            "observation size 2, not 3; action size 2, not 1",
        ),
        ([], "its agents of carrier 'ppo' have hidden [8], not [64, 64]"),
        (["--layer-norm"], "layer_norm false, not true"),
    ],
)
@pytest.mark.parametrize("kind", ["trained", "exported"])
def test_agents_that_do_not_fit_are_refused_before_a_folder_is_claimed(request, kind, words, says, tmp_path, capsys):
    folder, out = request.getfixturevalue(kind), tmp_path / "new"
    common = ["--task", "toy_multigoal_classic", "--carriers", "ppo", "--patterns", "abrupt", "--out", out]
    assert says in refused(capsys, "run", *common, "--warm-start", folder, *words)
    assert not out.exists()


def test_a_folder_without_agents_is_refused(trained, tmp_path, capsys):
    common = ["run", "--carriers", "ppo", "--patterns", "abrupt", "--out", tmp_path / "new"]
    text = refused(capsys, *common, "--warm-start", tmp_path)
    assert "neither a finished study (config.json is missing) nor exported agents" in text
    copy = shutil.copytree(trained, tmp_path / "copy")
    (copy / "manifest.json").unlink()
    assert "neither a finished study (manifest.json is missing)" in refused(capsys, *common, "--warm-start", copy)


def test_damaged_and_changed_agents_are_refused(trained, exported, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    config = arms(copy)
    largest = max((copy / "agents").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    largest.write_bytes(largest.read_bytes()[:-1])
    with pytest.raises(ValueError, match="was changed or damaged"):
        read(copy, "ppo")
    with pytest.raises(ValueError, match="not those that the study was configured with"):
        warm_of(Plan(config).share("ppo"), None)
    other = shutil.copytree(exported, tmp_path / "other")
    (other / "ppo.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"ppo\.npz is missing, truncated or changed"):
        read(other, "ppo")
    (other / "warm.json").write_text('{"format": 2}')
    with pytest.raises(ValueError, match="its format is 2, this version reads 1"):
        read(other, "ppo")


def test_parameters_of_another_shape_are_named(trained, monkeypatch):
    from experiments.study import warm

    config, agents = arms(trained), read(trained, "ppo")
    name = next(name for name in agents.leaves if name.endswith("['log_std']"))
    wrong = agents._replace(leaves=agents.leaves | {name: agents.leaves[name][:, :1]})
    monkeypatch.setattr(warm, "read", lambda *args: wrong)
    with pytest.raises(ValueError, match=r"\['log_std'\] is float32\[1\], not float32\[2\]"):
        warm_of(Plan(config).share("ppo"), None)


def test_stored_agents_fit_the_preset_that_they_are_for():
    """Five of both carriers; random actions get -295 on HalfCheetah and 19 on Hopper."""
    least = {"halfcheetah": {"sac": 5_000, "ppo": 1_700}, "hopper": {"sac": 300, "ppo": 1_200}}
    for task, carriers in least.items():
        folder = ROOT / "experiments" / "warm" / task
        for carrier, returns in carriers.items():
            options = {"task": task, "patterns": "abrupt", "seeds": 2, "preset": "mujoco-warm", "start": folder}
            config, agents = config_of(carrier, "baseline,fixed", **options), read(folder, carrier)
            share = Plan(config).share(carrier)
            assert agents.nature == nature_of(share)
            assert [run["seed"] for run in agents.runs] == [1, 2, 3, 4, 5]
            assert all(run["return_mean"] > returns for run in agents.runs)
            assert all(np.isfinite(leaf).all() for leaf in agents.leaves.values())
            warm = warm_of(share, runs_of(share, {}))
            assert [agent["seed"] for agent in warm.agents] == [1, 2]

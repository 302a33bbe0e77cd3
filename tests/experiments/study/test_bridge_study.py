"""Agents of the compiled loops over a simulator in a process of its own: the native numbers, and its failures."""

import dataclasses
import json
import os

import chex
import jax
import jax.numpy as jnp
import polars as pl
import pytest

from agents import CARRIERS, OnPolicyCarrier
from agents.common import LoopConfig, Run, make_program
from envs.bridge import build
from envs.world import World
from experiments.cli import main
from experiments.study.store import read_rows
from experiments.study.train import Stopped
from tests.envs.bridge.common import ROOT, reference, short, torch
from tests.experiments.configs import config_of, train_study
from tests.programs import chosen, floats
from tests.quick import quick

torch()

N = 8


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def trained(world, carrier, chunks=3):
    spec = CARRIERS[carrier]
    own = {"hidden": (8, 8), "batch_size": 16}
    if carrier == "ppo":
        own = {"hidden": (8, 8), "rollout": 20, "epochs": 2, "minibatches": 4, "adaptive_rate": True}
    built = spec.make(world.obs_size, world.action_size, spec.config(**own))
    on = isinstance(built, OnPolicyCarrier)
    config = LoopConfig(N, 20, warmup=0 if on else 8, capacity=0 if on else 160, episodes=3, newest=32)
    rules = chosen("aes", source="fresh", base=0.1)
    run = Run(jnp.uint32(0), world.drift("abrupt", 0), rules, floats(spec.hyper()))
    loop = make_program(world, built, config)
    state, chunk, evaluate, found = quick(loop.init)(run), quick(loop.chunk), quick(loop.evaluate), []
    for index in range(chunks):
        state, metrics = chunk(state, run, jnp.int32(20 * index))
        metrics, evaluation = jax.device_get((metrics, evaluate(state, run, jnp.int32(20 * (index + 1)))))
        # Per step: the simulator's time limit counts the row of the reset as well.
        metrics["online_return"] = metrics["online_return"] / world.time_limit
        found.append((metrics, evaluation))
    return state, found


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["ppo", "sac"])
def test_agents_train_through_a_worker_as_on_the_native_task_under_drift(carrier):
    """Up to how XLA rounds what it fuses, with the task compiled inside."""
    task = build("bridge:tests.envs.bridge.common:short_ant", quantum=0.0)
    state, curves = trained(World(task, 75), carrier)
    task.env.close()
    expected, native = trained(reference(task, short(), 75), carrier)
    chex.assert_trees_all_close((curves, state.agent), (native, expected.agent), rtol=1e-4, atol=1e-6)
    assert curves[0][0]["valid_fraction"] < 1.0
    assert len({float(e["drift"][0]) for _, e in curves}) > 1


@pytest.mark.slow
def test_a_simulator_that_ends_loses_nothing_that_was_checkpointed(tmp_path, monkeypatch):
    folder, fate = tmp_path / "study", tmp_path / "fate"
    monkeypatch.setenv("FATE", str(fate))
    fate.write_text("die 125")
    mortal = "bridge:tests.envs.bridge.points:mortal"
    config = config_of("sac", "aes_r", task=mortal, patterns="abrupt", seeds=2, num_envs=4)
    config = dataclasses.replace(config, steps=800, evaluations=5, replay_capacity=200)
    with pytest.raises(Stopped, match="exit code 17"):
        train_study(config, folder, checkpoint_seconds=0.0)
    assert not fate.exists()
    newest = sorted((folder / "checkpoints" / "sac").glob("[0-9]*"))[-1]
    saved = pl.read_parquet(newest / "rows.parquet")
    assert saved.height > 2
    outcome = train_study(config, folder, resume=True, checkpoint_seconds=0.0)
    assert not outcome.diverged
    curves = read_rows(outcome.curves)
    assert curves.height == 2 * 6
    before = curves.join(saved.select("seed", "step"), on=["seed", "step"], how="semi")
    assert before["return_mean"].to_list() == saved.sort("seed", "step")["return_mean"].to_list()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["simulator"]["damping_disturbs_state"] is False


def test_the_command_line_refuses_simulators_that_are_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AESJAX_ISAAC_PYTHON", "")  # what the command sets is undone with it
    assert main(["run", "--task", "bridge:Annt", "--out", str(tmp_path / "a")]) == 2
    assert "did you mean 'Ant'" in capsys.readouterr().err
    assert main(["run", "--task", "bridge:Ant", "--sim-python", "nowhere", "--out", str(tmp_path / "b")]) == 2
    assert "nowhere cannot be started" in capsys.readouterr().err
    assert os.environ["AESJAX_ISAAC_PYTHON"] == "nowhere"
    assert not list(tmp_path.iterdir())

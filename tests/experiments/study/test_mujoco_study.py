"""Studies of the MuJoCo family: presets from the published tables, exact resumption."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from agents import CARRIERS
from envs.mujoco import TASKS
from experiments.presets import PRESETS
from experiments.study.config import config_from_json
from experiments.study.program import Plan, runs_of
from experiments.study.run import Batches, Intervals, compile_program, load, ordered, statuses_of, sweep
from tests.experiments.configs import config_of
from tests.refusals import refused

INTERVAL = 64


def study(task="hopper", **options):
    return config_of(task=task, **({"patterns": "abrupt", "seeds": 2, "engine": "mujoco"} | options))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("preset", ["mujoco-quick", "mujoco-paper", "mujoco-warm"])
def test_every_preset_builds_every_carrier_on_every_task(task, preset):
    config = study(task, carriers="all", schedules="baseline,aes,aes_r", preset=preset)
    assert config.carriers == tuple(name for name, spec in CARRIERS.items() if spec.in_all)
    assert Plan(config).shares
    assert config_from_json(config.to_json()) == config
    for carrier in config.carriers:
        assert config.interval(carrier) * config.evaluations * config.envs_of(carrier) == config.steps
    sizes = {"mujoco-quick": (10_240, 1_024), "mujoco-paper": (1_000_000, 5_000), "mujoco-warm": (20_480, 5_120)}
    assert (config.replay_capacity, config.warmup) == sizes[preset]
    hard = {"body_mass": (0.5, 1.5), "joint_friction": (0.2, 2.0), "leg_gain": (0.25, 1.0)}
    usual = {"body_mass": (0.7, 1.3), "joint_friction": (0.5, 1.5)}
    drifting = {channel.name: (channel.low, channel.high) for channel in config.build_task().channels}
    assert drifting == (hard if preset == "mujoco-warm" else usual)


def test_a_warmup_of_one_carrier_delays_its_updates_alone():
    walker = study("walker2d", carriers="sac,meow", preset="mujoco-paper", seeds="1")
    assert [walker.steps - share.learner.updates for share in Plan(walker).shares.values()] == [5_000, 10_000]


def test_the_quick_preset_of_a_robot_is_that_of_its_family():
    assert PRESETS["hopper"]["quick"] is PRESETS["hopper"]["mujoco-quick"]


def test_the_options_of_the_task_are_part_of_the_configuration():
    config = study("ant", observation="v4", channels=["geom_friction"])
    task = config_from_json(config.to_json()).build_task()
    assert [channel.name for channel in task.channels] == ["geom_friction"]
    assert task.env.spec.obs_size == 27
    assert config.fingerprint() != study("ant").fingerprint()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--task", "hopper", "--engine", "bullet"], "engine must be one of auto, mujoco, mjx, warp; got 'bullet'"),
        (["--task", "hopper", "--channels", "mass"], "body_mass"),
        (["--task", "isaac_ant", "--observation", "v4"], "time_limit; got observation"),
        (["--task", "toy", "--engine", "mjx"], "task 'toy' has no options; got engine"),
    ],
)
def test_wrong_options_are_answered_in_one_sentence(words, text, tmp_path, capsys):
    assert text in refused(capsys, "run", *words, "--out", tmp_path / "never")
    assert not (tmp_path / "never").exists()


def small_study():
    config = study(steps=4_000)
    small = {"hidden": (16, 16), "batch_size": 16}
    own = dataclasses.replace(config.settings["sac"], num_envs=2, config=small)
    sizes = {"steps": 10 * INTERVAL, "evaluations": 5, "episodes": 1, "replay_capacity": 256, "warmup": 128}
    return dataclasses.replace(config, **sizes, settings={"sac": own})


@pytest.mark.slow
def test_a_stopped_study_resumes_to_the_same_numbers_and_logs_what_drifts(tmp_path):
    """Also by another process, whose physics engine starts with nothing."""
    share, batches, plan = Plan(small_study()).share("sac"), Batches(2, 1, 1), Intervals(5, INTERVAL, 2)
    program, runs = share.program(), runs_of(share, {})
    executables = compile_program(program)
    frames = []
    for now in sweep(executables, runs, share.labels, batches, plan):
        frames.append(now.rows)
        if now.number == 3:
            now.save(tmp_path, "same", pl.concat(frames, how="diagonal"), devices=2, seconds=12.5)
    small_study().build_task().env.engine._free.clear()
    saved = load(executables, program, runs, batches, tmp_path, "same")
    rest = [now.rows for now in sweep(executables, runs, share.labels, batches, plan, saved=saved)]
    assert len(rest) == 2
    whole, resumed = ordered(frames, share.labels), ordered([saved.rows, *rest], share.labels)
    assert resumed.drop("stream_td_quantile/update").equals(whole.drop("stream_td_quantile/update"))
    for mine, theirs in zip(resumed["stream_td_quantile/update"], whole["stream_td_quantile/update"], strict=True):
        if theirs is not None:
            np.testing.assert_array_equal(mine, theirs)
    later = whole.filter(pl.col("step") > 0)
    assert later["simulation_faults"].to_list() == [0] * later.height
    for at, channel in enumerate(small_study().build_task().channels):
        values = whole[f"drift_{at}"]
        assert values.n_unique() > 2  # jumps, and another realisation for each seed
        assert values.min() >= channel.low
        assert values.max() <= channel.high
    assert np.isfinite(whole["return_mean"].to_numpy()).all()


def test_simulations_given_up_stand_in_the_manifest():
    runs = {"task": "hopper", "method": "SAC", "pattern": "steady", "seed": [1, 1, 2, 2], "step": [0, 8, 0, 8]}
    logged = {"simulation_faults": [None, 0.0, None, 3.0], "diverged_at": -1.0, "reason": 0, "return_mean": 1.0}
    statuses = statuses_of(pl.DataFrame(runs | logged), 2)
    assert [(s["seed"], s["status"], s.get("simulation_faults")) for s in statuses] == [
        (1, "finished", None),
        (2, "finished", 3),
    ]

"""A study's folder knows what was typed: `aesjax run --resume --out DIR` needs nothing else."""

import dataclasses
import json
import shlex

import pytest
import tyro

from experiments.cli import main
from experiments.cli.run import Run, RunOptions, command, configured, flat
from experiments.study.config import config_from_json
from experiments.study.declared import OPTIONS, RUNTIME, SHELL
from experiments.study.options import StudyOptions
from tests.refusals import sentence

STUDIES = [
    "",
    "--study fixed_grid --preset paper",
    "--study ablation --seeds 3,1,7:9",
    "--carriers all --schedules aes:proxy=td_mean:lambda_max=inf,fixed+reset:every=0.2:strength=0.5 --drift-seed 4",
    "--schedules aes_r --sweep gain=0.1,1e-7,4 --sweep weight_decay=0,1e-2 --patterns steady --source fresh",
    "--proxy td_mean --plasticity --counterfactual --layer-norm --block 2:4",
    "--task hopper --preset mujoco-warm --observe drift --channels hard --carriers sac,ppo --steps 204800",
    "--task ant --preset mujoco-quick --engine mjx --observation v4 --channels body_mass=0.5:1.25,direction",
    "--task isaac_allegro_hand --preset isaac-quick --carriers ppo --variant omni --observation full_no_vel",
    "--task halfcheetah --preset mujoco-warm --seeds 1:2 --warm-start experiments/warm/halfcheetah",
    "--task pendulum --carriers ppo --schedules baseline --patterns steady",
]


@pytest.mark.parametrize("words", STUDIES)
def test_a_configuration_and_its_command_give_it_again(words):
    options = flat(tyro.cli(RunOptions, args=["--out", "study", *shlex.split(words)]))
    stored = configured(options).to_json()
    assert config_from_json(json.loads(json.dumps(stored))).to_json() == stored
    again = flat(tyro.cli(RunOptions, args=shlex.split(command(options))[2:]))
    assert again == options
    assert configured(again).to_json() == stored


def test_every_option_of_a_study_is_one_of_the_command_line():
    """Declared once, with one default; methods are carriers and schedules there."""
    fields = {field.name: field.default for field in dataclasses.fields(StudyOptions)}
    assert set(fields) - set(OPTIONS) == {"methods"}
    assert {field.name for field in dataclasses.fields(Run)} == {*OPTIONS, *SHELL, *RUNTIME}
    assert not set(RUNTIME) & set(fields)
    plain = configured(Run()).to_json()
    assert plain == StudyOptions(**{name: option.default for name, option in OPTIONS.items()}).resolve().to_json()
    assert plain == StudyOptions().resolve().to_json()


def test_a_study_of_a_changed_preset_is_not_continued_as_another_one(tmp_path, capsys):
    config = configured(Run(out=tmp_path)).to_json()
    config["episodes"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["run", "--resume", "--out", str(tmp_path), "--seeds", "1:5"]) == 2
    assert "has another configuration (episodes: " in sentence(capsys)

"""A study's folder knows what was typed: `aesjax run --resume --out DIR` needs nothing else."""

import json
import shlex

import pytest
import tyro

from experiments.cli import main
from experiments.cli.run import Run, study_of
from experiments.session.study import Study
from experiments.study.config import config_from_json, configured
from tests.refusals import sentence

STUDIES = [
    "",
    "--preset paper --seeds 3,1,7:9",
    "--carriers all --schedules aes:proxy=td_mean:lambda_max=inf,fixed+reset:every=0.2:strength=0.5 --drift-seed 4",
    "--schedules aes_r --sweep gain=0.1,1e-7,4 --sweep weight_decay=0,1e-2 --patterns steady --source fresh",
    "--segments 2 --steps 1600 --evaluations 4",
    "--proxy td_mean --counterfactual --layer-norm --block 3:40",
    "--task hopper --preset mujoco-warm --observe drift --channels hard --carriers sac,ppo --steps 204800",
    "--task ant --preset mujoco-quick --engine mjx --observation v4 --channels body_mass=0.5:1.25,direction",
    "--task isaac_allegro_hand --preset isaac-quick --carriers ppo --variant omni --observation full_no_vel",
    "--task halfcheetah --preset mujoco-warm --seeds 1:2 --warm-start experiments/warm/halfcheetah",
    "--task pendulum --carriers ppo --schedules baseline --patterns steady",
]


@pytest.mark.parametrize("words", STUDIES)
def test_a_configuration_its_command_and_its_file_give_it_again(words, tmp_path):
    words = ["--out", "study", *shlex.split(words)]
    study = study_of(tyro.cli(Run, args=words))
    config = configured(study)
    stored = config.to_json()
    assert config_from_json(json.loads(json.dumps(stored))) == config
    assert config_from_json(stored).to_json() == stored
    again = tyro.cli(Run, args=shlex.split(study.command("study"))[2:])
    assert configured(study_of(again)).to_json() == stored
    (tmp_path / "study.toml").write_text(study.to_toml())
    assert configured(Study.from_file(tmp_path / "study.toml")).to_json() == stored


def test_a_study_of_a_changed_preset_is_not_continued_as_another_one(tmp_path, capsys):
    stored = configured(study_of(Run())).to_json()
    stored["episodes"] += 1
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert main(["run", "--resume", "--out", str(tmp_path), "--carriers", "sac"]) == 2
    assert "has another configuration (episodes: " in sentence(capsys)

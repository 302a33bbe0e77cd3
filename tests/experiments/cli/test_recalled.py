"""A study's folder knows what was typed: `aesjax run --resume --out DIR` needs nothing else."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest
import tyro

from experiments.cli import main
from experiments.cli.run import RUNTIME, Run, configured, described
from tests.refusals import sentence

STUDIES = [
    "",
    "--study fixed_grid --preset paper",
    "--study ablation --seeds 3,1,7:9",
    "--carriers all --schedules aes:proxy=td_mean:lambda_max=inf,fixed+reset:every=0.2:strength=0.5 --drift-seed 4",
    "--schedules aes_r --sweep gain=0.1,1e-7,4 --sweep weight_decay=0,1e-2 --patterns steady --source fresh",
    "--proxy td_mean --plasticity --counterfactual --layer-norm --together 2 --part 2/4",
    "--task hopper --preset mujoco-warm --channels hard --carriers sac,ppo --steps 204800",
    "--task ant --preset mujoco-quick --engine mjx --observation v4 --channels body_mass=0.5:1.25,direction",
    "--task isaac_allegro_hand --preset isaac-quick --carriers ppo --variant omni --observation full_no_vel",
    "--task halfcheetah --preset mujoco-warm --seeds 1:2 --warm-start experiments/warm/halfcheetah",
    "--task pendulum --carriers ppo --schedules baseline --patterns steady",
]


@pytest.mark.parametrize("words", STUDIES)
def test_what_a_configuration_tells_gives_it_again(words):
    typed = tyro.cli(Run, args=["--out", "study", *shlex.split(words)])
    config = configured(typed)
    again = Run(out=Path("study"), **described(config))
    assert configured(again) == config
    assert described(configured(again)) == described(config)


def test_every_option_either_says_which_study_or_how_it_is_trained():
    """A new option is known to `described` or to `RUNTIME`, or a study would go on without it."""
    told = set(described(configured(Run(out=Path("study"))))) | {"engine", "observation", "variant", "channels"}
    assert told | {*RUNTIME, "study"} == {field.name for field in dataclasses.fields(Run)}
    assert not told & set(RUNTIME)


def test_a_study_of_a_changed_preset_is_not_continued_as_another_one(tmp_path, capsys):
    config = configured(Run(out=tmp_path)).to_json()
    config["episodes"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["run", "--resume", "--out", str(tmp_path)]) == 2
    assert "has another configuration (episodes: " in sentence(capsys)

"""The presets of the Isaac family, and those for an accelerator: they build, fit together, and equal their sources."""

import math

import pytest

import envs
from agents import CARRIERS
from experiments.presets import PRESETS
from experiments.presets.isaac import ISAAC
from experiments.presets.mujoco import MUJOCO
from experiments.presets.ppo_profiles import PARALLEL
from experiments.session.study import Study

PAIRS = [(task, f"isaac-{name}") for task in ISAAC for name in ("quick", "paper")]
PAIRS += [(task, name) for task in MUJOCO for name in ("mujoco-gpu", "release")]
PAIRS += [("toy_multigoal_classic", "release")]


@pytest.mark.parametrize(("task", "name"), PAIRS)
def test_carriers_build_and_sizes_fit(task, name):
    preset = PRESETS[task][name]
    assert set(preset.carriers) == {name for name, spec in CARRIERS.items() if not spec.sized}
    copies = {carrier: own.num_envs or preset.num_envs for carrier, own in preset.carriers.items()}
    assert preset.steps % (math.lcm(*copies.values()) * preset.evaluations) == 0
    for carrier, own in preset.carriers.items():
        spec = CARRIERS[carrier]
        spec.make(20, 5, spec.config(**own.config))
        spec.check(spec.hyper()._replace(**own.hyper))
        assert preset.steps // copies[carrier] % preset.segments == 0
    rollout = preset.carriers["ppo"].config["rollout"]
    assert preset.steps // copies["ppo"] // preset.evaluations % rollout == 0


def test_every_task_of_isaac_has_the_settings_of_its_reference_trainer():
    assert set(ISAAC) == set(PARALLEL)


def test_the_preset_of_the_release_has_its_options_unless_others_are_typed():
    hopper = Study("hopper", ["sac", "ppo+aes", "meow"], preset="release").config
    assert [channel.name for channel in hopper.build_task().channels] == ["body_mass"]
    typed = Study("hopper", "sac", preset="release", channels="joint_friction").config
    assert [channel.name for channel in typed.build_task().channels] == ["joint_friction"]
    assert envs.make("ant", **PRESETS["ant"]["release"].options).env.spec.obs_size == 27

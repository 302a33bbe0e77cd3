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


def test_what_the_sources_say():
    assert set(ISAAC) == set(PARALLEL)
    ant, hand = (PRESETS[f"isaac_{task}"]["paper"] for task in ("ant", "allegro_hand"))
    assert ant.steps // (4096 * 16) == 500  # iterations of the reference trainer
    assert ant.carriers["ppo"].num_envs == 4096
    assert [p.carriers["sac"].config["batch_size"] for p in (ant, hand)] == [1024, 256]
    assert (ant.replay, hand.replay) == (128 * 15_000, 512 * 15_000)
    assert ant.carriers["meow"].hyper["tau"] == 0.0005
    assert PRESETS["isaac_franka_cabinet"]["paper"].carriers["sac"].hyper["tau"] == 0.025


def test_the_preset_of_the_release_says_what_its_code_says():
    methods = ["meow", "meow+aes:base=1e-4"]
    toy = Study("toy_multigoal_classic", methods, "steady,sawtooth", preset="release").config
    assert (toy.steps, toy.evaluations, toy.episodes, toy.warmup, toy.replay_capacity) == (4000, 5, 10, 1000, 4000)
    assert toy.options == {"goal_shift": 0.5, "time_limit": 1000}
    own = toy.settings["meow"]
    assert (own.base, own.config["shift_units"]) == (2.5, "lam")
    assert (own.hyper["gamma"], own.hyper["tau"]) == (0.9, 5e-4)
    hopper = Study("hopper", ["sac", "ppo+aes", "meow"], preset="release").config
    assert [channel.name for channel in hopper.build_task().channels] == ["body_mass"]
    assert (hopper.warmup, hopper.replay_capacity, hopper.interval("ppo")) == (5_000, 1_000_000, 5 * 2048)
    assert {own.num_envs for own in hopper.settings.values()} == {1}
    ppo = hopper.settings["ppo"]
    assert (ppo.base, ppo.schedule, ppo.config["rollout"]) == (0.0, {"lambda_max": 0.1}, 2048)
    typed = Study("hopper", "sac", preset="release", channels="joint_friction").config
    assert [channel.name for channel in typed.build_task().channels] == ["joint_friction"]
    assert envs.make("ant", **PRESETS["ant"]["release"].options).env.spec.obs_size == 27

"""The presets of the Isaac family, and those for an accelerator: they build, fit together, and equal their sources."""

import math

import pytest

from agents import CARRIERS
from experiments.presets import PRESETS
from experiments.presets.isaac import ISAAC
from experiments.presets.mujoco import MUJOCO
from experiments.presets.ppo_profiles import PROFILES

PAIRS = [(task, f"isaac-{name}") for task in ISAAC for name in ("quick", "paper")]
PAIRS += [(task, "mujoco-gpu") for task in MUJOCO]


@pytest.mark.parametrize(("task", "name"), PAIRS)
def test_carriers_build_and_sizes_fit(task, name):
    preset = PRESETS[task][name]
    assert set(preset.carriers) == set(CARRIERS)
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
    assert set(ISAAC) == set(PROFILES["I"])
    ant, hand = (PRESETS[f"isaac_{task}"]["paper"] for task in ("ant", "allegro_hand"))
    assert ant.steps // (4096 * 16) == 500  # iterations of the reference trainer
    assert ant.carriers["ppo"].num_envs == 4096
    assert [p.carriers["sac"].config["batch_size"] for p in (ant, hand)] == [1024, 256]
    assert (ant.replay, hand.replay) == (128 * 15_000, 512 * 15_000)
    assert ant.carriers["meow"].hyper["tau"] == 0.0005
    assert PRESETS["isaac_franka_cabinet"]["paper"].carriers["sac"].hyper["tau"] == 0.025

"""The published PPO settings: they build, and their networks have the sizes of their sources."""

import jax
import pytest

from agents import CARRIERS, ppo
from agents.common.spec import check_hyper
from experiments.presets import presets_of
from experiments.presets.ppo_profiles import PARALLEL, ZOO

EVERY = {**ZOO, **PARALLEL}


@pytest.mark.parametrize("own", EVERY.values(), ids=EVERY)
def test_settings_make_a_carrier_whose_minibatches_divide_its_rollout(own):
    carrier = ppo.Ppo(11, 3, ppo.PpoConfig(**own.config))
    check_hyper(ppo.PpoHyper(**own.hyper))
    assert carrier.config.rollout * own.num_envs % carrier.config.minibatches == 0
    state = jax.eval_shape(lambda: carrier.init(jax.random.key(0), own.num_envs))
    assert state.discounted.shape == (own.num_envs,)


def test_a_task_without_a_preset_has_the_first_weights_of_make_train():
    for name, own in presets_of("a task of one's own", 200)["quick"].carriers.items():
        assert own.base == CARRIERS[name].weight


def test_parallel_settings_share_a_trunk_between_policy_and_value():
    hidden = PARALLEL["isaac_humanoid"].config["hidden"]
    state = jax.eval_shape(lambda: ppo.Ppo(108, 21, ppo.PpoConfig(**PARALLEL["isaac_humanoid"].config)).init(
        jax.random.key(0), 1
    ))  # fmt: skip
    trunk, last = 0, 108
    for width in hidden:
        trunk, last = trunk + last * width + width, width
    heads = last * 21 + 21 + last + 1 + 21
    assert sum(x.size for x in jax.tree.leaves(state.params)) == trunk + heads

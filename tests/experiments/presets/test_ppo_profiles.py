"""The published PPO settings: they build, and say what their sources say."""

import jax
import pytest

from agents import ppo
from agents.common.spec import check_hyper
from experiments.presets.ppo_profiles import PROFILES, profile

EVERY = [(name, task) for name, tasks in PROFILES.items() for task in tasks]


@pytest.mark.parametrize(("name", "task"), EVERY)
def test_settings_make_a_carrier_whose_minibatches_divide_its_rollout(name, task):
    own = profile(name, task)
    carrier = ppo.Ppo(11, 3, ppo.PpoConfig(**own.config))
    check_hyper(ppo.PpoHyper(**own.hyper))
    assert carrier.config.rollout * own.num_envs % carrier.config.minibatches == 0
    state = jax.eval_shape(lambda: carrier.init(jax.random.key(0), own.num_envs))
    assert state.discounted.shape == (own.num_envs,)


def test_what_the_sources_say():
    assert profile("Z", "ant").config["minibatches"] == 32
    assert profile("Z", "walker2d").config["activation"] == "gelu"
    assert [profile("Z", t).base for t in ("hopper", "ant")] == [2.29519e-3, 0.0]
    # 0.5 max(...) times 2 scale is the source's plain squared error times scale.
    assert profile("I", "isaac_anymal").hyper["value_coef"] == 2.0
    hidden = profile("I", "isaac_humanoid").config["hidden"]
    state = jax.eval_shape(lambda: ppo.Ppo(108, 21, ppo.PpoConfig(**profile("I", "isaac_humanoid").config)).init(
        jax.random.key(0), 1
    ))  # fmt: skip
    trunk, last = 0, 108
    for width in hidden:
        trunk, last = trunk + last * width + width, width
    heads = last * 21 + 21 + last + 1 + 21
    assert sum(x.size for x in jax.tree.leaves(state.params)) == trunk + heads


def test_an_unknown_profile_or_task_is_answered_with_the_nearest():
    with pytest.raises(KeyError, match="unknown PPO profile 'X'"):
        profile("X", "ant")
    with pytest.raises(KeyError, match="did you mean 'hopper'"):
        profile("Z", "hoper")

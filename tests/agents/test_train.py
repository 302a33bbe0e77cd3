"""`make_train`: one run as a pure function, mapped over seeds and numbers of a schedule; equal to a study's run."""

from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import envs
from aesjax import EntropySchedule, aes, aes_r
from aesjax.adaptations import recent, refresh, reset, utd
from aesjax.registry import UnknownNameError
from aesjax.schedules import SCHEDULES
from aesjax.schedules.rule import start
from agents import CARRIERS, make_train
from agents.common import buffer
from agents.common.spec import check_hyper
from agents.sac import Sac
from envs.drift import normalised
from envs.patterns import compiled
from envs.world import World
from experiments import Study
from tests.quick import quick

SMALL = {"steps": 800, "evaluations": 4, "episodes": 2, "hidden": (16, 16)}


def test_a_run_is_jitted_and_mapped_over_seeds_and_options():
    train = make_train("toy", "sac", pattern="abrupt", **SMALL)
    over = quick(jax.vmap(lambda seed, kappa: train(seed, aes(kappa=kappa))))
    state, curves = over(jnp.array([1, 1, 2]), jnp.array([0.3, 0.1, 0.3]))
    assert {name: values.shape[:2] for name, values in curves.items()} == dict.fromkeys(curves, (3, 5))
    np.testing.assert_array_equal(curves["step"][0], [0, 200, 400, 600, 800])
    assert np.isnan(curves["critic_loss"][:, 0]).all()
    assert state.agent.actor is not None
    weights = curves["entropy_weight"]
    assert np.all(weights[1, 1:] < weights[0, 1:])
    assert np.all(weights[2, 1:] != weights[0, 1:])


@pytest.mark.slow
def test_a_key_is_the_seed_in_its_last_word_and_anything_else_is_refused():
    train = make_train(
        "toy", "ppo", steps=80, evaluations=2, episodes=1, rollout=5, minibatches=1, epochs=1, hidden=(4,)
    )
    run = quick(lambda seed: train(seed)[1])
    seeded = run(3)
    for key in (jax.random.key(3), jax.random.PRNGKey(3)):
        for name, curve in run(key).items():  # two programs share numbers up to rounding
            np.testing.assert_allclose(curve, seeded[name], rtol=1e-4, atol=1e-6, err_msg=name)
    keys = jax.random.split(jax.random.key(0), 3)
    assert jax.eval_shape(jax.vmap(train), keys)[1]["return_mean"].shape == (3, 3)
    for wrong in (-1, 1.5, 2**32, None, keys):
        with pytest.raises(ValueError, match="seed must be a whole number from 0"):
            train(wrong)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"steps": 5 * 10**9, "num_envs": 1000, "evaluations": 5}, "counts to 2\\^31 - 1"),
        ({"steps": 2**30, "num_envs": 2, "segments": 4, "evaluations": 8, "rollout": 8}, "gradient steps to 2"),
    ],
)
def test_a_run_longer_than_its_counters_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        make_train("toy", "ppo", **{"minibatches": 4, "epochs": 10} | settings)


@pytest.mark.parametrize(
    ("carrier", "schedule", "segments", "first_weight"),
    [("sac", "aes_r", 5, {"base": 0.05}), pytest.param("ppo", "aes", 2, {}, marks=pytest.mark.slow)],
)
def test_a_study_with_equal_settings_has_equal_curves(carrier, schedule, segments, first_weight):
    """Up to rounding, which two programs do not share and which learning amplifies: the first evaluations.

    Replay, warm-up, and the first weight and the bound of PPO are the defaults of both.
    """
    study = Study(
        "toy", f"{carrier}+{schedule}", patterns="abrupt", seeds=[2], steps=1040, evaluations=10, segments=segments
    )
    results, config = study.run(quiet=True), study.config
    own = config.settings[carrier]
    train = make_train(
        "toy",
        carrier,
        pattern="abrupt",
        steps=config.steps,
        evaluations=config.evaluations,
        episodes=config.episodes,
        segments=segments,
        num_envs=own.num_envs,
        **first_weight,
        **own.config,
        **own.hyper,
    )
    _, curves = quick(train)(2, SCHEDULES[schedule]())
    rows = results.curves.filter(seed=2).sort("step")
    first = 4 if carrier == "sac" else 3
    for column in ("step", "return_mean", "entropy_weight", "proxy", "critic_loss", "policy_entropy"):
        np.testing.assert_allclose(curves[column][:first], rows[column].to_numpy()[:first], rtol=2e-3, err_msg=column)


@pytest.fixture(scope="module", params=["sac", pytest.param("ppo", marks=pytest.mark.slow)])
def observing(request):
    """A run that observes the drift; of SAC with adaptations and a schedule of its own, too."""

    def held(*, base, factor=2.0):
        return EntropySchedule(lambda: start(base * factor), lambda signals, state: state)

    settings = {"pattern": "abrupt", "observe": "drift", "replay": 800, "base": 0.05, **SMALL}
    more = {"adaptations": ["recent", refresh(threshold=1.0)]} if request.param == "sac" else {}
    train = make_train("toy", request.param, **settings, **more)
    return request.param, *quick(lambda seed: train(seed, held))(1)


def test_observed_drift_is_that_of_every_stored_transition_and_of_the_evaluation(observing):
    carrier, state, curves = observing
    world = World(envs.make("toy"), 200 if carrier == "sac" else 100, observe="drift", patterns=compiled(["abrupt"]))
    assert np.isfinite(curves["return_mean"]).all()
    values, _ = world.path(world.drift("abrupt", 1), jnp.arange(world.total))
    drift = jax.vmap(lambda at: normalised(world.task.channels, at))(values)
    np.testing.assert_allclose(state.obs[:, 2:], np.tile(drift[-1], (state.obs.shape[0], 1)), atol=1e-6)
    if carrier == "sac":
        stored = buffer.unpack(state.replay.rows, world.obs_size, world.action_size)
        for obs in (stored.obs, stored.next_obs):
            np.testing.assert_allclose(obs[:, 2:], np.repeat(drift, 4, axis=0), atol=1e-6)
    blind, _ = jax.eval_shape(make_train("toy", carrier, pattern="abrupt", **SMALL), 1)
    assert blind.obs.shape[1] == 2
    flagged, _ = jax.eval_shape(make_train("toy", carrier, pattern="abrupt", observe="change", onset=0.5, **SMALL), 1)
    assert flagged.obs.shape[1] == 3
    with pytest.raises(ValueError, match="observe must be 'drift' or 'change'; got 'goal'"):
        make_train("toy", carrier, observe="goal", **SMALL)


@pytest.mark.parametrize("carrier", ["sac", pytest.param("ppo", marks=pytest.mark.slow)])
def test_a_run_does_not_end_with_a_reset_and_an_evaluation_has_the_agent_that_acted(carrier):
    train = make_train("toy", carrier, adaptations=[reset(every=0.5)], **SMALL)
    state, curves = quick(lambda seed: train(seed, "fixed"))(1)
    assert np.nansum(curves["refreshes"]) == 1.0  # at half of the updates, not at the end
    assert max(count for _, count in optax.tree_utils.tree_get_all_with_path(state.agent, "count")) > 0


def test_adaptations_and_own_schedules_and_the_carriers_own(observing):
    carrier, _, curves = observing
    np.testing.assert_allclose(curves["entropy_weight"][1:], 0.1)
    assert ("refreshes" in curves) == ("window_share" in curves) == (carrier == "sac")
    six = make_train("toy", carrier, num_envs=6, **{**SMALL, "steps": 720})  # which do not divide the fresh window
    assert jax.eval_shape(six, 1, aes_r())[1]["return_mean"].shape == (5,)
    if carrier == "sac":
        share = make_train("toy", "sac", adaptations=[recent(share=0.5)], **SMALL)
        assert "window_share" in jax.eval_shape(share, 1, aes_r())[1]
    assert "window_share" not in jax.eval_shape(make_train("toy", carrier, adaptations=[], **SMALL), 1)[1]


@dataclass(frozen=True)
class Broad(Sac):
    """SAC whose actor's loss pulls actions towards the corner of the box."""

    def actor_loss(self, params, critic, obs, noise, entropy_weight):
        far = jnp.mean((self.policy(params, obs).mode() - 1.0) ** 2)
        return super().actor_loss(params, critic, obs, noise, entropy_weight) + 100.0 * far


@pytest.mark.slow
def test_an_optimiser_and_an_overridden_loss_change_the_curves():
    sac = CARRIERS["sac"]
    variants = {
        "plain": ("sac", {}),
        "optimiser": ("sac", {"optimiser": optax.scale_by_rms()}),
        "loss": (sac._replace(label="Broad", make=Broad, discrete=None), {}),
    }
    returns, actions = {}, {}
    for name, (carrier, options) in variants.items():
        state, curves = quick(make_train("toy", carrier, learning_rate=1e-2, **SMALL, **options))(1, 0.05)
        returns[name] = np.asarray(curves["return_mean"])
        actions[name] = sac.make(2, 2, sac.config(hidden=(16, 16))).act_deterministic(state.agent, state.obs)
        assert np.isfinite(returns[name]).all()
    assert np.all(returns["plain"][2:] != returns["optimiser"][2:])
    assert np.min(actions["loss"]) > 0.8 > np.min(actions["plain"])


class Paying(gymnasium.Env):
    """Pays at random; an instance keeps its rewards."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    made: ClassVar = []

    def __init__(self):
        self.rewards = []
        self.made.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.rewards.append(float(np.float32(self.np_random.normal(0.3, 2.0))))
        return np.zeros(1, np.float32), self.rewards[-1], bool(self.np_random.random() < 0.05), False, {}


@pytest.mark.parametrize("carrier", ["sac", pytest.param("ppo", marks=pytest.mark.slow)])
def test_the_online_return_is_the_mean_reward_of_all_transitions_times_the_episode_length(carrier):
    Paying.made.clear()
    train = make_train(lambda: gymnasium.wrappers.TimeLimit(Paying(), 30), carrier, num_envs=2, **SMALL)
    _, curves = quick(lambda seed: train(seed, "trend"))(1)
    trained = [env.rewards for env in Paying.made if len(env.rewards) > 30]  # an evaluation is one episode
    rewards = np.reshape(trained, (2, SMALL["evaluations"], -1))
    np.testing.assert_allclose(curves["online_return"][1:], 30 * rewards.mean((0, 2)), rtol=1e-6)
    assert np.isnan(curves["online_return"][0])
    # `trend` logs the reward that it reads; SAC has no update in the warm-up.
    np.testing.assert_allclose(30 * curves["proxy"][2:], curves["online_return"][2:], rtol=1e-5)
    assert curves["diverged_at"].tolist() == [-1] * 5
    assert curves["reason"].tolist() == [0] * 5


REFUSED = [
    ({"hiden": (8,)}, "has no setting 'hiden'; did you mean 'hidden'"),
    ({"steps": 801}, "must be a positive multiple of 4 .num_envs=1 times evaluations=4.; got 801"),
    ({"steps": 8000.5}, "steps must be a whole number; got 8000.5"),
    ({"evaluations": 0}, "evaluations must be a whole number, at least 1; got 0"),
    ({"segments": 3}, "must be a positive multiple of 3 .num_envs=1 times segments=3.; got 800"),
    ({"carrier": "sql", "base": 0.0}, "carrier 'sql' needs an entropy weight above 0"),
    ({"warmup": 800}, "warmup must leave steps to learn in; got 800 of 800"),
    ({"hidden": 64}, "SacConfig.hidden must be a list of at least one; got 64"),
    ({"gamma": 2.0}, r"gamma must lie in \[0, 1\]; got 2"),
    ({"base": -1.0}, "base must be finite and not negative; got -1"),
    ({"pattern": "abrubt"}, "did you mean 'abrupt'"),
    ({"task": 3}, r"task must be a registered name, an envs\.Task"),
    ({"task": lambda: None}, "its builder returned NoneType, not a Task"),
    ({"optimiser": optax.adam(1e-3)}, "optimiser must be without sign and learning rate"),
    ({"optimiser": optax.rmsprop}, "optimiser must be an optax transformation such as"),
    ({"optimiser": optax.contrib.reduce_on_plateau()}, "optimiser does not work: TypeError"),
    ({"carrier": "ppo", "adaptations": "recent"}, "cannot be used with PPO: it"),
    ({"carrier": "ppo", "adaptations": utd(updates=2)}, "cannot be used with PPO: 'epochs' and 'minibatches'"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_wrong_settings_are_refused(words, text):
    settings = {"task": "toy", "carrier": "sac", **SMALL, **words}
    with pytest.raises((ValueError, UnknownNameError), match=text):
        make_train(settings.pop("task"), settings.pop("carrier"), **settings)


def test_wrong_schedules_and_carriers_are_refused_when_traced():
    able = CARRIERS["ppo"]._replace(unturned={})  # claims that it supports every adaptation
    with pytest.raises(ValueError, match="several gradient steps per vector step need a replay"):
        jax.eval_shape(lambda: make_train("toy", able, adaptations=[utd(updates=2)], **SMALL)(1))
    with pytest.raises(ValueError, match=r"an object such as aes\(kappa=0.3\); got \[0.3\]"):
        jax.eval_shape(lambda: make_train("toy", **SMALL)(1, [0.3]))
    with pytest.raises(ValueError, match="carrier 'sql' needs an entropy weight above 0"):
        jax.eval_shape(lambda: make_train("toy", "sql", **SMALL)(1, 0.0))


@pytest.mark.parametrize("seeds", [np.arange(5, dtype=np.uint32), jnp.arange(3, dtype=jnp.uint32)], ids=type)
def test_several_seeds_without_a_map_are_refused(seeds):
    with pytest.raises(ValueError, match="seed must be a whole number from 0"):
        jax.eval_shape(lambda: make_train("toy", **SMALL)(seeds))


REFUSED = [
    ("sac", {"batch_size": 0}, "SacConfig.batch_size must be a whole number, at least 1; got 0"),
    ("sql", {"fixed_particles": -1}, "SqlConfig.fixed_particles must be a whole number, at least 1; got -1"),
    ("sql", {"tau": np.nan}, "SqlHyper.tau must be a number; got nan"),
    ("meow", {"shift_hidden": (8, 0)}, "MeowConfig.shift_hidden must be a whole number, at least 1; got 0"),
    ("meow", {"log_sigma_min": 2.0, "log_sigma_max": 1.0}, "log_sigma_min must be below"),
    ("ppo", {"normalise_obs": -1.0}, "PpoConfig.normalise_obs must be 0 or more"),
    ("ppo", {"log_std_bounds": (2.0, -5.0)}, "PpoConfig.log_std_bounds must be the lower bound and the upper one"),
    ("ppo", {"activation": "swish"}, "must be one of relu, tanh, elu, gelu; got 'swish'"),
    ("ppo", {"gamma": 1.5}, r"PpoHyper.gamma must lie in \[0, 1\]; got 1.5"),
]


@pytest.mark.parametrize(("name", "bad", "message"), REFUSED)
def test_impossible_settings_are_refused_with_the_value(name, bad, message):
    spec = CARRIERS[name]
    check_hyper(spec.hyper())
    of_hyper = set(bad) <= set(spec.hyper._fields)
    with pytest.raises(ValueError, match=message):
        check_hyper(spec.hyper(**bad)) if of_hyper else spec.config(**bad)

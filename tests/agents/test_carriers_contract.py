"""Contract of every registered carrier: one update, any schedule on any proxy, any adaptation, no hidden state."""

import functools
import importlib
import sys
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aesjax.adaptations import ADAPTATIONS, Adaptation, Supply
from aesjax.schedules import PROXIES, aes, aes_r, fixed, oracle, required_signals
from agents import CARRIERS, OnPolicyCarrier, check_carrier
from agents.common import LoopConfig, Run, make_program
from agents.common.carrier import Rollout
from agents.common.plasticity import refreshed
from envs import make
from envs.patterns import compiled
from envs.world import World
from tests.agents.small import A, B, S, carriers, make_batch, sizes_of, small
from tests.programs import floats
from tests.quick import quick

TOTAL = 80
TAU, GAMMA = 0.1, 0.9


# --- one update of the carrier alone


@pytest.mark.parametrize("name", carriers())
def test_a_carrier_keeps_its_contract(name):
    check_carrier(name, **sizes_of(name))


STORING = optax.GradientTransformation(
    lambda params: jax.tree.map(jnp.zeros_like, params), lambda grads, state, params=None: (grads, grads)
)


@pytest.mark.parametrize("name", carriers())
def test_an_update_is_a_step_of_the_optimiser_by_hand(name):
    """The gradients of an update are in the state of an optimiser that stores them."""
    rms = optax.scale_by_rms(decay=0.5)
    spec = CARRIERS[name]._replace(optimiser=optax.chain(STORING, rms))
    agent, hyper, batch = spec.agent(S, A, spec.config(**sizes_of(name))), floats(spec.hyper()), make_batch()
    options = {"entropy_weight": jnp.float32(0.1), "hyper": hyper}

    def step(key_init, key_update):
        if not spec.on_policy:
            state = agent.init(key_init)
            return state, agent.update(state, batch, key_update, jnp.int32(0), **options)
        row = jax.tree.map(lambda x: x[:, None], batch)
        none = jnp.zeros_like(row.reward)
        rollout = Rollout(row.obs, row.action, row.reward, none, none, row.next_obs)
        state, data, _ = agent.prepare(agent.init(key_init, 1), rollout, hyper)
        return state, agent.update(state, data, **options)

    before, out = quick(step)(*jax.random.split(jax.random.key(0)))
    for network in agent.networks:
        params, after = ({"params": getattr(each, network.params)["params"]} for each in (before, out.state))
        grads, state = getattr(out.state, network.opt)
        steps, by_hand = rms.update(grads, rms.init(params))
        rates = hyper._asdict()
        rate = (
            rates.get("critic_learning_rate", hyper.learning_rate) if network.role == "critic" else hyper.learning_rate
        )
        wanted = optax.apply_updates(params, jax.tree.map(partial(jnp.multiply, -rate), steps))
        chex.assert_trees_all_close(state, by_hand, rtol=1e-5)
        chex.assert_trees_all_close(after, wanted, rtol=1e-5, atol=1e-7)
        assert any(np.any(leaf != 0.0) for leaf in jax.tree.leaves(grads))


@pytest.fixture(scope="module", params=carriers(lambda spec: "tau" in spec.hyper._fields))
def one(request):
    """A carrier with a target that is not its online network, and its compiled update without dropout."""
    name = request.param
    carrier = small(name, S, A, dropout=0.0)
    hyper = CARRIERS[name].hyper()._replace(gamma=GAMMA, tau=TAU)
    state = quick(carrier.init)(jax.random.key(1))
    (online,) = (network.params for network in carrier.networks if network.target)
    chex.assert_trees_all_equal(getattr(state, online), state.target)
    noise = iter(jax.random.split(jax.random.key(3), 100))
    moved = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(noise), x.shape), state.target)
    state, jitted = state._replace(target=moved), quick(carrier.update)

    def step(batch, weight):
        return jitted(state, batch, jax.random.key(2), jnp.int32(0), entropy_weight=jnp.float32(weight), hyper=hyper)

    return carrier, state, hyper, online, step


def test_a_residual_without_successor_is_the_reward_minus_the_value(one):
    carrier, state, hyper, *_, step = one
    batch = make_batch(terminated=1.0)
    q = quick(carrier.q_value)(state, batch.obs, batch.action, entropy_weight=jnp.float32(0.5), hyper=hyper)
    error = step(batch, 0.5).signals.td_error
    np.testing.assert_allclose(error.reshape(2, B), batch.reward[None] - q, rtol=1e-5, atol=1e-5)


def test_the_target_moves_by_tau(one):
    _, state, _, online, step = one
    new = step(make_batch(), 0.3).state
    expected = jax.tree.map(lambda a, b: TAU * a + (1 - TAU) * b, getattr(new, online), state.target)
    chex.assert_trees_all_close(new.target, expected, atol=1e-6)


# --- the carrier inside its loop


FIXED, AES = 0, 1  # of the schedules


def schedules_of(name):
    """Three schedules by themselves, and the paper's under every proxy and source that the carrier can feed."""
    everything = [fixed(), aes(), aes_r()]
    everything += [aes(proxy(source=source)) for proxy in PROXIES.values() for source in ("update", "fresh")]
    return [each for each in everything if not set(required_signals([each])) & set(CARRIERS[name].absent)]


def adaptations_of(name):
    """One adaptation for each lever that the carrier has."""
    first = {spec.lever: adaptation for adaptation, spec in reversed(list(ADAPTATIONS.items()))}
    return [adaptation for lever, adaptation in first.items() if lever not in CARRIERS[name].unturned]


DISCRETE = [pytest.param(f"{name}@grid", marks=pytest.mark.slow) for name, spec in CARRIERS.items() if spec.discrete]


@pytest.fixture(scope="module", params=carriers() + DISCRETE)
def trained(request):
    """Schedules and adaptations on one carrier in two intervals of an abruptly drifting task, a run for each."""
    name, _, task = request.param.partition("@")
    world = World(make(task or "toy"), TOTAL, patterns=compiled(["abrupt"]))
    carrier = small(name, world.obs_size, world.action_size, world.discrete)
    schedules, usable = schedules_of(name), adaptations_of(name)
    supply = Supply() if isinstance(carrier, OnPolicyCarrier) else Supply(36, 4, 200, 16)
    loop = make_program(world, carrier, LoopConfig(4, 40, 8, 200, newest=32), supply)
    facts = {"base": 0.1, "updates": 100.0}

    def run(kind, coupling=0.0, adaptation=None, **bounds):
        return Run(
            seed=jnp.uint32(1),
            drift=world.drift("abrupt", 1),
            schedules=floats([each.filled(facts | bounds) for each in schedules]),
            hyper=floats(CARRIERS[name].hyper()),
            kind=jnp.int32(kind),
            coupling=jnp.float32(coupling),
            adaptations=floats([Adaptation(ADAPTATIONS[n], {}, float(n == adaptation)).filled() for n in usable]),
            signals=floats([oracle().filled(facts)]),
            updates=jnp.float32(100.0),
        )

    runs = [run(i) for i in range(len(schedules))]
    runs += [run(FIXED), run(AES, lambda_min=0.1, lambda_max=0.1), run(AES, coupling=1.0)]
    runs += [run(FIXED, adaptation=adaptation) for adaptation in usable]
    runs = jax.tree.map(lambda *x: jnp.stack(x), *runs)
    start = quick(jax.vmap(loop.init))(runs)
    chunk = quick(jax.vmap(loop.chunk, (0, 0, None)))
    state, logs = chunk(start, runs, jnp.int32(0))
    traces = chunk._cache_size()
    again, more = chunk(state, runs, jnp.int32(40))
    assert chunk._cache_size() == traces == 1
    evaluation = quick(jax.vmap(loop.evaluate, (0, 0, None)))(again, runs, jnp.int32(80))
    return (
        name,
        carrier,
        len(schedules),
        jax.device_get((start, state, again)),
        jax.device_get((logs, more)),
        evaluation,
    )


def leaves(tree, index):
    return [np.asarray(leaf)[index] for leaf in jax.tree.leaves(tree)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_every_schedule_and_proxy_gives_a_finite_positive_weight(trained):
    _, _, count, states, _, evaluation = trained
    weights = np.asarray(states[2].schedule.weight)
    assert count >= 6
    assert np.all(np.isfinite(weights))
    assert np.all(weights > 0)
    assert np.all(states[2].health.diverged_at == -1)
    assert np.all(np.isfinite(evaluation["return_mean"]))


def test_the_schedule_ticks_with_the_gradient_steps_of_its_carrier(trained):
    name, carrier, _, states, _, _ = trained
    expected = (16, 32) if isinstance(carrier, OnPolicyCarrier) else (32, 72)
    for state, ticks in zip(states[1:], expected, strict=True):
        assert set(np.asarray(state.schedule.count).tolist()) <= {ticks, ticks - 1}, name  # a skipped zero proxy waits


def test_a_schedule_that_stands_still_is_the_fixed_weight_bit_for_bit_and_another_weight_is_not(trained):
    _, _, count, states, _, _ = trained
    at = {"fixed": count, "clamped": count + 1, "aes": AES}
    agents = {name: leaves(states[2].agent, index) for name, index in at.items()}
    assert same(agents["fixed"], agents["clamped"])
    assert not same(agents["fixed"], agents["aes"])
    # Coupling changes all updates but the first.
    assert not same(leaves(states[1].agent, AES), leaves(states[1].agent, count + 2))


def test_every_adaptation_turns_its_lever_and_trains_another_agent(trained):
    name, _, count, states, logs, _ = trained
    for index, adaptation in enumerate(adaptations_of(name), count + 3):
        assert not same(leaves(states[2].agent, FIXED), leaves(states[2].agent, index)), adaptation
        column, neutral = {
            "window": ("window_share", [1, 1]),
            "recency": ("window_share", [1, 1]),
            "refresh": ("refreshes", [0, 0]),
            "isometry": ("refreshes", [0, 0]),
            "rate": ("rate_factor", [1, 1]),
            "updates": ("gradient_steps", [32, 40]),
        }[ADAPTATIONS[adaptation].lever]
        fixed, turned = ([own[column][at] for own in logs] for at in (FIXED, index))
        assert turned != fixed, adaptation
        assert fixed == neutral, adaptation
    assert np.all(np.asarray(logs[0]["response_ratio"])[FIXED] > 1.0)  # measured in every run


def test_a_refresh_moves_parameters_and_targets_and_restarts_what_optimised_them(trained):
    _, carrier, _, states, _, _ = trained
    old, fresh = (jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), states[i].agent) for i in (2, 0))
    refresh = quick(functools.partial(refreshed, carrier.networks))
    statistics = ("obs_moments", "return_moments", "value_moments", "discounted", "rate", "updates")
    kept = {field: getattr(old, field) for field in old._fields if field in statistics}
    chex.assert_trees_all_close(refresh(old, fresh, 1.0, 1.0), fresh._replace(**kept), atol=1e-6)
    chex.assert_trees_all_equal(refresh(old, fresh, 0.0, 0.0), old)
    half = refresh(old, fresh, 0.5, 0.0)
    for network in carrier.networks:
        for field in filter(None, (network.params, network.target)):
            before, new, after = (getattr(agent, field)["params"] for agent in (old, fresh, half))
            for part in before:
                share = 0.5 if network.role_of(part) == "critic" else 0.0
                middle = jax.tree.map(lambda a, b, share=share: a + share * (b - a), before[part], new[part])
                chex.assert_trees_all_close(after[part], middle, atol=1e-6)
        opt_of = old if {network.role, *network.heads.values()} == {"actor"} else fresh
        chex.assert_trees_all_equal(getattr(half, network.opt), getattr(opt_of, network.opt))


# --- carriers of a stranger

TD3 = '''
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from aesjax import Signals
from agents import CARRIERS, Carrier, CarrierSpec, UpdateOut
from agents.common.networks import TwinCritic
from agents.common.optim import begin, descend, polyak
from agents.ppo import Ppo

CALLS = []


@dataclass(frozen=True)
class Config:
    batch_size: int = 8


class Hyper(NamedTuple):
    learning_rate: float = 1e-3
    gamma: float = 0.97
    tau: float = 0.01


class Actor(nn.Module):
    size: int

    @nn.compact
    def __call__(self, obs):
        return jnp.tanh(nn.Dense(self.size)(jnp.tanh(nn.Dense(8)(obs))))


class Td3(Carrier):
    """Two critics, a deterministic policy, and target actions whose noise is the entropy weight."""

    critic = TwinCritic((8,), False)

    def init(self, key):
        first, second = jax.random.split(key)
        obs, action = jnp.zeros((1, self.obs_size)), jnp.zeros((1, self.action_size))
        return begin(Actor(self.action_size).init(first, obs), self.critic.init(second, obs, action))

    def act(self, state, obs, key):
        noise = jax.random.normal(key, (obs.shape[0], self.action_size))
        return jnp.clip(self.act_deterministic(state, obs) + 0.1 * noise, -1.0, 1.0)

    def act_deterministic(self, state, obs):
        return Actor(self.action_size).apply(state.actor, obs)

    def entropy(self, state, obs, key):
        return jnp.zeros(())

    def q_value(self, state, obs, action, *, entropy_weight, hyper):
        return self.critic.apply(state.critic, obs, action)

    def residual(self, critic, state, batch, key, weight, hyper):
        CALLS.append(weight)
        noise = weight * jax.random.normal(key, batch.action.shape)
        action = jnp.clip(Actor(self.action_size).apply(state.actor, batch.next_obs) + noise, -1.0, 1.0)
        value = jnp.min(self.critic.apply(state.target, batch.next_obs, action), 0)
        target = batch.reward + hyper.gamma * (1.0 - batch.terminated) * value
        return jax.lax.stop_gradient(target)[None] - self.critic.apply(critic, batch.obs, batch.action)

    def td_error(self, state, batch, key, *, entropy_weight, hyper):
        return self.residual(state.critic, state, batch, key, entropy_weight, hyper).reshape(-1)

    def update(self, state, batch, key, step, *, entropy_weight, hyper):
        def loss(critic):
            error = self.residual(critic, state, batch, key, entropy_weight, hyper)
            return jnp.mean(error**2), error

        def actor_loss(actor):
            return -jnp.mean(self.critic.apply(critic, batch.obs, Actor(self.action_size).apply(actor, batch.obs)))

        (critic_loss, error), slope = jax.value_and_grad(loss, has_aux=True)(state.critic)
        critic, critic_opt = descend(state.critic, slope, state.critic_opt, hyper.learning_rate)
        value, slope = jax.value_and_grad(actor_loss)(state.actor)
        actor, actor_opt = descend(state.actor, slope, state.actor_opt, hyper.learning_rate)
        signals = Signals(
            td_error=error.reshape(-1),
            value_loss=critic_loss,
            critic_drift=optax.tree.norm(jax.tree.map(jnp.subtract, critic, state.critic)),
        )
        new = type(state)(actor, critic, polyak(state.target, critic, hyper.tau), actor_opt, critic_opt)
        return UpdateOut(new, signals, {"critic_loss": critic_loss, "actor_loss": value})


class Limited(Ppo):
    def prepare(self, state, rollout, hyper):
        ends = jnp.maximum(rollout.terminated, rollout.truncated)
        return super().prepare(state, rollout._replace(terminated=ends), hyper)


ABSENT = {"log_prob": "its policy is deterministic"}
SPEC = CarrierSpec("TD3", Td3, Config, Hyper, lambda hyper: None, baseline="fixed", absent=ABSENT)
LIMITED = CARRIERS["ppo"]._replace(label="PPO-limited", make=Limited)
'''


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module from text outside the repository."""

    def imported(text):
        monkeypatch.syspath_prepend(tmp_path)
        sys.modules.pop("td3", None)
        (tmp_path / "td3.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module("td3")

    yield imported
    sys.modules.pop("td3", None)


def test_a_carrier_of_a_stranger_is_checked(stranger):
    check_carrier(stranger(TD3).SPEC)


BROKEN = [
    ("SPEC", "noise = weight", "noise = 0.1", "entropy_weight changes no loss and no parameter"),
    ("SPEC", "(1.0 - batch.terminated)", "1.0", "a terminated step in td_error depends on next_obs"),
    ("SPEC", "noise = weight", "noise = len(CALLS) * weight", "two equal calls have different results"),
    ("SPEC", "value_loss=critic_loss,", "", "Signals.value_loss is not reported"),
    ("SPEC", "critic_loss,\n", "critic_loss[None],\n", r"Signals.value_loss must be finite and \(\)"),
    (
        "SPEC",
        "batch.reward +",
        "batch.rewards +",
        "does not work: AttributeError: 'Transition' object has no attribute",
    ),
    ("SPEC", 'baseline="fixed"', 'baseline="fixed", optimiser=optax.scale_by_rms()', "TD3 takes no optimiser"),
    ("LIMITED", "", "", "a truncated step in prepare does not depend on next_obs"),
]


@pytest.mark.parametrize(("name", "right", "wrong", "text"), BROKEN)
def test_a_carrier_that_breaks_its_contract_is_named_in_a_sentence(stranger, name, right, wrong, text):
    module = stranger(TD3.replace(right, wrong))
    small_one = {"hidden": (8,), "rollout": 8, "minibatches": 2} if name == "LIMITED" else {}
    with pytest.raises(ValueError, match=text) as error:
        check_carrier(getattr(module, name), **small_one)
    assert "\n" not in str(error.value)

"""Contract of every registered carrier: one update, any schedule on any proxy, any adaptation, no hidden state."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.adaptations import ADAPTATIONS, Adaptation, Supply
from aesjax.schedules import PROXIES, aes, aes_r, fixed, oracle, required_signals
from agents import CARRIERS, OnPolicyCarrier
from agents.common import LoopConfig, Run, make_program
from agents.common.plasticity import refreshed
from agents.common.spec import check_hyper
from envs import make
from envs.world import World
from tests.agents.small import A, B, S, make_batch, small
from tests.programs import floats
from tests.quick import quick

TOTAL = 80
TAU, GAMMA = 0.1, 0.9
#: MEow's flow takes as long to compile as the other three together; it shares the loop of SAC and SQL.
ALL = [pytest.param(name, marks=pytest.mark.slow) if name == "meow" else name for name in CARRIERS]


# --- one update of the carrier alone


@pytest.fixture(scope="module", params=["sac", "sql", "meow"])
def one(request):
    """An off-policy carrier, a state whose target is not the online network, and its compiled update."""
    name = request.param
    # Without dropout the residuals are those of `q_value`.
    carrier = small(name, S, A, **({"dropout": 0.0} if name == "meow" else {}))
    hyper = CARRIERS[name].hyper()._replace(gamma=GAMMA, tau=TAU)
    state = quick(carrier.init)(jax.random.key(1))
    online = "params" if name == "meow" else "critic"
    chex.assert_trees_all_equal(getattr(state, online), state.target)
    noise = iter(jax.random.split(jax.random.key(3), 100))
    moved = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(noise), x.shape), state.target)
    state, jitted = state._replace(target=moved), quick(carrier.update)

    def step(batch, weight):
        return jitted(state, batch, jax.random.key(2), jnp.int32(0), entropy_weight=jnp.float32(weight), hyper=hyper)

    return carrier, state, hyper, online, step


def test_only_termination_stops_the_bootstrap_from_the_stored_successor(one):
    carrier, state, hyper, *_, step = one
    for terminated in (0.0, 1.0):
        batch = make_batch(terminated=terminated)
        moved = batch._replace(next_obs=batch.next_obs + 1.0)
        a, b = (np.asarray(step(x, 0.5).signals.td_error) for x in (batch, moved))
        assert np.all(a == b) if terminated else np.all(a != b)
    q = quick(carrier.q_value)(state, batch.obs, batch.action, entropy_weight=jnp.float32(0.5), hyper=hyper)
    np.testing.assert_allclose(a.reshape(2, B), batch.reward[None] - q, rtol=1e-5, atol=1e-5)


def test_the_target_moves_by_tau(one):
    _, state, _, online, step = one
    new = step(make_batch(), 0.3).state
    expected = jax.tree.map(lambda a, b: TAU * a + (1 - TAU) * b, getattr(new, online), state.target)
    chex.assert_trees_all_close(new.target, expected, atol=1e-6)


#: Carrier, sizes of observation and action -> numbers of parameters, those of the references.
COUNTS = [
    ("sac", (11, 3), {"actor": 70406, "critic": 2 * 69889}),
    ("sac", (376, 17), {"actor": 171042, "critic": 2 * 166913}),
    ("sql", (11, 3), {"actor": 18819, "critic": 2 * 18561}),
    ("sql", (376, 17), {"actor": 69137, "critic": 2 * 67073}),
    ("ppo", (11, 3), {"params": 10119}),
    ("ppo", (376, 17), {"params": 57763}),
    ("meow", (11, 3), {"params": 167313}),
    ("meow", (376, 17), {"params": 479127}),
]


@pytest.mark.parametrize(("name", "size", "counts"), COUNTS)
def test_parameter_counts_are_the_references(name, size, counts):
    carrier = CARRIERS[name].make(*size, CARRIERS[name].config())
    shapes = jax.eval_shape(
        functools.partial(carrier.init, **({"num_envs": 1} if name == "ppo" else {})), jax.random.key(0)
    )
    assert {part: sum(x.size for x in jax.tree.leaves(getattr(shapes, part))) for part in counts} == counts


REFUSED = [
    ("sac", {"batch_size": 0}, "SacConfig.batch_size must be a whole number, at least 1; got 0"),
    ("sql", {"fixed_particles": -1}, "SqlConfig.fixed_particles must be a whole number, at least 1; got -1"),
    ("sql", {"tau": np.nan}, "SqlHyper.tau must be a number; got nan"),
    ("meow", {"shift_hidden": (8, 0)}, "MeowConfig.shift_hidden must be a whole number, at least 1; got 0"),
    ("meow", {"log_sigma_min": 2.0, "log_sigma_max": 1.0}, "log_sigma_min must be below"),
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


# --- the carrier inside its loop


FIXED, AES = 0, 1  # of the schedules


def schedules_of(name):
    """Three schedules by themselves, and the paper's under every proxy and source that the carrier can feed."""
    everything = [fixed(), aes(), aes_r()]
    everything += [aes(proxy(source=source)) for proxy in PROXIES.values() for source in ("update", "fresh")]
    return [each for each in everything if not set(required_signals([each])) & set(CARRIERS[name].absent)]


def adaptations_of(name):
    """One adaptation for each lever that the carrier has, and the one that refreshes single units."""
    first = {spec.lever: adaptation for adaptation, spec in reversed(list(ADAPTATIONS.items()))}
    return [*(adaptation for lever, adaptation in first.items() if lever not in CARRIERS[name].unturned), "redo"]


@pytest.fixture(scope="module", params=ALL)
def trained(request):
    """Schedules and adaptations on one carrier after one interval of an abruptly drifting toy task, a run for each."""
    name = request.param
    world = World(make("toy"), TOTAL)
    carrier = small(name, world.obs_size, world.action_size)
    schedules, usable = schedules_of(name), adaptations_of(name)
    supply = Supply() if isinstance(carrier, OnPolicyCarrier) else Supply(36, 4, 200, 16)
    loop = make_program(world, carrier, LoopConfig(4, 40, 8, 200, newest=32), supply)
    facts = {"base": 0.1, "updates": 100.0}
    short = {"redo": {"dormant": 1.0, "cycle": 8.0}}  # within these few updates, units below their layer's mean

    def run(kind, coupling=0.0, adaptation=None, **bounds):
        return Run(
            seed=jnp.uint32(1),
            drift=world.drift("abrupt", 1),
            schedules=floats([each.filled(facts | bounds) for each in schedules]),
            hyper=floats(CARRIERS[name].hyper()),
            kind=jnp.int32(kind),
            coupling=jnp.float32(coupling),
            adaptations=floats(
                [Adaptation(ADAPTATIONS[n], short.get(n, {}), float(n == adaptation)).filled() for n in usable]
            ),
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
    again, _ = chunk(state, runs, jnp.int32(40))
    assert chunk._cache_size() == traces == 1
    evaluation = quick(jax.vmap(loop.evaluate, (0, 0, None)))(again, runs, jnp.int32(80))
    return name, carrier, len(schedules), jax.device_get((start, state, again)), jax.device_get(logs), evaluation


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
            "window": ("window_share", 1),
            "refresh": ("refreshes", 0),
            "rate": ("rate_factor", 1),
            "updates": ("gradient_steps", 32),
        }[ADAPTATIONS[adaptation].lever]
        assert logs[column][FIXED] == neutral, adaptation
        assert logs[column][index] != neutral, adaptation
    assert np.all(np.asarray(logs["response_ratio"])[FIXED] > 1.0)  # measured in every run


def test_a_refresh_moves_parameters_and_targets_and_restarts_what_optimised_them(trained):
    name, carrier, _, states, _, _ = trained
    old, fresh = (jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), states[i].agent) for i in (2, 0))
    refresh = quick(functools.partial(refreshed, carrier.networks))
    statistics = ("obs_moments", "return_moments", "value_moments", "discounted", "rate")
    kept = {field: getattr(old, field) for field in old._fields if field in statistics}
    chex.assert_trees_all_close(refresh(old, fresh, 1.0, 1.0), fresh._replace(**kept), atol=1e-6)
    chex.assert_trees_all_equal(refresh(old, fresh, 0.0, 0.0), old)
    half = refresh(old, fresh, 0.5, 0.0)
    if name in ("sac", "sql"):
        chex.assert_trees_all_equal((half.actor, half.actor_opt), (old.actor, old.actor_opt))
        chex.assert_trees_all_equal(half.critic_opt, fresh.critic_opt)
        for part in ("critic", "target"):
            middle = jax.tree.map(lambda a, b: 0.5 * (a + b), getattr(old, part), getattr(fresh, part))
            chex.assert_trees_all_close(getattr(half, part), middle, atol=1e-6)
    elif name == "ppo":
        chex.assert_trees_all_equal(half.params["params"]["policy"], old.params["params"]["policy"])
        assert not np.allclose(jax.tree.leaves(half.params["params"]["value"])[1], 0)
    else:
        chex.assert_trees_all_close(half.params, jax.tree.map(lambda a, b: 0.5 * (a + b), old.params, fresh.params))


def test_deterministic_actions_lie_in_the_box_and_do_not_vary(trained):
    name, carrier, _, states, _, _ = trained
    agent = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), states[2].agent)
    obs = jnp.linspace(-1.0, 1.0, 10).reshape(5, 2)
    act = quick(carrier.act_deterministic)
    first = np.asarray(act(agent, obs))
    assert first.shape == (5, 2)
    assert np.all(np.abs(first) <= 1.0), name
    np.testing.assert_array_equal(first, act(agent, obs))

"""Contract of every registered carrier: any schedule on any proxy, in one program, without hidden state."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from aesjax import adaptations
from aesjax.adaptations import ADAPTATIONS, AdaptationData, Supply
from aesjax.schedules import PROXIES, Choice, build, required_signals
from agents import CARRIERS, OnPolicyCarrier
from agents.common import LoopConfig, Run, make_program
from envs import make
from envs.world import World
from experiments.study import checkpoint
from tests.programs import data_of, floats
from tests.quick import quick

TOTAL = 80


def choices_of(name):
    """Three schedules by themselves, and the paper's under every proxy and source that the carrier can feed."""
    everything = [Choice(schedule) for schedule in ("fixed", "aes", "aes_r")]
    everything += [Choice("aes", proxy, source) for proxy in PROXIES for source in ("update", "fresh")]
    return [c for c in dict.fromkeys(everything) if not set(required_signals([c])) & set(CARRIERS[name].absent)]


def adaptations_of(name):
    """One adaptation for each lever that the carrier has, and the one that refreshes single units."""
    first = {spec.lever: adaptation for adaptation, spec in reversed(list(ADAPTATIONS.items()))}
    return [*(adaptation for lever, adaptation in first.items() if lever not in CARRIERS[name].unturned), "redo"]


#: MEow's flow takes as long to compile as the other three together; it shares the loop of SAC and SQL.
ALL = [pytest.param(name, marks=pytest.mark.slow) if name == "meow" else name for name in CARRIERS]


@pytest.fixture(scope="module", params=ALL)
def trained(request):
    """Schedules and adaptations on one carrier after one chunk of an abruptly drifting toy task, a run for each."""
    name = request.param
    world = World(make("toy"), TOTAL)
    carrier = toy_carrier(name, world)
    choices, oracle = choices_of(name), Choice("oracle")
    fixed = choices.index(Choice("fixed"))
    off_policy = not isinstance(carrier, OnPolicyCarrier)
    every = {"coupling": True, "refresh": True, "recycle": True, "plasticity": True, "model": True}
    most = {"updates": 4} if off_policy else {}
    config = LoopConfig(4, 40, 8, 200, fresh_window=32, fresh=off_policy, **every, **most)
    usable, supply = adaptations_of(name), Supply(36, 4, 200, 16) if off_policy else Supply()
    loop = make_program(
        world,
        carrier,
        lambda run: build(choices, run.schedule),
        config,
        lambda run: adaptations.build(usable, [oracle], run.adaptation, supply),
    )
    numbers = {"base": 0.1, "updates": 100.0}

    def run(index, coupling=0.0, adaptation=None, **bounds):
        on = {r: float(r == adaptation) for r in usable}
        options = {r: dict(ADAPTATIONS[r].options) for r in usable}
        options["redo"] = {"dormant": 1.0, "cycle": 8.0}  # within these few updates, units below their layer's mean
        data = AdaptationData(data_of([oracle], **numbers), *floats((on, options, numbers["updates"])))
        schedule = data_of(choices, index=index, **numbers, **bounds)
        hyper = floats(CARRIERS[name].hyper())
        return Run(jnp.uint32(1), world.drift("abrupt", 1), schedule, hyper, jnp.float32(coupling), data)

    runs = [run(i) for i in range(len(choices))]
    runs += [run(fixed), run(choices.index(Choice("aes")), lambda_min=0.1, lambda_max=0.1)]
    runs += [run(choices.index(Choice("aes")), coupling=1.0)]
    runs += [run(fixed, adaptation=adaptation) for adaptation in usable]
    runs = jax.tree.map(lambda *x: jnp.stack(x), *runs)
    start = quick(jax.vmap(loop.init))(runs)
    chunk = quick(jax.vmap(loop.chunk, (0, 0, None)))
    state, logs = chunk(start, runs, jnp.int32(0))
    traces = chunk._cache_size()
    again, _ = chunk(state, runs, jnp.int32(40))
    assert chunk._cache_size() == traces == 1
    evaluation = quick(jax.vmap(loop.evaluate, (0, 0, None)))(again, runs, jnp.int32(80))
    return name, carrier, choices, jax.device_get((start, state, again)), jax.device_get(logs), evaluation


def toy_carrier(name, world):
    spec = CARRIERS[name]
    small: dict[str, Any] = {"hidden": (8,)}
    if name == "ppo":
        small |= {"rollout": 10, "epochs": 2, "minibatches": 2}
    elif name == "meow":
        small = {"flow_hidden": (8,), "shift_hidden": (8,), "batch_size": 16}
    elif name == "sql":
        small |= {"batch_size": 16, "value_samples": 4, "fixed_particles": 4, "updated_particles": 4}
    else:
        small |= {"batch_size": 16}
    return spec.make(world.obs_size, world.action_size, spec.config(**small))


def leaves(tree, index):
    return [np.asarray(leaf)[index] for leaf in jax.tree.leaves(tree)]


def test_every_schedule_and_proxy_gives_a_finite_positive_weight(trained):
    _, _, choices, states, _, evaluation = trained
    weights = np.asarray(states[2].schedule.weight)
    assert len(choices) >= 6
    assert np.all(np.isfinite(weights))
    assert np.all(weights > 0)
    assert np.all(states[2].health.diverged_at == -1)
    assert np.all(np.isfinite(evaluation["return_mean"]))


def test_the_schedule_ticks_with_the_gradient_steps_of_its_carrier(trained):
    name, carrier, _, states, _, _ = trained
    expected = (16, 32) if isinstance(carrier, OnPolicyCarrier) else (32, 72)
    for state, ticks in zip(states[1:], expected, strict=True):
        assert set(np.asarray(state.schedule.count).tolist()) <= {ticks, ticks - 1}, name  # a skipped zero proxy waits


def test_a_schedule_that_stands_still_is_the_fixed_weight_bit_for_bit(trained):
    _, _, choices, states, _, _ = trained
    fixed, clamped = len(choices), len(choices) + 1
    for a, b in zip(leaves(states[2].agent, fixed), leaves(states[2].agent, clamped), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_weight_trains_another_agent(trained):
    _, _, choices, states, _, _ = trained
    a, b = choices.index(Choice("fixed")), choices.index(Choice("aes"))
    pairs = zip(leaves(states[2].agent, a), leaves(states[2].agent, b), strict=True)
    assert any(not np.array_equal(x, y) for x, y in pairs)


def test_coupling_changes_the_updates_but_not_the_first(trained):
    _, _, choices, states, _, _ = trained
    plain, coupled = choices.index(Choice("aes")), len(choices) + 2
    pairs = zip(leaves(states[1].agent, plain), leaves(states[1].agent, coupled), strict=True)
    assert any(not np.array_equal(x, y) for x, y in pairs)


def test_every_adaptation_turns_its_lever_and_trains_another_agent(trained):
    name, _, choices, states, logs, _ = trained
    plain, usable = choices.index(Choice("fixed")), adaptations_of(name)
    for index, adaptation in enumerate(usable, len(choices) + 3):
        pairs = zip(leaves(states[2].agent, plain), leaves(states[2].agent, index), strict=True)
        assert any(not np.array_equal(x, y) for x, y in pairs), adaptation
        column, neutral = {
            "window": ("window_share", 1),
            "refresh": ("refreshes", 0),
            "rate": ("rate_factor", 1),
            "updates": ("gradient_steps", 32),
        }[ADAPTATIONS[adaptation].lever]
        assert logs[column][plain] == neutral, adaptation
        assert logs[column][index] != neutral, adaptation
    assert np.all(np.asarray(logs["response_ratio"])[plain] > 1.0)  # measured in every run


def test_a_refresh_moves_parameters_and_targets_and_restarts_what_optimised_them(trained):
    name, carrier, _, states, _, _ = trained
    old, fresh = (jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), states[i].agent) for i in (2, 0))
    refresh = quick(carrier.refresh)
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


def test_networks_are_measured(trained):
    name, _, _, states, logs, _ = trained
    networks = ("critic",) if name == "meow" else ("critic", "actor")
    for network in networks:
        dormant, rank, norm = (np.asarray(logs[f"{network}_{what}"]) for what in ("dormant", "rank", "norm"))
        assert np.all((dormant >= 0) & (dormant < 1))
        assert np.all((rank >= 1) & (rank <= 8))  # of eight units
        assert np.all(np.isfinite(norm) & (norm > 0.1))
    assert np.all(np.isfinite(logs["grad_norm"]) & (np.asarray(logs["grad_norm"]) > 0))
    params = states[1].agent.params["params"]["value"] if name == "ppo" else None
    if params is not None:
        squares = sum(np.sum(np.square(np.asarray(leaf)[0])) for leaf in jax.tree.leaves(params))
        np.testing.assert_allclose(logs["critic_norm"][0], np.sqrt(squares), rtol=1e-5)


def test_entropy_is_reported_and_finite(trained):
    name, _, _, _, logs, _ = trained
    entropy = np.asarray(logs["policy_entropy"])
    assert np.all(np.isfinite(entropy)), name
    # A policy on [-1, 1]^2 has at most log 4 nats; PPO's is that of its samples before they are clipped to the box.
    assert np.all(entropy < (3.5 if name == "ppo" else np.log(4) + 0.35))


def test_streams_hold_one_value_per_update(trained):
    name, carrier, _, _, logs, _ = trained
    stream = np.asarray(logs["stream_td_quantile/update"])
    assert stream.shape[1] == (16 if isinstance(carrier, OnPolicyCarrier) else 40)
    waiting = 0 if isinstance(carrier, OnPolicyCarrier) else 8
    assert np.all(np.isnan(stream[:, :waiting]))
    assert np.all(stream[:, waiting:] >= 0), name


def test_a_checkpoint_gives_the_state_back_bit_for_bit(trained, tmp_path):
    name, _, _, states, logs, _ = trained
    stream = np.asarray(logs["stream_td_quantile/update"])
    rows = pl.DataFrame({"run": np.arange(len(stream)), "stream_td_quantile/update": pl.Series(values=stream)})
    checkpoint.save(tmp_path / name, "study", 0, 1, states[2], rows)
    saved = checkpoint.load_newest(tmp_path / name, "study", jax.eval_shape(lambda: states[2]))
    assert saved is not None
    chex.assert_trees_all_equal(saved.state, states[2])
    assert saved.rows.equals(rows)
    assert saved.rows.schema == rows.schema


def test_deterministic_actions_lie_in_the_box_and_do_not_vary(trained):
    name, carrier, _, states, _, _ = trained
    agent = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), states[2].agent)
    obs = jnp.linspace(-1.0, 1.0, 10).reshape(5, 2)
    act = quick(carrier.act_deterministic)
    first = np.asarray(act(agent, obs))
    assert first.shape == (5, 2)
    assert np.all(np.abs(first) <= 1.0), name
    np.testing.assert_array_equal(first, act(agent, obs))

"""Shared contract of one update of SAC, SQL and MEow, of PPO where it applies, and refused settings."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import CARRIERS, meow, ppo, sac, sql
from agents.common.carrier import Transition
from agents.common.spec import check_hyper
from tests.quick import quick

S, A, B = 3, 2, 16
TAU, GAMMA = 0.1, 0.9
SMALL: dict[str, dict[str, Any]] = {
    "sac": {"hidden": (8, 8)},
    "sql": {"hidden": (8, 8), "value_samples": 4, "fixed_particles": 3, "updated_particles": 2},
    # Without dropout the residuals are those of `q_value`.
    "meow": {"flow_hidden": (8,), "shift_hidden": (6,), "dropout": 0.0},
}


def make_batch(seed=0, terminated=0.0):
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(B, S)), np.tanh(0.7 * rng.normal(size=(B, A))), rng.normal(size=B)
    return Transition(*map(jnp.float32, (*arrays, np.full(B, terminated), rng.normal(size=(B, S)))))


@pytest.fixture(scope="module", params=SMALL)
def one(request):
    """A carrier, a state whose target is not the online network, and its compiled update."""
    name = request.param
    carrier = CARRIERS[name].make(S, A, CARRIERS[name].config(batch_size=B, **SMALL[name]))
    hyper = CARRIERS[name].hyper()._replace(gamma=GAMMA, tau=TAU)
    state = quick(carrier.init)(jax.random.key(1))
    online = "params" if name == "meow" else "critic"
    chex.assert_trees_all_equal(getattr(state, online), state.target)
    noise = iter(jax.random.split(jax.random.key(3), 100))
    state = state._replace(
        target=jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(noise), x.shape), state.target)
    )
    jitted = quick(carrier.update)

    def step(batch, weight):
        return jitted(state, batch, jax.random.key(2), jnp.int32(0), entropy_weight=jnp.float32(weight), hyper=hyper)

    return carrier, state, hyper, online, jitted, step


def test_terminated_rows_have_the_reward_as_target(one):
    carrier, state, hyper, _, _, step = one
    batch = make_batch(terminated=1.0)
    error = step(batch, 0.5).signals.td_error.reshape(2, B)
    q = quick(carrier.q_value)(state, batch.obs, batch.action, entropy_weight=jnp.float32(0.5), hyper=hyper)
    np.testing.assert_allclose(error, batch.reward[None] - q, rtol=1e-5, atol=1e-5)


def test_only_termination_stops_the_bootstrap_from_the_stored_successor(one):
    step = one[-1]
    for terminated in (0.0, 1.0):
        batch = make_batch(terminated=terminated)
        moved = batch._replace(next_obs=batch.next_obs + 1.0)
        a, b = (np.asarray(step(x, 0.5).signals.td_error) for x in (batch, moved))
        assert np.all(a == b) if terminated else np.all(a != b)


def test_the_target_moves_by_tau(one):
    _, state, _, online, _, step = one
    new = step(make_batch(), 0.3).state
    expected = jax.tree.map(lambda a, b: TAU * a + (1 - TAU) * b, getattr(new, online), state.target)
    chex.assert_trees_all_close(new.target, expected, atol=1e-6)


def test_one_program_serves_every_weight(one):
    *_, jitted, step = one
    losses = [float(step(make_batch(), weight).signals.value_loss) for weight in np.linspace(0.01, 1, 20)]
    assert len(set(losses)) == 20
    assert jitted._cache_size() == 1


def test_signals_carry_no_gradient(one):
    carrier, state, hyper, *_ = one

    @quick
    @jax.grad
    def through_signals(weight):
        out = carrier.update(state, make_batch(), jax.random.key(2), jnp.int32(0), entropy_weight=weight, hyper=hyper)
        return jnp.sum(out.signals.td_error) + out.signals.value_loss

    assert through_signals(0.3) == 0.0


@pytest.mark.parametrize(
    ("name", "size", "counts"),
    [
        ("sac", (11, 3), {"actor": 70406, "critic": 2 * 69889}),
        ("sac", (376, 17), {"actor": 171042, "critic": 2 * 166913}),
        ("sql", (11, 3), {"actor": 18819, "critic": 2 * 18561}),
        ("sql", (376, 17), {"actor": 69137, "critic": 2 * 67073}),
        ("ppo", (11, 3), {"params": 10119}),
        ("ppo", (376, 17), {"params": 57763}),
    ],
)
def test_parameter_counts_are_the_references(name, size, counts):
    options = {"hidden": (256, 256)} if name == "sac" else {}
    carrier = CARRIERS[name].make(*size, CARRIERS[name].config(**options))
    init = functools.partial(carrier.init, num_envs=1) if name == "ppo" else carrier.init
    shapes = jax.eval_shape(init, jax.random.key(0))
    assert {part: sum(x.size for x in jax.tree.leaves(getattr(shapes, part))) for part in counts} == counts


REFUSED = [
    (sac.SacConfig, {"batch_size": 0}, "SacConfig.batch_size must be at least 1; got 0"),
    (sac.SacConfig, {"hidden": ()}, "SacConfig.hidden must name at least one positive width"),
    (sql.SqlConfig, {"value_samples": 0}, "SqlConfig.value_samples must be at least 1; got 0"),
    (sql.SqlConfig, {"fixed_particles": -1}, "SqlConfig.fixed_particles must be at least 1; got -1"),
    (sql.SqlConfig, {"updated_particles": 0}, "SqlConfig.updated_particles must be at least 1; got 0"),
    (sql.SqlConfig, {"squash_eps": 0.0}, r"SqlConfig.squash_eps must lie in \(0, 1\); got 0"),
    (sql.SqlConfig, {"h_rule": "median"}, "SqlConfig.h_rule must be one of particles, batch; got 'median'"),
    (sql.SqlConfig, {"evaluation": "mean"}, "SqlConfig.evaluation must be one of argmax, zero; got 'mean'"),
    (sql.SqlHyper, {"learning_rate": 0.0}, "SqlHyper.learning_rate must be positive and finite; got 0"),
    (
        sql.SqlHyper,
        {"critic_learning_rate": np.inf},
        "SqlHyper.critic_learning_rate must be positive",
    ),
    (sql.SqlHyper, {"reward_scale": -1.0}, "SqlHyper.reward_scale must be positive and finite; got -1"),
    (sql.SqlHyper, {"reference_weight": 0.0}, "SqlHyper.reference_weight must be positive and finite; got 0"),
    (sql.SqlHyper, {"tau": np.nan}, r"SqlHyper.tau must lie in \[0, 1\]; got nan"),
    (meow.MeowConfig, {"shift_hidden": (8, 0)}, r"shift_hidden must name at least one positive width; got \(8, 0\)"),
    (
        meow.MeowConfig,
        {"log_sigma_min": 2.0, "log_sigma_max": 1.0},
        "log_sigma_min must be below",
    ),
    (meow.MeowConfig, {"dropout": 1.0}, r"dropout must lie in \[0, 1\); got 1"),
    (meow.MeowConfig, {"action_clip": 0.0}, r"action_clip must lie in \[1e-7, 1\); got 0"),
    (meow.MeowConfig, {"shift_units": "raw"}, "shift_units must be one of ref, lam, one; got raw"),
    (meow.MeowHyper, {"max_norm": np.nan}, "max_norm must be positive and finite; got nan"),
    (meow.MeowHyper, {"gamma": 1.5}, r"gamma must lie in \[0, 1\]; got 1.5"),
    (ppo.PpoConfig, {"rollout": 0}, "PpoConfig.rollout must be at least 1; got 0"),
    (ppo.PpoConfig, {"activation": "swish"}, "must be one of relu, tanh, elu, gelu; got 'swish'"),
    (ppo.PpoHyper, {"gamma": 1.5}, r"PpoHyper.gamma must lie in \[0, 1\]; got 1.5"),
    (ppo.PpoHyper, {"clip": 0.0}, "PpoHyper.clip must be positive and finite; got 0"),
]


@pytest.mark.parametrize(("kind", "bad", "message"), REFUSED)
def test_impossible_settings_are_refused_with_the_value(kind, bad, message):
    check = check_hyper if hasattr(kind, "_fields") else lambda config: config
    check(kind())
    with pytest.raises(ValueError, match=message):
        check(kind(**bad))

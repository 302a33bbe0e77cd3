"""Mirror descent that follows drifting soft MDPs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import aes, aes_r, fixed
from experiments.theory.drifts import drift_weights
from experiments.theory.learners import drift_proxy
from experiments.theory.sensitivity import lag_one_bound
from experiments.theory.softmdp import SoftMDP, soft_return, solve
from experiments.theory.tracking import (
    Track,
    gain_weight,
    noisy,
    observed_drift,
    restart,
    sequence,
    track,
)

MU, GAMMA, ROUNDS = 0.1, 0.9, 48


@jax.jit
def build(reward, kernel, weights):
    def one(reward, kernel):
        size = weights.shape[0]
        mdps = SoftMDP(
            jnp.tensordot(weights, reward, 1),
            jnp.tensordot(weights, kernel, 1),
            jnp.full(size, GAMMA),
            jnp.full(size, MU),
        )
        return sequence(mdps, jnp.full(4, 0.25))

    return jax.vmap(one)(reward, kernel)


def problems(kind, waypoints=2, rounds=ROUNDS, count=6):
    rng = np.random.default_rng(7)
    reward = rng.uniform(size=(count, waypoints, 4, 3))
    kernel = rng.dirichlet(np.full(4, 0.3), size=(count, waypoints, 4, 3))
    return build(reward, kernel, jnp.asarray(drift_weights(kind, waypoints, rounds)))


@pytest.fixture(scope="module")
def linear():
    with jax.enable_x64(True):
        return problems("linear")


@pytest.fixture(scope="module")
def abrupt():
    with jax.enable_x64(True):
        return problems("abrupt", 4)


@jax.jit
def constant(problem, weight, coupling=100.0, entropy=0.0, floor=0.0) -> Track:
    """All problems under one constant weight."""

    def one(p):
        return track(p, p.q, fixed(weight), coupling=coupling, entropy=entropy, floor=floor)

    return jax.vmap(one)(problem)


def follow(problem, rule, coupling=100.0, entropy=0.0, seen=None, **options) -> Track:
    """All problems, compiled; the schedule is made inside."""

    def one(p, q):
        return track(p, q, rule, coupling=coupling, entropy=entropy, **options)

    return jax.jit(jax.vmap(one))(problem, problem.q if seen is None else seen)


def lag_one(problem):
    return constant(problem, 1.25, 8.0)  # c mu lam = 1 up to the float32 weight


@jax.jit
def bounds(q):
    one = jax.vmap(lambda dq: lag_one_bound(dq, jnp.asarray(GAMMA), jnp.asarray(MU)))
    return jax.vmap(one)(q[:, 1:] - q[:, :-1])


def test_sequence_measures_the_path_of_the_soft_optimal_policy(linear):
    policy = np.exp(linear.log_policy)
    np.testing.assert_array_equal(linear.drift[:, 0], 0.0)
    np.testing.assert_allclose(linear.drift[:, 1:], np.abs(np.diff(policy, axis=1)).sum(-1), rtol=1e-12)
    assert np.all(np.asarray(linear.drift) <= 2.0)


def test_gain_one_plays_the_soft_greedy_policy_of_the_round_before(abrupt):
    played = lag_one(abrupt).log_policy
    np.testing.assert_allclose(played[:, 1:], abrupt.log_policy[:, :-1], atol=1e-6)


def test_a_constant_gain_is_a_running_average_of_values(linear):
    gain = 0.25
    played = np.asarray(constant(linear, gain_weight(gain, 100.0, MU)).log_policy)
    average = np.zeros_like(linear.q[:, 0])
    for t in range(ROUNDS):
        expected = np.asarray(jax.nn.log_softmax(average / MU, axis=-1))
        np.testing.assert_allclose(played[:, t], expected, atol=2e-6)  # the schedule's weight is a float32
        average = (1 - gain) * average + gain * np.asarray(linear.q[:, t])


def test_regret_is_the_return_lost(abrupt):
    done = constant(abrupt, 0.02)
    returns = jax.jit(jax.vmap(jax.vmap(soft_return, (0, 0, None)), (0, 0, None)))
    value, best = (returns(abrupt.mdps, policy, abrupt.start[0]) for policy in (done.log_policy, abrupt.log_policy))
    np.testing.assert_allclose(done.regret, best - value, rtol=1e-9, atol=1e-11)
    assert float(done.regret.min()) > 0.0


def test_lag_one_regret_is_below_its_bound(abrupt, linear, report):
    for name, problem in (("abrupt", abrupt), ("linear", linear)):
        lost = np.asarray(lag_one(problem).regret[:, 1:])
        bound = np.asarray(bounds(problem.q))
        moved = np.asarray(problem.drift[:, 1:]).max(-1) > 1e-12
        assert moved.any()
        assert np.all(lost[moved] <= bound[moved] * (1 + 1e-6))
        assert np.all(lost[~moved] <= 1e-12)
        report(f"lag-1 {name}, regret / bound", np.max(lost[moved] / bound[moved]))


def test_lag_one_is_flat_in_the_rounds_and_falls_as_one_over_them_after_the_first(linear, report):
    short = lag_one(linear).regret
    long = lag_one(problems("linear", rounds=4 * ROUNDS)).regret
    total = np.asarray(long.sum(-1) / short.sum(-1))
    later = np.asarray(long[:, 1:].sum(-1) / short[:, 1:].sum(-1))
    report("lag-1 total regret, 4T over T", total.max())
    assert np.all(total < 1.0 + 1e-9)
    np.testing.assert_allclose(later, 0.25, rtol=0.1)


def test_aes_grows_with_the_rounds_where_lag_one_does_not(linear):
    schedule = aes(drift_proxy, kappa=1.0, beta=0.0, lambda_min=0.0, lambda_max=1e3)
    ratios = [
        follow(p, schedule, coupling=1.0, entropy=1.0).regret.sum(-1)
        for p in (linear, problems("linear", rounds=4 * ROUNDS))
    ]
    assert np.all(np.asarray(ratios[1] / ratios[0]) > 1.5)


def test_restart_counts_from_each_change_and_equals_lag_one_without_noise(abrupt):
    changed = np.asarray(abrupt.drift[0]).max(-1) > 0
    changed[0] = True
    weights = restart(jnp.asarray(changed), 100.0, MU)
    gains = np.asarray(weights) * 100.0 * MU
    place = np.flatnonzero(changed)
    np.testing.assert_allclose(gains[place], 1.0)
    np.testing.assert_allclose(gains[place[1:] - 1], 1.0 / np.diff(place))
    np.testing.assert_allclose(follow(abrupt, weights).regret, lag_one(abrupt).regret, atol=1e-9)


def test_weights_of_a_schedule_played_back_give_its_run(abrupt):
    seen = jax.jit(jax.vmap(lambda q: noisy(q, 0.2, jax.random.key(3))))(abrupt.q)
    done = follow(abrupt, aes_r(observed_drift, 0.01, ROUNDS, lambda_max=1.0), entropy=1.0, seen=seen)
    assert np.ptp(done.weight) > 0.001  # the schedule moved
    again = jax.jit(jax.vmap(lambda p, q, w: track(p, q, w, coupling=100.0, entropy=1.0)))(abrupt, seen, done.weight)
    np.testing.assert_allclose(again.regret, done.regret, rtol=1e-12)


def test_added_entropy_settles_on_the_policy_of_the_sum_of_temperatures():
    still = problems("linear", rounds=ROUNDS)
    still = jax.tree.map(lambda x: jnp.broadcast_to(x[:, :1], x.shape) if x.ndim > 2 else x, still)
    lam = 0.0625
    last = constant(still, lam, 60.0, 1.0).log_policy[:, -1]
    np.testing.assert_allclose(last, jax.nn.log_softmax(still.q[:, 0] / (MU + lam), axis=-1), atol=1e-8)
    warm = constant(still, lam, 60.0).log_policy[:, -1]
    np.testing.assert_allclose(warm, still.log_policy[:, 0], atol=1e-8)


def test_no_step_passes_its_fixed_point(abrupt):
    for entropy in (0.0, 1.0):
        weight = np.asarray(constant(abrupt, 50.0, 100.0, entropy).weight)
        np.testing.assert_allclose(100.0 * weight * (MU + entropy * weight), 1.0, rtol=1e-12)


def test_initial_policy_and_floor_are_kept(linear):
    def from_the_optimum(p):
        return track(p, p.q, fixed(0.02), coupling=100.0, entropy=0.0, initial=p.log_policy[0])

    warm = jax.jit(jax.vmap(from_the_optimum))(linear)
    np.testing.assert_allclose(warm.regret[:, 0], 0.0, atol=1e-15)
    floored = constant(linear, 0.05, 100.0, 0.0, 0.05)
    assert float(jnp.exp(floored.log_policy[:, 1:]).min()) >= 0.05 * (1 - 1e-12)


def test_weights_of_a_wrong_length_are_refused(linear):
    one = jax.tree.map(lambda x: x[0], linear)
    with pytest.raises(ValueError, match=r"weights must have shape \(48,\) or \(48, 4\)"):
        track(one, one.q, jnp.ones(5), coupling=1.0)


def test_solutions_of_the_sequence_solve_each_mdp(linear):
    one = jax.tree.map(lambda x: x[0, 5], linear.mdps)
    np.testing.assert_allclose(jax.jit(solve)(one).q, linear.q[0, 5], rtol=1e-10)

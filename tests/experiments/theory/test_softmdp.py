"""Claims M1 to M16, M18, M19, E18: soft MDPs, the drift of their optimal policies, the gap between returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory import simplex, softmdp, softmdp_study
from experiments.theory.softmdp import SoftMDP
from tests.experiments.theory.generators import at_most

solve, regret = jax.jit(softmdp.solve), jax.jit(softmdp.regret)


def one_state(reward, discount, temperature):
    """One state whose actions pay ``reward`` (A,)."""
    reward = np.asarray(reward, np.float64)[None]
    return SoftMDP(reward, np.ones((*reward.shape, 1)), np.asarray(discount), np.asarray(temperature))


def chain(stay, actions=1, temperature=0.1, discount=0.9):
    """Rewards +1 and -1, both states kept with probability ``stay`` by every action."""
    rows = np.array([[stay, 1.0 - stay], [1.0 - stay, stay]])
    reward = np.repeat([[1.0], [-1.0]], actions, axis=1)
    return SoftMDP(reward, np.repeat(rows[:, None], actions, axis=1), np.asarray(discount), np.asarray(temperature))


#: Claim -> the largest ratio of its sides is at least this (bounds that hold, and not with a much smaller constant);
#: None for an identity; for a false claim, the share of the instances on which it fails, negative.
CLAIMS = {
    "A.20 M1: contraction": 0.99,
    "A.20 M1: fixed point": 0.9,
    "A.7 M2: drift of the operator": 0.9,
    "A.7 M2: drift of Q*": 0.7,
    "new M2: with the half-range of V*": 0.7,
    "A.20 M4: size of Q*": 0.9,
    "A.21 M5: drift of a softmax": 0.8,
    "new M5: tanh of the span": 0.99,
    "A.7 M6: drift of the comparator": 0.2,
    "new M6: tanh": 0.9,
    "A.8 M7: flow of the occupancy": None,
    "A.8 M7: return by occupancy": None,
    "A.8 M8: performance difference": None,
    "A.8 M9: Fenchel-Young": None,
    "new M10: regret on the policy": None,
    "A.8 M11: J(pi*) = Jtilde(pi*)": -0.9,
    "new M11: difference of Jtilde": None,
    "A.8 M12: gap <= main term": -0.1,
    "A.9 M13: gap <= main term + bias of A.9": -1.0,
    "A.8 M13: gap <= main term + bias of A.8": 0.5,
    "new M13: both biases": None,
    "A.8 M14: gap of a state": 0.5,
    "A.8 M14: occupancy": 0.3,
    "A.8 M14: estimation": 0.9,
    "A.9 M15: drift of the occupancy": 0.2,
    "new M18: the last round's policy": 0.3,
    "new M19: temperature alone": 0.4,
    "A.21 E18: least probability of pi*": 0.99,
}


@pytest.fixture(scope="module")
def measured():
    with jax.enable_x64(True):
        return softmdp_study.measure(np.random.default_rng(12), 100)


# Proofs, in docs/proofs/soft_mdps.md: #m2, #m5, #m6, #m10, #m18, #m19.
@pytest.mark.parametrize("claim", CLAIMS)
def test_claim_on_random_steps(measured, claim):
    assert set(measured) == set(CLAIMS)
    (left, right), verdict = measured[claim], CLAIMS[claim]
    if verdict is None:
        assert softmdp_study.error(left, right) < 1e-8
        assert np.ptp(right) > 0.5
    elif verdict < 0:
        fails = left > right if "<=" in claim else np.abs(left - right) > 0.01
        assert np.mean(fails[np.abs(left) > 1e-6]) >= -verdict  # a single action leaves no gap
    else:
        at_most(left, right, verdict)


def test_solver_reaches_rounding_and_agrees_with_value_iteration():
    mdp = softmdp.random_mdps(np.random.default_rng(11), 40, 7, 5)
    solution = jax.jit(jax.vmap(softmdp.solve))(mdp)
    assert np.max(solution.residual / (1 - mdp.discount)) < 1e-10
    mu, gamma, q = mdp.temperature[:, None, None], mdp.discount[:, None, None], np.zeros_like(mdp.reward)
    for _ in range(4_000):  # .99**4000 < 1e-17
        top = q.max(-1, keepdims=True)
        value = (top + mu * np.log(np.sum(np.exp((q - top) / mu), -1, keepdims=True)))[..., 0]
        q = mdp.reward + gamma * np.einsum("nsat,nt->nsa", mdp.transition, value)
    assert softmdp_study.error(np.asarray(solution.q), q) < 1e-11
    by_hand = solve(chain(0.75, actions=2, discount=0.8, temperature=0.5))
    # The difference of the two values is 2 / (1 - gamma (2 stay - 1)), their mean mu log 2 / (1 - gamma).
    mean, half = 0.5 * np.log(2.0) / 0.2, 1.0 / (1.0 - 0.8 * 0.5)
    np.testing.assert_allclose(by_hand.value, [mean + half, mean - half], rtol=1e-13)
    with pytest.raises(ValueError, match="one MDP has reward"):
        softmdp.solve(mdp)


def test_regret_keeps_its_relative_accuracy_near_the_optimum_and_where_it_underflows():
    mdp = one_state([0.5, 0.0], 0.9, 0.3)
    best = solve(mdp)
    p = np.exp(np.asarray(best.log_policy[0, 0]))
    for size in (1e-3, 1e-6, 1e-9):
        near = jax.nn.log_softmax(best.log_policy + jnp.array([[size, -size]]), axis=-1)
        second_order = 0.3 / (1 - 0.9) * 0.5 * p * (1 - p) * (2 * size) ** 2  # mu KL to second order
        np.testing.assert_allclose(regret(mdp, near, jnp.ones(1), best), second_order, rtol=2 * size + 1e-6)
    assert regret(mdp, best.log_policy, jnp.ones(1), best) == 0.0
    mdp = one_state([1.0, -20.0], 0.9, 0.01)
    assert np.exp(solve(mdp).log_policy[0, 1]) == 0.0
    np.testing.assert_allclose(regret(mdp, jnp.array([[-jnp.inf, 0.0]]), jnp.ones(1)), 210.0, rtol=1e-12)


def test_m3_total_variation_in_place_of_l1_is_too_small_by_almost_two():
    """And M2 with l1 is tight on this chain."""
    old, new = (chain(stay) for stay in (0.99995, 0.99994))
    before = solve(old)
    moved = np.max(np.abs(solve(new).q - before.q)) * (1 - 0.9)
    largest, half = np.max(np.abs(before.value)), simplex.half_range(before.value)
    # The reward does not change, so half of the size is as good as half of the l1 distance.
    np.testing.assert_allclose(moved / softmdp.drift_budget(old, new, largest / 2), 1.998, atol=1e-3)
    assert moved <= softmdp.drift_budget(old, new, largest)
    assert 0.998 < moved / softmdp.drift_budget(old, new, half) <= 1.0


def test_m12_m14_no_constant_bounds_the_gap_and_dividing_twice_breaks_the_decomposition():
    """A trap: the second state, rarely visited by the optimum, pays ``-penalty`` to remain; the policy gets stuck."""
    transition = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    policy, start, used = np.log([[0.99, 0.01], [0.999, 0.001]]), np.array([1.0, 0.0]), np.array([0.5, 0.5])
    ratios = []
    for penalty in (5.0, 50.0, 500.0):
        mdp = SoftMDP(np.array([[1.0, 0.0], [-penalty, 0.0]]), transition, np.asarray(0.9), np.asarray(0.1))
        best = solve(mdp)
        gap = np.sum(start * best.value) - softmdp.soft_return(mdp, policy, start)
        np.testing.assert_allclose(regret(mdp, policy, start, best), gap, rtol=1e-9)
        ratios.append(gap / softmdp.main_term(mdp, best, policy, start))
        error = (softmdp.occupancy(mdp, best.log_policy, start) - used) @ softmdp.surrogate_gap(mdp, best, policy) / 0.1
        base = used @ softmdp.surrogate_gap(mdp, best, policy) / 0.1
        base += sum(softmdp.biases(mdp, best, policy, start))
        np.testing.assert_allclose(base + error, gap, rtol=1e-9)
        assert base + error / 0.1 < gap - 1.0  # as A.6 reads with the error of A.8
    np.testing.assert_allclose(ratios, [36.9, 312, 3058], rtol=3e-3)

"""The soft MDP and the identities about its returns (claims M1, M7 to M10) on random and on extreme instances."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory import simplex, softmdp
from experiments.theory.sensitivity import performance_difference, soft_advantage
from tests.experiments.theory import mdps

COUNT = 200  # random MDPs per shape

solve = jax.jit(softmdp.solve, compiler_options=mdps.QUICK)
regret = jax.jit(softmdp.regret, compiler_options=mdps.QUICK)


def facts_of_policy(mdp, solution, policy, start):
    """Everything that one policy does in one MDP."""
    pi = jnp.exp(policy)
    nats = jnp.where(pi > 0.0, policy, 0.0)
    d = softmdp.occupancy(mdp, policy, start)
    q, value = softmdp.evaluate(mdp, policy)
    return {
        "occupancy": d,
        "kernel": softmdp.induced_kernel(mdp, policy),
        "return": softmdp.soft_return(mdp, policy, start),
        "return by occupancy": jnp.sum(d[:, None] * pi * (mdp.reward - mdp.temperature * nats)) / (1.0 - mdp.discount),
        "value": value,
        "value by actions": jnp.sum(jnp.where(pi > 0.0, pi * (q - mdp.temperature * nats), 0.0), axis=-1),
        "surrogate": jnp.sum(-solution.q * pi, axis=-1) + mdp.temperature * simplex.negative_entropy(pi),
        "gap": softmdp.surrogate_gap(mdp, solution, policy),
        "regret": softmdp.regret(mdp, policy, start, solution),
    }


def facts_of_one(mdp, q_first, q_second, log_policy, sparse_policy, start):
    """Compared quantities for one MDP, two value tables and two policies (the second with zeros)."""
    solution = softmdp.solve(mdp)
    values = [softmdp.soft_value(q, mdp.temperature) for q in (q_first, q_second)]
    policies = jnp.stack([log_policy, sparse_policy, solution.log_policy])
    found = jax.vmap(facts_of_policy, (None, None, 0, None))(mdp, solution, policies, start)
    full, sparse, best = (jax.tree.map(operator.itemgetter(i), found) for i in range(3))
    differences = jax.vmap(performance_difference, (None, 0, None, None))(mdp, policies[1:], log_policy, start)
    return {
        "mdp": mdp,
        "start": start,
        "solution": solution,
        "full": full,
        "sparse": sparse,
        "best": best,
        "q_change": jnp.max(jnp.abs(q_first - q_second)),
        "operator_change": jnp.max(jnp.abs(softmdp.bellman(mdp, q_first) - softmdp.bellman(mdp, q_second))),
        "value_change": jnp.max(jnp.abs(values[0] - values[1])),
        "mean advantage": jnp.sum(jnp.exp(log_policy) * soft_advantage(mdp, log_policy), axis=-1),
        "difference": differences[0],
        "best difference": differences[1],
    }


@functools.cache
def facts():
    """`facts_of_one` over all shapes as a list of NumPy trees; the tests share the compiled programs."""
    rng = np.random.default_rng(11)
    found = []
    for states, actions in mdps.SHAPES:
        mdp = mdps.random_mdps(rng, COUNT, states, actions, mdps.random_live(rng, COUNT, states))
        shape = (COUNT, states, actions)
        q_first, noise = (rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 2, (COUNT, 1, 1)) for _ in range(2))
        noise[: COUNT // 3] = rng.uniform(0.1, 10, (COUNT // 3, 1, 1))  # a constant shift, at which M1 is tight
        policies = [mdps.random_policies(rng, *shape, zeros=zeros) for zeros in (False, True)]
        starts = mdps.random_starts(rng, COUNT, states)
        one = jax.jit(jax.vmap(facts_of_one), compiler_options=mdps.QUICK)(
            mdp, q_first, q_first + noise, *policies, starts
        )
        found.append(jax.tree.map(np.asarray, one))
    return found


def gather(pick):
    """One flat array of what ``pick`` takes from the facts of every shape."""
    return np.concatenate([np.ravel(pick(f)) for f in facts()])


def value_iteration(mdp, tolerance=1e-12):
    """Stacked MDPs: Q* by soft value iteration in NumPy, a second derivation of `solve`."""
    mu, gamma = mdp.temperature[:, None, None], mdp.discount[:, None, None]
    q = np.zeros_like(mdp.reward)
    for _ in range(20_000):
        top = q.max(-1, keepdims=True)
        value = (top + mu * np.log(np.sum(np.exp((q - top) / mu), -1, keepdims=True)))[..., 0]
        new = mdp.reward + gamma * np.einsum("nsat,nt->nsa", mdp.transition, value)
        if np.all(np.abs(new - q).max((1, 2)) <= np.maximum(tolerance * (1 - mdp.discount), 1e-15 * np.abs(q).max())):
            return new
        q = new
    raise AssertionError("value iteration did not converge")


def test_solver_reaches_rounding_and_agrees_with_value_iteration(report):
    bound = gather(lambda f: f["solution"].residual / (1 - f["mdp"].discount))
    report("largest error bound of Q*", bound.max())
    assert bound.max() < 1e-10
    for f in facts():
        few = jax.tree.map(lambda x: x[:40], (f["mdp"], f["solution"]))
        reference = value_iteration(few[0])
        assert mdps.error(few[1].q, reference) < 1e-11
    for f in facts():
        mu, solution = f["mdp"].temperature, f["solution"]
        assert mdps.error(mu[:, None, None] * solution.log_policy, solution.q - solution.value[..., None]) < 1e-12
        assert mdps.error(np.exp(solution.log_policy).sum(-1), 1.0) < 1e-13


def test_m1_bellman_operator_contracts_and_log_sum_exp_is_lipschitz(report):
    gamma, moved = gather(lambda f: f["mdp"].discount), gather(lambda f: f["q_change"])
    contraction = mdps.tightness(gather(lambda f: f["operator_change"]), gamma * moved)
    lipschitz = mdps.tightness(gather(lambda f: f["value_change"]), moved)
    report("M1 contraction", contraction)
    report("M1 log-sum-exp", lipschitz)
    assert min(contraction, lipschitz) > 1 - 1e-9  # a constant shift


def test_m7_occupancy_and_the_forms_of_the_return(report):
    worst = []
    for f in facts():
        gamma = f["mdp"].discount[:, None]
        for name in ("full", "sparse", "best"):
            one = f[name]
            flow = (1 - gamma) * f["start"] + gamma * np.einsum("nst,ns->nt", one["kernel"], one["occupancy"])
            # sum_h gamma^h (P^T)^h start by doubling: 2^14 steps
            power, total = gamma[..., None] * one["kernel"].swapaxes(1, 2), f["start"][..., None]
            for _ in range(14):
                power, total = power @ power, total + power @ total
            worst += [
                mdps.error(one["occupancy"].sum(-1), 1.0),
                mdps.error(one["occupancy"], flow),
                mdps.error(one["occupancy"], (1 - gamma) * total[..., 0]),
                mdps.error(one["return by occupancy"], one["return"]),
                mdps.error(one["value by actions"], one["value"]),
            ]
        worst.append(mdps.error(f["best"]["return"], np.sum(f["start"] * f["solution"].value, -1)))
        worst.append(np.max(np.abs(f["mean advantage"]) / (1 + np.abs(f["full"]["value"]))))
    report("M7 error", max(worst))
    assert max(worst) < 1e-9


def test_m8_soft_performance_difference(report):
    sparse = mdps.error(
        gather(lambda f: f["difference"]), gather(lambda f: f["sparse"]["return"] - f["full"]["return"])
    )
    best = mdps.error(
        gather(lambda f: f["best difference"]), gather(lambda f: f["best"]["return"] - f["full"]["return"])
    )
    report("M8 error", max(sparse, best))
    assert max(sparse, best) < 1e-9


@pytest.mark.parametrize("name", ["full", "sparse"])
def test_m9_surrogate_gap_is_a_divergence(name, report):
    direct = gather(lambda f: f[name]["surrogate"] - f["best"]["surrogate"])
    gap, size = gather(lambda f: f[name]["gap"]), gather(lambda f: f[name]["surrogate"])
    assert gap.min() >= 0.0
    assert gap.max() > 1.0
    found = np.max(np.abs(gap - direct) / (1 + np.abs(size)))  # the direct difference cancels to rounding of its size
    report("M9 error", found)
    assert found < 1e-9


@pytest.mark.parametrize("name", ["full", "sparse"])
def test_m10_on_policy_identity_is_exact(name, report):
    """Proof: docs/proofs/soft_mdps.md#m10."""
    found = gather(lambda f: f[name]["regret"])
    assert found.min() >= 0.0
    assert found.max() > 1.0
    worst = mdps.error(found, gather(lambda f: f["best"]["return"] - f[name]["return"]))
    report("M10 error", worst)
    assert worst < 1e-8


def test_regret_keeps_its_relative_accuracy_near_the_optimum():
    mdp = mdps.one_state([0.5, 0.0], 0.9, 0.3)
    best = solve(mdp)
    for size in (1e-3, 1e-6, 1e-9):
        near = jax.nn.log_softmax(best.log_policy + jnp.array([[size, -size]]), axis=-1)
        p = np.exp(np.asarray(best.log_policy[0, 0]))
        second_order = 0.3 / (1 - 0.9) * 0.5 * p * (1 - p) * (2 * size) ** 2  # mu KL to second order
        np.testing.assert_allclose(regret(mdp, near, jnp.ones(1), best), second_order, rtol=2 * size + 1e-6)
    assert regret(mdp, best.log_policy, jnp.ones(1), best) == 0.0


def test_gap_is_finite_where_the_optimal_policy_underflows():
    mdp = mdps.one_state([1.0, -20.0], 0.9, 0.01)
    best = solve(mdp)
    assert np.exp(best.log_policy[0, 1]) == 0.0
    worst = jnp.log(jnp.array([[1e-300, 1.0]]))
    np.testing.assert_allclose(softmdp.surrogate_gap(mdp, best, worst), [21.0], rtol=1e-12)
    only = jnp.array([[-jnp.inf, 0.0]])
    np.testing.assert_allclose(regret(mdp, only, jnp.ones(1)), 210.0, rtol=1e-12)


def test_solver_by_hand_on_the_two_state_chain():
    solution = solve(mdps.two_state_chain(0.75, actions=2, discount=0.8, temperature=0.5))
    # The difference of the two values is 2 / (1 - gamma (2 stay - 1)), their mean mu log 2 / (1 - gamma).
    mean, half = 0.5 * np.log(2.0) / 0.2, 1.0 / (1.0 - 0.8 * 0.5)
    np.testing.assert_allclose(solution.value, [mean + half, mean - half], rtol=1e-13)

"""The paper's split of the gap between the returns of two policies, and the exact identity (claims M10 to M15).

Where the paper is wrong, the counterexample stands beside the test of the repair.
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory import sensitivity, softmdp
from tests.experiments.theory import mdps

COUNT = 200  # random MDPs per shape

quick = functools.partial(jax.jit, compiler_options=mdps.QUICK)
solve = quick(softmdp.solve)


def facts_of_policy(mdp, solution, policy, start):
    """Difference between the returns of a policy and of the optimum, in every form."""
    return {
        "return": softmdp.soft_return(mdp, policy, start),
        "regret": softmdp.regret(mdp, policy, start, solution),
        "objective": sensitivity.planning_objective(mdp, solution, policy, start),
        "main": sensitivity.main_term(mdp, solution, policy, start),
        "a8": sensitivity.bias_a8(mdp, solution, policy, start),
        "a9": sensitivity.bias_a9(mdp, solution, policy, start),
        "gap": softmdp.surrogate_gap(mdp, solution, policy),
        "occupancy": softmdp.occupancy(mdp, policy, start),
        "kernel": softmdp.induced_kernel(mdp, policy),
        "policy": jnp.exp(policy),
    }


one_policy = quick(facts_of_policy)


def facts_of_one(mdp, q, log_policy, start, used):
    """Compared quantities for one MDP, a policy, an estimate of Q* and a distribution over states."""
    solution = softmdp.solve(mdp)
    played = jax.vmap(facts_of_policy, (None, None, 0, None))(
        mdp, solution, jnp.stack([log_policy, solution.log_policy]), start
    )
    own, best = (jax.tree.map(operator.itemgetter(i), played) for i in range(2))
    gamma, mu, actions = mdp.discount, mdp.temperature, mdp.reward.shape[1]
    estimate = jnp.sum(best["occupancy"][:, None] * jnp.exp(log_policy) * (q - solution.q)) / (1 - gamma)
    distances = {name: jnp.sum(jnp.abs(best[name] - own[name]), axis=-1) for name in ("occupancy", "kernel", "policy")}
    return {
        **own,
        "discount": gamma,
        "best return": best["return"],
        "best objective": best["objective"],
        "largest gap": 2 * sensitivity.largest_q(jnp.max(jnp.abs(mdp.reward)), gamma, mu, actions)
        + mu * np.log(actions),
        "used gap": jnp.sum(used * own["gap"]) / (1 - gamma),
        "occupancy error": jnp.sum((best["occupancy"] - used) * own["gap"]) / (1 - gamma),
        "occupancy bound": jnp.max(own["gap"]) * jnp.sum(jnp.abs(best["occupancy"] - used)) / (1 - gamma),
        "estimation error": jnp.abs(estimate),
        "estimation bound": jnp.max(jnp.abs(q - solution.q)) / (1 - gamma),
        "occupancy drift": distances["occupancy"],
        "kernel drift": jnp.max(distances["kernel"]),
        "policy distance": jnp.max(distances["policy"]),
    }


@functools.cache
def facts():
    """`facts_of_one` over all shapes as a list of NumPy trees; the tests share the compiled programs."""
    rng = np.random.default_rng(13)
    found = []
    for states, actions in mdps.SHAPES:
        shape = (COUNT, states, actions)
        mdp = mdps.random_mdps(rng, *shape, mdps.random_live(rng, COUNT, states))
        q = rng.normal(size=shape) * 10.0 ** rng.uniform(-1, 2, (COUNT, 1, 1))
        policy, start, used = mdps.random_policies(rng, *shape), *(mdps.random_starts(rng, COUNT, states) for _ in "ab")
        found.append(jax.tree.map(np.asarray, quick(jax.vmap(facts_of_one))(mdp, q, policy, start, used)))
    return found


def gather(name):
    """One flat array of what the facts of every shape hold under a name."""
    return np.concatenate([np.ravel(f[name]) for f in facts()])


def test_m11_planning_objective_is_not_the_return(report):
    mdp = mdps.one_state([1.0, 0.0], 0.9, 0.1)
    best, start = solve(mdp), jnp.ones(1)
    found = one_policy(mdp, best, best.log_policy, start)
    value, objective = found["return"], found["objective"]
    np.testing.assert_allclose([value, objective], [10.0, 100.0], rtol=1e-4)
    np.testing.assert_allclose(objective / value, 1 / (1 - 0.9), rtol=1e-12)
    ratio = gather("best objective") / gather("best return")
    report("M11 smallest ratio", ratio.min())
    report("M11 largest ratio", ratio.max())
    # The printed main-term identity J(pi*) - Jtilde(pi) = main fails with it ...
    printed = gather("best return") - gather("objective")
    assert np.mean(np.abs(printed - gather("main")) > 0.01 * (1 + np.abs(gather("main")))) > 0.9
    # ... and holds for the difference of the objective.
    difference = gather("best objective") - gather("objective")
    assert np.max(np.abs(difference - gather("main")) / (1 + np.abs(gather("best objective")))) < 1e-9


def test_m12_main_term_does_not_bound_the_gap_and_the_on_policy_one_equals_it(report):
    ratios = []
    for penalty in (5.0, 50.0, 500.0):
        mdp, policy, start = mdps.trap(penalty)
        best = solve(mdp)
        found = one_policy(mdp, best, policy, start)
        gap = np.sum(start * best.value) - found["return"]
        ratios.append(float(gap / found["main"]))
        np.testing.assert_allclose(found["regret"], gap, rtol=1e-9)
        if penalty == 5.0:
            np.testing.assert_allclose(gap, 4.949, atol=1e-3)
            np.testing.assert_allclose(gap / ratios[0], 0.134, atol=1e-3)
    report("M12 gap / main in the trap", ratios[0])
    np.testing.assert_allclose(ratios[0], 36.9, atol=0.1)
    assert ratios[1] > 5 * ratios[0]  # so no constant C_J does
    assert ratios[2] > 5 * ratios[1]
    sized = gather("main") > 1e-9
    random = (gather("regret") / np.where(sized, gather("main"), 1.0))[sized]
    report("M12 smallest gap / main", random.min())
    report("M12 largest gap / main", random.max())
    assert random.min() < 0.8
    assert random.max() > 1.2


def test_m13_either_bias_alone_is_wrong_or_loose_and_both_are_exact(report):
    gap, main, a8, a9 = (gather(name) for name in ("regret", "main", "a8", "a9"))
    assert a8.min() >= -1e-9
    assert a9.max() <= 1e-9
    assert mdps.error(main + a8 + a9, gap) < 1e-9
    report("M13 error", mdps.error(main + a8 + a9, gap))
    matters = gap > 1e-6  # a single action leaves no gap
    fails = np.mean((gap > main + a9)[matters])
    report("M13 rate at which A.9 alone fails", fails)
    assert fails == 1.0
    assert np.all(gap <= main + a8 + 1e-9 * (1 + a8))
    loose = ((main + a8) / np.where(matters, gap, 1.0))[matters & (gather("discount") >= 0.8)]
    for name, value in {"smallest": loose.min(), "median": np.median(loose), "largest": loose.max()}.items():
        report(f"M13 A.8 alone over the gap, {name}", value)
    assert np.median(loose) > 4.0


def test_m14_occupancy_and_estimation_errors(report):
    gap, error = gather("gap"), gather("occupancy error")
    assert gap.min() >= 0.0
    most = np.concatenate([np.repeat(f["largest gap"], f["gap"].shape[1]) for f in facts()])
    report("M14 largest gap", mdps.tightness(gap, most))
    report("M14 occupancy", mdps.tightness(np.abs(error), gather("occupancy bound")))
    report("M14 estimation", mdps.tightness(gather("estimation error"), gather("estimation bound")))
    assert mdps.error(gather("used gap") + error, gather("main")) < 1e-9


def test_m14_dividing_the_occupancy_error_twice_breaks_the_decomposition():
    mdp, policy, start = mdps.trap()
    best = solve(mdp)
    found, used = one_policy(mdp, best, policy, start), jnp.array([0.5, 0.5])
    d_star = softmdp.occupancy(mdp, best.log_policy, start)
    error = jnp.sum((d_star - used) * found["gap"]) / (1 - mdp.discount)
    base = np.sum(used * found["gap"]) / (1 - mdp.discount) + found["a8"] + found["a9"]
    loss = found["regret"]
    np.testing.assert_allclose(base + error, loss, rtol=1e-9)
    assert base + error / (1 - mdp.discount) < loss - 1.0  # as A.6 reads with the error of A.8


def test_m15_drift_of_the_occupancy(report):
    kernel, distance = gather("kernel drift"), gather("policy distance")
    gamma = gather("discount")
    assert np.all(kernel <= distance + 1e-12)
    report("M15 by kernels", mdps.tightness(gather("occupancy drift"), gamma / (1 - gamma) * kernel))
    report("M15", mdps.tightness(gather("occupancy drift"), gamma / (1 - gamma) * distance))
    mdp, start = mdps.absorbing(), jnp.array([1.0, 0.0])
    leave = 1e-6
    policies = [jnp.log(jnp.array([[1 - p, p], [0.5, 0.5]])) for p in (0.0, leave)]
    d, d_other = (softmdp.occupancy(mdp, p, start) for p in policies)
    ratio = float(jnp.sum(jnp.abs(d - d_other)) / (0.9 / (1 - 0.9) * 2 * leave))
    report("M15 absorbing chain", ratio)
    assert 1 - 1e-4 < ratio <= 1.0

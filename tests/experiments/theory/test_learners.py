"""The learners as a user would expect them, on small games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import aes_prior, fixed
from experiments.theory import games, learners, oco, simplex

ROUNDS, ARMS, FLOOR, C = 128, 3, 1e-3, 4.0
LAM = 0.0625  # exact in float32


def game(seed=0, **options):
    return games.switching(np.random.default_rng(seed), ARMS, ROUNDS, 3, floor=FLOOR, **options)


def trajectory(learner, game):
    """(T, K) points played, (T,) weights, final state."""

    def step(state, given):
        loss, proxy, drift = given
        log_x = learner.point(state)
        x = jnp.exp(log_x)
        state, weight = learner.update(state, oco.Feedback(loss, proxy, drift))
        return state, (x, weight)

    rounds = (game.loss, game.proxy, oco.path(game.comparator))
    state, (points, weights) = jax.jit(lambda rounds: jax.lax.scan(step, learner.init(ARMS), rounds))(rounds)
    return np.asarray(points), np.asarray(weights), state


def regret(learner, games):
    return np.asarray(jax.jit(lambda g: oco.play(learner, g).regret)(games))


def test_mirror_without_entropy_is_hedge():
    twin = learners.mirror(fixed(LAM), C, FLOOR, entropy=0.0)
    plain = learners.hedge(C * LAM, floor=FLOOR)
    np.testing.assert_allclose(regret(twin, game()), regret(plain, game()), rtol=1e-12, atol=1e-14)
    assert np.abs(regret(learners.mirror(fixed(LAM), C, FLOOR), game()) - regret(plain, game())).max() > 1e-3


def test_mirror_takes_the_steps_of_its_definition():
    g = game()
    schedule = aes_prior(learners.drift_proxy, kappa=0.3, beta=0.0, lambda_min=0.0, lambda_max=np.inf)
    points, weights, _ = trajectory(learners.mirror(schedule, C, FLOOR), g)
    t = np.arange(1, ROUNDS + 1)
    np.testing.assert_allclose(weights, 0.3 * np.sqrt((1 + np.cumsum(g.proxy)) / t), rtol=1e-6)  # round t's own proxy
    assert np.all(points[0] == points[0, 0])
    y = np.log(points) - C * weights[:, None] * (g.loss + weights[:, None] * (1 + np.log(points)))
    x = np.exp(jax.jit(simplex.project)(y[:-1], FLOOR))
    np.testing.assert_allclose(points[1:], x, rtol=1e-12)


def test_restart_returns_to_the_uniform_point_at_every_change():
    g = game()
    points, _, _ = trajectory(learners.mirror(fixed(LAM), C, FLOOR, restart=True), g)
    change = np.flatnonzero(np.asarray(oco.path(g.comparator)) > 0)
    assert len(change) == 3
    uniform = np.isclose(points, 1 / ARMS, rtol=1e-12).all(-1)
    np.testing.assert_array_equal(np.flatnonzero(uniform), [0, *(change[change + 1 < ROUNDS] + 1)])


def test_fixed_share_keeps_a_share_for_every_arm():
    points, _, _ = trajectory(learners.hedge(2.0, share=0.03), game(gap=0.6, noise=0.1))
    assert points[1:].min() >= 0.03 / ARMS * (1 - 1e-12)
    assert points[1:].min() < 0.03 / ARMS * 1.5
    without, _, _ = trajectory(learners.hedge(2.0), game(gap=0.6, noise=0.1))
    assert without.min() < 1e-3 * 0.03


def test_ader_is_nearly_as_good_as_its_best_expert():
    """Exponential weights over the experts: regret to expert i at most sqrt(T/8) (1 + log(1/prior_i))."""
    g = game()
    count = round(np.log2(ROUNDS) / 2) + 2
    etas = 2.0 ** np.arange(count) * np.sqrt(np.log(ARMS) / ROUNDS)
    linear = jax.jit(jax.vmap(lambda eta: oco.play(learners.hedge(eta, floor=FLOOR), g).regret.sum()))
    experts = np.asarray(linear(etas))
    rank = np.arange(1, count + 1)
    prior = 1 / (rank * (rank + 1)) / np.sum(1 / (rank * (rank + 1)))
    meta = np.sqrt(ROUNDS / 8) * (1 - np.log(prior))
    points, _, state = trajectory(learners.ader(ROUNDS, FLOOR), g)
    ours = np.sum(g.loss * (points - g.comparator))
    assert ours <= np.min(experts + meta)
    assert ours < experts.max()  # and better than the worst expert
    np.testing.assert_allclose(points.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(state.log_weight).sum(), 1.0, rtol=1e-12)


def test_switching_games_are_what_they_say():
    rng = np.random.default_rng(3)
    g = games.switching(rng, 5, 4000, 16, gap=0.2, noise=0.1, floor=1e-2, placement=(0.45, 0.55))
    drift = np.asarray(oco.path(g.comparator))
    change = np.flatnonzero(drift)
    assert len(change) == 16
    assert change.min() >= 1800
    assert change.max() < 2200
    np.testing.assert_allclose(drift[change], 2 * (1 - 5e-2))
    np.testing.assert_array_equal(np.flatnonzero(g.proxy), change)
    np.testing.assert_allclose(g.comparator.sum(-1), 1.0)
    np.testing.assert_allclose(g.comparator.min(), 1e-2)
    best = g.comparator.argmax(-1)
    others = (g.loss.sum(-1) - g.loss[np.arange(4000), best]) / 4
    np.testing.assert_allclose(np.mean(others - g.loss[np.arange(4000), best]), 0.2, atol=0.01)
    with pytest.raises(ValueError, match="17 switches do not fit into rounds 5 to 9"):
        games.switch_times(rng, 100, 17, (0.05, 0.1))
    assert games.minimax_gap(10, 100, 99) == 0.25
    np.testing.assert_allclose(games.minimax_gap(10, 10_000, 3), np.sqrt(np.log(10) * 4e-4))

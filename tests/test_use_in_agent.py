"""The page about a schedule in one's own agent: its code runs, and the weight does as the page says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import Signals, aes_r, td_quantile
from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "use_in_agent.md"
FIVE_LINES, RING, ROLLOUT = blocks(PAGE, "python")[:3]


def run(code):
    scope = {}
    exec(compile(code, PAGE.name, "exec"), scope)
    return scope


def counting(agent, batch, weight):
    """A learner that counts its gradient steps; its batches are their TD errors."""
    return agent + 1, batch


def test_the_weight_of_the_five_lines_follows_the_size_of_the_residuals():
    scope = run(FIVE_LINES)
    scope["learn"] = counting
    assert scope["state"].weight == pytest.approx(0.2)
    for size, weight in ((0.04, 0.2), (0.25, 0.5), (9.0, 1.0)):  # at most lambda_max
        agent, state = 0, scope["state"]
        for _ in range(3):
            agent, state = scope["gradient_step"](agent, jnp.full((2, 16), -size), state)
        assert state.weight == pytest.approx(weight, rel=1e-5)
        assert agent == 3


def test_doubled_residuals_for_a_hundredth_of_the_updates_raise_the_weight_of_aes_by_less_than_half_a_percent():
    schedule = run(FIVE_LINES)["schedule"]

    def update(state, size):
        state = schedule.update(Signals(td_error=size[None]), state)
        return state, state.weight

    sizes = jnp.full(10_200, 0.1).at[10_000:10_100].set(0.2)
    weights = np.asarray(jax.lax.scan(update, schedule.init(), sizes)[1])
    assert 1.003 < weights[10_000:].max() / weights[9_999] < 1.005


def test_aes_r_rises_with_fresh_residuals_over_several_gradient_steps_and_environments():
    scope = run(RING)
    learn_from, envs, steps = scope["learn_from"], scope["ENVS"], scope["GRADIENT_STEPS"]
    scope |= {"learn": counting, "td_errors": lambda agent, arrived, weight: arrived}
    agent, state, fresh = 0, scope["state"], scope["fresh"]
    for size, above in ((1.0, 1.0), (4.0, 1.2)):
        for _ in range(300):
            arrived, batches = jnp.full((2, envs), size), jnp.ones((steps, 2, 32))
            agent, state, fresh = learn_from(agent, arrived, batches, state, fresh)
        assert above <= state.weight / 0.05 < above + 1.0
    assert agent == state.count == 600 * steps
    assert (fresh.td_error == 4.0).all()


def test_in_a_rollout_loop_the_weight_follows_the_rollouts():
    scope = run(ROLLOUT)
    scope |= {"learn": lambda agent, batch, weight: agent + 1, "td_errors": lambda agent, rollout: rollout}
    minibatches = jnp.zeros(scope["EPOCHS"] * scope["MINIBATCHES"])
    agent, state = 0, scope["state"]
    for size, above in ((1.0, 1.0), (4.0, 1.2)):
        for _ in range(50):
            agent, state = scope["learn_from"](agent, jnp.full((8, 16), size), minibatches, state)
        assert above <= state.weight / 0.01 < above + 2.0
    assert agent == state.count == 100 * len(minibatches)


def test_aes_r_without_a_ring_reads_the_update_batch():
    text = 'aes_r(td_quantile(source="update"), base=0.05, updates=100_000)'
    assert f"`{text}`" in PAGE.read_text()
    schedule = eval(text, {"aes_r": aes_r, "td_quantile": td_quantile})
    update, state = jax.jit(schedule.update), schedule.init()
    for size in (*[1.0] * 300, *[4.0] * 300):
        state = update(Signals(td_error=jnp.full(64, size)), state)
    assert state.weight > 1.2 * 0.05

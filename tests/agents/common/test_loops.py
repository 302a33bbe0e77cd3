"""The run loop on worlds small enough to know the answer: what is stored, when learning starts, a bandit optimum."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.adaptations import utd
from aesjax.types import Signals
from agents import sac
from agents.common import LoopConfig, Run, buffer, make_program
from agents.common.carrier import UpdateOut
from agents.common.loop import REASONS, Health, examine
from envs import make
from envs.patterns import compiled
from envs.world import World
from tests.programs import chosen, floats
from tests.quick import quick

HYPER = sac.SacHyper(1e-3, 1e-3, 0.97, 0.01)


def run_of(world, name="fixed", pattern="steady", **more):
    rules = chosen(name, source="fresh", base=0.1, updates=1000.0)
    return Run(jnp.uint32(0), world.drift(pattern, 0), rules, floats(HYPER), **more)


def loop_of(world, hidden=(16, 16), **options):
    settings = {"num_envs": 4, "interval": 20, "warmup": 8, "capacity": 400, "newest": 32} | options
    return make_program(
        world, sac.Sac(world.obs_size, world.action_size, sac.SacConfig(hidden, 32)), LoopConfig(**settings)
    )


@pytest.fixture(scope="module")
def toy():
    return World(make("toy"), 1000, patterns=compiled(["abrupt"]))


@pytest.fixture(scope="module")
def trained(toy):
    """One toy run after 20 vector steps, 8 of them warm-up, and after 60."""
    loop, run = loop_of(toy), run_of(toy, "aes", "abrupt")
    chunk = jax.jit(loop.chunk)
    states, logs = [quick(loop.init)(run)], []
    for index in range(3):
        state, metrics = chunk(states[-1], run, jnp.int32(20 * index))
        states.append(state)
        logs.append(metrics)
    return loop, run, states, logs


def test_a_weight_that_turns_negative_ends_a_run():
    losses = {"critic_loss": jnp.float32(1.0), "actor_loss": jnp.float32(0.0)}
    health = Health(jnp.int32(-1), jnp.int32(0))
    for step, (weight, at) in enumerate([(0.0, -1), (-0.1, 1), (0.1, 1)]):
        health = examine(health, UpdateOut(None, Signals(), losses), jnp.float32(weight), jnp.int32(step))
        assert int(health.diverged_at) == at
    assert [text for bit, text in enumerate(REASONS) if int(health.reason) >> bit & 1] == [REASONS[2]]


def test_a_trained_agent_acts_itself_in_the_warm_up(toy):
    loop, run = loop_of(toy, warmup=20, random=0), run_of(toy)
    start = quick(loop.init)(run)
    last = start.agent.actor["params"]["Dense_2"]
    settled = {"kernel": 0.0 * last["kernel"], "bias": jnp.array([0.5, -0.5, -4.0, -4.0])}  # means, then log std
    actor = {"params": start.agent.actor["params"] | {"Dense_2": settled}}
    start = start._replace(agent=start.agent._replace(actor=actor))
    state, _ = quick(loop.chunk)(start, run, jnp.int32(0))
    chex.assert_trees_all_equal(start.agent, state.agent)
    rows = buffer.unpack(state.replay.rows, 2, 2)
    actions = np.asarray(rows.action)[:80]
    np.testing.assert_allclose(actions, np.broadcast_to(np.tanh([0.5, -0.5]), actions.shape), atol=0.1)
    assert np.all(np.asarray(rows.action)[80:] == 0.0)


def test_one_gradient_step_and_one_schedule_tick_per_vector_step(trained):
    _, _, states, _ = trained
    counts = [(int(s.agent.critic_opt.count), int(s.schedule.count)) for s in states]
    assert counts == [(0, 0), (12, 12), (32, 32), (52, 52)]


@pytest.mark.slow
def test_several_gradient_steps_are_as_many_updates_each_on_its_own_batch(toy):
    loop = loop_of(toy, interval=1, hidden=(4, 4))
    several = [utd(updates=count).filled() for count in (1.0, 4.0, 2.5)]
    runs = [run_of(toy, adaptations=[floats(each)], updates=jnp.float32(1000.0)) for each in several]
    runs = jax.tree.map(lambda *x: jnp.stack(x), *runs)
    state, chunk, steps = quick(jax.vmap(loop.init))(runs), quick(jax.vmap(loop.chunk, (0, 0, None))), []
    for step in map(jnp.int32, range(20)):
        state, logs = chunk(state, runs, step)
        steps.append(np.asarray(logs["gradient_steps"]))
    one, four, between = np.array(steps).T
    assert (one[7:10].tolist(), four[7:10].tolist()) == ([0, 1, 1], [0, 1, 4])  # learning starts at step 8
    assert set(between[9:]) == {2.0, 3.0}
    np.testing.assert_array_equal(state.schedule.count, 12)
    np.testing.assert_array_equal(state.agent.critic_opt.count[:2], [12, 1 + 11 * 4])


def test_stored_successors_are_true_ones_across_a_time_limit(trained):
    """Episodes of 50 steps are cut at vector step 50; a reset there would be a jump of more than one move."""
    _, _, states, _ = trained
    rows = buffer.unpack(states[3].replay.rows[:240], 2, 2)
    moves = np.abs(np.asarray(rows.next_obs - rows.obs))
    assert moves.max() < 0.1 + 6 * 0.01
    assert np.all(np.asarray(rows.terminated) == 0.0)
    starts = np.asarray(rows.obs).reshape(60, 4, 2)
    ends = np.asarray(rows.next_obs).reshape(60, 4, 2)
    np.testing.assert_allclose(starts[1:50], ends[:49], rtol=0, atol=1e-7)  # a compiler may compute them twice
    assert np.all(np.abs(starts[50]).max(-1) < 0.3)  # a fresh start after the limit


def test_evaluation_changes_nothing_and_repeats_itself(trained):
    loop, run, states, _ = trained
    evaluate = quick(loop.evaluate)
    first, again, other = (float(evaluate(states[2], run, jnp.int32(step))["return_mean"]) for step in (40, 40, 20))
    assert first == again != other


@pytest.mark.slow
def test_the_same_policy_is_evaluated_under_drift_that_is_not_in_force(toy, trained):
    _, _, states, _ = trained
    loop = loop_of(toy, counterfactual=True)
    evaluate, abrupt = quick(loop.evaluate), run_of(toy, "aes", "abrupt")
    first, later = (evaluate(states[2], abrupt, jnp.int32(step)) for step in (180, 220))  # segments of 200 vector steps
    assert float(first["return_mean"]) == float(first["return_nominal"]) == float(first["return_previous"])
    assert float(later["return_previous"]) == float(later["return_nominal"]) != float(later["return_mean"])
    steady = evaluate(states[2], run_of(toy, "aes"), jnp.int32(220))
    assert float(later["return_nominal"]) == float(steady["return_mean"]) == float(steady["return_next"])
    assert float(later["return_low"]) != float(later["return_high"])
    values = [dict(toy.elsewhere(abrupt.drift, jnp.int32(step))) for step in (180, 220, 500, 999)]
    now = toy.path(abrupt.drift, jnp.array([180, 220, 500, 999]))[0]
    np.testing.assert_array_equal(values[0]["next"], now[1])
    np.testing.assert_array_equal(values[2]["previous"], now[1])
    np.testing.assert_array_equal(values[3]["next"], now[3])  # nothing follows the end
    np.testing.assert_array_equal(values[0]["previous"], values[0]["nominal"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 401}, "capacity 401 must be a multiple of num_envs 4"),
        ({"newest": 30}, "newest transitions 30 must be a multiple"),
        ({"warmup": 2}, "must cover the 32 newest transitions"),
    ],
)
def test_impossible_loops_are_refused_with_the_value(toy, options, message):
    with pytest.raises(ValueError, match=message):
        loop_of(toy, **options).init(run_of(toy, "aes"))

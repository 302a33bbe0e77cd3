import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.core import Channel
from envs.patterns import compiled
from envs.world import World

TOY = envs.make("toy")


STEPS, N = 100, 2
ABRUPT = compiled(["abrupt"])


@functools.cache
def run(pattern):
    """Observations, the other values of every step under zero actions, and the clock after each."""
    env = envs.Drifting(TOY, pattern, total_steps=N * STEPS, drift_seed=5, num_envs=N)

    def body(carry, _):
        state, key = carry
        key, key_step = jax.random.split(key)
        obs, state, *rest = env.step(key_step, state, jnp.zeros((N, 2)))
        return (state, key), (obs, rest, state.clock, env.params_at(state.clock - 1).goal_offset)

    def whole(key):
        key_reset, key_run = jax.random.split(key)
        return jax.lax.scan(body, (env.reset(key_reset)[1], key_run), length=STEPS)[1]

    return jax.tree.map(np.asarray, jax.jit(whole)(jax.random.key(0)))


def test_the_clock_survives_auto_reset():
    _, (_, _, truncated, info), clocks, _ = run("abrupt")
    assert truncated.sum() == N * 2  # two episodes of 50 steps in each copy
    np.testing.assert_array_equal(clocks, np.arange(1, STEPS + 1))
    np.testing.assert_array_equal(np.flatnonzero(info["drift"].is_change_point), [20, 40, 60, 80])


@pytest.mark.parametrize("pattern", ["abrupt", "mixed"])
def test_every_step_runs_under_the_drift_of_its_clock(pattern):
    _, (_, _, _, info), _, offsets = run(pattern)
    world = World(TOY, STEPS, patterns=compiled([pattern]))
    expected, _ = world.path(world.drift(pattern, 5), jnp.arange(STEPS))
    np.testing.assert_allclose(offsets, expected, atol=1e-6)
    np.testing.assert_allclose(info["drift"].values, expected, atol=1e-6)


def test_a_task_without_channels_is_steady_and_nothing_else():
    still = TOY._replace(channels=(), apply_drift=lambda params, values: params)
    env, plain = (envs.Drifting(task, "steady", total_steps=N * STEPS, num_envs=N) for task in (still, TOY))
    (_, state), action = env.reset(jax.random.key(0)), jnp.ones((N, 2))
    (*_, reward, _, _, info), (*_, same, _, _, _) = (e.step(jax.random.key(1), state, action) for e in (env, plain))
    np.testing.assert_array_equal(reward, same)
    assert info["drift"].values.shape == (0,)
    assert (info["drift"].change, env.world.displacement(info["drift"].values)) == (0, 0)
    with pytest.raises(ValueError, match="task 'toy' has no drift channel, so its pattern is steady; got 'abrupt'"):
        envs.Drifting(still, "abrupt", total_steps=N * STEPS)
    with pytest.raises(envs.UnknownNameError, match="did you mean 'steady'"):
        envs.Drifting(still, "stedy", total_steps=N * STEPS)


def test_arrays_of_a_wrong_shape_are_refused_when_traced():
    env = envs.Drifting(TOY, "abrupt", total_steps=N * STEPS, num_envs=N)
    _, state = env.reset(jax.random.key(0))
    for shape in ((2,), (N, 3), (N + 1, 2)):
        with pytest.raises(AssertionError, match=r"action of task 'toy': \(num_envs, actuators\)"):
            jax.eval_shape(env.step, jax.random.key(0), state, jax.ShapeDtypeStruct(shape, np.float32))
    with pytest.raises(AssertionError, match="drift values of task 'toy'"):
        env.world.params_of(jnp.zeros(3))
    with pytest.raises(AssertionError, match="a drift sample has the channels of one task"):
        env.world.truth(World(envs.make("pendulum"), STEPS).drift("abrupt", 0), 0)


def observed(world):
    """Observations (10, N, S) that a policy acts on, and those (10, N, S) that its steps led to."""
    drift = world.drift("abrupt", 3)
    action = jnp.full((N, world.action_size), 0.1)

    def step(carry, t):
        obs, state = carry
        params = world.params_at(drift, t)
        seen = world.seen(obs, params)
        obs, state, *_, final = world.step(jax.random.fold_in(jax.random.key(1), t), state, action, params)
        return (obs, state), (seen, final)

    begin = world.reset(jax.random.key(0), N, world.params_at(drift, 0))
    return jax.lax.scan(step, begin, jnp.arange(10))[1]


@pytest.mark.parametrize("name", ["toy", "hopper"])
def test_observations_end_with_the_drift_in_force_from_its_change_on(name):
    task = envs.make(name)
    plain, world = (World(task, 10, observe=observe, patterns=ABRUPT) for observe in (None, "drift"))
    size, drifting = plain.obs_size, sum(channel.size for channel in task.channels)
    assert world.obs_size == size + drifting
    seen, final = map(np.asarray, jax.jit(lambda: observed(world))())
    own, ends = map(np.asarray, jax.jit(lambda: observed(plain))())
    np.testing.assert_allclose(seen[..., :size], own, atol=1e-6)
    np.testing.assert_allclose(final[..., :size], ends, atol=1e-6)
    values = np.asarray(plain.path(plain.drift("abrupt", 3), jnp.arange(10))[0])
    low, high = (
        np.concatenate([np.full(channel.size, getattr(channel, end)) for channel in task.channels])
        for end in ("low", "high")
    )
    expected = 2 * (values - low) / (high - low) - 1
    for rows in (seen, final):  # both sides of a transition are of the world in which it took place
        np.testing.assert_allclose(rows[..., size:], np.repeat(expected[:, None], N, 1), atol=1e-5)
    for at in (2, 4, 6, 8):
        assert np.any(seen[at, :, size:] != seen[at - 1, :, size:])


@pytest.mark.parametrize("observe", [None, "drift"])
def test_a_history_has_the_last_observations_and_the_actions_between_them(observe):
    task = envs.make("toy_multigoal_classic", time_limit=4)
    plain, world = (World(task, 10, observe=observe, history=history, patterns=ABRUPT) for history in (1, 3))
    assert (plain.own_size, world.own_size, world.obs_size - world.own_size) == (2, 10, plain.obs_size - 2)
    (own, ends), (seen, final) = (map(np.asarray, jax.jit(lambda w=w: observed(w))()) for w in (plain, world))
    np.testing.assert_array_equal(own[..., 2:], seen[..., 10:])
    for t in range(10):
        begin = t // 4 * 4  # of the episode
        last = [own[max(t - ago, begin), :, :2] for ago in range(3)]
        acts = [np.full((N, 2), 0.1 if t - ago >= begin else 0.0, np.float32) for ago in range(3)]
        np.testing.assert_array_equal(seen[t, :, :10], np.concatenate([last[0], acts[1], last[1], acts[2], last[2]], 1))
        np.testing.assert_array_equal(
            final[t, :, :10], np.concatenate([ends[t, :, :2], acts[0], last[0], acts[1], last[1]], 1)
        )


@pytest.mark.parametrize(("pattern", "jumps"), [("abrupt", [520, 640, 760, 880]), ("periodic", [400]), ("ou", [])])
def test_an_observed_change_is_a_flag_for_two_percent_of_the_run_after_a_jump(pattern, jumps):
    world = World(TOY, 1000, observe="change", onset=0.4, patterns=compiled([pattern]))
    drift, steps = world.drift(pattern, 3), jnp.arange(1000)
    expected = np.zeros((1000, 1))
    for jump in jumps:
        expected[jump : jump + 20] = 1.0
    np.testing.assert_array_equal(world.notice(drift, steps), expected)
    for step in (0, *jumps):
        params = world.params_at(drift, step)
        obs, _ = world.reset(jax.random.key(0), 2, params)
        assert obs.shape == (2, world.obs_size) == (2, 3)
        np.testing.assert_array_equal(obs[:, 2], float(step > 0))


def test_what_cannot_be_observed_is_refused():
    task = TOY
    with pytest.raises(ValueError, match="observe must be 'drift' or 'change'; got 'goal'"):
        World(task, 10, observe="goal")
    with pytest.raises(ValueError, match="history must be at least 1 observation; got 0"):
        World(task, 10, history=0)
    for wrong in ({"low": 1.0}, {"nominal": 5.0}, {"low": 0.0, "high": 0.0, "nominal": 0.0}):
        with pytest.raises(ValueError, match="needs low < high and its nominal value between them"):
            World(task._replace(channels=(Channel("target", -0.8, 0.8, 0.0)._replace(**wrong),)), 10)
    with pytest.raises(ValueError, match="task 'toy' has no drift channel, so there is no drift to observe"):
        World(task._replace(channels=()), 10, observe="drift")

import brax.envs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs.base import State
from brax.envs.wrappers.training import wrap

import envs
from envs.adapters.brax import from_brax, to_brax
from envs.toy.classic import ClassicState

pytestmark = [
    pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data` is deprecated:DeprecationWarning"),
]
CLASSIC = envs.make("toy_multigoal_classic")
STILL = np.zeros((2, 2), np.float32)


def keys(seed, n):
    return jax.random.split(jax.random.PRNGKey(seed), n)


def scan(env, state, actions):
    """Every state of a rollout, stacked: (steps, N, ...), as NumPy arrays."""

    def body(state, action):
        state = env.step(state, action)
        return state, state

    return jax.tree.map(np.asarray, jax.jit(lambda s, a: jax.lax.scan(body, s, a)[1])(state, actions))


def test_an_exported_task_describes_itself_and_starts_alike_from_typed_and_raw_keys():
    env = to_brax(CLASSIC, "abrupt", total_steps=100)
    assert isinstance(env, brax.envs.Env)
    assert (env.observation_size, env.action_size, env.backend) == (2, 2, "toy")
    reset = jax.jit(env.reset)
    raw, typed = reset(jax.random.PRNGKey(3)), reset(jax.random.key(3))
    assert isinstance(raw, State)
    assert (raw.reward, raw.done, int(raw.info["drift_step"])) == (0.0, 0.0, 0)
    assert raw.info["rng"].dtype == jnp.uint32
    jax.tree.map(np.testing.assert_array_equal, raw, typed)
    assert not np.array_equal(raw.obs, reset(jax.random.PRNGKey(4)).obs)
    with pytest.raises(ValueError, match="multiple of num_envs = 3"):
        to_brax(CLASSIC, "abrupt", total_steps=100, num_envs=3)


def test_the_clock_runs_across_the_episodes_of_brax_and_changes_come_when_they_should():
    task = envs.make("toy")  # episodes of 50 steps; changes at 40, 80, 120, 160
    env = wrap(to_brax(task, "abrupt", 400, drift_seed=4, num_envs=2, truncate=False), episode_length=50)
    start = jax.jit(env.reset)(keys(0, 2))
    run = scan(env, start, jnp.tile(STILL[None], (210, 1, 1)))
    np.testing.assert_array_equal(run.info["drift_step"][:, 0], np.arange(1, 211))
    drawn = envs.draw(task, 4)

    def at(step):
        return envs.truth(task.channels, 1, drawn, step, 200)

    true = jax.jit(jax.vmap(at))(jnp.arange(210))
    np.testing.assert_allclose(run.info["drift"][:, 1], true.values, atol=1e-6)
    assert np.flatnonzero(np.diff(run.info["drift"][:, 0], axis=0).any(axis=1)).tolist() == [39, 79, 119, 159]
    ends = np.flatnonzero(run.done[:, 0]).tolist()
    assert ends == [49, 99, 149, 199]
    np.testing.assert_array_equal(run.obs[ends], np.tile(start.obs[None], (4, 1, 1)))  # Brax replays the first start
    assert np.flatnonzero(run.info["truncation"][:, 0]).tolist() == ends
    assert not run.info["time_out"].any()
    # noise goes on: episodes after the same start differ
    assert not np.array_equal(run.obs[0], run.obs[50])
    # the reward is that of the goals in force
    reward = jax.vmap(envs.toy.multigoal.goal_reward, in_axes=(0, None))
    for step in (45, 85):
        params = task.apply_drift(task.params, true.values[step])
        np.testing.assert_allclose(run.reward[step], reward(run.obs[step], params), atol=1e-6)


def test_a_simulation_ends_its_own_episodes_under_braxs_wrappers():
    task = envs.make("hopper", engine="mujoco", time_limit=15)
    env = wrap(to_brax(task, "abrupt", total_steps=300, num_envs=2), episode_length=1000)
    run = scan(env, jax.jit(env.reset)(keys(0, 2)), jnp.zeros((50, 2, 3)))
    assert run.obs.shape == (50, 2, 11)
    assert np.isfinite(run.obs).all()
    for copy in range(2):
        assert np.flatnonzero(run.done[:, copy]).tolist() == [14, 29, 44]
        assert np.flatnonzero(run.info["time_out"][:, copy]).tolist() == [14, 29, 44]
    assert not run.info["truncation"].any()  # what EpisodeWrapper knows about
    np.testing.assert_array_equal(run.info["drift_step"][-1], 50)
    values = run.info["drift"]
    np.testing.assert_array_equal(values[:30], 1.0)
    assert (values[30] != 1.0).all()


def test_a_task_sent_through_brax_and_back_keeps_its_rewards_and_flags():
    """The noiseless toy, followed by hand with the drift of each step."""
    back = from_brax(to_brax(CLASSIC, "linear", total_steps=40), "back", channels=(), time_limit=30)
    assert (back.env.spec, back.channels) == (CLASSIC.env.spec, ())
    drawn = envs.draw(CLASSIC, 0)
    goal = jnp.array([0.2, -0.1])

    @jax.jit
    def both(key):
        obs, state = back.env.reset(key, back.params)
        ours = ClassicState(obs, jnp.int32(0))

        def body(carry, step):
            state, ours = carry
            there = back.env.step(key, state, goal, back.params)
            values = envs.truth(CLASSIC.channels, envs.pattern_index("linear"), drawn, step, 40).values
            here = CLASSIC.env.step(key, ours, goal, CLASSIC.apply_drift(CLASSIC.params, values))
            return (there[1], here[1]), (there[0], *there[2:5], here[0], *here[2:5])

        return jax.lax.scan(body, (state, ours), jnp.arange(30))[1]

    with jax.debug_key_reuse(False):
        obs, reward, terminated, truncated, *here = map(np.asarray, both(jax.random.key(5)))
    for mine, theirs in zip((obs, reward), here[:2], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    np.testing.assert_array_equal(terminated, here[2])
    np.testing.assert_array_equal(truncated, here[3])
    assert np.ptp(reward) > 1.0

"""Drifting tasks as Brax environments, and Brax environments as drifting tasks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from aesjax import fixed
from agents import make_train

pytest.importorskip("brax", reason="`make test-all` installs it")

import brax.envs
from brax.envs.base import PipelineEnv, State
from brax.envs.wrappers.training import wrap
from brax.io import mjcf

from envs.adapters.brax import CHANNELS, from_brax, to_brax

pytestmark = [
    pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data` is deprecated:DeprecationWarning"),
]
CLASSIC = envs.make("toy_multigoal_classic")


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
    run = scan(env, start, jnp.zeros((210, 2, 2)))
    np.testing.assert_array_equal(run.info["drift_step"][:, 0], np.arange(1, 211))
    drawn = envs.draw(task, 4)

    def at(step):
        return envs.truth(task.channels, 1, drawn, step, envs.Timeline(200))

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


# --- from Brax

PENDULUM = """
<mujoco><option timestep="0.02" gravity="0 0 -9.81"/><custom><numeric name="matrix_inv_iterations" data="0"/></custom>
<worldbody><body>
  <joint name="hinge" type="hinge" axis="0 1 0" damping="0.5"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.6" size="0.05" contype="0" conaffinity="0"/>
</body></worldbody><actuator><motor joint="hinge" gear="3" ctrlrange="-1 1"/></actuator></mujoco>
"""


class Pendulum(PipelineEnv):
    """One link of Brax's generalized pipeline."""

    def __init__(self, backend="generalized"):
        super().__init__(mjcf.loads(PENDULUM), backend=backend)

    def reset(self, rng):
        q = jax.random.uniform(rng, (1,), minval=0.5, maxval=1.0)
        pipeline = self.pipeline_init(q, jnp.ones(1))
        return State(pipeline, jnp.concatenate([q, pipeline.qd]), *jnp.zeros(2), {"speed": jnp.zeros(())})

    def step(self, state, action):
        pipeline = self.pipeline_step(state.pipeline_state, action)
        obs = jnp.concatenate([pipeline.q, pipeline.qd])
        metrics = {"speed": pipeline.qd[0]}
        return state.replace(pipeline_state=pipeline, obs=obs, reward=jnp.float32(1), metrics=metrics)


class Falling(brax.envs.Env):
    """Something with a ``sys``, in the style of Brax: numbers of Python, and it writes into what it is given."""

    observation_size, action_size, backend = 2, 1, "paper"

    class Sys(NamedTuple):
        gravity: Any = -10.0

    def __init__(self):
        self.sys = self.Sys()

    def reset(self, rng):
        height = jax.random.uniform(rng)
        return State((height, 0.0), jnp.stack([height, 0.0]), 0.0, 0.0, {"speed": 0.0}, {"n": 0, "rng": rng})

    def step(self, state, action):
        height, speed = state.pipeline_state
        speed = speed + 0.1 * (self.sys.gravity + action[0])
        height = height + 0.1 * speed
        state.info["n"] += 1
        state.metrics["speed"] = speed
        done = jnp.where(height < -3.0, 1, 0)
        return state.replace(pipeline_state=(height, speed), obs=jnp.stack([height, speed]), reward=1, done=done)


@pytest.fixture(scope="module")
def pendulum():
    with pytest.warns(UserWarning, match="Brax System"):
        return Pendulum()


@pytest.fixture(scope="module")
def imported(pendulum):
    """The task, its compiled start and its compiled step from (key, state, action, drift values)."""
    task = from_brax(pendulum, "pendulum_of_brax", channels=tuple(CHANNELS), time_limit=3)

    def step(key, state, action, values):
        return task.env.step(key, state, action, task.apply_drift(task.params, values))

    return task, jax.jit(task.env.reset), jax.jit(step)


def test_nominal_values_are_the_original_environment(pendulum, imported):
    task, reset, step = imported
    np.testing.assert_array_equal(task.params, [1.0, 1.0, 1.0])
    assert (task.name, task.family, task.env.spec) == ("pendulum_of_brax", "brax", envs.EnvSpec(2, 1, 3))
    obs, state = reset(jax.random.key(0), task.params)
    with jax.numpy_rank_promotion("allow"):
        expected = jax.jit(pendulum.step)(state.brax, jnp.array([0.3]))
    np.testing.assert_array_equal(obs, state.brax.obs)
    after, state, reward, terminated, truncated, info = step(jax.random.key(1), state, jnp.array([0.3]), task.params)
    np.testing.assert_allclose(after, expected.obs, rtol=1e-6)
    assert (reward, bool(terminated), bool(truncated)) == (1.0, False, False)
    np.testing.assert_allclose(info["speed"], expected.metrics["speed"], rtol=1e-6)
    np.testing.assert_array_equal(pendulum.sys.gravity, np.float32([0, 0, -9.81]))  # never written to


def test_every_channel_changes_the_physics_by_its_law(imported):
    task, reset, step = imported
    _, state = reset(jax.random.key(0), task.params)
    speeds, dt = {}, 0.02
    for values in ((1, 1, 1), (1.3, 1, 1), (1, 1.5, 1), (1, 1, 0.7)):
        now = jnp.array(values, jnp.float32)
        # The second step: a step of this pipeline uses the mass matrix that the one before left.
        before, after, *_ = step(jax.random.key(1), state, jnp.zeros(1), now)
        speeds[values] = (*before.tolist(), float(step(jax.random.key(2), after, jnp.zeros(1), now)[0][1]))
    assert len({got for *_, got in speeds.values()}) == 4
    # (I + dt c) (v' - v) = dt (-c v - m g l sin q) about the hinge, damping implicit: solve for what drifted.
    sys = task.env.own.unwrapped.sys
    mass, centre = float(sys.link.inertia.mass[0]), 0.3
    inertia = float(sys.link.inertia.i[0, 1, 1]) + mass * centre**2
    for (m, c, g), (q, speed, got) in speeds.items():
        force = -0.5 * c * speed - m * g * mass * 9.81 * centre * np.sin(q)
        np.testing.assert_allclose(got, speed + dt * force / (m * inertia + dt * 0.5 * c), rtol=1e-4)


def test_an_imported_task_drifts_ends_and_keeps_the_six_values():
    falling = Falling()
    task = from_brax(
        falling,
        "falling",
        channels=(envs.Channel("gravity", -20.0, -5.0, -10.0),),
        apply=lambda sys, values: sys._replace(gravity=values[0]),
        time_limit=3,
    )
    drifting = envs.Drifting(task, "abrupt", total_steps=20, num_envs=2)
    obs, state = jax.jit(drifting.reset)(jax.random.key(0))
    step, values, ends = jax.jit(drifting.step), [], []
    for key in jax.random.split(jax.random.key(1), 7):
        before, (obs, state, reward, terminated, truncated, info) = obs, step(key, state, jnp.zeros((2, 1)))
        values.append(float(info["drift"].values[0]))
        ends.append(bool(truncated.all()))
        np.testing.assert_allclose(info["final_observation"][:, 1], before[:, 1] + 0.1 * values[-1], rtol=1e-5)
        assert (obs.dtype, reward.dtype, terminated.dtype) == (jnp.float32, jnp.float32, bool)
        assert not terminated.any()
    assert ends == [False, False, True, False, False, True, False]
    assert np.flatnonzero(np.diff(values)).tolist() == [1, 3, 5]
    assert falling.sys.gravity == -10.0
    one = jax.jit(task.env.step)
    _, start = task.env.reset(jax.random.key(0), task.params)
    terminated, truncated = one(jax.random.key(1), start, jnp.zeros(1), jnp.array([-500.0]))[3:5]
    assert (bool(terminated), bool(truncated)) == (True, False)
    np.testing.assert_array_equal(  # actions beyond the range are clipped
        *(one(jax.random.key(1), start, jnp.array([a]), task.params)[0] for a in (1.0, 7.0))
    )


def test_a_channel_of_ones_own(pendulum):
    stiff = envs.Channel("stiffness", 0.0, 2.0, 0.0)
    task = from_brax(
        pendulum,
        "stiff",
        channels=(stiff,),
        apply=lambda sys, values: sys.tree_replace({"dof.stiffness": sys.dof.stiffness + values[0]}),
    )
    assert task.channels == (stiff,)
    sys = task.env.drifted(task.apply_drift(task.params, jnp.array([1.5]))).unwrapped.sys
    np.testing.assert_array_equal(sys.dof.stiffness, [1.5])


def test_what_cannot_be_imported_is_refused(pendulum):
    with pytest.raises(envs.UnknownNameError, match="unknown drift channel of a Brax environment 'body_mas'"):
        from_brax(pendulum, "x", channels=("body_mas",))
    with pytest.raises(envs.UnknownNameError, match="unknown drift channel of a Brax environment 'stiffness'"):
        from_brax(pendulum, "x", channels=(envs.Channel("stiffness", 0.0, 2.0, 0.0),))  # without `apply`
    with pytest.raises(ValueError, match="DriftingBraxEnv has no 'sys'"):
        from_brax(to_brax(CLASSIC, "steady", 10), "x", channels="gravity")
    with pytest.raises(ValueError, match="'body_mass' drifts on backends generalized and mjx; 'spring' fixes them"):
        from_brax(Pendulum("spring"), "x", channels=("body_mass",))
    free = Pendulum()
    free.sys = free.sys.tree_replace({"gravity": jnp.zeros(3), "opt.gravity": jnp.zeros(3)})
    with pytest.raises(ValueError, match="channel 'gravity' would change nothing"):
        from_brax(free, "x", channels=("gravity",))


def test_make_train_takes_a_brax_environment():
    train = make_train(brax.envs.get_environment("fast"), "ppo", steps=80, evaluations=2, episodes=1, num_envs=2)
    _, curves = jax.eval_shape(train, 0, fixed(0.01))
    assert curves["return_mean"].shape == (3,)

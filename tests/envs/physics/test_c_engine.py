"""The C engine inside JAX: exact state, drift channels against freshly compiled models, faults, batching, sharding."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import envs
from envs.mujoco import TASKS, model
from envs.mujoco.locomotion import LocomotionTask, MujocoParams
from envs.physics.c_engine import CEnv
from tests.envs.physics.common import engine_of, params_of

NOMINAL = params_of(np.ones((1, 3)))


def make(name, **options):
    return envs.make(name, engine="mujoco", **options)


def start(engine, n=1, seed=0):
    noise = np.random.default_rng(seed).uniform(-1, 1, (n, engine.model.nq + engine.model.nv))
    return engine.start(noise, params_of(np.ones((n, 3))))[1]


def freshly_compiled(task, factors, gain=1.0):
    """The model compiled from a specification whose own numbers are scaled, not from patched compiled fields.

    A weak leg by its gears: a motor's force is control times gain, its torque that times gear.
    """
    nominal = model.load(task.xml)
    spec = mujoco.MjSpec.from_file(str(model.path(task.xml)))
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.settotalmass = -1
    mass, joint, geom = factors
    for i, body in list(enumerate(spec.bodies))[1:]:  # in the order of the compiled model; some have no name
        body.explicitinertial = True
        body.mass, body.inertia = nominal.body_mass[i] * mass, nominal.body_inertia[i] * mass
        body.ipos, body.iquat = nominal.body_ipos[i], nominal.body_iquat[i]
    for joint_spec in spec.joints:
        joint_spec.damping *= joint
        joint_spec.frictionloss *= joint
    for geom_spec in spec.geoms:
        geom_spec.friction[0] *= geom
    motors = [motor for motor in spec.actuators if motor.target in task.leg]
    assert len(motors) == len(task.leg)
    for motor in motors:
        motor.gear[0] *= gain
    return spec.compile()


@pytest.mark.parametrize("name", ["hopper", "ant"])
def test_a_copy_is_not_simulated_after_its_episode_of_an_evaluation(name):
    env, copies = make(name, time_limit=60).env, 6
    actions = jax.random.uniform(jax.random.key(1), (100, copies, env.spec.action_size), minval=-1.0, maxval=1.0)

    def episodes(env):
        def step(state, now):
            autoreset = jax.vmap(env.autoreset, (0, 0, 0, 0, None))
            _, state, reward, terminated, truncated, _ = autoreset(now[0], now[0], state, now[1], env.task.params)
            return state, (reward, terminated | truncated, state)

        key_start, key_steps = jax.random.split(jax.random.key(0))
        _, start = jax.vmap(env.reset, (0, None))(jax.random.split(key_start, copies), env.task.params)
        return jax.lax.scan(step, start, (jax.random.split(key_steps, actions.shape[:2]), actions))[1]

    rewards, ends, _ = jax.jit(lambda: episodes(env))()
    first, its_ends, states = jax.jit(lambda: episodes(env.for_evaluation()))()
    running = np.cumsum(ends, 0) - ends == 0
    np.testing.assert_array_equal(first, np.where(running, rewards, 0.0))
    np.testing.assert_array_equal(its_ends, ends & running)
    for copy, last in enumerate(ends.argmax(0)):
        rows = np.asarray(states.row[last:, copy])
        assert (rows == rows[:1]).all()
        assert (states.time[last:, copy] == -1).all()


def test_the_engine_stops_the_timers_of_the_package_which_cost_a_tenth_of_a_step():
    engine = engine_of("hopper")
    data = mujoco.MjData(engine.model)
    mujoco.mj_step(engine.model, data, 10)
    step = data.timer[mujoco.mjtTimer.mjTIMER_STEP]
    assert (step.number, step.duration) == (10, 0.0)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    ("factors", "gain"), [((1.3, 1.0, 1.0), 1.0), ((0.7, 1.5, 1.0), 1.0), ((1.0, 0.5, 1.5), 1.0), ((1.0,) * 3, 0.4)]
)
def test_drift_moves_the_trajectory_as_a_freshly_compiled_model_does(name, factors, gain):
    task = TASKS[name]
    engine = engine_of(name, weakens=gain < 1.0)
    compiled = freshly_compiled(task, factors, gain)
    data = mujoco.MjData(compiled)
    rows, plain = start(engine), start(engine)
    mujoco.mj_setState(compiled, data, rows[0, :-1], engine.spec)
    rng = np.random.default_rng(1)
    for _ in range(10):
        action = rng.uniform(-1, 1, (1, compiled.nu))
        rows = engine.step(rows, action, params_of([factors], gain=gain)).rows
        plain = engine.step(plain, action, NOMINAL).rows
        data.ctrl[:] = engine.task.control(np, None, None, action, NOMINAL).ctrl[0]
        mujoco.mj_step(compiled, data, task.frame_skip)
        np.testing.assert_allclose(rows[0, engine.positions], data.qpos, rtol=0, atol=1e-8)
        np.testing.assert_allclose(rows[0, engine.velocities], data.qvel, rtol=0, atol=1e-8)
    assert np.abs(rows[0, engine.velocities] - plain[0, engine.velocities]).max() > 1e-3


@pytest.mark.parametrize("tracks", [False, True])
def test_where_the_direction_is_reversed_backwards_is_forwards(tracks):
    engine = engine_of("halfcheetah", tracks=tracks)
    rows, action = start(engine), np.full((1, 6), 0.3)
    cost = 0.1 * 6 * 0.3**2
    speed = engine_of("halfcheetah").step(rows, action, NOMINAL).reward + cost
    for direction in (-1.0, 0.5, 1.0):
        step = engine.step(rows, action, params_of(np.ones((1, 3)), target=2.0, direction=direction))
        want = -np.abs(direction * speed - 2.0) if tracks else direction * speed
        np.testing.assert_allclose(step.reward + cost, want, rtol=1e-12)


def rollout(task, params, count=12):
    """Copies under vmap, one params each; words of the last state and everything seen on the way."""
    env = task.env

    def one(key, params):
        _, state = env.reset(key, params)

        def body(state, key):
            key_action, key_step = jax.random.wrap_key_data(key)
            action = jax.random.uniform(key_action, (env.spec.action_size,), minval=-1.0)
            obs, state, reward, terminated, truncated, info = envs.autoreset_step(env, key_step, state, action, params)
            return state, (obs, reward, terminated, truncated, info["final_observation"])

        words = jax.random.key_data(jax.random.split(jax.random.fold_in(key, 1), (count, 2)))
        return jax.lax.scan(body, state, words)

    return one


def test_batched_and_sharded_copies_are_the_single_ones_bit_for_bit():
    task = make("hopper", time_limit=8)
    keys = jax.random.key_data(jax.random.split(jax.random.key(0), 6))
    factors = jnp.linspace(0.7, 1.3, 6)
    params = MujocoParams(factors, factors[::-1], jnp.ones(6), jnp.zeros(6), jnp.ones(6), factors - 1.0)
    one = rollout(task, params)

    def run(words, params):
        return one(jax.random.wrap_key_data(words), params)

    single = jax.jit(run)
    alone = [single(keys[i], jax.tree.map(lambda x, i=i: x[i], params)) for i in range(6)]
    mesh = Mesh(np.array(jax.devices()[:2]), axis_names=("runs",))
    spec = PartitionSpec("runs")
    together = jax.jit(jax.vmap(run))(keys, params)
    sharded = jax.jit(jax.shard_map(jax.vmap(run), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    for stacked in (together, sharded(keys, params)):
        for i in range(6):
            jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), stacked, alone[i])
    assert bool(together[1][3].any())  # episodes ended on the way


def test_the_state_inside_jax_is_the_double_precision_state_to_the_last_bit():
    task = make("walker2d")
    env, engine = task.env, task.env.engine
    params = jax.tree.map(jnp.asarray, task.params)
    obs, state = jax.jit(env.reset)(jax.random.key(3), params)
    rows = np.asarray(state.row).view(np.float64)[None]
    step = jax.jit(env.step)
    for i in range(30):
        action = np.random.default_rng(i).uniform(-1, 1, 6).astype(np.float32)
        obs, state, *_ = step(jax.random.key(0), state, jnp.asarray(action), params)
        ours = engine.step(rows, action[None], NOMINAL)
        rows = ours.rows
        np.testing.assert_array_equal(np.asarray(state.row).view(np.float64), rows[0])
        np.testing.assert_array_equal(obs, ours.obs[0].astype(np.float32))


def test_which_batch_serves_a_call_changes_nothing():
    engine = engine_of("halfcheetah")
    rows, action = start(engine, 2), np.zeros((2, 6))
    light, heavy = params_of(np.full((2, 3), 0.8)), params_of(np.full((2, 3), 1.2))
    first = engine.step(rows, action, light)
    engine.step(first.rows, action, heavy)
    with engine._simulations(2, heavy):  # the only Batch there is is busy: another one is made
        again = engine.step(rows, action, light)
    for other in (again, engine.step(rows, action, light), engine_of("halfcheetah").step(rows, action, light)):
        np.testing.assert_array_equal(first.rows, other.rows)


def test_more_copies_than_jax_hands_over_in_one_piece():
    """Large arguments of a callback are copied by threads that may all be waiting for a callback."""
    task = make("halfcheetah", time_limit=3)
    env, params = task.env, jax.tree.map(jnp.asarray, task.params)
    mesh = Mesh(np.array(jax.devices()[:2]), axis_names=("runs",))
    spec = PartitionSpec("runs")

    def run(words):
        _, state = jax.vmap(env.reset, (0, None))(jax.random.wrap_key_data(words), params)

        def one(words, state):
            key = jax.random.wrap_key_data(words)
            return env.autoreset(key, jax.random.fold_in(key, 1), state, jnp.zeros(6), params)[1]

        step = jax.vmap(one)
        return jax.lax.scan(lambda state, _: (step(words, state), None), state, length=4)[0].time

    words = jax.random.key_data(jax.random.split(jax.random.key(0), 600))
    times = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))(words)
    np.testing.assert_array_equal(times, np.ones(600))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine": "bullet"}, "engine must be one of auto, mujoco, mjx, warp; got 'bullet'"),
        ({"observation": "v3"}, "observation must be one of v5, v4; got 'v3'"),
        ({"channels": ("body_mas",)}, "did you mean 'body_mass'"),
        ({"channels": ("hard", "leg_gain")}, "one or more different names of .*, target_velocity, hard; got"),
        ({"channels": ("body_mass=heavy",)}, "such as body_mass=0.5:1.5, each once; got body_mass=heavy"),
        ({"channels": ("body_mass=0.1:2",)}, "must lie in 0.25 to 4, contain .* got 0.1:2"),
        ({"gravity": 1}, "task 'hopper' has the options"),
    ],
)
def test_wrong_options_are_named(options, text):
    with pytest.raises((ValueError, KeyError), match=text):
        envs.make("hopper", **options)


def test_loading_a_model_says_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    model.load.cache_clear()
    CEnv(LocomotionTask(TASKS["halfcheetah"]))
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())

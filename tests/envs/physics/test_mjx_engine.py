"""MJX and MuJoCo Warp against the C engine, in the same states, under the same actions and drift factors."""

import copy
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.core import step_with_keys
from envs.mujoco import TASKS, model
from envs.mujoco.locomotion import MujocoParams
from envs.physics.fields import FACTORS as ALL_FACTORS
from envs.physics.fields import scaled_fields
from envs.physics.mjx_engine import DERIVED, Derived, MjxState
from tests.envs.physics.common import FACTORS, engine_of
from tests.envs.physics.common import params_of as params64

N = 8
STEPS = 20
#: Every task once, for they compile for long; Hopper always, the others in `make test-all`. Ant and Humanoid are on
#: MJX, as Warp turns the friction pyramid of a capsule that stands steeply on the floor, which the C engine does not.
ENGINES = {"hopper": "mjx", "halfcheetah": "warp", "walker2d": "warp", "ant": "mjx", "humanoid": "mjx"}


def mostly_slow(*names):
    """Pairs of a task and its engine."""
    return [
        pytest.param(
            name, ENGINES[name], id=f"{name}-{ENGINES[name]}", marks=() if name == "hopper" else pytest.mark.slow
        )
        for name in names
    ]


#: Largest difference, relative to 1 + |value|, (from equal states, after 20 steps of their own). What remains is
#: float32: HalfCheetah, of stiff springs, is chaotic enough for the C engine to differ from itself by 6e-4 after 20
#: steps when its state is rounded to float32. Ant shows its contact forces, newtons of a body that lands, and Humanoid
#: those of another solver.
PARITY = {
    "hopper": (1e-4, 1e-4),
    "halfcheetah": (1e-3, 0.2),
    "walker2d": (1e-3, 1e-3),
    "ant": (1e-3, 5e-3),
    "humanoid": (2e-2, 2e-2),
}


def random_states(engine, rng, steps=10):
    """Rows (N, R) of copies that have come down to the floor."""
    noise = rng.uniform(-1, 1, (N, engine.model.nq + engine.model.nv))
    _, rows = engine.start(noise, params64(np.ones((N, 3))))
    for _ in range(steps):
        rows = engine.step(rows, rng.uniform(-1, 1, (N, engine.model.nu)), params64(np.ones((N, 3)))).rows
    return rows


def state_of(engine, rows):
    """Rows of the C engine as states of MJX."""
    data, names, states = mujoco.MjData(engine.model), ("qpos", "qvel", "qacc_warmstart"), []
    for row in rows:
        mujoco.mj_setState(engine.model, data, row[:-1], engine.spec)
        states.append([getattr(data, name).astype(np.float32) for name in names])
    parts = [jnp.stack(column) for column in zip(*states, strict=True)]
    obs, zero = jnp.zeros((len(rows), engine.task.obs_size), jnp.float32), jnp.zeros(len(rows), jnp.int32)
    return MjxState(*parts, jnp.asarray(rows[:, -1:], jnp.float32), obs, zero, zero)


def params_of(factors, gain=1.0):
    """Parameters with leading axes (n,) from factors (n, 3), and on the torque of one leg."""
    columns = [jnp.asarray(column, jnp.float32) for column in factors.T]
    ones = jnp.ones(len(factors), jnp.float32)
    return MujocoParams(*columns, 0.0 * ones, gain * ones, ones)


@functools.cache
def pair_of(name, compiled):
    """The C engine and a compiled one, with its step of N copies, each with its own parameters."""
    if compiled == "warp":
        pytest.importorskip("warp", reason="an extra, which `make test-all` installs")
    task = envs.make(name, engine=compiled, channels=("body_mass", "leg_gain"))
    engine = engine_of(name, weakens=True)

    def one(key, state, action, params):
        return step_with_keys(task.env, jax.random.clone(key), key, state, action, params)

    step = jax.jit(jax.vmap(one))
    return SimpleNamespace(
        name=name,
        task=task,
        engine=engine,
        rows=random_states(engine, np.random.default_rng(1)),
        step=lambda *args: step(jax.random.split(jax.random.key(0), N), *args),
    )


@pytest.fixture(
    scope="module", params=["hopper", *(pytest.param(n, marks=pytest.mark.slow) for n in ("halfcheetah", "ant"))]
)
def pair(request):
    return pair_of(request.param, ENGINES[request.param])


def actions(pair, seed):
    return np.random.default_rng(seed).uniform(-1, 1, (N, pair.engine.model.nu)).astype(np.float32)


def difference(ours, theirs):
    return np.max(np.abs(np.asarray(ours) - theirs) / (1 + np.abs(theirs)))


@pytest.mark.parametrize(("name", "compiled"), mostly_slow(*TASKS))
def test_random_actions_give_the_numbers_of_the_c_engine(name, compiled):
    pair = pair_of(name, compiled)
    params, ones, rows = params_of(np.ones((N, 3))), params64(np.ones((N, 3))), pair.rows
    own, single, free, ended = state_of(pair.engine, rows), 0.0, 0.0, np.zeros(N, bool)
    for k in range(STEPS):
        action = actions(pair, k)
        theirs = pair.engine.step(rows, action, ones)
        _, _, reward, terminated, _, info = pair.step(state_of(pair.engine, rows), action, params)
        single = max(single, difference(info["final_observation"], theirs.obs), difference(reward, theirs.reward))
        np.testing.assert_array_equal(terminated, theirs.terminated)
        _, own, reward, terminated, _, info = pair.step(own, action, params)
        going = ~ended
        free = max(free, difference(info["final_observation"][going], theirs.obs[going]))
        ended |= np.asarray(terminated)  # that copy starts anew; the C engine's goes on
        rows = theirs.rows
    assert single < PARITY[name][0]
    assert free < PARITY[name][1]
    assert not ended.all()


@pytest.mark.parametrize("factor", [*FACTORS, "leg_gain"])
def test_drift_changes_a_step_as_it_does_in_the_c_engine(pair, factor):
    factors, gains = np.ones((N, 3)), np.ones(N, np.float32)
    if factor == "leg_gain":
        gains = np.linspace(0.25, 1.0, N, dtype=np.float32)
    else:
        factors[:, FACTORS.index(factor)] = np.linspace(0.7, 1.3, N)
    action, nominal = actions(pair, 99), np.ones((N, 3))
    effects = []
    for values, gain in ((nominal, 1.0), (factors, gains)):
        theirs = pair.engine.step(pair.rows, action, params64(values, gain=gain)).obs
        info = pair.step(state_of(pair.engine, pair.rows), action, params_of(values, gain))[-1]
        effects.append((np.asarray(info["final_observation"]), theirs))
    ours, theirs = (after - before for before, after in zip(*effects, strict=True))
    size = np.abs(theirs).max()
    assert size > 1e-4
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-3 * size + 1e-4)


def test_a_broken_copy_is_counted_and_reset_and_harms_nobody():
    pair = pair_of("hopper", "mjx")
    params, action = params_of(np.ones((N, 3))), actions(pair, 3)
    good = state_of(pair.engine, pair.rows)
    good = good._replace(obs=jnp.full_like(good.obs, 7.0), time=good.time + 5)
    obs, state, reward, terminated, truncated, info = pair.step(
        good._replace(qvel=good.qvel.at[2, 0].set(jnp.nan)), action, params
    )
    expected = pair.step(good, action, params)
    assert (reward[2], terminated[2], truncated[2]) == (0, False, True)
    np.testing.assert_array_equal(info["final_observation"][2], good.obs[2])
    assert all(np.isfinite(np.asarray(x)).all() for x in (obs, *state))
    np.testing.assert_array_equal(state.faults, np.eye(N, dtype=int)[2])
    np.testing.assert_array_equal(np.asarray(state.time)[[1, 2]], [6, 0])
    others = np.arange(N) != 2
    np.testing.assert_allclose(np.asarray(obs)[others], np.asarray(expected[0])[others], rtol=1e-5, atol=1e-5)
    again = pair.step(state._replace(qpos=state.qpos.at[2].set(jnp.inf)), action, params)[1]
    assert again.faults[2] == 2  # the count outlives the episode


@pytest.mark.parametrize("name", TASKS)
def test_derived_constants_are_those_mujoco_computes(name):
    compiled = model.load(TASKS[name].xml)
    derived = jax.jit(Derived(compiled, ALL_FACTORS["body_mass"]))
    scaled, data = copy.deepcopy(compiled), mujoco.MjData(compiled)
    for factor in (0.3, 0.7, 0.93, 1.21, 1.5, 3.0):
        for field, value in scaled_fields(compiled, ALL_FACTORS["body_mass"], np.float64(np.float32(factor))).items():
            getattr(scaled, field)[:] = value
        mujoco.mj_setConst(scaled, data)
        ours = derived(jnp.float32(factor))
        for field in DERIVED:
            np.testing.assert_allclose(ours[field], getattr(scaled, field), rtol=3e-6, atol=1e-9)
    ours = derived(jnp.float32(1.0))
    for field in DERIVED:
        np.testing.assert_array_equal(ours[field], getattr(compiled, field).astype(np.float32))

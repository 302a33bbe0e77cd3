import copy

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv, register
from envs.physics.host import Packed
from tests.envs.adapters.same import same

N, STEPS = 3, 200  # a change every 40 steps; an episode of the toy takes 50


def true_drift(task, pattern, steps, total, seed=0):
    """Drift values at steps 0, 1, ... , steps - 1, (steps, D)."""
    drawn, index = envs.draw(task, seed), envs.pattern_index(pattern)
    at = jax.jit(jax.vmap(lambda step: envs.truth(task.channels, index, drawn, step, total).values))
    return np.asarray(at(jnp.arange(steps)))


@pytest.fixture(scope="module")
def toy():
    return DriftingVectorEnv("toy", "abrupt", drift_steps=STEPS, num_envs=N, drift_seed=4)


def rollout(env, seed, steps):
    """Results of ``reset`` and of ``steps`` steps with seeded actions."""
    rng = np.random.default_rng(0)
    shape = env.action_space.shape
    first = env.reset(seed=seed)
    return first, [env.step(rng.uniform(-1, 1, shape).astype(np.float32)) for _ in range(steps)]


# Both are what unbounded observations are; Gymnasium's own MuJoCo environments get the same two warnings.
@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*imum value is -?infinity")
@pytest.mark.parametrize("name", ["toy", "hopper"])
def test_gymnasiums_checker_passes_by_id(name):
    register()
    env = gymnasium.make(f"aesjax/{name}-abrupt-v0", drift_steps=1000)
    assert env.spec is not None
    check_env(env.unwrapped)


def test_ids_of_all_tasks_and_patterns_are_registered_once():
    ids = register()
    assert len(set(ids)) == len(envs.TASKS) * len(envs.PATTERNS)
    assert ids == register()  # a second time overrides nothing, of which Gymnasium would warn
    many = gymnasium.make_vec("aesjax/toy-linear-v0", num_envs=2, drift_steps=100, autoreset_mode="NextStep")
    assert isinstance(many, DriftingVectorEnv)
    assert (many.num_envs, many.metadata["autoreset_mode"]) == (2, AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_the_horizon_of_an_id_is_that_of_each_copy_however_they_are_made(mode):
    """Drift that jumps after 2 steps; the reported drift is the one in force, not the argument."""
    env = gymnasium.make_vec("aesjax/toy-abrupt-v0", N, mode, drift_steps=10, drift_seed=4)
    env.reset(seed=0)
    drift = np.array([env.step(env.action_space.sample())[4]["drift"] for _ in range(6)])
    true = true_drift(envs.make("toy"), "abrupt", 6, 10, 4)
    np.testing.assert_allclose(drift, np.tile(true[:, None], (1, N, 1)), atol=1e-6)
    assert np.flatnonzero(np.abs(np.diff(true, axis=0)).sum(axis=1)).tolist() == [1, 3]


def test_spaces_shapes_and_types(toy):
    assert toy.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert toy.single_observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert toy.single_action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    assert toy.observation_space.shape == toy.action_space.shape == (N, 2)
    obs, _ = toy.reset(seed=0)
    assert obs in toy.observation_space
    for _ in range(2):
        obs, reward, terminated, truncated, _ = toy.step(toy.action_space.sample())
        assert obs in toy.observation_space
        assert reward.shape == terminated.shape == truncated.shape == (N,)
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, bool, bool)
        obs[:], reward[:] = 0, 0  # ours to write to


def test_infos_are_those_of_gymnasiums_own_same_step_vector_environment(toy):
    """Keys, types and shapes at a reset, at a step in mid-episode and at an episode's end."""
    single = DriftingEnv("toy", "abrupt", drift_steps=STEPS, drift_seed=4)
    theirs = SyncVectorEnv([lambda: copy.deepcopy(single)] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    (_, ours_first), ours = rollout(toy, 0, 50)
    (_, their_first), other = rollout(theirs, 0, 50)

    def form(value):
        if isinstance(value, dict):
            return {key: form(entry) for key, entry in value.items()}
        if value.dtype == object:
            return [None if entry is None else form(entry) for entry in value]
        return value.shape, value.dtype.kind

    assert form(ours_first) == form(their_first)
    for mine, their in zip(ours, other, strict=True):
        assert form(mine[4]) == form(their[4])
        assert same(mine[2:4], their[2:4])
        assert same(
            {k: v for k, v in mine[4].items() if k[0] == "_"}, {k: v for k, v in their[4].items() if k[0] == "_"}
        )
    assert "final_obs" in ours[-1][4]
    assert same(ours[-1][4]["final_info"]["drift"], other[-1][4]["final_info"]["drift"])


def test_a_seed_fixes_everything_and_begins_a_new_run(toy):
    once, again, other = rollout(toy, 7, 60), rollout(toy, 7, 60), rollout(toy, 8, 60)
    assert same(once, again)
    assert not same(once[0][0], other[0][0])
    np.testing.assert_array_equal(once[1][-1][4]["drift_step"], 59)
    toy.reset(seed=7)
    unseeded = [toy.reset()[0] for _ in range(2)]
    toy.reset(seed=7)
    assert same(unseeded, [toy.reset()[0] for _ in range(2)])
    assert not same(*unseeded)


def test_the_drift_in_infos_is_the_true_one_and_no_reset_stops_the_clock(toy):
    task = envs.make("toy")
    jumps = []
    first, steps = rollout(toy, 0, 45)
    assert toy.reset()[1]["drift_step"][0] == 45  # a plain reset leaves the clock alone
    steps += [toy.step(toy.action_space.sample()) for _ in range(160)]
    true = true_drift(task, "abrupt", len(steps), STEPS, 4)
    for at, infos in enumerate([entry[4] for entry in steps]):
        np.testing.assert_array_equal(infos["drift_step"], np.full(N, at))
        np.testing.assert_array_equal(infos["_drift"], True)
        np.testing.assert_allclose(infos["drift"], np.tile(true[at], (N, 1)), atol=1e-6)
        if at and not same(infos["drift"], steps[at - 1][4]["drift"]):
            jumps.append(at)
    assert jumps == [40, 80, 120, 160]  # and past the horizon of 200 nothing more
    assert toy.reset(options={"restart_drift": True})[1]["drift_step"][0] == 0
    toy.step(toy.action_space.sample())
    assert toy.reset(seed=1, options={"restart_drift": False})[1]["drift_step"][0] == 1
    assert first[1]["drift_step"][0] == 0


def test_a_reset_mask_resets_only_those_copies(toy):
    _, steps = rollout(toy, 0, 10)
    mask = np.array([False, True, False])
    obs, infos = toy.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal((obs == steps[-1][0]).all(axis=1), ~mask)
    np.testing.assert_array_equal(infos["_drift"], mask)
    ends = [toy.step(np.zeros((N, 2), np.float32))[3] for _ in range(40)]
    np.testing.assert_array_equal(ends[-1], ~mask)  # the others are 50 steps into their episodes


def test_hopper_without_drift_is_gymnasiums_hopper_from_the_same_state():
    ours = DriftingEnv("hopper", "steady", drift_steps=1000, engine="mujoco")
    theirs = gymnasium.make("Hopper-v5").unwrapped
    theirs.reset(seed=0)
    obs, _ = ours.reset(seed=2)
    engine = ours._copies.task.env.engine
    rows, _ = Packed.split(np.asarray(ours._copies.state.row), engine.row_size)
    mujoco.mj_setState(theirs.model, theirs.data, rows[0, :-1], engine.spec)
    np.testing.assert_allclose(obs, theirs._get_obs(), atol=1e-6)
    rng, steps, ended = np.random.default_rng(0), 0, False
    while not ended:
        action = rng.uniform(-1, 1, 3).astype(np.float32)
        obs, reward, terminated, truncated, info = ours.step(action)
        expected, their_reward, ended, _, _ = theirs.step(action)  # Hopper's own controls are in [-1, 1], too
        np.testing.assert_allclose(obs, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(reward, their_reward, rtol=1e-5, atol=1e-5)
        assert (terminated, truncated) == (ended, False)
        np.testing.assert_array_equal(info["drift"], [1.0, 1.0])
        steps += 1
    assert steps > 10
    theirs.close()


def test_errors_say_what_is_allowed(toy):
    with pytest.raises(ValueError, match="restart_drift and reset_mask; got restart"):
        toy.reset(options={"restart": True})
    with pytest.raises(ValueError, match=r"shape \(3, 2\)"):
        toy.step(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="at least one True"):
        toy.reset(options={"reset_mask": np.zeros(N, bool)})
    with pytest.raises(ValueError, match="a task given by name"):
        DriftingEnv(envs.make("toy_multigoal_classic"), "steady", drift_steps=50, engine="mjx")
    with pytest.raises(ValueError, match=r"positive multiple of segments = 5.*got 101"):
        DriftingVectorEnv("toy", "steady", drift_steps=101)
    with pytest.raises(ValueError, match="num_envs must be 1 or more; got 0"):
        DriftingVectorEnv("toy", "steady", num_envs=0)
    with pytest.raises(ValueError, match="takes drift_steps, steps of each copy; got total_steps"):
        DriftingVectorEnv("toy", "steady", total_steps=100)
    with pytest.raises(ValueError, match="'human'"):
        DriftingEnv("toy", "steady", render_mode="human")
    with pytest.raises(envs.UnknownNameError, match="unknown pattern"):
        DriftingEnv("toy", "abrup", drift_steps=100)
    fresh = DriftingVectorEnv("toy", "steady", drift_steps=100, num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        fresh.step(np.zeros((2, 2), np.float32))
    with pytest.raises(gymnasium.error.ResetNeeded):
        fresh.reset(options={"reset_mask": np.array([True, False])})
    fresh.close()
    fresh.close()
    assert fresh.closed

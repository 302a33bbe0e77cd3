"""The Gymnasium adapters: the checker, ids, seeds, the drift clock, the three reset modes, evaluations and copies."""

import copy

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv, register
from envs.patterns import compiled as patterns_of
from envs.world import World
from experiments import Study

N, STEPS = 3, 200  # a change every 40 steps; an episode of the toy takes 50
STILL = np.zeros((N, 2), np.float32)


def same(left, right):
    """Whether two nested results are equal, object arrays included."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray) and left.dtype == object:
        return all(map(same, left, right))
    return np.array_equal(left, right)


def true_drift(pattern, steps, total, seed=0):
    """Drift values of the toy at steps 0, 1, ... , steps - 1, (steps, D)."""
    task = envs.make("toy")
    world = World(task, total, patterns=patterns_of([pattern]))
    return np.asarray(jax.jit(world.path)(world.drift(pattern, seed), jnp.arange(steps))[0])


@pytest.fixture(scope="module")
def compiled():
    """Never stepped itself, so that its deep copies are new environments without a new compilation."""
    return DriftingVectorEnv("toy", "abrupt", drift_steps=STEPS, num_envs=N, drift_seed=4)


@pytest.fixture
def toy(compiled):
    return copy.deepcopy(compiled)


@pytest.fixture
def training(toy):
    toy.reset(seed=0)
    for _ in range(60):
        toy.step(STILL)
    return toy


def rollout(env, seed, steps):
    """Results of ``reset`` and of ``steps`` steps with seeded actions."""
    rng = np.random.default_rng(0)
    first = env.reset(seed=seed)
    return first, [env.step(rng.uniform(-1, 1, (N, 2)).astype(np.float32)) for _ in range(steps)]


# --- single environments and ids


# Both are what unbounded observations are; Gymnasium's own MuJoCo environments get the same two warnings.
@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*imum value is -?infinity")
@pytest.mark.parametrize("name", ["toy", "grid", "hopper"])
def test_gymnasiums_checker_passes_by_id(name):
    register()
    check_env(gymnasium.make(f"aesjax/{name}-abrupt-v0", drift_steps=1000).unwrapped)


def test_ids_of_all_tasks_patterns_and_protocols_are_registered_once():
    ids = register()
    drifting = {f"aesjax/{task}-{pattern}-v0" for task in envs.TASKS for pattern in envs.PATTERNS}
    assert set(ids) == drifting | {f"aesjax/{name}" for name in envs.PROTOCOLS}
    assert len(ids) == len(set(ids))
    assert ids == register()  # a second time overrides nothing, of which Gymnasium would warn


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_the_horizon_of_an_id_is_that_of_each_copy_however_they_are_made(mode):
    """Drift that jumps after 2 steps; the reported drift is the one in force, not the argument."""
    env = gymnasium.make_vec("aesjax/toy-abrupt-v0", N, mode, drift_steps=10, drift_seed=4)
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    drift = np.array([env.step(env.action_space.sample())[4]["drift"] for _ in range(6)])
    true = true_drift("abrupt", 6, 10, 4)
    np.testing.assert_allclose(drift, np.tile(true[:, None], (1, N, 1)), atol=1e-6)
    assert np.flatnonzero(np.abs(np.diff(true, axis=0)).sum(axis=1)).tolist() == [1, 3]


# --- published protocols


def friction_in_force(env):
    """Sliding friction of every geom in the model of the first copy, whose nominal value is 1 in Ant."""
    (simulations,) = env.unwrapped._copies.task.env.engine._free[env.unwrapped._copies.num_envs]
    return simulations.fields["geom_friction"][0, :, 0]


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*imum value is -?infinity")
def test_a_published_protocol_is_an_environment_whose_model_drifts_by_its_period():
    env = gymnasium.make("aesjax/SlipperyAnt-v0", period=20)
    check_env(env.unwrapped)
    env.reset(seed=0)
    values = []
    for step in range(50):
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        if step in (0, 19, 20, 49):
            values.append(float(info["drift"][0]))
            np.testing.assert_allclose(friction_in_force(env), values[-1], rtol=1e-6)
        if terminated or truncated:
            env.reset()
    assert values[0] == values[1]
    assert len(set(values)) == 3
    assert all(0.02 <= value <= 2.0 for value in values)


def test_the_period_of_a_protocol_counts_the_steps_of_all_copies():
    env = gymnasium.make_vec("aesjax/AESToy-v0", N, period=20)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    env.reset(seed=0)
    drift = np.array([env.step(STILL)[4]["drift"][0] for _ in range(30)])
    assert np.flatnonzero(np.abs(np.diff(drift, axis=0)).sum(axis=1)).tolist() == [5, 11, 17, 23]  # 20 // 3 steps each
    published = gymnasium.make_vec("aesjax/SlipperyAnt-v0", 8)
    assert published.unwrapped._copies.program.world.timeline.total == 20_000_000 // 8
    for wrong in ({"period": 2}, {"period": 100, "drift_steps": 500}):
        with pytest.raises(ValueError, match="period, the steps of a segment"):
            gymnasium.make_vec("aesjax/AESToy-v0", N, **wrong)


@pytest.mark.parametrize("name", envs.PROTOCOLS)
def test_every_protocol_is_the_same_as_an_environment_and_as_a_study(name):
    """The task, its channels and the drift at the ends of segments."""
    protocol, config = envs.PROTOCOLS[name], Study(protocol=name, methods="sac", seeds=1).config
    env = gymnasium.make(f"aesjax/{name}", drift_seed=1).unwrapped
    world = env._copies.program.world
    assert (config.task, config.steps, config.segments) == (protocol.task, protocol.steps, protocol.segments)
    assert config.patterns == protocol.patterns
    assert config.build_task().channels == world.task.channels
    assert config.build_task().env.spec == world.task.env.spec
    assert (world.timeline.total, world.segments) == (protocol.steps, protocol.segments)


def test_discrete_actions_are_numbers_of_the_tasks_choices():
    env = DriftingVectorEnv("grid", "steady", drift_steps=100, num_envs=2, drift=(0.0, 0.0, 0.0))
    assert env.single_action_space == gymnasium.spaces.Discrete(5)
    moves = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]) / 3.0
    obs, _ = env.reset(seed=1)
    for actions in np.array([[1, 2], [0, 3], [4, 4]]):
        expected = np.clip(obs + moves[actions], -1.0, 1.0)
        obs, *_ = env.step(actions)
        np.testing.assert_allclose(obs, expected, atol=1e-6)


# --- the vector environment


def test_a_seed_fixes_everything_and_begins_a_new_run(toy):
    once, again, other = rollout(toy, 7, 60), rollout(toy, 7, 60), rollout(toy, 8, 60)
    assert same(once, again)
    assert not same(once[0][0], other[0][0])
    obs, reward, terminated, truncated, infos = once[1][-1]
    assert [x.dtype for x in (obs, reward, terminated, truncated)] == [np.float32, np.float64, bool, bool]
    np.testing.assert_array_equal(infos["drift_step"], 59)
    toy.reset(seed=7)
    unseeded = [toy.reset()[0] for _ in range(2)]
    toy.reset(seed=7)
    assert same(unseeded, [toy.reset()[0] for _ in range(2)])
    assert not same(*unseeded)


def test_an_onset_and_random_changes_are_those_of_the_task():
    env = DriftingVectorEnv("toy", "abrupt", drift_steps=100, num_envs=2, drift_seed=3, onset=0.4, changes="random")
    env.reset(seed=0)
    drift = np.stack([env.step(np.zeros((2, 2), np.float32))[-1]["drift"][0] for _ in range(100)])
    world = World(envs.make("toy"), 100, onset=0.4, changes="random", patterns=patterns_of(["abrupt"]))
    np.testing.assert_allclose(drift, world.path(world.drift("abrupt", 3), jnp.arange(100))[0], atol=1e-6)
    changes = 1 + np.flatnonzero(np.diff(drift, axis=0).any(1))
    assert len(changes) == 4
    assert np.diff([40, *changes, 100]).min() >= 3
    with pytest.raises(ValueError, match="onset must be a share of the run"):
        DriftingVectorEnv("toy", "abrupt", drift_steps=100, onset=1.5)


def test_the_drift_in_infos_is_the_true_one_and_no_reset_stops_the_clock(toy):
    _, steps = rollout(toy, 0, 45)
    assert toy.reset()[1]["drift_step"][0] == 45  # a plain reset leaves the clock alone
    steps += [toy.step(toy.action_space.sample()) for _ in range(160)]
    drift = np.array([step[4]["drift"] for step in steps])
    np.testing.assert_array_equal([step[4]["drift_step"] for step in steps], np.tile(np.arange(205)[:, None], (1, N)))
    np.testing.assert_allclose(drift, np.tile(true_drift("abrupt", 205, STEPS, 4)[:, None], (1, N, 1)), atol=1e-6)
    jumps = np.flatnonzero(np.abs(np.diff(drift[:, 0], axis=0)).sum(axis=1)) + 1
    assert jumps.tolist() == [40, 80, 120, 160]  # and past the horizon of 200 nothing more
    assert toy.reset(options={"restart_drift": True})[1]["drift_step"][0] == 0
    toy.step(toy.action_space.sample())
    assert toy.reset(seed=1, options={"restart_drift": False})[1]["drift_step"][0] == 1


def test_a_reset_mask_resets_only_those_copies(toy):
    _, steps = rollout(toy, 0, 10)
    mask = np.array([False, True, False])
    obs, infos = toy.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal((obs == steps[-1][0]).all(axis=1), ~mask)
    np.testing.assert_array_equal(infos["_drift"], mask)
    ends = [toy.step(STILL)[3] for _ in range(40)]
    np.testing.assert_array_equal(ends[-1], ~mask)  # the others are 50 steps into their episodes


class Counting:
    """Observes how many steps its episode has; an action above 0 ends it."""

    spec = envs.EnvSpec(1, 1, 100)

    def reset(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step(self, key, state, action, params):
        state = state + 1
        obs = state[None].astype(jnp.float32)
        return obs, state, 10 + obs[0], action[0] > 0, jnp.zeros((), bool), {"time": state}


COUNTING = envs.make("toy")._replace(name="counting", env=Counting(), params=None, apply_drift=lambda params, _: params)
ENDS = np.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, -1, -1], [1, 1, 1], [-1, -1, -1], [-1, -1, 1]])


def counting(mode):
    return DriftingVectorEnv(COUNTING, "abrupt", drift_steps=50, num_envs=N, autoreset_mode=mode)


def played(env, mode):
    """A reset and every step of ``ENDS``; ended copies are reset by mask where nothing else does it."""
    results = [env.reset(seed=0)]
    for ends in ENDS:
        results.append(env.step(ends[:, None].astype(np.float32)))
        ended = results[-1][2] | results[-1][3]
        if mode is AutoresetMode.DISABLED and ended.any():
            results.append(env.reset(options={"reset_mask": ended}))
    return results


def without_clock(result):
    """Copies of `SyncVectorEnv` have clocks of their own, which stand still while they are reset in place of a step."""
    if isinstance(result, dict):
        return {k: without_clock(v) for k, v in result.items() if k != "drift_step"}
    return [without_clock(entry) for entry in result] if isinstance(result, list | tuple) else result


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_each_mode_is_that_of_gymnasiums_own_vector_environment(mode):
    single = DriftingEnv(COUNTING, "abrupt", drift_steps=50)  # its deep copies share its compiled step
    copies = [lambda: copy.deepcopy(single)] * N
    ours, theirs = played(counting(mode), mode), played(SyncVectorEnv(copies, autoreset_mode=mode), mode)
    assert len(ours) > len(ENDS)
    for mine, other in zip(without_clock(ours), without_clock(theirs), strict=True):
        assert same(mine, other)


def test_without_autoreset_an_episode_that_is_over_must_be_reset():
    env = counting(AutoresetMode.DISABLED)
    env.reset(seed=0)
    action = np.array([[-1], [1], [1]], np.float32)
    env.step(action)
    with pytest.raises(gymnasium.error.ResetNeeded, match="copies 1, 2 are over; reset them with reset_mask"):
        env.step(action)
    env.reset(options={"reset_mask": np.array([False, True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match="copies 2 are over"):
        env.step(action)
    env.reset()
    np.testing.assert_array_equal(env.step(action)[0][:, 0], [1, 1, 1])
    single = DriftingEnv(COUNTING, "steady", drift_steps=50)
    single.reset(seed=0)
    single.step(action[1])
    with pytest.raises(gymnasium.error.ResetNeeded, match="are over; call reset"):
        single.step(action[1])


# --- evaluations and copies


def test_an_evaluation_is_under_the_drift_in_force_and_does_not_move_it(training):
    ahead = copy.deepcopy(training)
    evaluation = training.evaluation()
    _, infos = evaluation.reset(seed=5)
    in_force = infos["drift"][0]
    for _ in range(100):  # two episodes, beyond the next change of the run
        _, _, _, truncated, infos = evaluation.step(STILL)
        np.testing.assert_array_equal(infos["drift"], np.tile(in_force, (N, 1)))
        np.testing.assert_array_equal(infos["drift_step"], 60)
    assert truncated.all()
    assert same([training.step(STILL) for _ in range(2)], [ahead.step(STILL) for _ in range(2)])  # as if there was none


def test_an_evaluation_at_given_drift_has_its_rewards(training):
    evaluation = training.evaluation(drift=(0.3, -0.1))
    evaluation.reset(seed=2)
    goals = training._copies.task.params.goals + np.array([0.3, -0.1])
    obs, reward, _, _, infos = evaluation.step(STILL)
    np.testing.assert_allclose(infos["drift"], np.tile([0.3, -0.1], (N, 1)), rtol=1e-6)
    bumps = training._copies.task.params.weights * np.exp(-np.sum((obs[:, None] - goals) ** 2, axis=-1) / 0.08)
    np.testing.assert_allclose(reward, bumps.max(axis=-1), rtol=1e-5)


def test_a_deep_copy_goes_on_alike_and_apart(training):
    evaluation = training.evaluation()
    evaluation.reset(seed=1)
    twin, twins_evaluation = copy.deepcopy((training, evaluation))
    assert same([training.step(STILL) for _ in range(30)], [twin.step(STILL) for _ in range(30)])
    for _ in range(30):  # past a change
        training.step(STILL)
    steps = [env.step(STILL)[4]["drift_step"][0] for env in (evaluation, twins_evaluation, twin)]
    assert steps == [120, 90, 90]
    assert not same(training.reset()[0], twin.reset()[0])  # their keys have parted


REFUSED = [
    (lambda toy: toy.reset(options={"restart": True}), "restart_drift and reset_mask; got restart"),
    (lambda toy: toy.step(np.zeros(2, np.float32)), r"shape \(3, 2\)"),
    (lambda toy: toy.step(STILL + np.nan), "must be finite numbers"),
    (lambda toy: toy.reset(options={"reset_mask": np.zeros(N, bool)}), "at least one True"),
    (lambda toy: toy.evaluation().reset(options={"restart_drift": True}), "follows the drift of another environment"),
    (lambda toy: toy.evaluation(drift=(0.1, np.nan)), r"drift of task 'toy' is 2 numbers \(goal_offset, goal_offset\)"),
    (lambda toy: toy.evaluation(num_envs=0), "num_envs must be 1 or more"),
    (lambda toy: DriftingEnv(COUNTING, "steady", drift_steps=50, engine="mjx"), "a task given by name"),
    (lambda toy: DriftingVectorEnv("toy", "steady", drift_steps=101), "positive multiple of segments = 5.*got 101"),
    (lambda toy: DriftingVectorEnv("toy", "steady", total_steps=100), "takes drift_steps, steps of each copy; got"),
    (lambda toy: DriftingEnv("toy", "steady", render_mode="human"), "'human'"),
    (lambda toy: counting("next"), r"autoreset_mode must be one of NextStep, SameStep, Disabled; got 'next'"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=range(len(REFUSED)))
def test_errors_say_what_is_allowed(training, call, text):
    with pytest.raises(ValueError, match=text):
        call(training)


def test_an_environment_must_be_reset_first_and_closes_twice(toy):
    for call in (lambda: toy.step(STILL), lambda: toy.reset(options={"reset_mask": np.array([True, False, False])})):
        with pytest.raises(gymnasium.error.ResetNeeded):
            call()
    toy.close()
    toy.close()
    assert toy.closed


def test_gymnasium_limits_the_episodes_of_many_environments():
    env = gymnasium.make_vec("aesjax/toy_multigoal_classic-steady-v0", N, max_episode_steps=3, drift_steps=100)
    env.reset(seed=1)
    ended = [env.step(np.zeros((N, 2)))[3].tolist() for _ in range(3)]
    assert ended == [[False] * N, [False] * N, [True] * N]

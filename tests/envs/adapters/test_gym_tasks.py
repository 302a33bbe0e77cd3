"""Gymnasium environments as tasks: their own steps bit for bit, drift that is read back, states of other processes."""

import pickle

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from jax.sharding import Mesh

import aesjax
import envs
from agents import make_train
from envs.adapters.gym_tasks import from_gymnasium
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from experiments import Study


class Push(gymnasium.Env):
    """A point on a line, which a push of strength ``gain`` moves; it observes the gain in force, too."""

    observation_space, action_space = Box(-9.0, 9.0, (2,)), Box(-2.0, 2.0, (1,))

    def __init__(self):
        self.gain, self.x = 1.0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.gain = 1.0  # undoes the drift
        self.x = self.np_random.uniform(-1.0, 1.0)
        return np.array([self.x, self.gain], np.float32), {}

    def step(self, action):
        self.x = np.clip(self.x + 0.2 * self.gain * action[0], -3.0, 3.0)
        return np.array([self.x, self.gain], np.float32), -abs(self.x), bool(abs(self.x) >= 3.0), False, {}


class Told(Push):
    """The same point with `set_drift` instead of an attribute that drifts."""

    def set_drift(self, values):
        self.gain = values["push"]
        return values


class Wind(Push):
    """The same point, which a vector moves, too; all copies share its first array."""

    wind = np.ones(2, np.float32)

    def reset(self, **options):
        self.x = super().reset(**options)[0][0]
        return np.array([self.x, *self.wind], np.float32), {}

    def step(self, action):
        _, *rest = super().step(action)
        return np.array([self.x, *self.wind], np.float32), *rest

    observation_space = Box(-9.0, 9.0, (3,))


class Forecast(Wind):
    """The same vector in `set_drift`, which changes its argument."""

    def set_drift(self, values):
        self.wind = np.array([values.pop("air[0]"), values.pop("air[1]")])
        return {f"air[{i}]": value for i, value in enumerate(self.wind)}


class Level(gymnasium.Env):
    """Its reward is the number of episodes that it has begun."""

    observation_space, action_space = Box(-9.0, 9.0, (1,)), Box(-1.0, 1.0, (1,))
    begun = 0

    def reset(self, *, seed=None, options=None):
        self.begun, self.t = self.begun + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), float(self.begun), False, self.t >= 5, {}


class Grid(Push):
    """Observes a dictionary and acts with a matrix."""

    observation_space = Dict(x=Box(-9.0, 9.0, (2,)), more=Box(0.0, 1.0, (2, 2)))
    action_space = Box(0.0, 4.0, (2, 1))

    def reset(self, **options):
        return {"x": super().reset(**options)[0], "more": np.zeros((2, 2), np.float32)}, {}

    def step(self, action):
        assert action.shape == (2, 1)
        assert (action >= 0).all()
        obs, *rest = super().step(action[0])
        return {"x": obs, "more": np.ones((2, 2), np.float32)}, *rest


class Broken(Push):
    """Fails after so many steps of all of its kind."""

    left = 300

    def step(self, action):
        Broken.left -= 1
        if Broken.left < 0:
            raise KeyError("no more")
        return super().step(action)


def limited(gain=1.0):
    return gymnasium.wrappers.TimeLimit(Push(), 10)


class Counted(Push):
    """Counts its open environments."""

    open = 0

    def __init__(self):
        super().__init__()
        Counted.open += 1

    def close(self):
        Counted.open -= 1


def seed_of(key):
    return int(jax.random.bits(key, (1,), jnp.uint32)[0])


def test_without_drift_steps_are_gymnasiums_bit_for_bit():
    task = envs.make("gymnasium:Pendulum-v1", channels={"l": (0.5, 1.3), "g": (8.0, 12.0)})
    assert task.env.spec == envs.EnvSpec(3, 1, 200)
    theirs, key = gymnasium.make("Pendulum-v1"), jax.random.key(3)
    obs, state = task.env.reset(key, task.params)
    np.testing.assert_array_equal(obs, theirs.reset(seed=seed_of(jax.random.key(3)))[0])
    step = jax.jit(task.env.autoreset)
    for t in range(1, 205):
        action = np.float32([np.sin(t)])
        obs, state, reward, terminated, truncated, info = step(key, key, state, action, task.params)
        seen, own, *flags, _ = theirs.step(2 * action)
        np.testing.assert_array_equal(info["final_observation"], seen)
        assert (float(reward), bool(terminated), bool(truncated)) == (np.float32(own), *flags)
        if t == 200:
            assert flags == [False, True]
            np.testing.assert_array_equal(obs, theirs.reset()[0])


class Choices(Push):
    """The same point, pushed by one of three numbers."""

    action_space = Discrete(3, start=-1)

    def step(self, action):
        assert action in self.action_space
        return super().step(np.array([action]))


@pytest.mark.parametrize(
    ("env", "channel", "sizes", "first"),
    [("CartPole-v1", "length", (4, 2, 500), 0), (Choices, "gain", (2, 3, 9), -1)],
)
def test_discrete_actions_are_gymnasiums_numbers(env, channel, sizes, first):
    task = from_gymnasium(env, {channel: (0.25, 2.0)}, time_limit=sizes[2])
    assert task.env.spec == envs.EnvSpec(*sizes, discrete=True)
    own, drift = gymnasium.make(env) if first == 0 else Choices(), jnp.array([1.5])
    key = jax.random.key(3)
    obs, state = task.env.reset(key, drift)
    np.testing.assert_array_equal(obs, own.reset(seed=seed_of(jax.random.key(3)))[0])
    for choice in (0, 1, sizes[1] - 1, 0, 1):
        setattr(own.unwrapped, channel, 1.5)
        obs, state, reward, *_ = task.env.step(key, state, jax.nn.one_hot(choice, sizes[1]), drift)
        theirs = own.step(first + choice)
        np.testing.assert_array_equal(obs, theirs[0])
        assert reward == np.float32(theirs[1])


@pytest.mark.slow
def test_cartpole_is_learned():
    train = make_train(
        "gymnasium:CartPole-v1", "ppo", steps=20_480, evaluations=4, episodes=5, hidden=(64, 64), learning_rate=1e-3,
        rollout=64, minibatches=4,
    )  # fmt: skip
    _, curves = aesjax.jit(train)(1)
    assert max(curves["return_mean"]) > 150.0  # random actions: about 20


VECTOR = np.array([[0.5, 0.25], [1.0, 1.0], [1.5, 1.75]])
DRIFTING = [
    (Push, {"gain": (0.5, 1.0, 1.5)}),
    (Push, [envs.Channel("gain", 0.5, 1.5, 1.0)]),
    (Told, {"push": (0.5, 1.0, 1.5)}),
    (Wind, {"wind": (0.5, 1.5)}),
    (Wind, {"wind": tuple(VECTOR)}),
    (Wind, "wind[1]=0.5:1.5,wind[0]=0.2:1.2"),
    (Forecast, {"air": tuple(VECTOR)}),
]


@pytest.mark.parametrize(("kind", "channels"), DRIFTING)
def test_drift_obeys_its_law_although_a_reset_undoes_it(kind, channels):
    task = from_gymnasium(kind, channels, time_limit=7)
    assert from_gymnasium(kind, **task.options).channels == task.channels
    env = envs.Drifting(task, "linear", total_steps=60, num_envs=3)
    (_, state), step = env.reset(jax.random.key(0)), jax.jit(env.step)
    order = [1, 0] if task.channels[0].name == "wind[1]" else [*range(len(task.channels))]
    for _ in range(20):
        _, state, *_, info = step(jax.random.key(0), state, jnp.zeros((3, 1)))
        np.testing.assert_array_equal(
            info["final_observation"][:, 1:], np.tile(info["drift"].values[jnp.array(order)], (3, 1))
        )
    assert (Wind.wind == 1.0).all()


def test_runs_of_other_drifts_share_a_callback_and_equal_those_on_their_own():
    task = from_gymnasium(Push, {"gain": (0.5, 1.5)}, time_limit=7)

    def run(seed):
        drifting = envs.Drifting(task, "periodic", total_steps=20, num_envs=2, drift_seed=seed)

        def step(state, t):
            _, state, *numbers, info = drifting.step(jax.random.key(t), state, jnp.full((2, 1), 0.3))
            return state, (info["final_observation"], *numbers)

        return jax.lax.scan(step, drifting.reset(jax.random.key(seed))[1], jnp.arange(10))[1]

    together = jax.jit(jax.vmap(run))(jnp.arange(4))
    rows = {"in_specs": jax.P("runs"), "out_specs": jax.P("runs"), "check_vma": False}
    sharded = jax.jit(jax.shard_map(jax.vmap(run), mesh=Mesh(np.array(jax.devices()), ("runs",)), **rows))
    for i in range(4):
        jax.tree.map(lambda all_, one, i=i: np.testing.assert_array_equal(all_[i], one), together, jax.jit(run)(i))
    jax.tree.map(np.testing.assert_array_equal, sharded(jnp.arange(4)), together)


def test_a_state_of_another_process_begins_a_new_episode_and_an_old_one_is_refused():
    env = from_gymnasium(Push, time_limit=7).env
    key, none = jax.random.key(0), np.zeros(0, np.float32)
    obs, state = env.reset(key, none)
    other = from_gymnasium(Push, time_limit=7).env
    start, state, reward, terminated, truncated, info = other.autoreset(key, key, state, jnp.zeros(1), none)
    assert (float(reward), bool(terminated), bool(truncated)) == (0.0, False, True)
    np.testing.assert_array_equal(info["final_observation"], obs)
    assert start[0] != obs[0]
    after, later, *_ = other.autoreset(key, key, state, jnp.ones(1), none)
    assert after[0] == pytest.approx(start[0] + 0.4)
    again, *_ = other.autoreset(key, key, state, jnp.ones(1), none)  # a repeated call
    assert again[0] == after[0]
    other.autoreset(key, key, later, jnp.ones(1), none)
    with pytest.raises(Exception, match="step 1 was requested from a Gymnasium environment at step 3"):
        jax.block_until_ready(other.autoreset(key, key, state, jnp.ones(1), none))
    _, state = env.reset(jax.random.key(1), none)
    for seed in range(8):
        env.reset(jax.random.key(seed), none)
    with pytest.raises(Exception, match="only the newest 8 can be stepped"):
        jax.block_until_ready(env.autoreset(key, key, state, jnp.ones(1), none))


def test_a_resumed_study_steps_its_copies_in_many_batches():
    key, none = jax.random.key(0), np.zeros(0, np.float32)
    stored = [from_gymnasium(Push, time_limit=7).env.reset(jax.random.key(i), none)[1] for i in range(12)]
    env = from_gymnasium(Push, time_limit=7).env
    begun = [env.autoreset(key, key, state, jnp.zeros(1), none)[1] for state in stored]
    for state in begun:  # none was closed
        jax.block_until_ready(env.autoreset(key, key, state, jnp.ones(1), none))


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_copies_that_reset_apart_stay_open(mode):
    """One copy outlives many episodes of the others; an evaluation goes on after them."""
    task, num, random = from_gymnasium(Counted, time_limit=100), 12, np.random.default_rng(0)
    env = DriftingVectorEnv(task, "steady", drift_steps=60, num_envs=num, autoreset_mode=mode)
    env.reset(seed=0)
    evaluation, ends, before = env.evaluation(), 0, Counted.open
    evaluation.reset(seed=1)
    for _ in range(60):
        actions = random.uniform(0.0, 1.0, (num, 1))
        actions[0] = 0.0
        ended = np.logical_or(*env.step(actions)[2:4])
        ends += ended.sum()
        if mode == "Disabled" and ended.any():
            env.reset(options={"reset_mask": ended})
        assert not ended[0]
    assert ends > 30
    for i in range(num):
        env.reset(options={"reset_mask": np.arange(num) == i})
    for each in (env, evaluation):
        assert not each.step(np.zeros((num, 1)))[2].any()
    assert Counted.open < before + 8 * num


def test_a_time_limit_of_an_id_replaces_its_own_and_that_of_others_is_not_exceeded():
    for limit in (1000, 50):
        task = envs.make("gymnasium:Pendulum-v1", time_limit=limit)
        key = jax.random.key(0)
        state, step = task.env.reset(key, task.params)[1], jax.jit(task.env.step)
        late = []
        while len(late) < limit:
            _, state, _, _, truncated, _ = step(key, state, jnp.zeros(1), task.params)
            late.append(bool(truncated))
        assert task.env.spec.time_limit == limit
        assert late.index(True) == limit - 1
    assert from_gymnasium(limited, time_limit=4).env.spec.time_limit == 4
    with pytest.raises(ValueError, match="ends episodes after 10 steps; got time_limit 11"):
        from_gymnasium(limited, time_limit=11)


def test_a_given_environment_is_copied_and_travels():
    given = gymnasium.make("Pendulum-v1")
    given.unwrapped.g = 3.0
    task = from_gymnasium(given)
    assert task.env.make().unwrapped.g == 3.0
    assert pickle.loads(pickle.dumps(task.env)).spec == task.env.spec
    assert envs.make("gymnasium:Pendulum-v1") is envs.make("gymnasium:Pendulum-v1")


def test_spaces_are_flattened_and_rescaled_by_gymnasium():
    task = from_gymnasium(Grid, time_limit=5)
    assert task.env.spec == envs.EnvSpec(6, 2, 5)
    obs, state = task.env.reset(jax.random.key(0), task.params)
    after, *_ = task.env.step(jax.random.key(0), state, jnp.array([0.5, -1.0]), task.params)
    np.testing.assert_allclose(after, [obs[0] + 0.2 * 3.0, 1, 1, 1, 1, 1], rtol=1e-6)


@pytest.mark.slow
def test_a_study_trains_from_one_line_and_what_the_environment_raises_is_said(tmp_path):
    sizes = {"seeds": 1, "steps": 800, "evaluations": 2, "episodes": 2}
    study = Study(limited, ["sac", "ppo"], patterns="all", channels={"gain": (0.5, 1.5)}, **sizes)
    results = study.run(tmp_path / "a", quiet=True)
    assert results.curves["return_mean"].is_finite().all()
    assert len(results.curves) == 2 * 5 * 3
    assert any("class Push" in text for text in study.config.outside["push"].values())
    assert study.config.options == {"channels": ("gain=0.5:1.5",)}
    with pytest.raises(
        ValueError, match=r"task 'broken' does not work: KeyError: 'no more'.*test_gym_tasks\.py.*in step"
    ):
        Study(Broken, ["ppo"], patterns="steady", **sizes).run(quiet=True)


@pytest.mark.slow
def test_returns_of_a_seed_are_equal_alone_and_after_another_method_beside_another_seed():
    def returns(methods, seeds):
        study = Study(Level, methods, patterns="steady", seeds=seeds, steps=800, evaluations=2, episodes=2)
        curves = study.run(quiet=True).curves.filter(seed=2)
        return {name: rows["return_mean"].to_list() for (name,), rows in curves.group_by("method")}

    alone = returns(["ppo"], [2])
    assert alone.items() <= returns(["sac", "ppo"], [1, 2]).items()


def test_channels_of_a_study_are_objects_mappings_and_arrays():
    spelt = ("wind[0]=0.5:1:1.5", "wind[1]=0.25:1:1.75")
    objects = [envs.Channel(f"wind[{i}]", *VECTOR[[0, 2, 1], i]) for i in range(2)]
    for channels in (spelt, ",".join(spelt), {"wind": tuple(VECTOR)}, objects):
        assert Study(Wind, channels=channels).config.options["channels"] == spelt


def test_a_vmapped_train_takes_an_environment_of_ones_own():
    train = make_train(limited, "ppo", steps=160, evaluations=2, episodes=2, num_envs=2, rollout=20, minibatches=2)
    assert jax.eval_shape(jax.vmap(train), jnp.arange(2))[1]["return_mean"].shape == (2, 3)


def test_it_drifts_for_gymnasium_again():
    env = DriftingEnv(from_gymnasium(limited, {"gain": (0.5, 1.5)}), "abrupt", drift_steps=40)
    env.reset(seed=0)
    for t in range(1, 41):
        obs, _, terminated, truncated, info = env.step(np.zeros(1, np.float32))
        assert obs[1] == info["drift"][0]
        assert (terminated, truncated) == (False, t % 10 == 0)
        if truncated:
            env.reset()

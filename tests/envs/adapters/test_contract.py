"""One contract for every adapter: how an episode ends arrives as it was, and whatever does not fit is refused."""

import importlib
import warnings
from collections import namedtuple
from functools import partial
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Graph, MultiDiscrete

import envs
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from experiments import Study

pytestmark = pytest.mark.filterwarnings("ignore")  # of Brax, Playground and gymnax at their import

N = 2
LIMIT, LONG = 5, 1000
#: case -> step of the failure, and steps, terminated, truncated of an episode with a time limit
CASES = {"limit": (0, (5, False, True)), "failure": (3, (3, True, False)), "both": (LIMIT, (5, True, False))}
Params = namedtuple("Params", "gravity joint_damping")


def optional(name):
    """The module, where its package is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name.split(".")[0] if not name.startswith("envs.") else name)
        return importlib.import_module(name)


class Ending:
    """Observes 0.1 for each step of its episode and sets both flags where both apply; ``change`` spoils its steps."""

    def __init__(self, fails=0, limit=LIMIT, change=lambda *step: step):
        self.spec, self.fails, self.change = envs.EnvSpec(1, 1, limit), fails, change

    def reset(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step(self, key, state, action, params):
        t = state + 1
        obs, reward, failed, late = self.change(0.1 * t[None], 1.0 * t, t == self.fails, t >= self.spec.time_limit)
        return obs, t, reward, failed, late, {}


def task_of(*args, **kwargs):
    params = Params(np.float32(1), np.float32(1))
    return envs.Task("ending", "own", Ending(*args, **kwargs), params, (), lambda p, v: p, "ends")


def first_episode(step):
    """Steps, flags, last observation and return of one copy; ``step()`` -> observation, reward and the two flags."""
    count, total, ended = 0, 0.0, False
    while count < 12 and not ended:
        obs, reward, *flags = step()
        count, total, ended = count + 1, total + float(reward), any(map(bool, flags))
    return (count, *map(bool, flags)), (np.asarray(obs).item(), total)


# Each takes a task and gives the function that `first_episode` calls.


def stepped(env):
    """Through the ``Env`` protocol, without reset."""
    key = jax.random.PRNGKey(0)
    state, step = env.reset(jax.random.key(0), None)[1], jax.jit(env.step)

    def one():
        nonlocal state
        obs, state, *rest, _ = step(jax.random.wrap_key_data(key), state, jnp.zeros(1), None)
        return obs, *rest

    return one


def by_drifting(task):
    env = envs.Drifting(task, "steady", 100, num_envs=1)
    state, step = env.reset(jax.random.key(0))[1], jax.jit(env.step)

    def one():
        nonlocal state
        _, state, *rest, info = step(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)), state, jnp.zeros((1, 1)))
        return info["final_observation"][0], *(x[0] for x in rest)

    return one


def by_gymnasium(task):
    env = DriftingEnv(task, "steady", drift_steps=100)
    env.reset(seed=0)
    return lambda: env.step(np.zeros(1, np.float32))[:4]


def by_gymnasium_vector(task):
    env = DriftingVectorEnv(task, "steady", drift_steps=100, num_envs=N)
    env.reset(seed=0)

    def one():
        obs, *rest, infos = env.step(np.zeros((N, 1), np.float32))
        return infos["final_obs"][1] if "final_obs" in infos else obs[1], *(x[1] for x in rest)

    return one


def by_sb3(task):
    optional("stable_baselines3")
    env = optional("envs.adapters.sb3").DriftingVecEnv(task, "steady", drift_steps=100, num_envs=N)
    env.reset()

    def one():
        obs, reward, done, infos = env.step(np.zeros((N, 1), np.float32))
        late = infos[1]["TimeLimit.truncated"]
        assert not (late and not done[1])
        return infos[1].get("terminal_observation", obs[1]), reward[1], done[1] and not late, late

    return one


def exported_to_brax(task):
    return optional("envs.adapters.brax").to_brax(task, "steady", 100)


def by_brax(task):
    env = exported_to_brax(task)
    state, step = env.reset(jax.random.key(0)), jax.jit(env.step)

    def one():
        nonlocal state
        state = step(state, jnp.zeros(1))
        late = state.info["truncation"] > 0
        return state.obs, state.reward, (state.done > 0) & ~late, late

    return one


def by_brax_and_back(task):
    return stepped(optional("envs.adapters.brax").from_brax(exported_to_brax(task), "back", (), time_limit=LONG).env)


def torch_task(task):
    optional("torch")
    return optional("envs.bridge.torch_tasks").TorchVecTask(task, N)


def by_torch(task):
    env = torch_task(task)
    env.step(env.zero_actions())  # the first resets

    def one():
        obs, reward, reset, extras = env.step(env.zero_actions())
        late = extras["time_outs"][1]
        return obs["obs"][1], reward[1], bool(reset[1]) and not late, late

    return one


def through_bridge(env, **options):
    host = optional("envs.bridge.host")
    sim = host.SimEnv(host.InProcess(env, **options))
    sim.reset()

    def one():
        rows = sim.step(np.zeros((N, 1), np.float32))
        assert bool(rows.valid.all())
        return rows.next_obs[1], rows.reward[1], rows.terminated[1], rows.truncated[1]

    return one


class Simulator:
    """`Ending` with the interface of Isaac Gym, which changes results and actions in place; ``begun`` survives resets.

    ``zeros`` is that of NumPy or PyTorch.
    """

    num_envs, num_obs, num_acts = N, 1, 1

    def __init__(self, zeros, task, num=N):
        self.fails, self.limit, self.max_episode_length = task.env.fails, task.env.spec.time_limit, LONG
        self.num_envs, self.t, self.begun = num, 0, 0
        self.obs, self.reward = zeros((num, 1)), zeros(num)
        self.reset_buf, self.late = zeros(num) == 0, zeros(num) != 0

    def step(self, actions):
        assert (actions == 0.0).all()
        actions += 7.0
        begins = bool(self.reset_buf[0])
        self.t, self.begun = 0 if begins else self.t + 1, self.begun + begins
        self.obs[:], self.reward[:] = 0.1 * self.t, self.t
        failed = 0 < self.t == self.fails
        self.late[:] = self.t >= self.limit and not failed
        self.reset_buf[:] = self.t >= self.limit or failed
        return {"obs": self.obs}, self.reward, self.reset_buf, {"time_outs": self.late}


def by_torch_simulator(task):
    return through_bridge(Simulator(optional("torch").zeros, task))


def by_numpy_simulator(task):
    """Without tensors, as in a worker."""
    simulators = optional("envs.bridge.worker.simulators")
    simulation = simulators.VecTask(Simulator(lambda shape: np.zeros(shape, np.float32), task))
    simulation.restart(0)

    def one():
        obs, reward, terminated, truncated, valid, _ = simulation.step(np.zeros((N, 1), np.float32))
        assert valid.all()
        return obs[1], reward[1], terminated[1], truncated[1]

    return one


def by_torch_and_back(task):
    return through_bridge(torch_task(task))


def lab_task(task, both=False):
    optional("torch")

    class Lab(optional("tests.envs.bridge.lab").TorchLabTask):
        def step(self, action):
            obs, reward, terminated, truncated, extras = super().step(action)
            return obs, reward, terminated, terminated | truncated if both else truncated, extras

    return Lab(task, N)


def by_isaac_lab(task):
    return through_bridge(lab_task(task, both=task.env.fails == LIMIT), final=True)


def by_own_brax(task):
    """A Brax environment with the flags of Brax: ``truncation`` beside ``done``, and not where it failed."""
    env = brax_env(task.env.fails, task.env.spec.time_limit)
    return stepped(optional("envs.adapters.brax").from_brax(env, "own", (), time_limit=LONG).env)


def brax_env(fails=0, limit=LIMIT, observed=lambda obs: obs):
    base = optional("brax.envs.base")

    class Clock(base.Env):
        observation_size, action_size, backend = 1, 1, "own"

        def reset(self, rng):
            zero = jnp.zeros(())
            return base.State(jnp.int32(0), observed(jnp.zeros(1)), zero, zero, {}, {"truncation": zero})

        def step(self, state, action):
            t = state.pipeline_state + 1
            failed, late = t == fails, t >= limit
            info = {"truncation": (late & ~failed).astype(jnp.float32)}
            done = (failed | late).astype(jnp.float32)
            return state.replace(pipeline_state=t, obs=observed(0.1 * t[None]), reward=1.0 * t, done=done, info=info)

    return Clock()


def playground_env(fails=0, limit=LIMIT, impl="jax", observed=lambda obs: obs, **settings):
    """A Playground environment whose steps have no physics, with some of its parts replaced."""
    playground, mujoco = optional("mujoco_playground"), optional("mujoco")
    model = mujoco.MjModel.from_xml_string("<mujoco/>")

    class Clock(playground.MjxEnv):
        xml_path, action_size, mj_model = "", 1, model
        mjx_model = _mjx_model = optional("mujoco.mjx").put_model(model, impl=impl)

        def reset(self, rng):
            zero = jnp.zeros(())
            return playground.State(jnp.int32(0), observed(jnp.zeros(1)), zero, zero, {}, {"truncation": zero})

        def step(self, state, action):
            t = state.data + 1
            failed, late = t == fails, t >= limit
            info = {"truncation": (late & ~failed).astype(jnp.float32)}
            done = (failed | late).astype(jnp.float32)
            return state.replace(data=t, obs=observed(0.1 * t[None]), reward=1.0 * t, done=done, info=info)

    config = optional("ml_collections").config_dict
    return Clock(config.create(ctrl_dt=0.1, sim_dt=0.1, episode_length=LONG, **settings))


def from_playground(channels=(), wrapper=None, observation=None, **options):
    env = playground_env(**options)
    env = env if wrapper is None else getattr(optional("mujoco_playground").wrapper, wrapper)(env)
    make = optional("envs.adapters.playground").from_playground
    return make(env, channels=channels, observation=observation)


def by_own_playground(task):
    return stepped_task(from_playground(fails=task.env.fails, limit=task.env.spec.time_limit))


def gymnax_env(fails=0, limit=LIMIT, actions=None, observed=None, methods=(), returned=lambda obs: obs):
    """A gymnax environment with some of its parts replaced."""
    base, spaces = optional("gymnax.environments.environment"), optional("gymnax.environments.spaces")
    struct = optional("flax").struct

    @struct.dataclass
    class Params(base.EnvParams):
        max_steps_in_episode: int = limit
        joints: int = 2
        goal: float = 0.5

    class Clock(base.Environment):
        default_params = property(lambda self: Params())

        def reset_env(self, key, params):
            return returned(jnp.zeros(1)), base.EnvState(time=0)

        def step_env(self, key, state, action, params):
            t = jnp.asarray(state.time) + 1
            return returned(0.1 * t[None]), base.EnvState(time=t), 1.0 * t, t == fails, {}

        def action_space(self, params=None):
            return actions or spaces.Box(-1.0, 1.0, (1,))

        def observation_space(self, params=None):
            return observed or spaces.Box(-jnp.inf, jnp.inf, (1,))

    return type("Clock", (Clock,), dict(methods))()


def from_gymnax(*args, channels=None, wrapper=None, **options):
    env = gymnax_env(*args, **options)
    env = env if wrapper is None else getattr(optional("gymnax.wrappers"), wrapper)(env)
    return optional("envs.adapters.gymnax").from_gymnax(env, channels=channels or {})


def by_gymnax(task):
    return stepped_task(from_gymnax(task.env.fails, task.env.spec.time_limit))


def stepped_task(task):
    env = task.env
    return stepped(
        SimpleNamespace(
            reset=lambda key, _: env.reset(key, task.params), step=lambda k, s, a, _: env.step(k, s, a, task.params)
        )
    )


class Counting(gymnasium.Env):
    """`Ending` as a Gymnasium environment that changes results and actions in place; ``changes`` spoils it."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,)), Box(-1.0, 1.0, (1,))

    def __init__(self, fails=0, limit=LIMIT, **changes):
        self.fails, self.limit, self.gain, self.gains = fails, limit, 1.0, np.ones(2)
        self.obs, self.reward = np.zeros(1, np.float32), np.zeros(())
        self.failed, self.late = np.zeros((), bool), np.zeros((), bool)
        vars(self).update(changes)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.results(), {}

    def results(self):
        self.obs[:], self.reward[...] = 0.1 * self.t, self.t
        self.failed[...], self.late[...] = self.t == self.fails, self.t >= self.limit
        return self.obs

    def step(self, action):
        assert (action == 0.0).all()
        action += 7.0
        self.t += 1
        return self.results(), self.reward, self.failed, self.late, {}

    fixed = property(lambda self: 1.0, lambda self, value: None)


def from_gymnasium(channels=(), wrapper=lambda env: env, **changes):
    make = optional("envs.adapters.gym_tasks").from_gymnasium
    return make(lambda: wrapper(Counting(**changes)), channels, time_limit=LONG)


def by_own_gymnasium(task):
    return stepped_task(from_gymnasium(fails=task.env.fails, limit=task.env.spec.time_limit))


def by_own_gymnasium_and_reset(task):
    return by_drifting(from_gymnasium(fails=task.env.fails, limit=task.env.spec.time_limit))


EXPORTS = {
    "drifting": by_drifting,
    "gymnasium": by_gymnasium,
    "gymnasium vector": by_gymnasium_vector,
    "sb3": by_sb3,
    "brax": by_brax,
    "torch": by_torch,
}
OTHERS = {
    "brax and back": by_brax_and_back,
    "torch and back": by_torch_and_back,
    "simulator in torch": by_torch_simulator,
    "simulator in numpy": by_numpy_simulator,
    "isaac lab": by_isaac_lab,
    "own brax": by_own_brax,
    "own playground": by_own_playground,
    "gymnax": by_gymnax,
    "own gymnasium": by_own_gymnasium,
    "own gymnasium, reset": by_own_gymnasium_and_reset,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("adapter", EXPORTS | OTHERS)
def test_an_episode_ends_as_it_did_and_a_failure_wins_over_the_time_limit(adapter, case):
    fails, expected = CASES[case]
    flags, numbers = first_episode((EXPORTS | OTHERS)[adapter](task_of(fails)))
    steps = expected[0]
    assert flags == expected
    np.testing.assert_allclose(numbers, (0.1 * steps, steps * (steps + 1) / 2), rtol=1e-6)


@pytest.mark.parametrize("adapter", EXPORTS | OTHERS)
def test_results_stay_as_they_are_and_their_receiver_may_change_them(adapter):
    make, kept = (EXPORTS | OTHERS)[adapter], []
    one, other = make(task_of(3)), make(task_of(3))
    for _ in range(3):
        rows = one()
        kept.append((rows, [np.array(part) for part in rows]))
        for part, seen in zip(other(), kept[-1][1], strict=True):
            np.testing.assert_array_equal(part, seen)
            if not isinstance(part, jax.Array) and np.ndim(part):
                part[...] = 9.0
    for rows, seen in kept:
        for part, at_first in zip(rows, seen, strict=True):
            np.testing.assert_array_equal(part, at_first)


def counter():
    """Observes the number of observations, in an array that it changes in place."""
    count = np.zeros(1, np.float32)

    def observed(_):
        count[:] += 1.0
        return count

    return observed


BUFFERED = {
    "brax": lambda: optional("envs.adapters.brax").from_brax(brax_env(observed=counter()), "own", ()),
    "playground": lambda: from_playground(observed=counter()),
    "gymnax": lambda: from_gymnax(returned=counter()),
}


@pytest.mark.parametrize("library", BUFFERED)
def test_an_array_of_numpy_that_a_traced_step_changes_is_copied(library):
    task = BUFFERED[library]()

    @jax.jit
    def observations(key):
        first, state = task.env.reset(key, task.params)
        return first, task.env.step(key, state, jnp.zeros(1), task.params)[0]

    first, second = observations(jax.random.key(0))
    assert second - first == 1.0


class Level(Counting):
    """Its reward is the number of episodes that it has begun, as a curriculum or a wrapper's statistics."""

    begun = 0

    def results(self):
        self.begun += self.t == 0
        super().results()
        self.reward[...] = self.begun
        return self.obs


class LevelSimulator(Simulator):
    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        reward[:] = self.begun
        return obs, reward, *rest


def bridged_level():
    host, zeros = optional("envs.bridge.host"), optional("torch").zeros

    def start(num):
        return host.InProcess(LevelSimulator(zeros, task_of(), num))

    env = optional("envs.bridge.env").BridgeEnv(start, start(N).about)
    return envs.Task("level", "isaac", env, (), (), lambda params, values: params, "a simulator with a memory")


def level_of(env):
    return optional("envs.adapters.gym_tasks").from_gymnasium(env)


def used_level():
    env = Level()
    task = level_of(env)
    env.reset()
    return task


LEVELS = {
    "class": lambda: level_of(Level),
    "function": lambda: level_of(lambda: gymnasium.wrappers.TimeLimit(Level(), 50)),
    "object, used later": used_level,
    "simulator": bridged_level,
}


@pytest.mark.parametrize("kind", LEVELS)
def test_a_run_is_not_changed_by_earlier_runs_and_evaluations(kind):
    task = LEVELS[kind]()
    world = envs.world.World(task, 100)

    def rewards(world):
        _, state = world.reset(jax.random.key(0), N, task.params)
        total = []
        for t in range(LIMIT + 3):
            _, state, reward, *_ = world.step(jax.random.key(t), state, jnp.zeros((N, 1)), task.params)
            total += [float(reward[0])]
        return total

    runs = [(rewards(world), rewards(world.for_evaluation())) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][0][-1] == 2.0
    assert runs[0][1][0] == 1.0


SPOILED = {
    "observation": lambda obs, reward, *flags: (jnp.tile(obs, 2), reward, *flags),
    "column of flags": lambda obs, reward, *flags: (obs, reward, *(flag[None] for flag in flags)),
    "float flags": lambda obs, reward, *flags: (obs, reward, *(1.0 * flag for flag in flags)),
}


@pytest.mark.parametrize("change", SPOILED)
@pytest.mark.parametrize("adapter", EXPORTS)
def test_a_step_of_another_shape_or_kind_is_refused(adapter, change):
    with pytest.raises(ValueError, match="of Ending must have shape"):
        first_episode(lambda: EXPORTS[adapter](task_of(change=SPOILED[change]))())


def test_flags_may_be_integers():
    one = by_drifting(task_of(3, change=lambda *step: (*step[:2], *(flag.astype(jnp.int32) for flag in step[2:]))))
    assert first_episode(one)[0] == (3, True, False)


@pytest.mark.parametrize("field", ["reset", "time_outs", "terminated", "truncated"])
def test_flags_of_a_simulator_have_one_truth_value_for_each_copy(field):
    env = torch_task(task_of()) if field in ("reset", "time_outs") else lab_task(task_of())
    step = env.step

    def spoiled(actions):
        rows, at = list(step(actions)), 2 if field in ("reset", "terminated") else 3
        rows[at] = {field: rows[at][field][:, None]} if field == "time_outs" else rows[at][:, None]
        return tuple(rows)

    env.step = spoiled
    with pytest.raises(optional("envs.bridge.errors").SimBridgeError, match=f"{field} must"):
        through_bridge(env)()


def lab_with(**changes):
    env = lab_task(task_of())
    for name, value in changes.items():
        setattr(env, name, value)
    return through_bridge(env)


def lab_observing(space):
    return lab_with(single_observation_space={"policy": space})


def lab_within(wrapper, **options):
    class Env(gymnasium.Env):
        """A Lab task as `gymnasium.make` hands it out, inside a wrapper."""

    inner = lab_task(task_of())
    outer = Env()
    outer.step, outer.reset = inner.step, lambda **_: inner.reset()
    Env.unwrapped = property(lambda self: inner)
    one = through_bridge(wrapper(outer), **options)
    return [one() for _ in range(3)]


def brax_named(change):
    brax = optional("brax.envs")
    env = exported_to_brax(task_of())
    return optional("envs.adapters.brax").from_brax(change(brax, env), "x", ())


def masked(adapter):
    task = task_of()
    task.env.mask = lambda state: None
    return adapter(task)


def time_limited(env):
    return gymnasium.wrappers.TimeLimit(env, 2)


def vector_of(env):
    return gymnasium.vector.SyncVectorEnv([lambda: env])


def spaces():
    return optional("gymnax.environments.spaces")


def grid_stepped(action):
    env = gymnasium.make("aesjax/grid-steady-v0")
    env.reset(seed=0)
    return env.unwrapped.step(action)


REMEDY = "leave out Normalize.*PPO normalises by itself"

REFUSED = {
    "gymnax: matrix of actions": (
        lambda: from_gymnax(actions=spaces().Box(-1.0, 1.0, (2, 2))),
        "only Discrete actions",
    ),
    "gymnax: half bounded": (lambda: from_gymnax(actions=spaces().Box(-1.0, jnp.inf, (1,))), "finite bounds"),
    "gymnax: dictionary": (
        lambda: from_gymnax(observed=spaces().Dict({"x": spaces().Box(0.0, 1.0, (1,))})),
        "only observations of a Box or Discrete",
    ),
    "gymnax: wrapper": (lambda: from_gymnax(wrapper="FlattenObservationWrapper"), "without wrappers"),
    "gymnax: before 1.0": (lambda: from_gymnax(methods={"is_terminal": lambda *args: True}), "before gymnax 1.0"),
    "gymnax: drifting limit": (lambda: from_gymnax(channels={"max_steps_in_episode": (2, 9)}), "other than the time"),
    "gymnax: drifting integer": (lambda: from_gymnax(channels={"joints": (1, 3)}), "only a real number"),
    "brax: episode wrapper": (
        lambda: brax_named(lambda brax, env: brax.wrappers.training.EpisodeWrapper(env, 9, 1)),
        "without Brax's training wrappers",
    ),
    "brax: of Gymnasium": (lambda: brax_named(lambda brax, env: gymnasium.Env()), "only a Brax environment"),
    "playground: training wrapper": (lambda: from_playground(wrapper="BraxAutoResetWrapper"), "training wrappers"),
    "playground: of Gymnasium": (
        lambda: optional("envs.adapters.playground").from_playground(gymnasium.Env()),
        "only a Playground environment",
    ),
    "playground: Warp": (lambda: from_playground(impl="warp"), "impl='jax' in config_overrides"),
    "playground: repeated actions": (lambda: from_playground(action_repeat=2), "action_repeat=1"),
    "playground: dictionary": (
        lambda: from_playground(observed=lambda obs: {"state": obs, "privileged_state": obs}),
        "observation must be one of privileged_state, state; got None",
    ),
    "playground: no dictionary": (lambda: from_playground(observation="state"), "no option; got state"),
    "playground: pictures": (lambda: from_playground(observed=lambda obs: obs[None]), "one flat vector"),
    "playground: channel": (lambda: from_playground("body_mas=0.5:2"), "did you mean 'body_mass'"),
    "playground: part": (lambda: from_playground("body_mass.wrld=0.5:2"), "unknown body 'wrld'; did you mean 'world'"),
    "playground: part of all": (lambda: from_playground("gravity.world=0.5:2"), "opt.gravity has no parts"),
    "playground: only zeros": (lambda: from_playground("body_mass.world=0.5:2"), "would change nothing"),
    "playground: range": (lambda: from_playground("gravity=2:3"), "contain its nominal value 1"),
    "playground: no channel of a name": (
        lambda: from_playground([envs.Channel("wind", 0.5, 2.0, 1.0)]),
        "unknown drift channel of a Playground environment 'wind'",
    ),
    "playground: other nominal": (
        lambda: from_playground([envs.Channel("gravity", 0.5, 2.0, 1.5)]),
        "contain its nominal value 1",
    ),
    "lab: several choices": (lambda: lab_with(single_action_space=MultiDiscrete([2, 3])), "must be a Box"),
    "brax: discrete actions": (lambda: exported_to_brax(envs.make("grid")), "continuous actions only; task 'grid'"),
    "torch: discrete actions": (lambda: torch_task(envs.make("grid")), "continuous actions only; task 'grid'"),
    "gymnasium: no whole number": (lambda: grid_stepped(0.5), "whole number from 0 to 4; got"),
    "gymnasium: number too large": (lambda: grid_stepped(5), "whole number from 0 to 4; got"),
    "lab: actions to 2": (lambda: lab_with(single_action_space=Box(-2.0, 2.0, (1,))), r"\[-1, 1\]"),
    "lab: pictures": (lambda: lab_observing(Box(0.0, 1.0, (3, 1))), "must be a Box of vectors"),
    "lab: outer time limit": (lambda: lab_within(time_limited), "truncated must have shape"),
    "lab: wrapper passed by": (lambda: lab_within(time_limited, final=True), "past the wrapper TimeLimit"),
    "gymnasium: outer time limit": (
        lambda: gymnasium.make_vec("aesjax/toy-steady-v0", 2, max_episode_steps=3),
        "max_episode_steps",
    ),
    "of gymnasium: several choices": (
        lambda: from_gymnasium(action_space=MultiDiscrete([2, 3])),
        r"must be Discrete, or a Box .* got MultiDiscrete\(\[2 3\]\)",
    ),
    "of gymnasium: graph": (
        lambda: from_gymnasium(observation_space=Graph(Box(-1.0, 1.0, (1,)), None)),
        "cannot be made one vector; got Graph",
    ),
    "of gymnasium: unbounded": (lambda: from_gymnasium(action_space=Box(-np.inf, 1.0, (1,))), "finite bounds"),
    "of gymnasium: observation": (
        lambda: from_gymnasium(observation_space=Box(-1.0, 1.0, (2,))),
        "observations must be",
    ),
    "of gymnasium: Autoreset": (lambda: from_gymnasium(wrapper=gymnasium.wrappers.Autoreset), "leave out the wrapper"),
    "of gymnasium: vector": (lambda: from_gymnasium(wrapper=vector_of), "not a vector of them"),
    "of gymnasium: no attribute": (
        lambda: from_gymnasium({"gian": (0, 2)}),
        "no method set_drift and no attribute 'gian'; did you mean 'gain'",
    ),
    "of gymnasium: no such attribute": (lambda: from_gymnasium({"gian": (0, 1, 2)}), "no attribute 'gian'"),
    "of gymnasium: no such element": (lambda: from_gymnasium("gains[2]=0:2"), r"no attribute 'gains\[2\]'"),
    "of gymnasium: a mapping": (
        lambda: from_gymnasium({"gain": {"low": 0, "high": 2}}),
        r"'gain' must be .*\(low, high",
    ),
    "of gymnasium: a plane": (
        lambda: from_gymnasium([envs.Channel("gain", -1, 1, 0, 2, "planar")]),
        "a scalar Channel",
    ),
    "of gymnasium: NormalizeReward": (lambda: from_gymnasium(wrapper=gymnasium.wrappers.NormalizeReward), REMEDY),
    "of gymnasium: NormalizeObservation": (
        lambda: from_gymnasium(wrapper=gymnasium.wrappers.NormalizeObservation),
        REMEDY,
    ),
    "of gymnasium: one object": (
        lambda: level_of(partial(Counting.unwrapped.fget, Level())),
        "it must make a new one at each call",
    ),
    "of gymnasium: no number": (lambda: from_gymnasium({"unwrapped": (0, 2)}), "must be a number or vector to drift"),
    "of gymnasium: unchanged": (lambda: from_gymnasium({"fixed": (0, 2)}), "was set to 0 and reads back as 1"),
    "of gymnasium: range": (lambda: from_gymnasium({"gain": (2, 3)}), "must contain 1"),
    "of gymnasium: text": (lambda: from_gymnasium("gain"), "NAME=LOW:HIGH"),
    "of gymnasium: twice": (lambda: from_gymnasium("gain=0:2,gain=0:3"), "each once"),
    "of gymnasium: infinite": (lambda: from_gymnasium({"gain": (0, np.inf)}), "must contain 1"),
    "of gymnasium: its name alone": (lambda: Study("Pendulum-v1").config, "'gymnasium:Pendulum-v1'"),
    "of gymnasium: misspelt": (lambda: envs.make("gymnasium:Pendulm-v1"), "Did you mean: `Pendulum`"),
    "of gymnasium: option": (lambda: Study("gymnasium:Pendulum-v1", engine="mjx").config, "channels, time_limit"),
    **{
        f"{name}: rows that do not count": (lambda name=name: masked(EXPORTS[name]), "that do not count")
        for name in ("gymnasium", "sb3", "brax", "torch")
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_whatever_an_adapter_cannot_represent_is_refused_in_one_sentence(name):
    made, text = REFUSED[name]
    with pytest.raises((ValueError, KeyError), match=text):
        made()


def test_a_task_whose_simulation_may_fail_keeps_its_truncations_in_brax():
    task = task_of()
    task.env.faults = lambda state: jnp.int32(0)
    to_brax = optional("envs.adapters.brax").to_brax
    with pytest.raises(ValueError, match="truncate must be True"):
        to_brax(task, "steady", 100, truncate=False)

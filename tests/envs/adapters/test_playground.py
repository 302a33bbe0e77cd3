"""MuJoCo Playground environments as tasks: drift of their model obeys its law, observations are vectors, they train."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents import make_train
from experiments import Study

pytest.importorskip("mujoco_playground", reason="`make test-all` installs it")

import mujoco
from ml_collections import config_dict
from mujoco import mjx
from mujoco_playground import MjxEnv, State
from mujoco_playground import step as physics

from envs.adapters.playground import from_playground

ARM = """
<mujoco><option timestep="0.01"/><worldbody>
  <body name="upper"><joint name="shoulder" axis="0 1 0" damping="0.1"/><geom name="rod" type="capsule"
    fromto="0 0 0 0 0 -0.5" size="0.03" contype="0" conaffinity="0"/>
    <body name="lower" pos="0 0 -0.5"><joint name="elbow" axis="0 1 0" damping="0.2" frictionloss="0.1"/><geom
      name="tip" type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03" contype="0" conaffinity="0"/></body>
  </body>
</worldbody><actuator><motor name="drive" joint="shoulder" gear="3"/><position name="servo" joint="elbow" kp="2"/>
</actuator></mujoco>
"""
SETTINGS = {"ctrl_dt": 0.02, "sim_dt": 0.01, "episode_length": 7}


class Arm(MjxEnv):
    """Two links, which observe angles and velocities, and report a mass of the model that they are stepped with."""

    xml_path, action_size = "", 2
    mj_model, mjx_model = property(lambda self: self._mj_model), property(lambda self: self._mjx_model)

    def __init__(self, lost=9.0, **settings):
        super().__init__(config_dict.create(**SETTINGS, **settings))
        self._mj_model, self.lost = mujoco.MjModel.from_xml_string(ARM), lost
        self._mjx_model = mjx.put_model(self._mj_model, impl="jax")

    def reset(self, rng):
        data = mjx.make_data(self._mj_model, impl="jax")
        data = mjx.forward(self.mjx_model, data.replace(qpos=jax.random.uniform(rng, (2,), minval=0.5)))
        return State(data, self.seen(data), *jnp.zeros(2), {"lower": jnp.zeros(())}, {"rng": rng})

    def step(self, state, action):
        data = physics(self.mjx_model, state.data, action, self.n_substeps)
        state.metrics["lower"] = self.mjx_model.body_mass[2]
        lost = jnp.where(action[0] > self.lost, jnp.nan, 0.0)
        return state.replace(data=data, obs=self.seen(data) + lost, reward=data.qvel[0], done=(lost != 0.0) * 1.0)

    def seen(self, data):
        return jnp.concatenate([data.qpos, data.qvel])


class Private(Arm):
    """Observes a dictionary."""

    def seen(self, data):
        return {"state": data.qpos, "privileged_state": super().seen(data)}


def scale(*fields):
    """A function of a model and a factor that multiplies entries; a field is its name and where."""

    def change(model, factor):
        for name, where in fields:
            getattr(model.opt if name == "gravity" else model, name)[where] *= factor

    return change


ALL = slice(None)
#: channel -> what it does to a model of the C engine
LAWS = {
    "body_mass": scale(("body_mass", ALL), ("body_inertia", ALL)),
    "body_mass.lower": scale(("body_mass", 2), ("body_inertia", 2)),
    "joint_friction": scale(("dof_damping", ALL), ("dof_frictionloss", ALL)),
    "joint_friction.elbow": scale(("dof_damping", 1), ("dof_frictionloss", 1)),
    "gravity": scale(("gravity", ALL)),
    "actuator_gain": scale(("actuator_gainprm", ALL), ("actuator_biasprm", ALL)),
    "actuator_gain.servo": scale(("actuator_gainprm", 1), ("actuator_biasprm", 1)),
}


@pytest.fixture(scope="module")
def arm():
    """A task all of whose channels drift, a state, and its compiled step from (state, action, drift values)."""
    task = from_playground(Arm(), channels=dict.fromkeys(LAWS, (0.5, 2.0)))
    _, state = jax.jit(task.env.reset)(jax.random.key(0), task.params)
    step = jax.jit(lambda *args: task.env.step(jax.random.key(0), *args))
    return task, step(state, jnp.zeros(2), task.params)[1], step


@pytest.mark.parametrize("channel", [None, *LAWS])
def test_each_channel_is_that_change_of_the_c_engines_model(arm, channel):
    task, state, step = arm
    values = np.array([1.7 if each.name == channel else 1.0 for each in task.channels], np.float32)
    obs, *_ = step(state, jnp.array([0.3, -0.8]), values)
    model = mujoco.MjModel.from_xml_string(ARM)
    if channel is not None:
        LAWS[channel](model, 1.7)
    data = mujoco.MjData(model)
    data.qpos, data.qvel, data.ctrl = state.brax.data.qpos, state.brax.data.qvel, [0.3, -0.8]
    mujoco.mj_step(model, data, nstep=2)
    np.testing.assert_allclose(obs, np.concatenate([data.qpos, data.qvel]), rtol=1e-4, atol=1e-5)


def test_drift_of_one_mass_obeys_its_law_in_the_model_of_each_step():
    original = Arm()
    task = from_playground(original, channels="body_mass.lower=0.5:1.5")
    assert (task.name, task.env.spec) == ("arm", envs.EnvSpec(4, 2, 7))
    nominal = original.mj_model.body_mass[2]
    for pattern in ("linear", "abrupt"):
        env = envs.Drifting(task, pattern, total_steps=60, num_envs=3)
        (_, state), step, ends = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step), []
        for t in range(20):
            _, state, _, terminated, truncated, info = step(jax.random.key(t), state, jnp.zeros((3, 2)))
            np.testing.assert_allclose(info["lower"], np.repeat(info["drift"].values * nominal, 3), rtol=1e-6)
            ends.append(bool(truncated.all()))
            assert not terminated.any()
        assert np.flatnonzero(ends).tolist() == [6, 13]
    total = task.env.drifted(jnp.array([1.5])).mjx_model.body_subtreemass[0]
    np.testing.assert_allclose(total, original.mj_model.body_subtreemass[0] + nominal / 2, rtol=1e-6)
    assert original.mjx_model.body_mass[2] == np.float32(nominal)


def test_a_simulation_without_numbers_is_truncated_before_them():
    task = from_playground(Arm(lost=0.5))
    obs, state = jax.jit(task.env.reset)(jax.random.key(0), task.params)
    after, _, reward, terminated, truncated, _ = task.env.step(jax.random.key(0), state, jnp.ones(2), task.params)
    np.testing.assert_array_equal(after, obs)
    assert (float(reward), bool(terminated), bool(truncated)) == (0.0, False, True)


def test_an_environment_or_a_function_that_makes_it_is_a_task_and_one_entry_of_a_dictionary_is_observed():
    sizes = {"seeds": 1, "steps": 160, "evaluations": 2, "episodes": 2, "num_envs": 4}
    for given in (Private(), Private):
        config = Study(given, "ppo", channels={"body_mass": (0.5, 1.5)}, observation="state", **sizes).config
        assert config.built.env.spec.obs_size == 2
        assert config.options == {"channels": ("body_mass=0.5:1.5",), "observation": "state"}
        assert any("class Private" in text for text in config.outside["private"].values())
    train = make_train(Arm(), "sac", steps=160, evaluations=2, episodes=2)
    assert jax.eval_shape(train, 1)[1]["return_mean"].shape == (3,)


def test_named_environments_need_nothing_but_their_package():
    task = envs.make("playground:PendulumSwingup", channels=("gravity", "body_mass.pole=0.5:2"), time_limit=50)
    assert (task.name, task.env.spec) == ("playground:PendulumSwingup", envs.EnvSpec(3, 1, 50))
    assert [(each.low, each.high) for each in task.channels] == [(0.7, 1.3), (0.5, 2.0)]
    assert envs.make(task.name, **task.options) is task
    with pytest.raises(envs.UnknownNameError, match="did you mean 'CartpoleBalance'"):
        envs.make("playground:CartpolBalance")

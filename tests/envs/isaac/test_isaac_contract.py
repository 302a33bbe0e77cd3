"""Contract of the six Isaac tasks, as tables: options, sizes, models, starts, servos, and parity of the engines."""

import mujoco
import numpy as np
import pytest

import envs
from envs.isaac import TASKS
from envs.isaac.allegro_hand import CUBE, AllegroHand
from envs.isaac.anymal import DEFAULT as STANCE
from envs.isaac.anymal import Anymal
from envs.isaac.franka_cabinet import DEFAULT, FrankaCabinet
from envs.isaac.humanoid import Humanoid
from envs.isaac.ingenuity import Ingenuity
from envs.isaac.walkers import Ant
from envs.physics import FACTORS, Physics
from envs.physics.fields import scaled_fields
from tests.envs.isaac.common import Stepped, mjx_run, random_actions, run, starts

#: Task -> steps of an episode and observed numbers, of `gym` and `omni`.
SIZES = {
    Ant: ((999, 60), (998, 60)),
    Humanoid: ((999, 108), (998, 87)),
    Ingenuity: ((1998, 13), (1998, 13)),
    AllegroHand: ((598, 88), (598, 72)),
    Anymal: ((2499, 48), (2998, 48)),
    FrankaCabinet: ((499, 23), (498, 23)),
}
LEG, ARM = ([-45, -60, -120, -160, -50, -50], [15, 35, 45, 2, 50, 50]), ([-90, -90, -90], [70, 70, 50])
FINGER = [-0.55849, *[-0.27924] * 3], [0.55849, *[1.72783] * 3]
#: Task -> lowest and highest joint positions in the model's order, rad (of the Franka's fingers, m).
RANGES = {
    Ant: np.deg2rad([[-40, 30, -40, -100, -40, -100, -40, 30], [40, 100, 40, -30, 40, -30, 40, 100]]),
    Humanoid: np.deg2rad([[*waist, *leg, *leg, *arm, *arm] for waist, leg, arm in zip(
        ([-45, -75, -35], [45, 30, 35]), LEG, ARM, strict=True)]),
    AllegroHand: np.array([[*FINGER[0] * 3, 0.27924, -0.3316, -0.27924, -0.27924],
                           [*FINGER[1] * 3, 1.57075, 1.15188, 1.72783, 1.76273]]),
    FrankaCabinet: np.array([[-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973, 0, 0],
                             [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973, 0.04, 0.04]]),
}  # fmt: skip


# --- options


@pytest.mark.parametrize("kind", SIZES)
def test_episodes_and_observations_have_the_references_sizes(kind):
    for variant, (steps, observed) in zip(("gym", "omni"), SIZES[kind], strict=True):
        assert (kind(variant).time_limit, kind(variant).obs_size) == (steps, observed)
    assert kind(time_limit=7).time_limit == 7


OWN = {
    "isaac_ingenuity": {"rotational_drag": 0.02},
    "isaac_allegro_hand": {"observation": "full"},
    "isaac_franka_cabinet": {"arm_gravity": True},
}


@pytest.mark.parametrize("name", TASKS)
def test_options_build_the_same_task_again(name):
    own = OWN.get(name, {})
    task = envs.make(name, variant="omni", channels=["gravity"], time_limit=7, **own)
    assert task.env.spec.time_limit == 7
    assert [channel.name for channel in task.channels] == ["gravity"]
    assert task.options == {"engine": "mujoco", "variant": "omni", "channels": ("gravity",), "time_limit": 7} | own
    assert envs.make(name, **task.options) is task


REFUSED = [
    ("ant", {"variant": "lab"}, "variant of isaac_ant must be one of gym, omni; got 'lab'"),
    ("ant", {"channels": ()}, "channels must be one or more different names of gravity, joint_damping"),
    ("ant", {"channels": ("body_mass",)}, "unknown drift channel of isaac_ant 'body_mass'"),
    ("ant", {"arm_gravity": True}, "'isaac_ant' has the options engine, variant, channels, time_limit; got"),
    ("ingenuity", {"rotational_drag": -1}, "rotational_drag of isaac_ingenuity must be a number from 0 on; got '-1'"),
    ("ant", {"engine": "physx"}, "engine must be one of auto, mujoco, mjx, warp; got 'physx'"),
]


@pytest.mark.parametrize(("name", "options", "text"), REFUSED)
def test_options_that_do_not_exist_are_refused(name, options, text):
    with pytest.raises((ValueError, KeyError), match=text):
        envs.make(f"isaac_{name}", **options)


def test_a_channel_without_effect_is_named():
    for name, live, channel in (
        ("isaac_ingenuity", {"rotational_drag": 0.02}, "joint_damping"),
        ("isaac_franka_cabinet", {"arm_gravity": True}, "gravity"),
    ):
        assert envs.make(name).inert == (channel,)
        assert envs.make(name, **live).inert == ()
    assert envs.make("isaac_ant").inert == envs.make("isaac_ingenuity", channels=("gravity",)).inert == ()


# --- models


@pytest.mark.parametrize("kind", RANGES)
def test_joints_have_the_references_ranges_and_order(kind):
    model = kind().model
    joints = model.actuator_trnid[:, 0]
    np.testing.assert_allclose(model.jnt_range[joints].T, RANGES[kind], atol=1e-6)


def placed(task, qpos):
    """MuJoCo's data of the task's model at ``qpos``."""
    data = mujoco.MjData(task.model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(task.model, data)
    return data


def test_ingenuity_has_the_references_mass_and_inertia_and_hovers():
    model = Ingenuity().model
    assert model.body_mass.sum() == pytest.approx(1.5001, abs=1e-3)
    np.testing.assert_allclose(model.body_ipos[1], [0, 0, 0.01178], atol=1e-5)
    np.testing.assert_allclose(sorted(model.body_inertia[1]), [0.0084049, 0.0084049, 0.0161117], atol=1e-6)
    hovering = np.tile([0.0, 0.0, 0.1396], (1, 2))
    stepped = Stepped(Ingenuity())
    before = stepped.qpos[0, 2]
    for _ in range(20):
        stepped.step(hovering)
    assert stepped.qpos[0, 2] == pytest.approx(before, abs=1e-3)


def test_anymal_has_the_robots_mass_frames_and_joints():
    model, legs = Anymal().model, ("LF", "LH", "RF", "RH")
    assert model.body_mass.sum() == pytest.approx(52.135, abs=1e-3)
    names = [model.joint(model.actuator_trnid[i, 0]).name for i in range(12)]
    assert names == [f"{leg}_{joint}" for leg in legs for joint in ("HAA", "HFE", "KFE")]
    data = placed(Anymal(), [0, 0, 0.6, 1, 0, 0, 0, *STANCE])
    feet = np.array([data.geom(f"{leg}_FOOT").xpos for leg in legs])
    np.testing.assert_allclose(feet[:, 2] - 0.03 - 0.6, -0.543, atol=1e-3)  # soles
    np.testing.assert_array_equal(np.sign(feet[:, :2]), [[1, 1], [-1, 1], [1, -1], [-1, -1]])


def test_the_hand_has_the_references_fingers_and_the_cubes_mass():
    model = AllegroHand().model
    fingers = [f"{finger}_{i}" for finger in ("index", "middle", "ring", "thumb") for i in range(4)]
    assert [model.joint(model.actuator_trnid[i, 0]).name for i in range(16)] == fingers
    assert model.body("cube").mass[0] == pytest.approx(0.1099, abs=1e-4)
    np.testing.assert_allclose(model.dof_damping[-3:], 0.5 * model.body("cube").inertia, rtol=1e-2)
    links = sum(model.body(name).mass[0] for name in fingers)
    assert links == pytest.approx(3 * (0.0119 + 0.065 + 0.0355 + 0.0306) + 0.0176 + 0.0119 + 0.038 + 0.0598)


def test_the_arm_has_the_references_masses_and_grasp_frames_at_its_default_pose():
    task = FrankaCabinet()
    data = placed(task, [0, *DEFAULT])
    assert task.model.body("link1").subtreemass[0] == pytest.approx(15.982 + 0.709 + 2 * 0.022, abs=1e-3)
    assert task.model.body("drawer_top").mass[0] == pytest.approx(5.33)
    known = {"xpos": data.xpos[None], "xquat": data.xquat[None]}
    grasp = task.grasp(np, Physics(qpos=data.qpos[None], qvel=np.zeros((1, 10)), **known))
    expected = {"hand": (0.7844, 0.0823, 0.8199), "drawer": (0.3515, 0.01, 0.7172)}
    expected |= {"left": (0.7591, 0.0710, 0.8287), "right": (0.7576, 0.0618, 0.7593)}
    for name, place in expected.items():
        np.testing.assert_allclose(getattr(grasp, name)[0], place, atol=6e-5)


# --- starts and drift


def columns_of(kind):
    """(values (n, K), lowest, highest) of every uniform law of a task's starts."""
    task = kind("gym_faithful") if kind is AllegroHand else kind()
    start = starts(task)
    if kind is Anymal:
        np.testing.assert_array_equal(start.qpos[0, :7], [0, 0, 0.62, 1, 0, 0, 0])
        command = start.memory / [2, 1, 1]
        return [(start.qpos[:, 7:] / STANCE, 0.5, 1.5), (start.qvel[:, 6:], -0.1, 0.1), (command, -1, 1)]
    assert not start.qvel.any()
    if kind is FrankaCabinet:
        q = start.qpos[:, 1:]
        shut, wide = (q[:, 7:] == 0.0).mean(), (q[:, 7:] == 0.04).mean()  # 0.035 +- 0.125, clipped
        np.testing.assert_allclose([shut, wide], [0.36, 0.48], atol=0.02)
        np.testing.assert_array_equal(start.memory, q)
        return [(q[:, :7], DEFAULT[:7] - 0.125, DEFAULT[:7] + 0.125)]
    low, high = RANGES[AllegroHand]  # with the thumb's first joint below its limit, as there
    turns = start.memory[:, :2]
    return [(start.qpos[:, :16], 0.2 * low, 0.2 * high), (start.qpos[:, 16:19], CUBE - 0.01, CUBE + 0.01),
            (turns, -1, 1)]  # fmt: skip


@pytest.mark.parametrize("kind", [Anymal, FrankaCabinet, AllegroHand])
def test_starts_follow_the_references_laws(kind):
    for values, low, high in columns_of(kind):
        share = (values - low) / (np.asarray(high) - low)
        assert -1e-9 <= share.min() < 0.01
        assert 0.99 < share.max() <= 1 + 1e-9
        np.testing.assert_allclose(share.mean(axis=0), 0.5, atol=0.02)
        np.testing.assert_allclose(share.std(axis=0), 12**-0.5, atol=0.02)


@pytest.mark.parametrize("kind", [Anymal, AllegroHand, FrankaCabinet])
def test_joint_damping_is_the_servos_velocity_gain(kind):
    model = kind().model
    fields = scaled_fields(model, FACTORS["joint_damping"], np.array(1.3))
    bias = model.actuator_biasprm.copy()
    bias[:, 2] *= 1.3
    np.testing.assert_allclose(fields["actuator_biasprm"], bias, rtol=1e-15)
    if kind is AllegroHand:  # the cube's drag stays
        np.testing.assert_array_equal(fields["dof_damping"], model.dof_damping)
    if kind is FrankaCabinet:  # the drawer's slide follows
        np.testing.assert_allclose(fields["dof_damping"], [13.0] + [0.0] * 9)
    if kind is Anymal:
        np.testing.assert_array_equal(model.actuator_biasprm[:, :3], [[0.0, -85.0, -2.0]] * 12)
        np.testing.assert_array_equal(Anymal("omni").model.actuator_biasprm[:, :3], [[0.0, -400.0, -40.0]] * 12)


@pytest.mark.parametrize("damping", [0.7, 1.3])
@pytest.mark.parametrize(
    ("kind", "steps", "joints", "limit"),
    [
        (AllegroHand, 160, slice(0, 16), 1.3 * np.full(16, 6.283)),
        (FrankaCabinet, 120, slice(1, 8), 1.4 * np.array([2.175] * 4 + [2.61] * 3)),
    ],
    ids=["hand", "arm"],
)
def test_joints_keep_to_their_speed_whatever_the_damping(kind, steps, joints, limit, damping):
    task = kind()
    stepped, fastest = Stepped(task, 4, joint_damping=damping), np.zeros_like(limit)
    if kind is AllegroHand:
        stepped.rows[:, stepped.engine.positions.start + 18] += 5.0  # the cube out of the way
    for action in np.sign(random_actions(task, steps // 4, 4)).repeat(4, axis=0):
        stepped.step(action)
        fastest = np.maximum(fastest, np.abs(stepped.qvel[:, joints]).max(axis=0))
    assert (fastest < limit).all()
    assert fastest.max() > 0.4 * limit.max()


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_a_rotational_drag_slows_the_spin_and_is_scaled_by_joint_damping(factor):
    stepped = Stepped(Ingenuity(rotational_drag=0.02), joint_damping=factor)
    stepped.rows[:, stepped.engine.velocities] = [0, 0, 0, 0, 0, 5.0]
    for _ in range(20):
        stepped.step(np.zeros((1, 6)))
    assert stepped.qvel[0, 5] == pytest.approx(5.0 * np.exp(-0.02 * factor * 0.2 / 0.0161117), rel=5e-3)


@pytest.mark.slow
def test_mjx_moves_as_the_c_engine():
    """Free fall and the rest on the floor; the difference is that of float32.

    Medians over copies: in one of them a contact may begin a step earlier.
    """
    task, air = Ant(), 7
    actions = 0.5 * random_actions(task, 20, 8)
    theirs, (obs, reward, terminated) = run(task, actions), mjx_run(task, actions)
    difference = np.abs(obs - theirs.obs)
    difference = np.abs((difference + 1) % (2 * np.pi) - 1)  # yaw and roll jump by a turn
    assert np.median(difference[:air].max((0, 2))) < 2e-4
    assert np.median(difference.max((0, 2))) < 2e-3
    assert np.median(np.abs(reward - theirs.reward).max(0)) < 1e-3
    np.testing.assert_array_equal(terminated, theirs.terminated)

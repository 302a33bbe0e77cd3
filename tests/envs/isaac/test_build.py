"""The builder of the family: what it takes, and how it refuses the rest."""

import pytest

import envs
from envs.isaac import TASKS


@pytest.mark.parametrize("name", TASKS)
def test_options_build_the_same_task_again(name):
    task = envs.make(name, variant="omni", channels=["gravity"], time_limit=7)
    assert task.env.spec.time_limit == 7
    assert [channel.name for channel in task.channels] == ["gravity"]
    assert task.options == {"engine": "mujoco", "variant": "omni", "channels": ("gravity",), "time_limit": 7}
    assert envs.make(name, **task.options) is task


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("isaac_ingenuity", {"rotational_drag": 0.02, "retarget_safe": True}),
        ("isaac_humanoid", {"foot_sensor": "zero"}),
        ("isaac_anymal", {"true_gravity_obs": True}),
        ("isaac_allegro_hand", {"observation": "full"}),
        ("isaac_franka_cabinet", {"arm_gravity": True}),
    ],
)
def test_options_of_one_task_alone(name, own):
    task = envs.make(name, **own)
    assert own.items() <= task.options.items()
    assert not own.items() <= envs.make(name).options.items()
    again = envs.make(name, **task.options)
    assert again.options == task.options
    assert envs.make(name, **again.options) is again


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="variant of isaac_ant must be one of gym, omni; got 'lab'"):
        envs.make("isaac_ant", variant="lab")
    with pytest.raises(ValueError, match="channels needs one or more different names of gravity, joint_damping"):
        envs.make("isaac_ant", channels=())
    with pytest.raises(KeyError, match="unknown drift channel of isaac_ant 'body_mass'"):
        envs.make("isaac_ant", channels=("body_mass",))
    options = "engine, variant, channels, time_limit"
    with pytest.raises(ValueError, match=f"task 'isaac_ant' has the options {options}, foot_sensor; got arm_gravity"):
        envs.make("isaac_ant", arm_gravity=True)
    with pytest.raises(ValueError, match="foot_sensor of isaac_ant must be one of contact, joint, net, zero; got 'n'"):
        envs.make("isaac_ant", foot_sensor="n")
    with pytest.raises(ValueError, match="rotational_drag of isaac_ingenuity must be a number from 0 on; got -1"):
        envs.make("isaac_ingenuity", rotational_drag=-1)
    with pytest.raises(ValueError, match="engine must be one of auto, mujoco, mjx, warp; got 'physx'"):
        envs.make("isaac_ant", engine="physx")


def test_a_channel_that_changes_nothing_is_named():
    assert envs.make("isaac_ingenuity", channels=("gravity",)).inert == ()
    assert envs.make("isaac_ingenuity").inert == ("joint_damping",)
    assert envs.make("isaac_ingenuity", rotational_drag=0.02).inert == ()
    assert envs.make("isaac_franka_cabinet").inert == ("gravity",)
    assert envs.make("isaac_franka_cabinet", arm_gravity=True).inert == ()

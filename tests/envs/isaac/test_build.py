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


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="variant of isaac_ant must be one of gym, omni; got 'lab'"):
        envs.make("isaac_ant", variant="lab")
    with pytest.raises(ValueError, match="channels needs one or more different names of gravity, joint_damping"):
        envs.make("isaac_ant", channels=())
    with pytest.raises(KeyError, match="unknown drift channel of isaac_ant 'body_mass'"):
        envs.make("isaac_ant", channels=("body_mass",))
    with pytest.raises(ValueError, match="engine must be one of auto, mujoco, mjx; got 'physx'"):
        envs.make("isaac_ant", engine="physx")


def test_a_channel_that_changes_nothing_is_named():
    assert envs.make("isaac_ingenuity", channels=("gravity",)).inert == ()
    assert envs.make("isaac_ingenuity").inert == ("joint_damping",)

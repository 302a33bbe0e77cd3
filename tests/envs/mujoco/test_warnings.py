"""MuJoCo says nothing while Gymnasium's models are compiled, and what else it has to say is heard."""

import warnings

import mujoco
import pytest

from envs.mujoco.model import total_mass_accepted


def test_other_warnings_go_where_they_would_have_gone():
    heard, own = [], mujoco.get_mju_user_warning()
    try:
        mujoco.set_mju_user_warning(heard.append)
        with total_mass_accepted():
            mujoco.get_mju_user_warning()("attribute 'settotalmass' is deprecated")
            mujoco.get_mju_user_warning()("Nan in QPOS")
        mujoco.get_mju_user_warning()("later")
        assert heard == ["Nan in QPOS", "later"]
        mujoco.set_mju_user_warning(None)
        with total_mass_accepted(), pytest.warns(RuntimeWarning, match="MuJoCo: Nan in QPOS"):
            mujoco.get_mju_user_warning()("Nan in QPOS")
        with warnings.catch_warnings(), total_mass_accepted():
            warnings.simplefilter("error")
            mujoco.get_mju_user_warning()("attribute 'settotalmass' is deprecated")
    finally:
        mujoco.set_mju_user_warning(own)

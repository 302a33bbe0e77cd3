"""MuJoCo Warp: selection, contacts beyond capacity, Isaac tasks compared with the C engine under drift."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.isaac.allegro_hand import AllegroHand
from envs.isaac.franka_cabinet import FrankaCabinet
from tests.envs.isaac.common import mjx_run, random_actions, run

N = 4


def test_without_the_extra_the_engine_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "warp", None)
    with pytest.raises(ModuleNotFoundError, match=r"engine 'warp' needs 'warp'.*pip install '\.\[warp\]' in a clone"):
        envs.make("walker2d", engine="warp")


@pytest.fixture(scope="module")
def warp():
    return pytest.importorskip("warp", reason="an extra, which `make test-all` installs")


@pytest.mark.slow
def test_contacts_without_room_are_faults(warp):
    from envs.physics.warp_engine import Sizes, WarpEnv

    task = envs.make("hopper").env.task
    env = WarpEnv(task, Sizes(contacts=1, rows=2))
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), N), task.params)
    step = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))
    for _ in range(40):
        state = step(None, state, jnp.zeros((N, task.action_size)), task.params)[1]
    assert (np.asarray(state.faults) > 0).all()
    assert np.isfinite(np.asarray(state.obs)).all()


@pytest.mark.slow
@pytest.mark.parametrize("task", [AllegroHand(), FrankaCabinet()], ids=lambda task: task.name)
def test_isaac_tasks_move_as_on_the_c_engine_under_drift(warp, task):
    actions = random_actions(task, 3, N)
    theirs = run(task, actions, 2.0, 4.0)
    obs, reward, terminated = mjx_run(task, actions, 0, 2.0, 4.0, engine="warp")
    np.testing.assert_allclose(obs, theirs.obs, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(reward, theirs.reward, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(terminated, theirs.terminated)

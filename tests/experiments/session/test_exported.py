"""Policies as NumPy files: the actions of JAX in a process that cannot import it."""

import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import envs
from agents.crossq import CrossQ, CrossQConfig
from agents.discrete import DiscretePpo, DiscreteSac, DiscreteSql
from agents.meow import Meow
from agents.ppo import Ppo, PpoConfig
from agents.sac import Sac, SacConfig
from agents.sql import Sql, SqlConfig
from envs.patterns import compiled
from envs.world import World
from experiments.session import reader
from experiments.session.policy import Policy

ALONE = """
import sys
sys.modules.update(dict.fromkeys(("jax", "flax", "aesjax", "experiments")))  # not importable
import numpy as np
from reader import act
policy, obs = np.load("policy.npz"), np.load("obs.npy")
assert np.allclose(act(policy, obs[0]), act(policy, obs)[0], rtol=0, atol=1e-12)
np.save("actions.npy", act(policy, obs))
"""
SMALL = (16, 16)


def policy_of(carrier, task, tmp_path):
    """A policy with initial parameters; PPO and CrossQ have statistics far from the unit scale."""
    on_policy = isinstance(carrier, Ppo)
    agent = carrier.init(jax.random.key(0), *([1] if on_policy else []))
    if isinstance(carrier, CrossQ):
        stats = {"batch_stats": jax.tree.map(lambda x: x + 3.0, agent.actor["batch_stats"])}
        agent = agent._replace(actor=agent.actor | stats)
    if on_policy:
        agent, _ = carrier.observe(agent, 3.0 + 5.0 * jax.random.normal(jax.random.key(1), (64, carrier.obs_size)))
    world = World(envs.make(task), 100, patterns=compiled(["steady"]))
    return Policy("ours", "steady", 1, 0, world, carrier, agent, world.drift("steady", 0), tmp_path, 99)


def sized(carrier, task, config=None):
    spec = envs.make(task).env.spec
    return carrier(spec.obs_size, spec.action_size, *([] if config is None else [config])), task


@pytest.mark.parametrize(
    ("carrier", "task"),
    [
        sized(Sac, "toy", SacConfig(SMALL)),
        sized(CrossQ, "toy", CrossQConfig(SMALL)),
        *(sized(Ppo, "toy", PpoConfig(hidden=SMALL, activation=name)) for name in ("relu", "tanh", "elu", "gelu")),
        sized(Ppo, "toy", PpoConfig(hidden=SMALL, shared=True, normalise_obs=0.0)),
        sized(DiscreteSac, "grid", SacConfig(SMALL)),
        sized(DiscretePpo, "grid", PpoConfig(hidden=SMALL)),
        sized(DiscreteSql, "grid", SqlConfig(hidden=SMALL)),
    ],
)
def test_an_exported_policy_acts_without_jax_as_with_it(carrier, task, tmp_path):
    policy = policy_of(carrier, task, tmp_path)
    obs = (3.0 + 5.0 * np.random.default_rng(2).standard_normal((200, carrier.obs_size))).astype(np.float32)
    assert policy.save(tmp_path / "policy.npz") == tmp_path / "policy.npz"
    np.save(tmp_path / "obs.npy", obs)
    shutil.copy(reader.__file__, tmp_path / "reader.py")
    subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, check=True, env={})
    np.testing.assert_allclose(np.load(tmp_path / "actions.npy"), policy(obs), atol=1e-6)
    with pytest.raises(ValueError, match="a new file that ends in"):
        policy.save(tmp_path / "policy.npz")


@pytest.mark.parametrize(
    ("carrier", "task"),
    [
        sized(Sql, "toy", SqlConfig(hidden=SMALL)),
        sized(Meow, "toy"),
        sized(DiscreteSql, "grid", SqlConfig(hidden=SMALL, layer_norm=True)),
        sized(Ppo, "toy", PpoConfig(hidden=SMALL, shared=True, layer_norm=True)),
    ],
)
def test_a_policy_that_is_not_one_pass_through_a_network_is_refused(carrier, task, tmp_path):
    with pytest.raises(ValueError, match="no deterministic action that is one pass through a network"):
        policy_of(carrier, task, tmp_path).save(tmp_path / "policy.npz")
    assert not any(tmp_path.iterdir())

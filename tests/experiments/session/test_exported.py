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
from pathlib import Path
import numpy as np
from reader import act
for file in Path().glob("*/policy.npz"):
    policy, obs = np.load(file), np.load(file.with_name("obs.npy"))
    assert np.allclose(act(policy, obs[0]), act(policy, obs)[0], rtol=0, atol=1e-12)
    np.save(file.with_name("actions.npy"), act(policy, obs))
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


CASES = {
    "sac": sized(Sac, "toy", SacConfig(SMALL)),
    "crossq": sized(CrossQ, "toy", CrossQConfig(SMALL)),
    **{
        f"ppo-{name}": sized(Ppo, "toy", PpoConfig(hidden=SMALL, activation=name))
        for name in ("relu", "tanh", "elu", "gelu")
    },
    "ppo-shared": sized(Ppo, "toy", PpoConfig(hidden=SMALL, shared=True, normalise_obs=0.0)),
    "discrete-sac": sized(DiscreteSac, "grid", SacConfig(SMALL)),
    "discrete-ppo": sized(DiscretePpo, "grid", PpoConfig(hidden=SMALL)),
    "discrete-sql": sized(DiscreteSql, "grid", SqlConfig(hidden=SMALL)),
}


def observations(size):
    return (3.0 + 5.0 * np.random.default_rng(2).standard_normal((200, size))).astype(np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The policies, and a folder with their files and with actions of a process that reads all of them."""
    folder, policies = tmp_path_factory.mktemp("exported"), {}
    for name, (carrier, task) in CASES.items():
        (folder / name).mkdir()
        policies[name] = policy_of(carrier, task, folder / name)
        assert policies[name].save(folder / name / "policy.npz") == folder / name / "policy.npz"
        np.save(folder / name / "obs.npy", observations(carrier.obs_size))
    shutil.copy(reader.__file__, folder / "reader.py")
    subprocess.run([sys.executable, "-c", ALONE], cwd=folder, check=True, env={})
    return policies, folder


@pytest.mark.parametrize("name", CASES)
def test_an_exported_policy_acts_without_jax_as_with_it(exported, name):
    policies, folder = exported
    actions = np.load(folder / name / "actions.npy")
    np.testing.assert_allclose(actions, policies[name](observations(policies[name].carrier.obs_size)), atol=1e-6)
    with pytest.raises(ValueError, match="a new file that ends in"):
        policies[name].save(folder / name / "policy.npz")


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

"""Probe environments for the value parts of carriers: what the value must be is known without training.

Four probes in one world, which of them is data, so that a carrier needs one program for all: a constant reward, a
reward that the observation tells, a reward one step away, and an episode cut by a time limit after every step.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import schedules
from aesjax.schedules import Choice
from agents import CARRIERS, OnPolicyCarrier
from agents.common import LoopConfig, Run, make_program
from agents.common.carrier import Rollout
from tests.programs import data_of, floats
from tests.quick import quick

GAMMA = 0.5
CONSTANT, TOLD, LATER, CUT = range(4)
# Probe, observation (phase, sign), value under discount 0.5.
CASES = [
    (CONSTANT, (0.0, 0.0), 1.0),
    (TOLD, (0.0, 1.0), 1.0),
    (TOLD, (0.0, -1.0), -1.0),
    (LATER, (0.0, 0.0), GAMMA),
    (LATER, (1.0, 0.0), 1.0),
    (CUT, (0.0, 0.0), 1.0 / (1.0 - GAMMA)),
]


@dataclass(frozen=True)
class Probes:
    """The drift data of a run is the number of its probe; actions do nothing."""

    name: str = "probes"
    obs_size: int = 2
    action_size: int = 1
    time_limit: int = 2

    def path(self, drift: Any, steps: jax.Array):
        return jnp.broadcast_to(drift.astype(jnp.float32), (steps.shape[0], 1)), jnp.zeros(steps.shape[0])

    def displacement(self, values: jax.Array):
        return jnp.sum(values)

    def params_of(self, values: jax.Array):
        return values[0]

    def seen(self, obs: jax.Array, params: Any):
        return obs

    def reset(self, key: jax.Array, num: int, params: Any):
        sign = jnp.where(params == TOLD, jax.random.rademacher(key, (num,), jnp.float32), 0.0)
        obs = jnp.stack([jnp.zeros(num), sign], -1)
        return obs, obs

    def faults(self, state):
        return None

    def mask(self, state):
        return None

    def for_evaluation(self):
        return self

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any):
        phase, sign = state[:, 0], state[:, 1]
        reward = jnp.where(params == TOLD, sign, jnp.where(params == LATER, phase, jnp.ones_like(phase)))
        done = (params != LATER) | (phase == 1.0)
        truncated = done & (params == CUT)
        final = state.at[:, 0].set(jnp.where(params == LATER, 1.0, 0.0))
        fresh, _ = self.reset(key, action.shape[0], params)
        obs = jnp.where(done[:, None], fresh, final)
        return obs, obs, reward, done & ~truncated, truncated, final


def carrier_of(name):
    """Small networks, and nothing that normalises the reward away."""
    spec, world = CARRIERS[name], Probes()
    own: dict[str, Any] = {"hidden": (32, 32)}
    if name == "ppo":
        own |= {"rollout": 10, "epochs": 4, "minibatches": 2, "normalise_reward": False, "normalise_obs": 0.0}
        own |= {"value_clip": False}
    elif name == "meow":
        own = {"flow_hidden": (16, 16), "shift_hidden": (32, 32), "batch_size": 32}
    else:
        own |= {"batch_size": 32}
    return spec.make(world.obs_size, world.action_size, spec.config(**own))


def hyper_of(name):
    fields = CARRIERS[name].hyper._fields
    wanted = {"learning_rate": 3e-3, "critic_learning_rate": 3e-3, "gamma": GAMMA, "tau": 0.05, "reference_weight": 0.1}
    return CARRIERS[name].hyper()._replace(**{k: v for k, v in wanted.items() if k in fields})


def values_of(name, carrier, agent, obs):
    """The carrier's value at observations (M, 2), as the mean of its two where it has two."""
    if isinstance(carrier, OnPolicyCarrier):
        zeros = jnp.zeros((1, obs.shape[0]))
        rollout = Rollout(obs[None], jnp.zeros((1, obs.shape[0], 1)), zeros, zeros, zeros, obs[None])
        return carrier.prepare(agent, rollout, hyper_of(name))[1].value
    action = carrier.act_deterministic(agent, obs)
    return jnp.mean(carrier.q_value(agent, obs, action, entropy_weight=jnp.float32(0.01), hyper=hyper_of(name)), 0)


# SQL has SAC's loop, critics and critic step; `test_sql` derives its target and both of its gradients again.
@pytest.mark.parametrize("name", ["sac", "ppo", pytest.param("meow", marks=pytest.mark.slow)])
def test_values_are_learned_where_they_are_known(name):
    world, carrier = Probes(), carrier_of(name)
    loop = make_program(
        world,
        carrier,
        lambda run: schedules.build([Choice("fixed")], run.schedule),
        LoopConfig(4, 1000, 32, 2000, fresh=False),
    )
    rule = data_of([Choice("fixed")], base=0.01)
    runs = [Run(jnp.uint32(p), jnp.int32(p), rule, floats(hyper_of(name)), jnp.float32(0)) for p in range(4)]
    runs = jax.tree.map(lambda *x: jnp.stack(x), *runs)
    state = quick(jax.vmap(loop.init))(runs)
    state, _ = jax.jit(jax.vmap(loop.chunk, (0, 0, None)))(state, runs, jnp.int32(0))
    obs = jnp.array([case[1] for case in CASES])
    values = np.asarray(jax.jit(jax.vmap(lambda s: values_of(name, carrier, s.agent, obs)))(state))
    found = [values[probe, i] for i, (probe, _, _) in enumerate(CASES)]
    np.testing.assert_allclose(found, [case[2] for case in CASES], atol=0.12)

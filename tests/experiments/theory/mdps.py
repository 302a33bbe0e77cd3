"""Soft MDPs that the tests of the theory share: random ones, and the small ones at which a claim is tight or fails.

All arrays are NumPy float64; random instances take a NumPy generator and come stacked, (count, ...).
"""

import numpy as np

from experiments.theory.instances import random_mdps
from experiments.theory.softmdp import SoftMDP
from tests.experiments.theory.generators import simplex_points

SHAPES = ((7, 2), (7, 5))  # (states, actions) of the programs; `live` varies the states from 1 upwards
# The programs are large and run for an instant, so that optimising them costs more than it saves.
QUICK = {"xla_backend_optimization_level": 0}


def random_live(rng, count, states):
    """(count,) how many of the states differ, 1 to all."""
    return rng.integers(1, states + 1, count)


def random_pairs(rng, count, states, actions):
    """Two stacked MDPs of equal discount and temperature, 1e-4 to 1 of the way from one random MDP to another."""
    live = random_live(rng, count, states)
    old, other = (random_mdps(rng, count, states, actions, live) for _ in range(2))
    w = 10.0 ** rng.uniform(-4.0, 0.0, count)
    reward = old.reward + w[:, None, None] * (other.reward - old.reward)
    kernel = old.transition + w[:, None, None, None] * (other.transition - old.transition)
    return old, old._replace(reward=reward, transition=kernel)


def random_policies(rng, count, states, actions, zeros=False):
    """(count, S, A) log-policies from near deterministic to near uniform; ``zeros`` puts -inf at about a third."""
    x = simplex_points(rng, count * states, actions)
    if zeros:
        keep = rng.random(x.shape) < 0.67
        keep[np.arange(len(x)), x.argmax(-1)] = True
        x = np.where(keep, x, 0.0)
        x = x / x.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.log(x).reshape(count, states, actions)


def random_starts(rng, count, states):
    """(count, S) distributions."""
    return simplex_points(rng, count, states)


def one_state(reward, discount, temperature):
    """One state whose actions pay ``reward`` (A,)."""
    reward = np.asarray(reward, np.float64)[None]
    return SoftMDP(reward, np.ones((*reward.shape, 1)), np.asarray(discount), np.asarray(temperature))


def two_state_chain(stay, actions=1, discount=0.9, temperature=0.1):
    """Rewards +1 and -1, both states kept with probability ``stay`` whatever the action."""
    rows = np.array([[stay, 1.0 - stay], [1.0 - stay, stay]])
    reward = np.repeat([[1.0], [-1.0]], actions, axis=1)
    return SoftMDP(reward, np.repeat(rows[:, None], actions, axis=1), np.asarray(discount), np.asarray(temperature))


def trap(penalty=5.0, enter=0.01, remain=0.999):
    """An MDP whose second state the optimum almost never sees, and a policy that gets stuck there.

    The first state pays 1 to stay and 0 to enter the second, which pays ``-penalty`` to remain and 0 to leave.
    """
    reward = np.array([[1.0, 0.0], [-penalty, 0.0]])
    transition = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    policy = np.log([[1.0 - enter, enter], [remain, 1.0 - remain]])
    return SoftMDP(reward, transition, np.asarray(0.9), np.asarray(0.1)), policy, np.array([1.0, 0.0])


def absorbing(discount=0.9):
    """The first state is kept by action 0 and left for good by action 1."""
    transition = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    return SoftMDP(np.zeros((2, 2)), transition, np.asarray(discount), np.asarray(1.0))


def tightness(lhs, rhs, slack=1e-9):
    """Largest ``lhs / rhs``, after asserting ``lhs <= rhs`` up to rounding; pairs of vanishing size are left out."""
    lhs, rhs = np.broadcast_arrays(np.asarray(lhs, np.float64), np.asarray(rhs, np.float64))
    assert np.all(lhs <= rhs + slack * (1.0 + np.abs(rhs))), np.max(lhs - rhs)
    sized = rhs > 1e-7
    assert sized.any()
    ratio = np.max(lhs[sized] / rhs[sized])
    assert ratio <= 1.0 + 1e-6  # the slack over a small right-hand side
    return ratio


def error(lhs, rhs):
    """Largest ``|lhs - rhs| / (1 + |rhs|)`` of an identity."""
    return np.max(np.abs(np.asarray(lhs) - np.asarray(rhs)) / (1.0 + np.abs(np.asarray(rhs))))

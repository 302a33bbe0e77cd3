"""From the drift of an MDP to the drift of its soft-optimal policy, and how the paper splits the gap between returns.

Bounds of the chain MDP -> operator -> action values -> policy -> regret (AES paper A.5, A.7, A.20, A.21), and the
quantities of A.8 and A.9. Functions take one MDP or one pair; ``jax.vmap`` does the rest.
"""

import jax.numpy as jnp

from aesjax.types import Array
from experiments.theory import simplex
from experiments.theory.softmdp import SoftMDP, Solution, evaluate, expected, surrogate_gap


def span(v: Array) -> Array:
    """(..., A) -> (...): ``max v - min v``; constants added to v do not count."""
    return 2.0 * simplex.half_range(v)


def drift_budget(old: SoftMDP, new: SoftMDP, size: Array) -> Array:
    """() ``b = Dr + gamma * size * DP``: bounds ``||T' q - T q||`` in sup norm; reward. AES paper A.7, A.20.

    ``Dr`` is the largest change of a reward and ``DP`` that of a row of the kernel, in l1 (twice the total variation
    distance). Bounds ``||Q*' - Q*||`` when divided by ``1 - gamma``. A.5 measures the kernel in total variation with
    the same constant, which is too small. ``size`` () of the soft values of q under the old MDP is ``max |V|`` in the
    paper; `simplex.half_range` of V, which is never larger, also holds. Both MDPs share discount and temperature.
    """
    rows = jnp.sum(jnp.abs(new.transition - old.transition), axis=-1)
    return jnp.max(jnp.abs(new.reward - old.reward)) + new.discount * size * jnp.max(rows)


def largest_q(reward: Array, discount: Array, temperature: Array, actions: int) -> Array:
    """() bounds ``|Q*|``: ``(R + gamma mu log A) / (1 - gamma)`` with ``|r| <= R``; reward. AES paper A.20, A.22."""
    return (reward + discount * temperature * jnp.log(float(actions))) / (1.0 - discount)


def policy_drift_tanh(dq: Array, temperature: Array) -> Array:
    """(..., A) -> (...): bounds the l1 change of ``softmax(q/mu)`` by ``2 tanh(span(dq) / (4 mu))``, below 2.

    Reached by two levels of ``dq`` and ``q = -dq/2``. Deviation from the paper's ``max |dq| / mu`` (A.21): smaller.
    """
    return 2.0 * jnp.tanh(span(dq) / (4.0 * temperature))


def lag_one_bound(dq: Array, discount: Array, temperature: Array) -> Array:
    """() bounds the regret of playing the last round's soft-optimal policy: ``max_s span(dQ*)^2 / (8 mu (1-gamma))``.

    By Hoeffding's lemma; ``dq`` (S, A) is the change of Q*. Not in the paper. Quadratic in the drift, so that over
    a fixed distance in T equal steps the sum falls as 1/T.
    """
    return jnp.max(span(dq)) ** 2 / (8.0 * temperature * (1.0 - discount))


def temperature_drift_bound(first: Array, second: Array, q_span: Array, discount: Array, actions: int) -> Array:
    """(...) bounds the l1 distance of the soft-optimal policies of one MDP at two temperatures. Not in the paper.

    ``|a-b| (span / (2 a b) + gamma log A / (2 (1-gamma) m))`` with ``m = min(a, b)`` of the temperatures a and b, and
    ``q_span`` (...) the `span` of ``Q*(s, .)`` at either. A schedule that replaces the temperature of the MDP moves its
    own comparator by as much. Proof: docs/proofs/soft_mdps.md#m19.
    """
    low = jnp.minimum(first, second)
    own = discount * jnp.log(float(actions)) / (2.0 * (1.0 - discount) * low)
    return jnp.abs(first - second) * (q_span / (2.0 * first * second) + own)


def _expect(log_policy: Array, x: Array) -> Array:
    """(S, A), (S, A) -> (S,): mean of x under the policy; actions never played do not count, even if infinite."""
    pi = jnp.exp(log_policy)
    return jnp.sum(jnp.where(pi > 0.0, pi * x, 0.0), axis=-1)


def performance_difference(mdp: SoftMDP, new: Array, old: Array, start: Array) -> Array:
    """() ``J(new) - J(old)`` by the soft performance difference lemma, weights ``d^new``; reward. AES paper A.8.

    The log-policy ``old`` (S, A) must play everything that ``new`` plays.
    """
    q, value = evaluate(mdp, old)
    advantage = _expect(new, q - mdp.temperature * old - value[:, None])
    return expected(mdp, new, start, advantage - mdp.temperature * simplex.kl(jnp.exp(new), old))


def planning_objective(mdp: SoftMDP, solution: Solution, log_policy: Array, start: Array) -> Array:
    """() the paper's ``Jtilde(pi) = E_{d*, pi}[Q* - mu log pi] / (1-gamma)``; reward. AES paper A.8.

    Q* is a discounted sum already, so this is *not* ``J(pi*)`` at ``pi*`` as the paper says, but about
    ``1 / (1-gamma)`` times as much; only differences of it have a meaning (`main_term`).
    """
    soft = _expect(log_policy, solution.q - mdp.temperature * log_policy)
    return expected(mdp, solution.log_policy, start, soft)


def main_term(mdp: SoftMDP, solution: Solution, log_policy: Array, start: Array) -> Array:
    """() ``E_{d*}[Delta] / (1-gamma) = Jtilde(pi*) - Jtilde(pi)``; reward. AES paper A.8.

    Weighted by the occupancy of ``pi*`` it neither equals nor bounds the gap of the returns; `softmdp.regret`, weighted
    by that of pi, equals it.
    """
    return expected(mdp, solution.log_policy, start, surrogate_gap(mdp, solution, log_policy))


def biases(mdp: SoftMDP, solution: Solution, log_policy: Array, start: Array) -> tuple[Array, Array]:
    """() and (): what A.8 and what A.9 calls the substitution bias; reward.

    ``E_{d*, pi}[Q* - Q^pi] / (1-gamma)`` >= 0 and ``E_{d*, pi*}[Q^pi - Q*] / (1-gamma)`` <= 0. `main_term` plus both is
    ``J(pi*) - J(pi)``; neither bias does it alone.
    """
    difference = solution.q - evaluate(mdp, log_policy)[0]
    a8, a9 = (
        expected(mdp, solution.log_policy, start, _expect(policy, sign * difference))
        for policy, sign in ((log_policy, 1.0), (solution.log_policy, -1.0))
    )
    return a8, a9

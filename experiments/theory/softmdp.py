"""Finite discounted Markov decision processes with an entropy bonus, solved and evaluated exactly.

The return of a policy is the discounted sum of ``reward + mu * entropy`` (AES paper A.5, A.8). Every function treats
one MDP of S states and A actions (both may be 1); wrap it in ``jax.vmap`` for many of equal shape.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import Array
from experiments.theory import simplex

_STOP = 8.0  # stopping tolerance in ulps of the largest action value
_MOST = 64  # most evaluations; check convergence by `Solution.residual`


class SoftMDP(NamedTuple):
    """A discounted MDP with a fixed entropy bonus."""

    reward: Array  # (S, A)
    transition: Array  # (S, A, S), each row sums to one
    discount: Array  # (), gamma in [0, 1)
    temperature: Array  # (), mu > 0; reward per nat


class Solution(NamedTuple):
    """The soft-optimal values and policy of a `SoftMDP`."""

    q: Array  # (S, A) soft-optimal action values Q*; reward
    value: Array  # (S,) V* = mu logsumexp(Q* / mu); reward
    log_policy: Array  # (S, A) log pi* = (Q* - V*) / mu; nats
    residual: Array  # () sup-norm of T Q - Q; the error of q is at most residual / (1 - gamma)


def _check(mdp: SoftMDP) -> None:
    shape, kernel = mdp.reward.shape, mdp.transition.shape
    if len(shape) != 2 or kernel != (*shape, shape[0]):
        raise ValueError(f"one MDP has reward (S, A) and transition (S, A, S); got {shape} and {kernel}")


def _backup(mdp: SoftMDP, value: Array) -> Array:
    """(S,) -> (S, A): ``r + gamma P V``."""
    return mdp.reward + mdp.discount * jnp.sum(mdp.transition * value[None, None, :], axis=-1)


def soft_value(q: Array, temperature: Array) -> Array:
    """(..., A) -> (...): ``mu log sum_a exp(q / mu)``, between the maximum and the maximum plus ``mu log A``."""
    return temperature * jax.nn.logsumexp(q / temperature, axis=-1)


def bellman(mdp: SoftMDP, q: Array) -> Array:
    """(S, A) -> (S, A): the soft Bellman optimality operator ``r + gamma P mu logsumexp(q / mu)``. AES paper A.20."""
    _check(mdp)
    return _backup(mdp, soft_value(q, mdp.temperature))


def induced_kernel(mdp: SoftMDP, log_policy: Array) -> Array:
    """(S, A) -> (S, S): state-to-state kernel ``P^pi`` of a policy. AES paper A.9."""
    return jnp.sum(jnp.exp(log_policy)[:, :, None] * mdp.transition, axis=1)


def _policy_value(mdp: SoftMDP, log_policy: Array) -> Array:
    """(S, A) -> (S,): soft value of a policy."""
    pi = jnp.exp(log_policy)
    nats = jnp.where(pi > 0.0, log_policy, 0.0)
    gain = jnp.sum(pi * (mdp.reward - mdp.temperature * nats), axis=-1)
    system = jnp.eye(mdp.reward.shape[0], dtype=gain.dtype) - mdp.discount * induced_kernel(mdp, log_policy)
    return jnp.linalg.solve(system, gain)


def solve(mdp: SoftMDP) -> Solution:
    """Soft-optimal values by soft policy iteration, which is Newton's method on the soft Bellman equation.

    Each iteration evaluates the current policy by a linear solve and takes the softmax of its action values, until
    rounding prevents progress. The last step is one application of the Bellman operator.
    """
    _check(mdp)
    resolution = _STOP * jnp.finfo(mdp.reward.dtype).eps

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        count, q, residual = carry
        return (count < _MOST) & (residual > resolution * jnp.max(jnp.abs(q)))

    def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, q, _ = carry
        value = _policy_value(mdp, jax.nn.log_softmax(q / mdp.temperature, axis=-1))
        q = _backup(mdp, value)
        ahead = soft_value(q, mdp.temperature) - value
        residual = mdp.discount * jnp.max(jnp.abs(jnp.sum(mdp.transition * ahead[None, None, :], axis=-1)))
        return count + 1, q, residual

    start = (jnp.zeros((), jnp.int32), mdp.reward, jnp.full((), jnp.inf, mdp.reward.dtype))
    _, q, _ = jax.lax.while_loop(unfinished, improve, start)
    q = bellman(mdp, q)
    value = soft_value(q, mdp.temperature)
    residual = jnp.max(jnp.abs(_backup(mdp, value) - q))
    return Solution(q, value, jax.nn.log_softmax(q / mdp.temperature, axis=-1), residual)


def evaluate(mdp: SoftMDP, log_policy: Array) -> tuple[Array, Array]:
    """(S, A) -> ((S, A), (S,)): soft action values and soft values of a policy (-inf where it never acts). A.8."""
    _check(mdp)
    value = _policy_value(mdp, log_policy)
    return _backup(mdp, value), value


def occupancy(mdp: SoftMDP, log_policy: Array, start: Array) -> Array:
    """(S,) discounted state occupancy ``d(s) = (1-gamma) sum_h gamma^h Pr(s_h = s)``, sums to one. AES paper A.8."""
    kernel = induced_kernel(mdp, log_policy)
    system = jnp.eye(kernel.shape[0], dtype=kernel.dtype) - mdp.discount * kernel.T
    return (1.0 - mdp.discount) * jnp.linalg.solve(system, start)


def expected(mdp: SoftMDP, log_policy: Array, start: Array, x: Array) -> Array:
    """() ``E_{d^pi}[x] / (1-gamma)`` of x (S,), with the occupancy of a policy (S, A)."""
    return jnp.sum(occupancy(mdp, log_policy, start) * x) / (1.0 - mdp.discount)


def soft_return(mdp: SoftMDP, log_policy: Array, start: Array) -> Array:
    """() maximum-entropy return ``J(pi)`` from the start distribution (S,); reward, not normalised. AES paper A.5."""
    return jnp.sum(start * evaluate(mdp, log_policy)[1])


def surrogate_gap(mdp: SoftMDP, solution: Solution, log_policy: Array) -> Array:
    """(S,) ``Delta(s) = f_s(pi) - f_s(pi*) = mu KL(pi || pi*)``, >= 0; reward. AES paper A.8, Fenchel-Young identity.

    Finite for every policy, because ``log pi*`` is used even if ``pi*`` underflows.
    """
    pi, best = jnp.exp(log_policy), jnp.exp(solution.log_policy)
    played = pi > 0.0
    r = jnp.where(played, log_policy, 0.0) - jnp.where(played, solution.log_policy, 0.0)
    # Each term pi*log(pi/best) - pi + best is >= 0, so near-equal policies keep their relative accuracy.
    term = jnp.where(jnp.abs(r) < 1e-3, best * r * r * (0.5 + r / 3.0 + r * r / 8.0 + r**3 / 30.0), pi * r - pi + best)
    return mdp.temperature * jnp.sum(jnp.where(played, term, best), axis=-1)


def regret(mdp: SoftMDP, log_policy: Array, start: Array, solution: Solution | None = None) -> Array:
    """() ``J(pi*) - J(pi)`` by the exact on-policy identity ``E_{d^pi}[Delta] / (1-gamma)``; reward.

    The weights are the occupancy of ``pi`` itself, which leaves no bias term and no cancellation. ``log_policy`` (S, A)
    is -inf where the policy never acts; the MDP is solved unless its ``solution`` is given.
    """
    solution = solve(mdp) if solution is None else solution
    return expected(mdp, log_policy, start, surrogate_gap(mdp, solution, log_policy))


def span(v: Array) -> Array:
    """(..., A) -> (...): ``max v - min v``; constants added to v do not count."""
    return 2.0 * simplex.half_range(v)


def drift_budget(old: SoftMDP, new: SoftMDP, size: Array) -> Array:
    """() ``b = Dr + gamma * size * DP``: bounds ``||T' q - T q||`` in sup norm; reward. AES paper A.7, A.20.

    ``Dr`` is the largest change of a reward and ``DP`` that of a row of the kernel, in l1. Bounds ``||Q*' - Q*||`` when
    divided by ``1 - gamma``. A.5 has the total variation in place of l1, which is too small. ``size`` () of the soft
    values of q under the old MDP is ``max |V|`` in the paper; their `simplex.half_range` also holds.
    """
    rows = jnp.sum(jnp.abs(new.transition - old.transition), axis=-1)
    return jnp.max(jnp.abs(new.reward - old.reward)) + new.discount * size * jnp.max(rows)


def lag_one_bound(dq: Array, discount: Array, temperature: Array) -> Array:
    """() bounds the regret of playing the last round's soft-optimal policy: ``max_s span(dQ*)^2 / (8 mu (1-gamma))``.

    By Hoeffding's lemma; ``dq`` (S, A) is the change of Q*. Not in the paper. Quadratic in the drift, so that over
    a fixed distance in T equal steps the sum falls as 1/T.
    """
    return jnp.max(span(dq)) ** 2 / (8.0 * temperature * (1.0 - discount))


def mean_of(log_policy: Array, x: Array) -> Array:
    """(S, A), (S, A) -> (S,): mean of x under the policy; actions of probability 0 are excluded, even if infinite."""
    pi = jnp.exp(log_policy)
    return jnp.sum(jnp.where(pi > 0.0, pi * x, 0.0), axis=-1)


def main_term(mdp: SoftMDP, solution: Solution, log_policy: Array, start: Array) -> Array:
    """() ``E_{d*}[Delta] / (1-gamma) = Jtilde(pi*) - Jtilde(pi)``; reward. AES paper A.8.

    Weighted by the occupancy of ``pi*`` it neither equals nor bounds the gap of the returns, as `regret` does.
    """
    return expected(mdp, solution.log_policy, start, surrogate_gap(mdp, solution, log_policy))


def biases(mdp: SoftMDP, solution: Solution, log_policy: Array, start: Array) -> tuple[Array, Array]:
    """() and (): the substitution biases of A.8 and of A.9; reward.

    ``E_{d*, pi}[Q* - Q^pi] / (1-gamma)`` >= 0 and ``E_{d*, pi*}[Q^pi - Q*] / (1-gamma)`` <= 0. `main_term` plus both is
    ``J(pi*) - J(pi)``; either bias alone is not enough.
    """
    difference, best = solution.q - evaluate(mdp, log_policy)[0], solution.log_policy
    a8, a9 = (
        expected(mdp, best, start, sign * mean_of(of, difference)) for of, sign in ((log_policy, 1.0), (best, -1.0))
    )
    return a8, a9


def random_mdps(rng: np.random.Generator, count: int, states: int, actions: int) -> SoftMDP:
    """``count`` stacked MDPs in NumPy float64: rewards U(-1, 1), kernels Dirichlet(0.3), discount U(0.3, 0.99),
    temperature 10**U(-2, 0.5)."""
    reward = rng.uniform(-1.0, 1.0, (count, states, actions))
    kernel = np.maximum(rng.gamma(0.3, size=(count, states, actions, states)), 1e-300)
    numbers = rng.uniform(0.3, 0.99, count), 10.0 ** rng.uniform(-2.0, 0.5, count)
    return SoftMDP(reward, kernel / kernel.sum(-1, keepdims=True), *numbers)  # type: ignore[arg-type]

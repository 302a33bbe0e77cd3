"""Study of the soft-MDP bridge: claims M1 to M19 on random MDPs and random changes of them.

A bound is a pair (left, right) with ``left <= right`` if the claim holds, an identity one with equal sides. The paper's
false claims are included.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from aesjax.types import Array
from experiments.theory import simplex, softmdp
from experiments.theory.softmdp import SoftMDP

Pairs = dict[str, tuple[Array, Array]]
SHAPES = ((7, 2), (7, 5), (3, 1))  # (states, actions)


def claims(old: SoftMDP, new: SoftMDP, q: Array, log_policy: Array, start: Array, heat: Array) -> Pairs:
    """Both sides of every claim, for one step of an MDP.

    Args:
      old, new: equal discount and temperature.
      q: (S, A) action values.
      log_policy: (S, A), -inf where it never acts.
      start: (S,) distribution.
      heat: () a second temperature.
    """
    gamma, mu, actions = new.discount, new.temperature, new.reward.shape[1]
    hot = new._replace(temperature=heat)
    before, now, heated = softmdp.solve(old), softmdp.solve(new), softmdp.solve(hot)
    dq, value = now.q - before.q, softmdp.soft_value(q, mu)
    moved = jnp.sum(jnp.abs(jnp.exp(now.log_policy) - jnp.exp(before.log_policy)), axis=-1)
    budget = softmdp.drift_budget(old, new, jnp.max(jnp.abs(before.value)))
    half = softmdp.drift_budget(old, new, simplex.half_range(before.value))
    scale = mu * (1.0 - gamma)  # of the comparator's drift; with mu 0.2 and gamma 0.99 vacuous beyond a budget of 0.004
    largest = jnp.max(jnp.abs(new.reward))
    most = (largest + gamma * mu * jnp.log(float(actions))) / (1.0 - gamma)

    pi, best = jnp.exp(log_policy), now.log_policy
    returns = [softmdp.soft_return(new, policy, start) for policy in (best, log_policy)]
    gap, main = returns[0] - returns[1], softmdp.main_term(new, now, log_policy, start)
    a8, a9 = softmdp.biases(new, now, log_policy, start)
    surrogate = [jnp.sum(-now.q * p, axis=-1) + mu * simplex.negative_entropy(p) for p in (pi, jnp.exp(best))]
    delta = softmdp.surrogate_gap(new, now, log_policy)
    d, d_best = (softmdp.occupancy(new, policy, start) for policy in (log_policy, best))
    nats = jnp.where(pi > 0.0, log_policy, 0.0)
    by_occupancy = jnp.sum(d[:, None] * pi * (new.reward - mu * nats)) / (1.0 - gamma)
    flow = (1.0 - gamma) * start + gamma * jnp.sum(softmdp.induced_kernel(new, log_policy) * d[:, None], axis=0)
    distance = jnp.max(jnp.sum(jnp.abs(pi - jnp.exp(best)), axis=-1))
    estimate = jnp.sum(d_best[:, None] * pi * (q - now.q)) / (1.0 - gamma)
    occupied = jnp.sum((d_best - start) * delta) / (1.0 - gamma)  # with the start for the states that were visited
    # The paper's Jtilde: Q* is a discounted sum already, so it is about 1 / (1 - gamma) times the return.
    soft = [softmdp.mean_of(policy, now.q - mu * policy) for policy in (best, log_policy)]
    objective = [softmdp.expected(new, best, start, x) for x in soft]
    q_of, value_of = softmdp.evaluate(new, best)
    advantage = softmdp.mean_of(log_policy, q_of - mu * best - value_of[:, None])
    difference = softmdp.expected(new, log_policy, start, advantage - mu * simplex.kl(pi, best))
    sup = [softmdp.bellman(mdp, of) for mdp, of in ((new, q), (old, q), (new, before.q))]
    spans = jnp.minimum(softmdp.span(now.q), softmdp.span(heated.q))
    low = jnp.minimum(mu, heat)
    own = gamma * jnp.log(float(actions)) / (2.0 * (1.0 - gamma) * low)  # proof: docs/proofs/soft_mdps.md#m19
    hotter = jnp.sum(jnp.abs(jnp.exp(best) - jnp.exp(heated.log_policy)), axis=-1)

    def norm(x: Array) -> Array:
        return jnp.max(jnp.abs(x))

    pairs = {
        "A.20 M1: contraction": (norm(sup[0] - now.q), gamma * norm(q - now.q)),
        "A.20 M1: fixed point": (norm(dq), norm(sup[2] - before.q) / (1.0 - gamma)),
        "A.7 M2: drift of the operator": (norm(sup[0] - sup[1]), softmdp.drift_budget(old, new, norm(value))),
        "A.7 M2: drift of Q*": (norm(dq), budget / (1.0 - gamma)),
        "new M2: with the half-range of V*": (norm(dq), half / (1.0 - gamma)),
        "A.20 M4: size of Q*": (norm(now.q), most),
        "A.21 M5: drift of a softmax": (moved, jnp.max(jnp.abs(dq), axis=-1) / mu),
        "new M5: tanh of the span": (moved, 2.0 * jnp.tanh(softmdp.span(dq) / (4.0 * mu))),
        "A.7 M6: drift of the comparator": (jnp.max(moved), budget / scale),
        "new M6: tanh": (jnp.max(moved), 2.0 * jnp.tanh(half / scale / 2.0)),
        "A.8 M7: flow of the occupancy": (d, flow),
        "A.8 M7: return by occupancy": (returns[1], by_occupancy),
        "A.8 M8: performance difference": (-gap, difference),
        "A.8 M9: Fenchel-Young": (delta, surrogate[0] - surrogate[1]),
        "new M10: regret on the policy": (gap, softmdp.regret(new, log_policy, start, now)),
        "A.8 M11: J(pi*) = Jtilde(pi*)": (returns[0], objective[0]),
        "new M11: difference of Jtilde": (main, objective[0] - objective[1]),
        "A.8 M12: gap <= main term": (gap, main),
        "A.9 M13: gap <= main term + bias of A.9": (gap, main + a9),
        "A.8 M13: gap <= main term + bias of A.8": (gap, main + a8),
        "new M13: both biases": (gap, main + a8 + a9),
        "A.8 M14: gap of a state": (delta, 2.0 * most + mu * jnp.log(float(actions))),
        "A.8 M14: occupancy": (jnp.abs(occupied), jnp.max(delta) * jnp.sum(jnp.abs(d_best - start)) / (1.0 - gamma)),
        "A.8 M14: estimation": (jnp.abs(estimate), norm(q - now.q) / (1.0 - gamma)),
        "A.9 M15: drift of the occupancy": (jnp.sum(jnp.abs(d - d_best)), gamma / (1.0 - gamma) * distance),
        "new M18: the last round's policy": (
            softmdp.regret(new, before.log_policy, start, now),
            softmdp.lag_one_bound(dq, gamma, mu),
        ),
        "new M19: temperature alone": (hotter, jnp.abs(mu - heat) * (spans / (2.0 * mu * heat) + own)),
        "A.21 E18: least probability of pi*": (
            jnp.exp(-softmdp.span(now.q) / mu) / actions,
            jnp.min(jnp.exp(best), axis=-1),
        ),
    }
    return {name: _equal_shapes(*sides) for name, sides in pairs.items()}


def _equal_shapes(left: Array, right: Array) -> tuple[Array, Array]:
    left, right = jnp.broadcast_arrays(left, right)
    return left, right


#: Claims that are identities.
EQUAL = (" M7:", " M8:", " M9:", " M10:", " M11:", "both biases")


def random_policies(rng: np.random.Generator, count: int, states: int, actions: int) -> np.ndarray:
    """(count, S, A) log-policies from near deterministic to near uniform, -inf at about a third of the actions."""
    pi = np.maximum(
        rng.gamma(10.0 ** rng.uniform(-1.5, 1.0, (count, states, 1)), size=(count, states, actions)), 1e-300
    )
    keep = rng.random(pi.shape) < 0.67
    np.put_along_axis(keep, pi.argmax(-1)[..., None], True, axis=-1)
    pi = np.where(keep, pi, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(pi / pi.sum(-1, keepdims=True))


def measure(rng: np.random.Generator, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Both sides of every claim, flat, on ``count`` random steps for each of `SHAPES`.

    A step leads 1e-4 to 1 of the way to another random MDP.
    """
    compiled: Callable[..., Pairs] = jit(jax.vmap(claims))
    parts = []
    for states, actions in SHAPES:
        old, other = (softmdp.random_mdps(rng, count, states, actions) for _ in range(2))
        w = 10.0 ** rng.uniform(-4.0, 0.0, count)
        reward = old.reward + w[:, None, None] * (other.reward - old.reward)
        kernel = old.transition + w[:, None, None, None] * (other.transition - old.transition)
        q = rng.normal(size=reward.shape) * 10.0 ** rng.uniform(-1, 2, (count, 1, 1))
        policy, start = random_policies(rng, count, states, actions), rng.dirichlet(np.ones(states), count)
        heat = old.temperature * 10.0 ** (rng.choice([-1, 1], count) * 10.0 ** rng.uniform(-4, 0, count))
        new = old._replace(reward=reward, transition=kernel)
        parts.append(compiled(old, new, q, policy, start, heat))

    def gather(name: str, side: int) -> np.ndarray:
        return np.concatenate([np.ravel(part[name][side]) for part in parts])

    return {name: (gather(name, 0), gather(name, 1)) for name in parts[0]}


def tightness(left: np.ndarray, right: np.ndarray) -> float:
    """Largest ``left / right``; pairs of vanishing size are excluded, because rounding dominates them."""
    sized = right > 1e-7
    return float(np.max(left[sized] / right[sized]))


def error(left: np.ndarray, right: np.ndarray) -> float:
    """Largest ``|left - right| / (1 + |right|)``."""
    return float(np.max(np.abs(left - right) / (1.0 + np.abs(right))))


def run(seeds: int) -> dict[str, dict[str, float | str]]:
    """Verdict and largest ratio (bounds) or error (identities) of every claim, on ``50 seeds`` steps of each shape."""
    rows: dict[str, dict[str, float | str]] = {}
    for name, (left, right) in measure(np.random.default_rng(0), 50 * seeds).items():
        equal = any(part in name for part in EQUAL)
        value = error(left, right) if equal else tightness(left, right)
        holds = value < 1e-8 if equal else bool(np.all(left <= right + 1e-9 * (1.0 + np.abs(right))))
        rows[name] = {
            "kind": "identity" if equal else "bound",
            "largest": value,
            "verdict": "true" if holds else "false",
        }
    return rows

"""Policies that follow a drifting sequence of soft MDPs by entropic mirror descent, one learner per state.

In round t a policy is played, then its soft-optimal action values are revealed, exactly (planning) or with noise.
The loss of state s is ``f_s(p) = -<Q*_t(s, .), p> + mu Psi(p)``, the step ``eta_t = c * lam_t`` with ``lam_t`` from an
entropy schedule. In log space the step without truncation is a running average of values: with the gain
``g = eta * mu`` it is ``log x <- (1 - g) log x + g Q / mu``. The regret of a round is exact (`softmdp.regret`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from aesjax.schedules import critic_drift
from aesjax.types import Array, EntropySchedule, Signals
from experiments.theory.simplex import mirror_step
from experiments.theory.softmdp import SoftMDP, Solution, regret, solve


class Sequence(NamedTuple):
    """T soft MDPs in the order they are in force, with what a learner is compared to."""

    mdps: SoftMDP  # leaves with a leading axis T
    q: Array  # (T, S, A) soft-optimal action values; reward
    log_policy: Array  # (T, S, A) soft-optimal policies; nats
    drift: Array  # (T, S) l1 path length of the soft-optimal policy, in [0, 2], zero in the first round
    start: Array  # (S,) distribution of the first state


class Track(NamedTuple):
    """What a learner did in each round."""

    regret: Array  # (T,) exact return lost in the round; reward
    weight: Array  # (T, S) entropy weight of the round's step, as applied; reward per nat
    log_policy: Array  # (T, S, A) policy played


def sequence(mdps: SoftMDP, start: Array) -> Sequence:
    """Solves every MDP of a sequence; leaves of ``mdps`` carry a leading axis T."""
    solutions = jax.vmap(solve)(mdps)
    policy = jnp.exp(solutions.log_policy)
    moved = jnp.sum(jnp.abs(policy[1:] - policy[:-1]), axis=-1)
    drift = jnp.concatenate([jnp.zeros_like(moved[:1]), moved])
    return Sequence(mdps, solutions.q, solutions.log_policy, drift, start)


def noisy(q: Array, sigma: Array | float, key: Array) -> Array:
    """(T, S, A): ``q`` with independent Gaussian noise of standard deviation ``sigma``; reward."""
    return q + sigma * jax.random.normal(key, (q.size,), q.dtype).reshape(q.shape)  # flat: much faster to compile


observed_drift = critic_drift(source="fresh")
"""The proxy a learner can have: l1 distance of its policy from the soft-greedy policy of the values just seen."""


def track(
    problem: Sequence,
    seen: Array,
    rule: EntropySchedule | Array,
    *,
    coupling: Array | float,
    entropy: Array | float = 1.0,
    floor: Array | float = 0.0,
    initial: Array | None = None,
) -> Track:
    """Plays the sequence: every state is a mirror-descent learner with its own schedule.

    Round t: play ``x_t``; see ``seen[t]`` and the drift signals; update the schedule, whose weight ``lam_t`` belongs
    to this round (the analysis needs the index t on the drift); step against the gradient of
    ``f_t + entropy * lam_t * Psi``. AES paper A.20 with Section 3.

    Args:
      problem: the sequence.
      seen: (T, S, A) revealed action values, see `noisy`.
      rule: a schedule that reads `learners.drift_proxy` or `observed_drift`, copied for every state; or the weights
        themselves, (T,) or (T, S).
      coupling: () c, steps per weight. The weight is cut where ``c * lam * (mu + entropy * lam) = 1``: the step then
        lands on its fixed point, and a larger one would overshoot it.
      entropy: () 1 adds the scheduled entropy to the loss, 0 takes the same steps without it.
      floor: () smallest probability, in [0, 1/A]; 0 leaves the full simplex.
      initial: (S, A) log of the first policy; None: uniform. The soft-optimal one leaves out the cold start.
    """
    rounds, states, size = problem.q.shape
    coupling, entropy = jnp.asarray(coupling, seen.dtype), jnp.asarray(entropy, seen.dtype)
    schedule = rule if isinstance(rule, EntropySchedule) else None
    if schedule is not None:
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (states, *leaf.shape)), schedule.init())
        given = jnp.zeros((rounds, states), seen.dtype)
    else:
        weights = jnp.asarray(rule, seen.dtype)
        if weights.shape not in ((rounds,), (rounds, states)):
            raise ValueError(f"weights must have shape ({rounds},) or ({rounds}, {states}); got {weights.shape}")
        memory, given = (), jnp.broadcast_to(weights.reshape(rounds, -1), (rounds, states))

    def one_round(carry, now):
        log_x, memory = carry
        q, xi, mu, lam = now
        if schedule is not None:
            surprise = jnp.sum(jnp.abs(jnp.exp(log_x) - jax.nn.softmax(q / mu, axis=-1)), axis=-1)
            memory = jax.vmap(schedule.update)(Signals(true_drift=xi, fresh_critic_drift=surprise), memory)
            lam = memory.weight.astype(q.dtype)
        # Root of c lam (mu + entropy lam) = 1 in the form that does not cancel as entropy -> 0.
        lam = jnp.minimum(lam, 2.0 / (coupling * (mu + jnp.sqrt(mu**2 + 4.0 * entropy / coupling))))
        gradient = -q + (mu + entropy * lam)[:, None] * (1.0 + log_x)
        stepped = mirror_step(log_x, gradient, (coupling * lam)[:, None], floor)
        return (stepped, memory), (log_x, lam)

    first = jnp.full((states, size), -jnp.log(size), seen.dtype) if initial is None else initial
    xs = (seen, problem.drift, problem.mdps.temperature, given)
    _, (played, weight) = jax.lax.scan(one_round, (first, memory), xs)
    return Track(regret_of(problem, played), weight, played)


def regret_of(problem: Sequence, played: Array) -> Array:
    """(T,) exact regret of each round for policies (T, S, A); reward."""

    def one(mdp: SoftMDP, q: Array, log_best: Array, log_policy: Array) -> Array:
        value = q[:, 0] - mdp.temperature * log_best[:, 0]
        solution = Solution(q, value, log_best, jnp.zeros((), q.dtype))
        return regret(mdp, log_policy, problem.start, solution)

    return jax.vmap(one)(problem.mdps, problem.q, problem.log_policy, played)


def gain_weight(gain: Array | float, coupling: Array | float, temperature: Array | float) -> Array:
    """The weight whose step without added entropy is a running average with this gain: ``gain / (c mu)``.

    Gain 1 is the lag-1 soft-greedy learner, which plays the soft-optimal policy of the values seen last.
    """
    return jnp.asarray(gain) / (jnp.asarray(coupling) * jnp.asarray(temperature))


def restart(changed: Array, coupling: Array | float, temperature: Array | float) -> Array:
    """(T,) weights of a learner that is told of every change (T,) and averages all it saw since: gains 1, 1/2, ..."""

    def count(held: Array, new: Array) -> tuple[Array, Array]:
        held = jnp.where(new, 1, held + 1)
        return held, held

    _, held = jax.lax.scan(count, jnp.zeros((), jnp.int32), changed)
    return gain_weight(1.0 / held, coupling, temperature)

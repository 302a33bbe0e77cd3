"""Regret bounds of the paper and their repairs, evaluated on trajectories, and their constants.

Symbols: K arms, ``floor`` of the truncated simplex, ``L`` and ``l`` its largest log range and cross-entropy
(`simplex`), ``xi_t`` comparator drift, ``A_t`` its prefix sum (hats: of a proxy), ``eta_t = c lam_t``.
Trajectories are ``log_x`` (T + 1, K), gradients (T, K), steps ``etas`` (T,).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from aesjax.types import Array
from experiments.theory.simplex import cross_entropy, half_range, kl, largest_cross_entropy, largest_log_range, path

Scalar = Array | float


class Constants(NamedTuple):
    """Constants of the trade-off ``C0 + sum (C1 xi_t / lam_t + C2 lam_t)``, AES paper Theorem (tradeoff)."""

    start: Array  # C0
    tracking: Array  # C1
    stability: Array  # C2


def linear_regret(comparator: Array, log_x: Array, gradients: Array) -> Array:
    """(): ``sum <g_t, x_t - u_t>``."""
    return jnp.sum(gradients * (jnp.exp(log_x[:-1]) - comparator))


def printed_bounds(
    comparator: Array, log_x: Array, gradients: Array, etas: Array, gradient_psi: Scalar
) -> tuple[Array, Array]:
    """() right sides of AES paper Lemma (dynamic-md), with the drift term ``2 G_Psi / eta_t``, and of A.13 and A.14.

    The lemma needs nondecreasing steps. The appendix has ``G_Psi / eta_{t-1}`` and is FALSE in general.
    """
    drift = gradient_psi * path(comparator)[1:]
    noise = jnp.sum(etas / 2.0 * jnp.max(jnp.abs(gradients), axis=-1) ** 2)
    common = kl(comparator[0], log_x[0]) / etas[0] + noise
    return common + jnp.sum(2.0 * drift / etas[1:]), common + jnp.sum(drift / etas[:-1])


def sharp_bound(comparator: Array, log_x: Array, gradients: Array, etas: Array) -> Array:
    """() sharp dynamic mirror descent (Theorem S): any positive steps in any order, also on the full simplex.

    ``CE(u_1, x_1)/eta_1 + sum eta_t/2 hr(g_t)^2 + sum hr(log x_t) xi_t/eta_t + sum CE(u_{t-1}, x_t)
    (1/eta_t - 1/eta_{t-1})_+`` with half-ranges hr; from the uniform start the first term is ``log K / eta_1``.
    """
    later = log_x[1:-1]
    tracking = jnp.sum(half_range(later) * path(comparator)[1:] / etas[1:])
    relaxing = jnp.sum(cross_entropy(comparator[:-1], later) * jnp.maximum(1.0 / etas[1:] - 1.0 / etas[:-1], 0.0))
    noise = jnp.sum(etas / 2.0 * half_range(gradients) ** 2)
    return cross_entropy(comparator[0], log_x[0]) / etas[0] + noise + tracking + relaxing


def paper_constants(
    size: int, floor: Scalar, c: Scalar, gradient: Scalar, lambda_min: Scalar, lambda_max: Scalar, first: Scalar
) -> Constants:
    """The constants of AES paper Theorem (tradeoff) as its Appendix A.16 gives them; ``gradient`` bounds ``|f'|``."""
    gradient_psi = 1.0 + largest_cross_entropy(floor)
    stability = c / 2.0 * (gradient + lambda_max * gradient_psi) ** 2 + 2.0 * jnp.log(float(size))
    return Constants(jnp.log(float(size)) / (c * lambda_min) + stability * first, 2.0 * gradient_psi / c, stability)


def sharp_constants(size: int, floor: Scalar, c: Scalar, spread: Scalar, lambda_max: Scalar) -> Constants:
    """Constants from half-ranges: ``C1 = L / (2c)``, ``C2 = c/2 (G' + lambda_max L/2)^2 + log K``, C0 = 0.

    ``spread`` is G', a bound on the half-range of the losses' gradients.
    """
    log_range = largest_log_range(size, floor)
    stability = c / 2.0 * (spread + lambda_max * log_range / 2.0) ** 2 + jnp.log(float(size))
    return Constants(jnp.zeros(()), log_range / (2.0 * c), stability)


def self_consistent(size: int, floor: Scalar, c: Scalar, spread: Scalar) -> tuple[Array, Constants]:
    """() ``kappa = sqrt(C1/C2)`` where C2 itself depends on the largest weight ``sqrt(3) kappa``, and the constants.

    The square root of (1 + A_t)/t is at most sqrt(3), as proxies are at most 2. By bisection: C2 grows with kappa, so
    ``sqrt(C1/C2(0))`` is too large and ``sqrt(C1/C2)`` at that too small.
    """

    def constants(kappa: Scalar) -> Constants:
        return sharp_constants(size, floor, c, spread, 3.0**0.5 * kappa)

    def larger(kappa: Scalar) -> Array:
        now = constants(kappa)
        return jnp.sqrt(now.tracking / now.stability)

    def halve(bracket: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        low, high = bracket
        middle = jnp.sqrt(low) * jnp.sqrt(high)  # the product of both may overflow
        small = middle < larger(middle)
        return (jnp.where(small, middle, low), jnp.where(small, high, middle)), None

    most = larger(0.0)
    (low, high), _ = jax.lax.scan(halve, (larger(most), most), length=100)
    kappa = jnp.sqrt(low) * jnp.sqrt(high)
    return kappa, constants(kappa)


def prior_bound(size: int, floor: Scalar, c: Scalar, spread: Scalar, proxy: Array, *, relaxing: float = 1.0) -> Array:
    """() Theorem R: ``log K/(c kappa) + (4 + 2 l/L) sqrt(C1 C2 T (1 + Ahat_T))``.

    For ``lam_t = kappa sqrt((1 + Ahat_t)/t)`` with the self-consistent kappa and proxies (T,) in [0, 2] whose prefix
    sums dominate the comparator's. Neither monotone steps nor a smallest weight are needed. Also holds for the
    maximal schedule (Theorem M) and, with ``relaxing = e``, which multiplies ``2 l/L``, for ``aes_m(hold=True)``.
    Proofs: docs/proofs/schedules.md.
    """
    kappa, (_, tracking, stability) = self_consistent(size, floor, c, spread)
    ratio = largest_cross_entropy(floor) / largest_log_range(size, floor)
    rate = jnp.sqrt(tracking * stability * proxy.shape[0] * (1.0 + jnp.sum(proxy)))
    return jnp.log(float(size)) / (c * kappa) + (4.0 + 2.0 * relaxing * ratio) * rate


def discounted_bound(
    size: int, floor: Scalar, c: Scalar, spread: Scalar, window: Scalar, weights: Array, proxy: Array
) -> Array:
    """() Theorem D, for ``lam_t = kappa sqrt((1 + num_t)/den_t)`` discounted over ``window`` rounds.

    ``log K/(c lam_1) + 2 sqrt(C1 C2 W (1 + num_T)) + (1 + 2 (1 - sqrt rho) W + l/(L rho)) C2 sum lam_t``.
    """
    _, (_, tracking, stability) = self_consistent(size, floor, c, spread)
    rho = 1.0 - 1.0 / window
    age = proxy.shape[0] - 1 - jnp.arange(proxy.shape[0])
    mass = 1.0 + jnp.sum(proxy * rho**age)
    ratio = largest_cross_entropy(floor) / largest_log_range(size, floor)
    factor = 1.0 + 2.0 * (1.0 - jnp.sqrt(rho)) * window + ratio / rho
    first = jnp.log(float(size)) / (c * weights[0])
    return first + 2.0 * jnp.sqrt(tracking * stability * window * mass) + factor * stability * jnp.sum(weights)


def clipped_bound(
    size: int, floor: Scalar, c: Scalar, spread: Scalar, lambda_min: Scalar, weights: Array, drift: Array
) -> Array:
    """() for the paper's clipped schedule: the trade-off with sharp constants, plus the term missing in its proof.

    ``log K/(c lam_1) + sum (C1 xi_t/lam_t + C2 lam_t) + l (1 + log T)/(2 c lambda_min)``, the last for relaxing the
    weight before the iterate has caught up.
    """
    constants = sharp_constants(size, floor, c, spread, jnp.max(weights))
    penalty = largest_cross_entropy(floor) * (1.0 + jnp.log(float(weights.shape[0]))) / (2.0 * c * lambda_min)
    first = jnp.log(float(size)) / (c * weights[0]) + constants.stability * weights[0]
    return first + jnp.sum(constants.tracking * drift[1:] / weights[1:] + constants.stability * weights[1:]) + penalty


def constant_weight(size: int, c: Scalar, constants: Constants, drift: Array) -> Array:
    """() the constant weight that minimises its bound, ``sqrt((C1 A_T + log K / c) / (C2 T))``.

    AES paper A.17 leaves out the first round's ``log K / c``, and its weight is 0 without drift.
    """
    mass = constants.tracking * jnp.sum(drift) + jnp.log(float(size)) / c
    return jnp.sqrt(mass / (constants.stability * drift.shape[0]))


def maximal_means(proxy: Array, *, prior: float = 1.0, threshold: float = 1.0) -> Array:
    """(T,) ``M_t`` of the exact maximal schedule (Theorem M): the largest mean over windows that end at t.

    The complete past, with the prior added, is always included; other windows need a mass of ``threshold``. Costs T^2
    operations; `aesjax.schedules.aes_m` is the dyadic approximation that runs inside an agent.
    """
    rounds = proxy.shape[0]
    total = jnp.concatenate([jnp.zeros(1, proxy.dtype), jnp.cumsum(proxy)])

    def at(t: Array) -> Array:
        mass = total[t] - total[:rounds]  # of windows that start after round r
        length = t - jnp.arange(rounds)
        usable = (length > 0) & (mass >= threshold)
        best = jnp.max(jnp.where(usable, mass / jnp.maximum(length, 1), 0.0))
        return jnp.maximum(best, (prior + total[t]) / t)

    return jax.lax.map(at, jnp.arange(1, rounds + 1))

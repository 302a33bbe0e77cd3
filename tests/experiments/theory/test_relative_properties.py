"""What `aes_r` promises, on every family of proxies, and the loop through residuals that grow with the weight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import aes_d, aes_r
from aesjax.types import Signals
from experiments.theory.learners import drift_proxy
from tests.experiments.theory.checks import at_most, long_streams

LENGTH, GAIN, R_MAX, MARGIN, E_MAX = 2000, 2.0, 5.0, 0.25, 8.0
V = long_streams(LENGTH)


def traced(rows, gain=GAIN, updates=LENGTH, **options):
    """Ratio to the base weight, excess, smoothed proxy and baseline (before its move), each (N, T)."""
    schedule = aes_r(drift_proxy, 1.0, updates, gain=gain, lambda_max=np.inf, **options)

    def run(row):
        def step(old, v):
            new = schedule.update(Signals(true_drift=v), old)
            log_s = jnp.log(jnp.maximum(new.inner.smooth / jnp.maximum(new.inner.unit, 1e-38), 1e-38))
            over = log_s - old.inner.log_baseline
            excess = jnp.where((v > 0) & (v < jnp.inf), jnp.clip(jnp.exp(over) / (1 + MARGIN) - 1, 0.0, E_MAX), 0.0)
            return new, (new.weight, excess, over)

        return jax.lax.scan(step, schedule.init(), row)[1]

    return [np.float64(x) for x in jax.jit(jax.vmap(run))(np.float32(rows))]


def test_1_ratio_does_not_depend_on_the_unit_of_the_reward(report):
    """Proof: docs/proofs/relative.md#aes_r-1."""
    rows = V[V.max(1) > 0]
    scales = np.repeat([1.0, 2.0**12, 2.0**-12, 1e4, 3e-5], len(rows))[:, None]
    ratio = traced(scales * np.tile(rows, (5, 1)))[0].reshape(5, len(rows), LENGTH)
    np.testing.assert_array_equal(ratio[1], ratio[0])
    # Powers of two only shift exponents. Other factors round, which may turn a step of the median now and then.
    worst = np.abs(ratio[3:] / ratio[0] - 1)
    report("aes_r (1): worst relative change", worst.max())
    report("aes_r (1): median relative change", np.median(worst))
    assert np.mean(worst < 1e-4) > 0.95
    assert worst.max() < 0.1


def test_2_ratio_lies_between_one_and_its_limit_and_is_one_without_excess(report):
    """Proof: docs/proofs/relative.md#aes_r-2."""
    ratio, excess, _ = traced(V)
    assert ratio.min() >= 1.0
    report("aes_r (2): largest ratio / r_max", ratio.max() / R_MAX)
    assert ratio.max() <= R_MAX * (1 + 1e-6)
    quiet = np.cumsum(excess, axis=1) == 0
    assert quiet.mean() > 0.05
    np.testing.assert_array_equal(ratio[quiet], 1.0)


def test_3_extra_entropy_is_at_most_the_root_of_the_excess(report):
    """Proof: docs/proofs/relative.md#aes_r-3."""
    rng = np.random.default_rng(0)
    sparse = 1.0 + 20.0 * (rng.random((10, LENGTH)) < 0.01)
    ratio, excess, _ = traced(np.concatenate([V, sparse]))
    steps = np.arange(1, LENGTH + 1)
    extra, mass = np.cumsum(ratio - 1, axis=1), np.cumsum(excess, axis=1)
    at_most(extra, 2 * np.sqrt(GAIN * steps * mass) * (1 + 1e-5), "aes_r (3)", report)
    assert np.mean(mass[:, -1] > 1) > 0.5


def quiet(length, seed=0):
    """(length,) residuals of a run without drift."""
    return np.random.default_rng(seed).lognormal(0.0, 0.25, length)


def interrupted(length, value, start, rounds):
    """The same with an outage: ``rounds`` proxies from ``start`` on are ``value``, in the middle of an excess."""
    v = quiet(length)
    v[start - 20 : start] *= 4.0
    v[start : start + rounds] = value
    return v


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_3_holds_through_outages(value, report):
    """An update without a valid proxy adds nothing to the excess, so it must not keep the weight raised."""
    length, start, rounds = 40_000, 8_000, 30_000
    rows = np.stack([interrupted(length, value, start, rounds), quiet(length)])
    ratio, excess, _ = traced(rows, updates=float(length))
    steps = np.arange(1, length + 1)
    mass = np.cumsum(excess, axis=1)
    at_most(np.cumsum(ratio - 1, axis=1), 2 * np.sqrt(GAIN * steps * mass), f"aes_r (3), outage of {value}", report)
    assert ratio[0, start - 1] > 1.2  # it began raised,
    assert ratio[0, start + rounds - 1] < 1.05  # came down,
    assert ratio[0, start + rounds :].max() < 1.3  # and the end of the outage is no change


def test_2_sparse_proxies_without_drift_leave_the_base(report):
    """One update in ten or in a hundred has a positive proxy; nothing changes."""
    rng = np.random.default_rng(2)
    rows = np.stack([quiet(20_000) * (rng.random(20_000) < share) for share in (0.5, 0.1, 0.01)])
    ratio = traced(rows, updates=20_000.0)[0]
    for share, row in zip((0.5, 0.1, 0.01), ratio, strict=True):
        report(f"aes_r, proxies in {share:g} of the updates: mean ratio", row[5_000:].mean())
    assert np.all(ratio[:, 5_000:].mean(1) < 1.05)
    changed = np.where(np.arange(20_000) >= 10_000, 4.0, 1.0) * rows[1]
    heard = traced(changed[None], updates=20_000.0)[0][0, 10_000:11_000].max()
    report("aes_r, fourfold proxies in a tenth of the updates: highest ratio", heard)
    assert heard > 1.25  # a change is still heard, if less: updates without a proxy count as updates without excess


def test_4_baseline_follows_slopes_up_to_two_and_no_further(report):
    """``|d log v / d log t| <= 2`` once the gain 4/t is below its cap (t > 8).

    Proof: docs/proofs/relative.md#aes_r-4.
    """
    t = np.arange(1, 20_001)
    powers = np.array([-1.9, -1.0, -0.5, 0.0, 0.5, 1.0, 1.9, 4.0])
    smooth = (1 + t[None] / 100) ** powers[:, None]
    ratio, _, over = traced(np.concatenate([smooth, t[None] ** np.array([[1.0], [1.9]])]), updates=20_000.0)
    late = ratio[:, 4000:].max(1)
    for name, value in zip([*(f"(1 + t/100)**{p:g}" for p in powers), "t", "t**1.9"], late, strict=True):
        report(f"aes_r (4): late ratio under {name}", value)
    np.testing.assert_allclose(late[:7], 1.0, atol=1e-3)
    assert np.abs(over[:7, 4000:]).max() < np.log1p(MARGIN)
    assert late[7] > 1.5  # growth that the baseline cannot follow counts as drift
    np.testing.assert_allclose(late[8], 1.0, atol=1e-3)
    # A power law from the first step on runs away while the step is capped, and is caught up with only slowly.
    assert late[9] > 1.5


@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0, 4.0])
def test_5_log_log_gain_of_a_held_excess(gain, report):
    """With the baseline held, weight against proxy has elasticity a (1 + e) / (2 (1 + a e)) <= max(a, 1) / 2."""
    excess = np.linspace(0.02, 6.0, 120)
    proxy = np.full((120, 600), 1.0)
    proxy[:, 1:] = ((1 + MARGIN) * (1 + excess))[:, None]
    ratio, seen, _ = traced(proxy, gain=gain, updates=600, baseline_gain=0.0, beta=0.0, r_max=1e3)
    np.testing.assert_allclose(seen[:, -1], excess, rtol=1e-5)
    settled = ratio[:, -1]
    np.testing.assert_allclose(settled, np.sqrt(1 + gain * excess), rtol=0.02)
    middle = (excess[1:] + excess[:-1]) / 2
    slope = np.diff(np.log(settled)) / np.diff(np.log(1 + excess))
    report(f"aes_r (5): elasticity / limit, a={gain:g}", slope.max() / (max(gain, 1) / 2))
    assert slope.max() <= max(gain, 1) / 2 * (1 + 1e-3)
    np.testing.assert_allclose(slope, gain * (1 + middle) / (2 * (1 + gain * middle)), rtol=0.05)


def looped(gain, echo, shocks, baseline_gain, length=6000):
    """Final and largest ratio when the residual is ``(1 - echo) + echo * ratio``, with a shock on top."""

    def run(gain, echo, shock):
        schedule = aes_r(
            drift_proxy,
            1.0,
            length,
            gain=gain,
            lambda_max=np.inf,
            baseline_gain=baseline_gain,
            longest_window=0.02,  # so that what remains of the shock at the end is the loop's, not the memory's
        )
        extra = jnp.zeros(length, jnp.float32).at[2000:2600].set(shock)

        def step(state, extra):
            v = (1 - echo) + echo * state.weight + extra
            state = schedule.update(Signals(true_drift=v), state)
            return state, state.weight

        ratio = jax.lax.scan(step, schedule.init(), extra)[1]
        return ratio[1999], jnp.max(ratio), ratio[-1]

    return [np.float64(x) for x in jax.jit(jax.vmap(run))(*map(np.float32, (gain, echo, shocks)))]


@pytest.mark.parametrize("baseline_gain", [0.0, 4.0])
def test_5_loop_through_the_residuals_is_stable_up_to_gain_two_and_bounded_beyond(baseline_gain, report):
    """Proof: docs/proofs/relative.md#aes_r-5."""
    gain, echo, shock = (x.ravel() for x in np.meshgrid([0.5, 1.0, 2.0, 16.0], [0.2, 0.5, 0.9], [0.5, 3.0, 10.0]))
    before, peak, final = looped(gain, echo, shock, baseline_gain)
    low = gain <= 2
    report(f"aes_r (5): worst final ratio, a <= 2, baseline gain {baseline_gain:g}", final[low].max())
    report(f"aes_r (5): worst final ratio, a = 16, baseline gain {baseline_gain:g}", final[~low].max())
    np.testing.assert_allclose(before, 1.0, atol=1e-3)
    assert np.mean(peak > 1.1) > 0.8
    np.testing.assert_allclose(final[low], 1.0, atol=0.02)
    assert peak.max() <= R_MAX * (1 + 1e-6)
    if baseline_gain == 0.0:  # two resting points, at the base and at the limit
        assert final[(gain == 16) & (echo == 0.9) & (shock == 10)][0] > 0.99 * R_MAX


def test_e20_residuals_with_the_entropy_term_inflate_the_paper_rule():
    """v = s + k lam with kappa = 1 settles at (k + sqrt(k^2 + 4 s)) / 2, the loop's gain is k / (2 lam)."""
    echo, floor = np.array([0.0, 0.5, 1.0]), 0.05
    want = (echo + np.sqrt(echo**2 + 4 * floor)) / 2
    np.testing.assert_allclose(want, [0.224, 0.585, 1.05], atol=3e-3)
    schedule = aes_d(drift_proxy, 30.0, prior=0.0, beta=0.0, lambda_min=0.0, lambda_max=np.inf)

    def run(echo):
        def step(state, _):
            return schedule.update(Signals(true_drift=floor + echo * state.weight), state), None

        return jax.lax.scan(step, schedule.init(), length=1500)[0].weight

    np.testing.assert_allclose(jax.jit(jax.vmap(run))(np.float32(echo)), want, rtol=1e-4)
    assert np.all(echo / (2 * want) < 0.5)

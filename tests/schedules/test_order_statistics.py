"""Quantiles without a sort equal those of the sorted values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import Signals, aes_c, aes_r, quantile
from aesjax.schedules.order import _all_pairs, _radix_select

LEVELS = [0.0, 0.3, 0.5, 0.9, 0.95, 1.0]
KINDS = ["random", "ties", "constant", "subnormal and large"]
SIZES = [1, 2, 3, 127, 256, 512, 1000, 5000]


def stream(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * 10.0 ** rng.uniform(-4, 4, n)
    if kind == "ties":
        x = rng.integers(-2, 3, n) * 0.5
    if kind == "constant":
        x = np.full(n, -0.0)
    if kind == "subnormal and large":
        x = rng.choice([1e-45, -1e-45, 0.0, -0.0, 3e38, -3e38, 1.0], n)
    return x.astype(np.float32)


def rows(n, kinds=KINDS):
    return np.stack([stream(kind, n) for kind in kinds])


@pytest.mark.parametrize("n", SIZES)
def test_quantile_is_jnp_quantile(n):
    x, q = jnp.asarray(rows(n, ["random", "ties", "constant"])), jnp.asarray(LEVELS)
    over_levels = jax.vmap(quantile, in_axes=(None, 0))
    ours = jax.jit(jax.vmap(over_levels, in_axes=(0, None)))(x, q)
    np.testing.assert_allclose(ours, jnp.quantile(x, q, axis=1).T, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("select", [_all_pairs, *map(_radix_select, (1, 2, 4))])
def test_all_algorithms_agree_though_each_platform_uses_one(select):
    x, want = rows(200), np.sort(rows(200))
    over_ranks = jax.vmap(select, in_axes=(None, 0))
    low, high = jax.jit(jax.vmap(over_ranks, in_axes=(0, None)))(x, jnp.arange(199))
    np.testing.assert_array_equal(low, want[:, :-1])
    np.testing.assert_array_equal(high, want[:, 1:])


@pytest.mark.parametrize("n", [1, 256, 2000])
def test_one_bad_residual_makes_the_quantile_nan(n):
    x = np.ones((4, n), np.float32)
    x[:, n // 2] = [np.nan, -np.nan, np.inf, -np.inf]
    over_levels = jax.vmap(quantile, in_axes=(None, 0))
    assert np.isnan(jax.jit(jax.vmap(over_levels, in_axes=(0, None)))(x, jnp.array([0.0, 0.5, 1.0]))).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 256)])
def test_wrong_shape_is_named(shape):
    with pytest.raises(ValueError, match=r"quantile needs x of shape \(N,\)"):
        quantile(jnp.zeros(shape), 0.5)


@pytest.mark.parametrize(("rule", "size"), [(aes_r, 59), (aes_c, 61)])  # sizes of no other test
def test_a_repeated_update_outside_jit_compiles_nothing(rule, size, caplog):
    schedule, signals = rule(base=0.05, updates=100), Signals(fresh_td_error=np.ones(size, np.float32))
    with jax.log_compiles():
        first = schedule.update(signals, schedule.init())
        assert "Finished XLA compilation" in caplog.text
        schedule.update(signals, schedule.update(signals, first))
        caplog.clear()
        schedule.update(signals, first)
    assert "Finished XLA compilation" not in caplog.text

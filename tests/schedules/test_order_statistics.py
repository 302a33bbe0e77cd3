"""Order statistics without a sort equal the sorted ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import order_statistic, quantile
from aesjax.schedules.order import _all_pairs, _radix_select

LEVELS = [0.0, 0.3, 0.5, 0.9, 0.95, 1.0]
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


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["random", "ties", "constant"])
def test_quantile_is_jnp_quantile(kind, n):
    x = jnp.asarray(stream(kind, n))
    q = jnp.asarray(LEVELS)
    ours = jax.jit(jax.vmap(quantile, in_axes=(None, 0)))(x, q)
    np.testing.assert_allclose(ours, jnp.quantile(x, q), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("n", [1, 2, 3, 127, 600])
@pytest.mark.parametrize("kind", ["random", "ties", "subnormal and large"])
def test_order_statistic_is_the_sorted_value_at_every_rank(kind, n):
    x = stream(kind, n)
    ours = jax.jit(jax.vmap(order_statistic, in_axes=(None, 0)))(x, jnp.arange(n))
    np.testing.assert_array_equal(ours, np.sort(x))


@pytest.mark.parametrize("n", [2, 3, 127, 500])
@pytest.mark.parametrize("kind", ["random", "ties", "subnormal and large"])
def test_all_algorithms_agree_though_each_platform_uses_one(kind, n):
    x, want = jnp.asarray(stream(kind, n)), np.sort(stream(kind, n))
    for select in (_all_pairs, _radix_select(1), _radix_select(2), _radix_select(4)):
        low, high = jax.jit(jax.vmap(select, in_axes=(None, 0)))(x, jnp.arange(n - 1))
        np.testing.assert_array_equal(low, want[:-1])
        np.testing.assert_array_equal(high, want[1:])


def test_quantile_level_may_differ_in_every_mapped_row():
    x = jnp.stack([jnp.asarray(stream("random", 256, seed)) for seed in range(6)])
    q = jnp.asarray(LEVELS)
    ours = jax.jit(jax.vmap(quantile))(x, q)
    want = [jnp.quantile(row, level) for row, level in zip(x, q, strict=True)]
    np.testing.assert_allclose(ours, jnp.stack(want), rtol=1e-6)


def test_quantile_jitted_is_quantile_eager():
    x = jnp.asarray(stream("random", 64))
    np.testing.assert_array_equal(jax.jit(quantile)(x, 0.9), quantile(x, 0.9))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 2, 256, 2000])
@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_one_bad_residual_makes_the_quantile_nan(bad, n, q):
    x = np.ones(n, np.float32)
    x[n // 2] = bad
    assert np.isnan(jax.jit(quantile)(x, q))


def test_infinities_are_ordered_but_nan_is_reported():
    x = jnp.array([jnp.inf, -jnp.inf, 1.0, 0.0])
    np.testing.assert_array_equal([order_statistic(x, k) for k in range(4)], [-np.inf, 0.0, 1.0, np.inf])
    assert np.isnan(order_statistic(x.at[0].set(jnp.nan), 1))


@pytest.mark.parametrize("shape", [(), (0,), (2, 256)])
def test_wrong_shape_is_named(shape):
    with pytest.raises(ValueError, match=r"quantile needs x of shape \(N,\)"):
        quantile(jnp.zeros(shape), 0.5)


def test_quantile_compiles_without_sort_and_without_branch():
    text = jax.jit(jax.vmap(quantile)).lower(jnp.zeros((25, 512)), jnp.zeros(25)).compile().as_text()
    assert " sort(" not in text
    assert "conditional(" not in text

"""Costs of programs lowered for a device that is not there: counted by hand, and loops as often as they run."""

import jax
import jax.numpy as jnp
import pytest

from agents import CARRIERS
from experiments.bench.cost import cost_of, step_of
from experiments.bench.roofline import DEVICES, Step, bound, carrier_step
from experiments.bench.updates import flops_per_update

X, W = jnp.ones((128, 64)), jnp.ones((64, 64))
PRODUCT = 2.0 * 128 * 64 * 64


def layer(x, _=None):
    return jnp.tanh(x @ W), None


def test_a_scan_costs_as_often_as_it_is_long_and_a_scan_within_it_too():
    once = cost_of(jax.make_jaxpr(lambda x: layer(x)[0])(X))
    ten = cost_of(jax.make_jaxpr(lambda x: jax.lax.scan(layer, x, None, length=10)[0])(X))

    def inner(x, _):
        return jax.lax.scan(layer, x, None, length=10)[0], None

    thirty = cost_of(jax.make_jaxpr(lambda x: jax.lax.scan(inner, x, None, length=3)[0])(X))
    assert once.product_flops == PRODUCT
    assert once.transcendentals == X.size
    for cost, turns in ((ten, 10), (thirty, 30)):
        assert cost.product_flops == turns * PRODUCT
        assert cost.products == cost.kernels == turns
        assert cost.transcendentals == turns * X.size
        assert cost.flops == pytest.approx(turns * once.flops, rel=1e-3)  # and the loop's counter
        assert cost.bytes == pytest.approx(turns * once.bytes, rel=0.15)


def test_what_nobody_reads_costs_nothing():
    def wasteful(x):
        unused = x @ W @ W
        return jax.lax.scan(lambda x, _: (x + 1.0, x @ W), x, None, length=5)[0] + 0.0 * unused.shape[0]

    cost = cost_of(jax.make_jaxpr(wasteful)(X))
    assert cost.products == 0
    assert cost.product_flops == 0


def test_of_a_choice_the_dearer_branch_counts_and_of_platforms_the_one_asked_for():
    def dearer(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: layer(x)[0], lambda x: jax.lax.scan(layer, x, None, length=4)[0], x)

    assert cost_of(jax.make_jaxpr(dearer)(X)).product_flops == 4 * PRODUCT

    def either(x):
        return jax.lax.platform_dependent(x, cpu=lambda x: layer(x)[0], default=lambda x: layer(layer(x)[0])[0])

    jaxpr = jax.make_jaxpr(either)(X)
    assert [cost_of(jaxpr, name).products for name in ("cpu", "cuda")] == [1, 2]


def test_a_step_is_the_body_of_the_longest_loop_outside_of_all_others():
    def chunk(x):
        x = jax.lax.scan(layer, x, None, length=2)[0]
        return jax.lax.scan(lambda x, _: (layer(layer(x)[0])[0], None), x, None, length=7)[0]

    assert cost_of(step_of(jax.make_jaxpr(jax.jit(chunk))(X))).products == 2
    with pytest.raises(ValueError, match="no loop"):
        step_of(jax.make_jaxpr(layer)(X))


def test_a_sac_update_costs_what_its_products_do():
    step = carrier_step("sac")
    assert step.units == 1
    assert step.cost.product_flops == pytest.approx(flops_per_update(64, 128), rel=0.05)
    assert step.cost.product_flops < step.cost.flops < 1.2 * step.cost.product_flops
    assert step.touched < step.stored
    assert "sac" in CARRIERS


def test_bounds_are_in_order_and_name_what_limits():
    cost = cost_of(jax.make_jaxpr(lambda x: layer(x)[0])(X))
    h100, h200 = DEVICES["H100"], DEVICES["H200"]
    few = bound(Step(cost, 1e3, 1e3, 1), 1, h100)
    assert few.limit == "products"
    assert few.fastest == 1e-6
    assert few.slowest > few.fastest
    assert few.rates == (1 / few.slowest, 1 / few.fastest)
    moved = Step(cost, 1e6, 1e6, 1)
    assert bound(moved, 1000, h100).limit == "memory"
    assert bound(moved, 1000, h100).fastest == pytest.approx(2 * (1e9 - 50e6) / 3.35e12)
    assert bound(moved, 1000, h200).fastest < bound(moved, 1000, h100).fastest
    assert bound(Step(cost, 0.0, 0.0, 1), 10**6, h100).limit == "arithmetic"

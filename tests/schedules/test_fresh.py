"""The ring of fresh residuals: slices of its rows, statistics before it is full, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import Signals, aes_c, aes_r, fresh_residuals
from aesjax.schedules import td_mean, td_quantile
from aesjax.schedules.fresh import Ring, write

SIZE, CRITICS = 12, 2


def stream(steps, number, seed=0):
    return jax.random.normal(jax.random.key(seed), (steps, CRITICS, number))


def through(ring, errors):
    """Signal of a schedule after each step of a scan."""

    def step(state, error):
        state = ring.update(state, error)
        return state, state.td_error

    return jax.lax.scan(step, ring.init(), errors)


def sliced(errors):
    """The flat rows after each step, written as slices."""
    number = errors.shape[-1]

    def step(rows, now):
        at, error = now
        slot = (at % (SIZE // number)) * number
        rows = jax.lax.dynamic_update_slice(rows, error, (jnp.zeros_like(slot), slot))
        return rows, rows.reshape(-1)

    return jax.lax.scan(step, jnp.zeros((CRITICS, SIZE)), (jnp.arange(len(errors)), errors))[1]


@pytest.mark.parametrize("number", [1, 3, 12])
def test_once_full_it_holds_slices_of_what_has_arrived_bit_for_bit(number):
    errors = stream(40, number)
    _, read = through(fresh_residuals(SIZE, CRITICS), errors)
    full = SIZE // number - 1
    assert read.shape == (40, CRITICS * SIZE)
    np.testing.assert_array_equal(read[full:], sliced(errors)[full:])


@pytest.mark.parametrize("arrived", [1, 4, 12])
def test_before_it_is_full_its_statistics_are_those_of_what_has_arrived(arrived):
    errors = stream(1, arrived)[0]
    ring = fresh_residuals(SIZE, CRITICS)
    read = Signals(fresh_td_error=ring.update(ring.init(), errors).td_error)
    np.testing.assert_allclose(td_mean(source="fresh")(read), jnp.mean(jnp.abs(errors)), rtol=1e-6)
    np.testing.assert_allclose(td_quantile(1.0, source="fresh")(read), jnp.max(jnp.abs(errors)))
    repeated = np.repeat(np.sort(np.abs(errors).ravel()), SIZE // arrived)
    np.testing.assert_array_equal(np.sort(np.abs(read.fresh_td_error)), repeated)


def test_numbers_that_do_not_divide_its_size_overwrite_the_oldest():
    ring = fresh_residuals(5)
    state = ring.init()
    for first, number in ((0, 3), (3, 4), (7, 1), (8, 2)):
        state = ring.update(state, jnp.arange(first, first + number))
    assert sorted(state.td_error) == [5, 6, 7, 8, 9]
    assert state.td_error.dtype == jnp.float32
    assert (int(state.ring.position), int(state.ring.filled)) == (0, 5)


def test_a_ring_keeps_the_newest_rows_that_count():
    random = np.random.default_rng(0)
    ring, rows, kept = Ring.empty(), jnp.zeros(10), []
    compiled = jax.jit(write)
    for t in range(12):
        new, counts = np.arange(4.0) + 4 * t, random.random(4) < 0.6
        ring, rows = compiled(ring, rows, jnp.asarray(new, jnp.float32), jnp.asarray(counts))
        kept += new[counts].tolist()
        assert sorted(np.asarray(rows)[: int(ring.filled)].tolist()) == sorted(kept[-10:])


def test_an_empty_ring_is_no_observation():
    empty = Signals(fresh_td_error=fresh_residuals(SIZE).init().td_error)
    for schedule in (aes_r(base=0.05, updates=100), aes_c(base=0.05, updates=100)):
        state = jax.jit(schedule.update)(empty, schedule.init())
        assert state.weight == np.float32(0.05)
        before, after = (s.inner._replace(base=None) for s in (schedule.init(), state))
        jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize(("critics", "shape"), [(1, (9,)), (1, (2, 4)), (2, (4,))])
def test_residuals_of_another_shape_are_refused_when_traced(critics, shape):
    ring, allowed = fresh_residuals(8, critics), r"\(n,\) or \(1, n\)" if critics == 1 else r"\(2, n\)"
    with pytest.raises(ValueError, match=f"td_error must have shape {allowed} with n from 1 to 8; got"):
        jax.eval_shape(ring.update, ring.init(), jax.ShapeDtypeStruct(shape, jnp.float32))

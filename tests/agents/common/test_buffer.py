"""The replay ring: what is stored, what is overwritten, what is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.common import buffer
from agents.common.carrier import Transition


def transitions(values):
    values = jnp.asarray(values, jnp.float32)
    wide = jnp.stack([values, -values], -1)
    return Transition(wide, values[:, None], 10 * values, 0 * values, wide + 0.5)


def test_the_oldest_transitions_are_overwritten_first():
    ring = buffer.init(6, 2, 1)
    for step in range(5):
        ring = buffer.add(ring, transitions([2.0 * step, 2.0 * step + 1]), jnp.int32(step))
    rewards = np.asarray(buffer.unpack(ring.rows, 2, 1).reward) / 10
    assert sorted(rewards) == [4, 5, 6, 7, 8, 9]
    late = 2**31 - 2  # vector steps; times two environments they would overflow
    ring = buffer.add(ring, transitions([1.0, 2.0]), jnp.int32(late))
    slot = (late % 3) * 2
    np.testing.assert_array_equal(np.asarray(ring.rows)[slot : slot + 2, -2], [10.0, 20.0])


def test_sampling_is_uniform_over_what_is_stored_and_never_touches_empty_slots():
    ring = buffer.init(40, 2, 1)
    for step in range(4):
        ring = buffer.add(ring, transitions([2.0 * step + 1, 2.0 * step + 2]), jnp.int32(step))
    rows = buffer.sample(ring, jax.random.key(0), 8000, jnp.int32(3), num_envs=2)
    drawn, counts = np.unique(np.asarray(buffer.unpack(rows, 2, 1).reward) / 10, return_counts=True)
    np.testing.assert_array_equal(drawn, np.arange(1, 9))
    np.testing.assert_allclose(counts / 1000, 1.0, atol=0.12)


@pytest.mark.parametrize("steps", [3, 7])  # before and after the ring has gone round
def test_a_window_draws_from_the_newest_alone_and_a_full_one_draws_what_none_does(steps):
    ring = buffer.init(10, 2, 1)
    for step in range(steps):
        ring = buffer.add(ring, transitions([2.0 * step + 1, 2.0 * step + 2]), jnp.int32(step))

    def drawn(newest):
        return buffer.sample(ring, jax.random.key(0), 400, jnp.int32(steps - 1), 2, newest)[:, -2] / 10

    sample = jax.jit(drawn)
    for newest in (1.0, 3.0, 4.0):
        np.testing.assert_array_equal(np.unique(sample(newest)), 2 * steps - np.arange(newest)[::-1])
    for newest in (2.0 * min(steps, 5), jnp.inf):
        np.testing.assert_array_equal(sample(newest), drawn(None))


@pytest.mark.parametrize("steps", [15, 60])  # before and after the ring has gone round
@pytest.mark.parametrize("newest", [None, 25.0])
def test_recency_draws_ages_with_geometric_frequencies_and_states_their_entropy(steps, newest):
    ring, scale, draws = buffer.init(80, 2, 1), 9.0, 100_000
    for step in range(steps):
        ring = buffer.add(ring, transitions([2.0 * step + 1, 2.0 * step + 2]), jnp.int32(step))

    @jax.jit
    def drawn(recency):
        return buffer.sample(ring, jax.random.key(0), draws, jnp.int32(steps - 1), 2, newest, recency)[:, -2] / 10

    count = int(newest or min(2 * steps, 80))
    found = np.bincount((2 * steps - np.asarray(drawn(scale))).astype(int), minlength=count)
    expected = np.exp(-np.arange(count) / scale)
    expected /= expected.sum()
    assert len(found) == count
    assert np.sum((found - draws * expected) ** 2 / (draws * expected)) < count + 4 * (2 * count) ** 0.5
    np.testing.assert_array_equal(
        drawn(jnp.inf), buffer.sample(ring, jax.random.key(0), draws, jnp.int32(steps - 1), 2, newest)[:, -2] / 10
    )
    size = np.exp(-np.sum(expected * np.log(expected)))
    np.testing.assert_allclose(buffer.effective_size(jnp.float32(scale), jnp.float32(count)), size, rtol=1e-4)
    assert buffer.effective_size(jnp.inf, jnp.float32(count)) == count


@pytest.mark.parametrize("steps", [3, 9])
def test_a_window_of_a_ring_with_rows_left_out_draws_from_the_newest_that_count(steps):
    ring = buffer.init(10, 2, 1, True)
    for step in range(steps):
        rows = transitions([2.0 * step + 1, 2.0 * step + 2])
        ring = buffer.add(ring, rows, jnp.int32(step), jnp.array([step % 2 == 0, True]))
    newest = [2 * step + copy for step in range(steps) for copy in (1, 2) if copy == 2 or step % 2 == 0][-4:]
    drawn = buffer.sample(ring, jax.random.key(0), 400, jnp.int32(steps - 1), 2, jnp.float32(4.0))[:, -2] / 10
    np.testing.assert_array_equal(np.unique(drawn), newest)

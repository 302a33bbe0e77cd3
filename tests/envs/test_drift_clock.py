import jax
import numpy as np
import pytest

from envs.drift import change_points, clock

HORIZONS = [(total, n) for total in (40, 2_460, 25_000, 100_000, 1_000_000) for n in (4, 5, 10) if total % n == 0]


@pytest.mark.parametrize(("total", "segments"), HORIZONS)
def test_clock_is_exact_and_right_continuous_at_every_change_point(total, segments):
    length = total // segments
    points = np.array(change_points(total, segments))
    np.testing.assert_array_equal(points, np.arange(1, segments) * length)
    at = jax.jit(jax.vmap(lambda step: clock(step, total, segments)))
    segment, phase = at(points)
    np.testing.assert_array_equal(segment, np.arange(1, segments))
    np.testing.assert_array_equal(phase, 0.0)
    segment, phase = at(points - 1)
    np.testing.assert_array_equal(segment, np.arange(segments - 1))
    np.testing.assert_allclose(phase, (length - 1) / length, rtol=1e-6)
    assert (np.asarray(phase) < 1.0).all()


def test_clock_agrees_with_integer_arithmetic_at_every_step():
    steps = np.arange(2_460)
    segment, phase = jax.vmap(lambda step: clock(step, 2_460, 5))(steps)
    np.testing.assert_array_equal(segment, steps // 492)
    np.testing.assert_allclose(phase, steps % 492 / 492, rtol=1e-6)


@pytest.mark.parametrize(("total", "segments"), [(101, 5), (0, 5), (10, 0)])
def test_a_horizon_that_does_not_divide_into_segments_is_refused(total, segments):
    with pytest.raises(ValueError, match="multiple of segments"):
        change_points(total, segments)
    with pytest.raises(ValueError, match="multiple of segments"):
        clock(0, total, segments)

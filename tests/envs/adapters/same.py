"""Equality of what environments return."""

import numpy as np


def same(left, right):
    """Whether two nested results are equal, object arrays included."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray) and left.dtype == object:
        return all(map(same, left, right))
    return np.array_equal(left, right)

"""How a study is divided into parts that anyone can compute, so that a run's numbers do not depend on its part.

What XLA computes depends on how many runs go through a program together and on whether it is a program of one device
or of several, if only in the last bit. So the runs of a carrier are divided into *groups* first, by the study alone: a
group goes through the program together, on one device. A part is a number of whole groups, neighbours in the order of
the study, which one process trains one after another.
"""

import math
from collections.abc import Mapping


def num_groups(runs: int, together: int) -> int:
    """How many groups of at most ``together`` there are.

    >>> num_groups(25, 8)
    4
    """
    return math.ceil(runs / together)


def group_size(runs: int, together: int) -> int:
    """Runs of every group but the last, which may have fewer: as equal as can be.

    >>> group_size(25, 8)
    7
    """
    return math.ceil(runs / num_groups(runs, together))


def share(runs: Mapping[str, int], together: int, number: int, of: int) -> dict[str, range]:
    """The runs of part ``number``, which counts from 1: carrier -> positions among its runs; absent where it has none.

    Args:
      runs: carrier -> number of its runs, at least 1, in the order of the study.
      together: largest size of a group.
      of: how many parts there are.

    Raises:
      ValueError: fewer groups than parts, or no such part.
    """
    counts = {carrier: num_groups(count, together) for carrier, count in runs.items()}
    total = sum(counts.values())
    if not 1 <= of <= total:
        raise ValueError(
            f"the study has {total} groups of at most {together} runs that train together, so it divides into 1 to "
            f"{total} parts; got {of}"
        )
    if not 1 <= number <= of:
        raise ValueError(f"the parts are numbered from 1 to {of}; got {number}")
    first, end = (number - 1) * total // of, number * total // of
    found, before = {}, 0
    for carrier, count in counts.items():
        low, high = max(first - before, 0), min(end - before, count)
        if low < high:
            size = group_size(runs[carrier], together)
            found[carrier] = range(low * size, min(high * size, runs[carrier]))
        before += count
    return found

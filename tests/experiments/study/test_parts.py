"""Parts of a study are made of the same groups of runs, however many parts there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.study.arms import group_size, num_groups, share
from experiments.study.sweep import waves_of_groups

STUDIES = st.dictionaries(st.sampled_from(["sac", "ppo", "sql", "meow"]), st.integers(1, 90), min_size=1)
TOGETHER = st.integers(1, 40)


def groups(runs, together, parts):
    """The groups in which all parts train, as (carrier, positions), in the order of the parts."""
    found = []
    for number in range(1, parts + 1):
        for carrier, own in share(runs, together, number, parts).items():
            size = group_size(runs[carrier], together)
            waves = waves_of_groups(size, len(own), 1, 2**40)
            assert waves.width == waves.group == size
            found += [(carrier, tuple(own[w * size : (w + 1) * size])) for w in range(waves.count)]
    return found


@given(STUDIES, TOGETHER, st.data())
def test_every_number_of_parts_trains_the_same_groups_in_the_same_order(runs, together, data):
    total = sum(num_groups(count, together) for count in runs.values())
    parts = data.draw(st.integers(1, total))
    assert groups(runs, together, parts) == groups(runs, together, 1)


@given(STUDIES, TOGETHER, st.data())
def test_parts_hold_every_run_once_and_are_as_equal_as_groups_allow(runs, together, data):
    total = sum(num_groups(count, together) for count in runs.values())
    parts = data.draw(st.integers(1, total))
    shares = [share(runs, together, number, parts) for number in range(1, parts + 1)]
    everything = [(carrier, at) for own in shares for carrier, members in own.items() for at in members]
    assert everything == [(carrier, at) for carrier, count in runs.items() for at in range(count)]
    counts = [
        sum(num_groups(len(members), group_size(runs[carrier], together)) for carrier, members in own.items())
        for own in shares
    ]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 500), TOGETHER)
def test_groups_are_no_larger_than_asked_and_as_equal_as_can_be(runs, together):
    size, count = group_size(runs, together), num_groups(runs, together)
    assert size <= together
    assert (count - 1) * size < runs <= count * size
    assert size * count - runs < count


def test_too_many_parts_and_unknown_parts_are_refused():
    with pytest.raises(ValueError, match=r"5 groups .* 1 to 5 parts; got 6"):
        share({"sac": 40}, 8, 1, 6)
    with pytest.raises(ValueError, match="got 0"):
        share({"sac": 40}, 8, 1, 0)
    with pytest.raises(ValueError, match="numbered from 1 to 4; got 5"):
        share({"sac": 40}, 8, 5, 4)


def test_a_group_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="8 runs together need 8 MiB, but only 4 MiB"):
        waves_of_groups(8, 40, 2**20, 2**22)

"""Training times of records: one number by hand, devices apart, the largest study, hours of the parts."""

import json

import pytest

from experiments.paper.record import GRID, STUDIES
from experiments.paper.times import CPU, costs, rates, total


def study(device=CPU, devices=2, runs=10, seconds=50.0, steps=1_000):
    return {
        "config": {"task": "toy", "preset": "quick", "steps": steps},
        "device": device,
        "num_devices": devices,
        "wall_seconds": seconds + 10.0,
        "parts": {"sac": {"runs": runs, "seconds": seconds}},
    }


def test_minutes_of_a_stored_study_are_those_computed_by_hand():
    studies = json.loads((GRID / STUDIES).read_text())
    seconds = studies["C-cartpole_swingup-40000-sac"]["parts"]["sac"]["seconds"]  # of 600 runs of 40,000 steps
    stored = {(rate.task, rate.carrier, rate.device, rate.devices): rate for rate in rates(studies)}
    rate = stored["cartpole_swingup", "sac", CPU, 2]
    assert 1_000 * rate.seconds_per_step == pytest.approx(seconds / 600 / 40)
    assert rate.typical_minutes == pytest.approx(seconds / 600 / 40_000 * 20 * 12_000 / 60)  # 12,000: preset `quick`


def test_a_study_on_another_device_does_not_mix_in():
    alone = rates({"small": study()})
    gpu, cores = study("NVIDIA H100", 1, runs=1_000, seconds=7.0), study(devices=8, runs=500, seconds=9.0)
    mixed = rates({"gpu": gpu, "small": study(), "cores": cores})
    assert len(mixed) == 3
    assert [rate for rate in mixed if (rate.device, rate.devices) == (CPU, 2)] == alone
    assert alone[0].seconds_per_step == pytest.approx(50.0 / 10 / 1_000)


@pytest.mark.parametrize("order", [("small", "large"), ("large", "small")])
def test_the_study_with_the_most_runs_times_steps_counts(order):
    studies = {"small": study(runs=20, seconds=1.0), "large": study(runs=10, seconds=90.0, steps=3_000)}
    (rate,) = rates({name: studies[name] for name in order})
    assert rate.seconds == 90.0
    gpu = {"gpu": study("NVIDIA H100", 1, runs=500, seconds=2.0)}
    assert [rate.seconds for rate in rates(studies | gpu, ("task", "carrier"))] == [2.0]


def test_hours_are_added_by_part_and_kind_of_device():
    studies = {
        "A-toy": study(seconds=3590.0),
        "A-toy-controls": study("NVIDIA H100", 1, seconds=1790.0),
        "A-toy-more": study(devices=1, seconds=1790.0),
        "B-x": study(),
    }
    parts = {cost.part: cost for cost in costs(studies)}
    assert (parts["A"].studies, parts["A"].runs, parts["A"].core_hours, parts["A"].gpu_hours) == (3, 30, 2.5, 0.5)
    every = total(list(parts.values()))
    assert (every.studies, every.runs) == (4, 40)
    assert (every.core_hours, every.gpu_hours) == (pytest.approx(2.5 + 2 * 60.0 / 3600), 0.5)

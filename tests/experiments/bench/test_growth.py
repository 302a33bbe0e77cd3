"""The picture of how cost grows is drawn from its record alone."""

import resource
from pathlib import Path

import numpy as np

from experiments.bench.growth import draw, growth_in_copies, growth_in_runs_alone

ROOT = Path(__file__).resolve().parents[3]


def entry(carrier, runs):
    seconds = {"lowering": 1.0, "compiling": 2.0, "start": 0.1, "chunk": 0.1 * runs, "evaluation": 0.1}
    return {
        "carrier": carrier,
        "runs": runs,
        "updates_per_second": 100.0,
        "study_seconds": 10.0 * runs,
        "seconds": seconds,
        "state_bytes_of_a_run": 2**18,
        "replay_bytes_of_a_run": 2**15,
        "peak_bytes_of_the_process": 2**29,
    }


def test_the_picture_needs_the_record_alone(tmp_path):
    copies = [{"task": "toy", "engine": None, "copies": n, "steps_per_second": 10.0 * n} for n in (1, 4)]
    draw({"runs": [entry("sac", 1), entry("sac", 25), entry("ppo", 1)], "copies": copies}, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"growth.png"}


def test_the_memory_of_a_number_of_runs_is_not_that_of_what_was_measured_before():
    ballast = np.ones(2**30, np.uint8)  # 1 GiB in this process
    found = growth_in_runs_alone("ppo", 1, 0.1)
    del ballast
    assert (found["carrier"], found["runs"]) == ("ppo", 1)
    assert found["updates_per_second"] > 0
    assert 2**28 < found["peak_bytes_of_the_process"] < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_single_copy_uses_one_device():
    found = growth_in_copies("toy", 1, 1)
    assert found["copies"] == 1
    assert found["steps_per_second"] > 0

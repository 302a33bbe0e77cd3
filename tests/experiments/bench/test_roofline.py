"""The page of predictions says what its record says, and the record what the code would."""

import json
from pathlib import Path

import pytest

from agents import CARRIERS
from envs import isaac, mujoco
from experiments.bench.cost import Cost
from experiments.bench.roofline import COPIES, DEVICES, RUNS, Step, bound, table

ROOT = Path(__file__).resolve().parents[3]
RECORD = json.loads((ROOT / "benchmarks" / "roofline.json").read_text())


def test_the_page_shows_the_tables_of_the_record():
    page = (ROOT / "docs" / "roofline.md").read_text()
    assert table(RECORD["carriers"], RUNS) in page
    assert table(RECORD["physics"], COPIES) in page


def test_the_record_has_every_carrier_and_every_task_on_mjx():
    assert {each["program"] for each in RECORD["carriers"]} == set(CARRIERS)
    assert {each["program"] for each in RECORD["physics"]} == {*mujoco.TASKS, *isaac.TASKS}


@pytest.mark.parametrize("device", DEVICES)
def test_bounds_of_the_record_follow_from_its_costs(device):
    for kind, counts in (("carriers", RUNS), ("physics", COPIES)):
        for each in RECORD[kind]:
            step = Step(Cost(**each["cost"]), each["touched"], each["stored"], each["units"])
            for count in counts:
                found, told = bound(step, count, DEVICES[device]), each["bounds"][device][str(count)]
                assert found.limit == told["limit"]
                assert [found.fastest, found.slowest, *found.rates] == pytest.approx(
                    [told["fastest"], told["slowest"], *told["rates"]]
                )
                assert found.fastest < found.slowest

"""The short form of the campaign: nothing lost, nothing silently wrong, no traceback."""

import os
from pathlib import Path

import pytest

from tests.campaign.campaign import KINDS, SHORT, campaign
from tests.campaign.judge import Outcome
from tests.campaign.studies import Bench
from tests.campaign.table import failures, table
from tests.campaign.worker import Worker, command


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("campaign"), Path(os.environ["JAX_COMPILATION_CACHE_DIR"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "soak"])
def test_no_fault_does_harm(bench, kind):
    findings = list(campaign(bench, SHORT, 0, [kind]))
    assert findings
    assert failures(findings) == [], table(findings)


@pytest.mark.slow
def test_the_tripwire_of_a_worker_is_tripped_by_what_would_train(tmp_path):
    """And the worker lives on after whatever it runs."""
    with Worker() as worker:
        argv = ["run", "--out", str(tmp_path / "new"), "--schedules", "fixed", "--patterns", "steady", "--seeds", "1"]
        assert worker.call(command, [*argv, "--steps", "400"]).reached_training
        assert worker.call(command, [*argv, "--steps", "1"]).code == 2
        assert "Traceback" in worker.call(int, "no number").err
        assert worker.call(endless, longest=1.0).code is None
        assert worker.call(dies).code == 7
        assert worker.call(greedy).code == 1
        assert worker.call(speaks, "words") == Outcome(0, "words\n", "")


def endless():
    while True:
        pass


def dies():
    os._exit(7)


def greedy():
    return len(bytearray(2**35))


def speaks(words):
    print(words)
    return 0

"""The agents kept beside the code fit the preset that they are for, and are what their record says."""

from pathlib import Path

import numpy as np
import pytest

from experiments.study import store
from experiments.study.program import runs_of, share_of
from experiments.study.warm import nature_of, read, warm_of
from tests.experiments.configs import config_of

KEPT = sorted(Path(__file__).resolve().parents[3].glob("experiments/warm/*/warm.json"))
#: The least of their returns; random actions get -295 on HalfCheetah and 19 on Hopper.
LEAST = {
    ("halfcheetah", "sac"): 5_000,
    ("halfcheetah", "ppo"): 1_700,
    ("hopper", "sac"): 300,
    ("hopper", "ppo"): 1_200,
}


def test_there_are_five_for_both_carriers_of_both_tasks():
    kept = {(p.parent.name, c): entry for p in KEPT for c, entry in store.read_json(p)["carriers"].items()}
    assert kept.keys() == LEAST.keys()
    assert all([run["seed"] for run in entry["runs"]] == [1, 2, 3, 4, 5] for entry in kept.values())


@pytest.mark.slow
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_kept_agents_begin_a_study_of_their_task(path):
    for carrier in store.read_json(path)["carriers"]:
        config = config_of(
            carrier, "baseline,fixed", task=path.parent.name, patterns="abrupt", seeds=2, preset="mujoco-warm",
            start=path.parent,
        )  # fmt: skip
        agents = read(path.parent, carrier)
        share = share_of(config, carrier)
        assert agents.nature == nature_of(share.learner, config)
        assert all(run["return_mean"] > LEAST[path.parent.name, carrier] for run in agents.runs)
        assert all(np.isfinite(leaf).all() for leaf in agents.leaves.values())
        warm = warm_of(config, share, runs_of(share, {}))
        assert [agent["seed"] for agent in warm.agents] == [1, 2]

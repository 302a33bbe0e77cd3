"""The environments that pages define drift as the text around them says."""

import jax
import numpy as np
import pytest

from tests.pages import ROOT, blocks

CODE = [code for page in ("discrete_actions.md", "write_task.md") for code in blocks(ROOT / "docs" / page, "python")]


@pytest.fixture
def modules(tmp_path, monkeypatch, registries):
    """The pages' modules, in a folder on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    for code in CODE:
        first, _, body = code.partition("\n")
        if first.endswith(".py"):
            (tmp_path / first.removeprefix("# ")).write_text(body)


@pytest.mark.usefixtures("modules")
def test_a_drifting_length_of_the_pole_changes_both_numbers_that_hold_it():
    import pole

    env = pole.make().unwrapped
    assert env.set_drift({"length": 2.0}) == {"length": 2.0}
    assert (env.length, env.polemass_length) == pytest.approx((2.0, 2.0 * env.masspole))


@pytest.mark.usefixtures("modules")
def test_a_drifting_mass_of_the_rail_changes_its_step():
    import rail

    task = rail.rail("mujoco")
    speeds = []
    for mass in (0.5, 1.0, 2.0):
        params = task.apply_drift(task.params, np.array([mass], np.float32))
        _, state = task.env.reset(jax.random.key(0), params)
        obs, *_ = task.env.step(jax.random.key(1), state, np.ones(1, np.float32), params)
        speeds.append(float(obs[1]))
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] > 1.8 * speeds[1] > 3 * speeds[2]

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


def test_the_sizes_of_the_page_are_those_of_the_general_preset():
    from experiments.presets.general import general

    _, _, section = (ROOT / "docs" / "presets.md").read_text().partition("## Sizes and base weight")
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if "| `quick` |" in line or "| `paper` |" in line
    ]
    for limit, rows in ((200, shown[:2]), (201, shown[2:])):
        for (name, preset), row in zip(general(limit).items(), rows, strict=True):
            assert row[1] == f"`{name}`"
            assert row[2] == f"{preset.steps:,}"
            assert row[3].removesuffix(" episodes") == f"{preset.evaluations} of {preset.episodes}"
            assert row[4].removesuffix(" of the steps") == f"{preset.replay_fraction:.0%}".replace("%", " %")
            assert preset.num_envs == 1
            weights = {carrier: (own.base, own.num_envs) for carrier, own in preset.carriers.items()}
            assert weights == {"ppo": (0.01, 8)} | dict.fromkeys(("sac", "sql", "meow"), (0.1, None))

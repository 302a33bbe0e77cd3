"""The code of pages about environments runs and does what the text around it says."""

import jax
import numpy as np
import pytest

import envs
from envs.adapters.gymnasium import DriftingVectorEnv
from tests.pages import ROOT, blocks

CODE = {
    page: blocks(ROOT / "docs" / page, "python") for page in ("elsewhere.md", "own_task.md", "protocols.md", "tasks.md")
}


def of_elsewhere_parallel(left):
    assert left["infos"]["drift"].shape == (4, 2)


def of_elsewhere_id(left):
    assert left["info"]["drift_step"] == 0
    assert isinstance(left["many"], DriftingVectorEnv)


def of_elsewhere_evaluation(left):
    assert [picture.shape for picture in left["pictures"]] == [(480, 480, 3)] * 2
    np.testing.assert_allclose(left["infos"]["drift"], [[0.3, -0.2]] * 2)


def of_elsewhere_sb3(left):
    assert left["env"].unwrapped._copies.clock.steps == 2_500
    assert 5 < left["mean"] < 48  # untrained: 4


def of_elsewhere_brax(left):
    assert left["state"].info["drift_step"].tolist() == [1] * 4
    assert left["state"].info["drift"].shape == (4, 2)


def of_protocols_sb3(left):
    """The friction of the last step of each part is that of its segment, and that in MuJoCo's model."""
    assert len(set(left["frictions"])) == 3
    model = left["env"].unwrapped._copies.task.env.engine._free[1][0].fields["geom_friction"]
    np.testing.assert_allclose(model[0, :, 0], left["frictions"][-1], rtol=1e-6)


def of_own_gymnasium(left):
    study, pendulum = left["study"].config, left["pendulum"].config
    assert study.options == {"channels": ("gain=0.5:1.5",)}
    assert pendulum.options == {"channels": ("g=8:12",)}
    assert study.build_task().env.spec == envs.EnvSpec(obs_size=2, action_size=1, time_limit=100)


def of_own_playground(left):
    assert left["study"].config.built.channels == (envs.Channel("body_mass.pole_1", 0.5, 3.0, 1.0),)


def of_own_imported(left):
    assert left["study"].config.built.channels == (envs.Channel("body_mass", 0.5, 1.5, 1.0),)
    assert left["driving"].config.built.channels[0][:3] == ("power", 0.001, 0.002)
    assert left["task"].env.spec == envs.EnvSpec(obs_size=4, action_size=1, time_limit=500)
    assert [channel.name for channel in left["task"].channels] == ["body_mass", "gravity"]
    assert left["env"].num_envs == 4


def of_own_breakout(left):
    _, curves = jax.eval_shape(left["train"], 1)
    assert curves["return_mean"].shape == (11,)  # one before training


#: Page, words that one block alone contains, packages that it needs, and a function of what it leaves behind.
BLOCKS = [
    ("elsewhere.md", 'DriftingVectorEnv("hopper"', [], of_elsewhere_parallel),
    ("elsewhere.md", "gymnasium.make(", [], of_elsewhere_id),
    ("elsewhere.md", "env.evaluation(num_envs=2", [], of_elsewhere_evaluation),
    pytest.param("elsewhere.md", "DriftingVecEnv(", ["stable_baselines3"], of_elsewhere_sb3, marks=pytest.mark.slow),
    pytest.param("protocols.md", "SlipperyAnt", ["stable_baselines3"], of_protocols_sb3, marks=pytest.mark.slow),
    ("elsewhere.md", "to_brax(", ["brax"], of_elsewhere_brax),
    ("own_task.md", "from push import make", [], of_own_gymnasium),
    ("own_task.md", "mujoco_playground", ["mujoco_playground"], of_own_playground),
    ("own_task.md", "make_train(gymnax", ["gymnax"], of_own_breakout),
    ("own_task.md", "from_brax(", ["brax", "gymnax"], of_own_imported),
]


def block(page, words):
    """The one block of a page that contains the words."""
    [code] = (each for each in CODE[page] if words in each)
    return code


@pytest.fixture
def modules(tmp_path, monkeypatch, registries):
    """The pages' modules, in a folder on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    for code in CODE["own_task.md"] + CODE["tasks.md"]:
        first, _, body = code.partition("\n")
        if first.endswith(".py"):
            (tmp_path / first.removeprefix("# ")).write_text(body)


@pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning")
@pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("page", "words", "needs", "check"), BLOCKS)
@pytest.mark.usefixtures("modules")
def test_a_block_does_what_the_page_says(page, words, needs, check):
    for package in needs:
        pytest.importorskip(package, reason="`make test-all` installs it")
    if "stable_baselines3" in needs:
        import torch

        torch.set_num_threads(1)
    left = {}
    exec(compile(block(page, words), f"{page}: {words}", "exec"), left)
    check(left)


def test_every_block_is_executed_or_is_a_module():
    tested = [block(*getattr(each, "values", each)[:2]) for each in BLOCKS]
    assert len(set(tested)) == len(tested)
    others = [code for page in CODE.values() for code in page if code not in tested]
    assert [code.partition("\n")[0] for code in others] == ["# push.py", "# pole.py", "# line.py", "# rail.py"]


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

    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "own_task.md").read_text().splitlines()
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

"""`aesjax table`: the paper's tables at their quick size, from made-up results and from trained ones."""

from pathlib import Path

import polars as pl
import pytest

import envs
from experiments.cli import main
from experiments.report.cells import NONE
from experiments.study import prepare, store, train
from experiments.study.config import config_from_json
from experiments.study.program import rows_of
from experiments.study.store import write_manifest
from tests.experiments.measure.synthetic import STEPS, make_curves, manifest

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "experiments" / "results" / "toy-quick"
#: Name -> the file that it writes, and an entry of it.
TABLES = {
    "toy": ("toy_table.md", "| toy · abrupt | SAC+AES-C+refresh+recent[refresh.threshold=3] |"),
    "mujoco": ("mujoco_table.md", "halfcheetah, walker2d, ant, humanoid"),
    "isaac": ("isaac_table.md", "isaac_ingenuity"),
    "recovery": ("recovery_table.md", "Recovery after changes (INCOMPLETE)"),
    "ablation": ("ablation_table.md", "Heuristic linear schedule"),
    "quantile": ("quantile_table.md", "q = 0.95"),
    "ema": ("ema_table.md", "beta = 0.95"),
    "clip": ("clip_table.md", "[1e-5, 0.5]"),
    "fixed_grid": ("fixed_grid.md", "The best constant weight in hindsight (INCOMPLETE)"),
}
#: Studies at the preset `paper`: folder below --out, and values in its configuration.
STUDIES: dict[str, tuple[tuple[str, ...], dict[str, dict]]] = {
    "toy": (
        (),
        {
            "main/toy": {"carriers": ("sac", "sql", "meow"), "preset": "paper", "steps": 100_000},
            "main/toy-ppo": {"carriers": ("ppo",), "methods": ["PPO", "PPO+AES", "PPO+AES-R"]},
        },
    ),
    "mujoco": (
        ("--carriers", "ppo"),
        {f"main/{name}-ppo": {"task": name} for name in ("hopper", "halfcheetah", "walker2d", "ant", "humanoid")},
    ),
    "recovery": (
        ("--carriers", "ppo", "--tasks", "toy,hopper"),
        {f"main/{name}-ppo": {"patterns": ("steady", "abrupt")} for name in ("toy", "hopper")},
    ),
    "quantile": (("--tasks", "toy"), {"sensitivity_q/toy": {"seeds": tuple(range(1, 11))}}),
    "fixed_grid": ((), {"fixed_grid/toy": {"patterns": ("steady", "abrupt", "linear", "periodic", "mixed")}}),
    "responses": (("--carriers", "sac,ppo"), {"responses/toy": {"carriers": ("sac",)}, "responses_ppo/toy": {}}),
}


def run(name, *options):
    return main(["table", name, *map(str, options)])


@pytest.fixture
def trained(monkeypatch):
    """Folders that would be trained, without the training."""
    folders = []

    def stop_here(claim, **options):
        folders.append(claim.directory)
        return train.Outcome(claim.directory, [], 0)

    monkeypatch.setattr(train, "train", stop_here)
    monkeypatch.setattr(prepare, "prepare", lambda config: [])
    return folders


def configured(folder):
    config = config_from_json(store.read_json(folder / store.CONFIG))
    names = [row.name for carrier in config.carriers for row in rows_of(config, carrier)]
    return {**vars(config), "carriers": config.carriers, "methods": names}


@pytest.mark.parametrize("name", STUDIES)
def test_a_table_trains_the_studies_that_it_needs(name, trained, tmp_path, capsys):
    """And says in a sentence that their results are not there, where nothing was trained."""
    words, studies = STUDIES[name]
    assert run(name, "--out", tmp_path / "out", "--preset", "paper", "--no-report", *words) == 2
    assert ".json" in capsys.readouterr().err or name == "responses"
    assert trained == [tmp_path / "out" / place for place in studies]
    for place, expected in studies.items():
        assert expected.items() <= configured(tmp_path / "out" / place).items()


def test_on_two_cores_mujoco_begins_with_trained_agents(trained, tmp_path):
    run("mujoco", "--out", tmp_path, "--preset", "cpu", "--tasks", "hopper", "--carriers", "sac", "--no-report")
    assert trained == [tmp_path / "warm" / "hopper-sac"]  # whose agents the next study would refuse: there are none
    config = configured(trained[0])
    assert (config["patterns"], config["methods"], config["steps"]) == (("steady",), ["SAC"], 512_000)


@pytest.fixture
def made_up(monkeypatch):
    """In place of training, curves of every run that a study's configuration names."""

    def results(claim, **options):
        config, frames = claim.config, []
        every = STEPS // config.evaluations
        task = {"task": config.task, "family": envs.make(config.task).family}
        for carrier in config.carriers:
            arms = rows_of(config, carrier)
            curves = make_curves([arm.name for arm in arms], config.patterns, config.seeds, every=every, **task)
            parts = pl.DataFrame(
                [(a.name, a.rule, a.variant) for a in arms], ["method", "schedule", "variant"], orient="row"
            )
            frames.append(curves.drop("schedule", "variant").join(parts, on="method"))
        curves = pl.concat(frames).with_columns(pl.col("step") // every * (config.steps // config.evaluations))
        curves.write_parquet(claim.directory / store.CURVES)
        write_manifest(claim.directory, manifest(curves) | {"floors": {config.task: 3.0}})
        return train.Outcome(claim.directory, [], 0)

    monkeypatch.setattr(train, "train", results)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_finds_the_methods_of_its_rows_and_says_what_is_missing(name, made_up, tmp_path, capsys):
    assert run(name, "--out", tmp_path, "--no-report") == 0
    place, expected = TABLES[name]
    text = (tmp_path / place).read_text()
    assert expected in text
    assert "INCOMPLETE" in capsys.readouterr().out  # one carrier, two patterns
    if "variant" in text:
        assert NONE not in text


@pytest.mark.parametrize(
    ("words", "hint"), [(("toy", "--carriers", "sak"), "did you mean 'sac'"), (("tooy",), "did you mean 'toy'")]
)
def test_a_wrong_name_is_refused_in_one_sentence(words, hint, tmp_path, capsys):
    assert run(*words, "--out", tmp_path / "out") == 2
    assert hint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("toy", *TABLES["toy"]),
        ("recovery", *TABLES["recovery"]),
        ("controls", "controls.md", "permuted"),
    ],
)
def test_a_table_is_trained_and_printed(name, place, expected, out):
    """In this order, because later ones use what the first has trained."""
    before = {path: path.read_bytes() for path in out.rglob(store.MANIFEST)}
    assert run(name, "--out", out, "--tasks", "toy", "--no-report") == 0
    assert expected in (out / place).read_text()
    after = {path: path.read_bytes() for path in out.rglob(store.MANIFEST)}
    assert before.items() <= after.items()  # nothing is trained twice
    assert (len(after) == len(before)) == (name == "recovery")


@pytest.mark.slow
def test_the_kept_result_comes_out_again(out):
    """Result of the command in the manifest: identical runs, drift and initial agents.

    Learning itself is chaotic: another processor, or the other optimisation level of these tests, ends elsewhere.
    """
    kept = store.read_json(RESULT / store.MANIFEST)
    again = store.read_json(out / "main" / "toy" / store.MANIFEST)
    assert kept["runs"] == again["runs"]
    assert kept["floors"] == pytest.approx(again["floors"], rel=1e-5)
    ours, theirs = (store.read_json(folder / store.CONFIG) for folder in (RESULT, out / "main" / "toy"))
    assert config_from_json(ours) == config_from_json(theirs)
    ours, theirs = (pl.read_parquet(folder / store.CURVES) for folder in (RESULT, out / "main" / "toy"))
    labels = ["method", "pattern", "seed", "step"]
    assert ours.select(labels).equals(theirs.select(labels))
    apart = ours.join(theirs, on=labels, suffix="_again")
    assert (apart["drift_value"] - apart["drift_value_again"]).abs().max() < 1e-6
    early = apart.filter(pl.col("step") <= store.read_json(RESULT / store.CONFIG)["warmup"])
    assert early.height > 24
    assert (early["return_mean"] - early["return_mean_again"]).abs().max() < 1e-2
    means = apart.group_by("method").agg(pl.col("return_mean", "return_mean_again").mean())
    assert ((means["return_mean"] - means["return_mean_again"]).abs() < 0.3 * means["return_mean"]).all()


@pytest.mark.slow
def test_what_is_finished_is_checked_and_not_overwritten(out, capsys):
    assert run("toy", "--out", out, "--preset", "cpu") == 2
    said = capsys.readouterr().err
    assert "main/toy holds a study with other methods, patterns, seeds, steps" in said

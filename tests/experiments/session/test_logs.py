"""Logs of other trainers: the numbers of a study, or a sentence."""

import glob
import re
import shlex

import numpy as np
import polars as pl
import pytest
from tensorboardX import SummaryWriter

from experiments import Results, compare
from experiments.cli import main
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import Page, save
from tests.pages import ROOT, blocks
from tests.refusals import refused

PAGE = ROOT / "docs" / "compare_logs.md"
STEPS = np.arange(0, 6_001, 250)


def frame(methods=("ppo", "ppo-reset"), seeds=range(1, 6), steps=STEPS):
    """Returns that rise, halve at steps 2000 and 4000, and recover; later methods recover faster."""
    rows = []
    for rank, method in enumerate(methods):
        for seed in seeds:
            noise = np.random.default_rng(seed).normal(0, 1, len(steps)) + seed
            since = steps % 2000 if rank == 0 else 2 * (steps % 2000)
            returns = 100 * (1 - np.exp(-steps / 500)) * (1 - 0.5 * (steps >= 2000) * np.exp(-since / 500)) + noise
            friction = np.minimum(steps // 2000, 2)
            rows += [(method, seed, *row) for row in zip(steps.tolist(), returns, friction.tolist(), strict=True)]
    return pl.DataFrame(rows, ["method", "seed", "step", "return", "friction"], orient="row")


def runs(rows):
    return rows.partition_by("method", "seed", as_dict=True, maintain_order=True).items()


def write(kind, rows, folder):
    """The rows as logs of a kind; returns the files."""
    files = []
    if kind == "csv":
        rows.write_csv(folder / "results.csv")
        return [folder / "results.csv"]
    if kind == "parquet":
        rows.write_parquet(folder / "results.parquet")
        return [folder / "results.parquet"]
    if kind == "wandb":
        parts = [
            run.select("step", pl.col("return").alias(f"{m}_run_{s} - eval/mean-return")) for (m, s), run in runs(rows)
        ]
        table = pl.concat(parts, how="align").rename({"step": "Step"})
        bounds = [pl.col(c).alias(f"{c}__{end}") for c in table.columns[1:] for end in ("MIN", "MAX")]
        table.with_columns(bounds).write_csv(folder / "wandb.csv", quote_style="always")
        return [folder / "wandb.csv"]
    for (method, seed), run in runs(rows):
        place = folder / "runs" / f"{method}_{seed}"
        place.mkdir(parents=True, exist_ok=True)
        if kind == "npz":
            results = run["return"].to_numpy()[:, None] + [-1.0, 1.0]
            np.savez(place / "evaluations.npz", timesteps=run["step"], results=results, ep_lengths=results)
            files.append(place / "evaluations.npz")
        else:
            with SummaryWriter(str(place)) as writer:
                for row in run.rows(named=True):
                    writer.add_scalar("loss", 1.0, row["step"])
                    writer.add_scalar("eval/return", row["return"], row["step"])
            files += place.glob("events*")
    return files


def test_a_log_has_the_numbers_of_the_study_it_came_from(tmp_path):
    curves = make_curves(["SAC", "SAC+AES"], patterns=("steady", "abrupt"))
    study = Results.open(save(tmp_path / "study", curves))
    floor = next(iter(study.manifest["floors"].values()))
    log = compare(curves.drop("family"), changes="20000,40000,60000,80000", floor=floor)
    assert log.compare("SAC+AES", "SAC").equals(study.compare("SAC+AES", "SAC"))
    assert log.profiles("SAC", "SAC+AES").equals(study.profiles("SAC", "SAC+AES"))
    for metric in ("return", "recovery", "drop_ratio", "nauc"):
        ours, theirs = (results.compare("SAC+AES", "SAC", metric) for results in (log, study))
        assert ours.drop("low", "high").equals(theirs.drop("low", "high"))


def test_returns_of_any_scale_are_told_apart_from_zero(tmp_path, capsys):
    frame().with_columns(pl.col("return") * 1e-8).write_csv(tmp_path / "tiny.csv")
    assert main(["compare", str(tmp_path / "tiny.csv")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"better, \S+e-\d+, 95 % interval \S+e-\d+ to \S+e-\d+", said), said


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "tensorboard", "wandb"])
def test_every_kind_of_log_gives_the_same_comparison(tmp_path, kind):
    rows = frame()
    options = {"names": "{method}_run_{seed}"} if kind == "wandb" else {}
    expected = compare(rows, changes="2000,4000", floor=0.0)
    results = compare(write(kind, rows, tmp_path), changes="2000,4000", floor=0.0, **options)
    assert results.methods == ["ppo", "ppo-reset"]
    for metric in ("return", "recovery"):
        ours, theirs = (each.compare("ppo-reset", "ppo", metric).to_dicts()[0] for each in (results, expected))
        assert (ours.pop("metric"), ours.pop("pattern"), ours.pop("outcome")) == (metric, "drift", "better")
        assert ours == pytest.approx({name: theirs[name] for name in ours}, rel=1e-4, abs=1e-5, nan_ok=True)
        assert ours["detectable"] > 0


def test_changes_are_steps_or_a_column_that_changes():
    by_steps, by_column = (compare(frame(), changes=changes, floor=0.0) for changes in ("2000,4000", "friction"))
    for metric in ("recovery", "later_return"):
        assert by_steps.compare("ppo-reset", "ppo", metric).equals(by_column.compare("ppo-reset", "ppo", metric))


def test_names_of_runs_give_method_and_seed(tmp_path):
    for method, seed in (("ppo", 1), ("ppo", 2), ("sac-v2", 1), ("sac-v2", 2)):
        rows = frame(methods=[method], seeds=[seed]).select("step", "return")
        for name in (f"{method}-{seed}", f"{method}_seed{seed}", f"{method}/s{seed}", f"Ant-v5__{method}__{seed}__17"):
            path = tmp_path / str(len(name.partition(method)[2])) / f"{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows.write_csv(path)
    usual = [path for path in tmp_path.rglob("*.csv") if "__" not in path.name]
    for files, options in ((usual[:4], {}), (tmp_path.rglob("Ant*"), {"names": "{task}__{method}__{seed}__{}"})):
        results = compare(sorted(files), **options)
        assert set(results.curves.select("method", "seed").iter_rows()) == {
            (method, seed) for method in ("ppo", "sac-v2") for seed in (1, 2)
        }


def test_runs_that_cannot_be_paired_are_named(tmp_path, capsys):
    rows = frame().filter(~((pl.col("method") == "ppo") & (pl.col("seed") == 5)))
    late = (pl.col("method") == "ppo") & (pl.col("seed") == 4) & (pl.col("step") > 3_000)
    rows.filter(~late).write_csv(tmp_path / "uneven.csv")
    assert main(["compare", str(tmp_path / "uneven.csv"), "--out", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert "8/10 runs are valid" in printed
    assert "ppo, unnamed task, steady, seed 5: missing" in printed
    assert "ppo, unnamed task, steady, seed 4: incomplete, last evaluation at step 3 000" in printed
    assert "3 of 5 runs paired" in printed
    page = Page((tmp_path / "report" / "index.html").read_text())
    assert "8/10 runs are valid" in " ".join(page.texts)


def broken(rows, line, text):
    lines = rows.write_csv().splitlines()
    return "\n".join([*lines[: line - 1], text, *lines[line:]])


TWO = frame(seeds=[1, 2], steps=STEPS[:4])
OTHER = pl.concat([TWO.filter(method="ppo"), TWO.filter(method="ppo-reset").with_columns(pl.col("step") + 1)])
LONGER = pl.concat([frame(["a"], [1, 2]), frame(["b"], [1, 2], STEPS[:4])])
REFUSED = {
    "a text for a number": (broken(TWO, 3, "ppo,1,250,abc,0"), [], "line 3: returns is 'abc'"),
    "a missing cell": (broken(TWO, 7, "ppo,2,250"), [], "line 7 has 3 cells, the header 5"),
    "no seed": (broken(TWO, 4, "ppo,,500,3.0,0"), [], "line 4: has no seed"),
    "half a seed": (broken(TWO, 4, "ppo,1.5,500,3.0,0"), [], "line 4: seed is '1.5'"),
    "an unknown column": (TWO, ["--returns", "retrun"], "did you mean 'return'?"),
    "an unknown baseline": (TWO, ["--baseline", "ppo-rest"], "did you mean 'ppo-reset'?"),
    "no usual name": (TWO.rename({"return": "R"}), [], "no column of a usual name for returns"),
    "one method": (TWO.filter(method="ppo"), [], "needs two methods; the logs have ppo"),
    "no common seed": (pl.concat([frame(["a"], [1, 2]), frame(["b"], [3, 4])]), [], "seed 1: missing"),
    "other steps": (OTHER, [], "give the option every"),
    "other ends": (LONGER, [], "incomplete, last evaluation at step 750"),
    "a run twice": (pl.concat([TWO, TWO]), [], "has two returns at step 0"),
    "no interval": (TWO, ["--every", "0"], "every must be a positive number"),
    "a floor of two tasks": (
        TWO.with_columns(task=pl.col("method")),
        ["--floor", "3"],
        "floor must be given for logs of one task",
    ),
    "a change outside": (TWO, ["--changes", "400,9000"], "between steps 0 and 750"),
    "no rows": (TWO.head(0), [], "needs two methods; the logs have no returns"),
    "an empty file": ("", [], "no column of a usual name"),
    "binary": (b"\xff\x00\xfe", [], "cannot be read as CSV"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_logs_that_cannot_be_compared_are_refused_in_a_sentence(tmp_path, capsys, case):
    log, options, sentence = REFUSED[case]
    data = log if isinstance(log, str | bytes) else log.write_csv()
    (tmp_path / "log.csv").write_bytes(data.encode() if isinstance(data, str) else data)
    assert sentence in refused(capsys, "compare", tmp_path / "log.csv", *options, "--out", tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"floor": "3"}, "floor must be a number; got '3'"),
        ({"every": "all"}, "every must be a number; got 'all'"),
        ({"changes": [2000, None]}, "changes must be a number; got None"),
        ({"changes": 9000}, "changes must increase between steps 0 and 750; got 9000"),
    ],
)
def test_options_of_another_type_are_refused_in_a_sentence(options, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        compare(TWO, **options)


def test_a_file_of_evaluations_with_other_numbers_of_rows_is_refused(tmp_path):
    np.savez(tmp_path / "evaluations.npz", timesteps=np.arange(3), results=np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"evaluations\.npz is no evaluations\.npz of Stable-Baselines3"):
        compare(tmp_path / "evaluations.npz")


def test_one_change_is_a_number_too():
    one, text = (compare(TWO, changes=changes).metrics for changes in (500, "500"))
    assert one.equals(text)


def test_other_steps_can_be_averaged():
    for log in (OTHER, LONGER):
        assert compare(log, every=250.0).compare(*reversed(compare(log, every=250.0).methods))["pairs"][0] == 2


def test_nothing_in_a_log_is_executed(tmp_path, capsys):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trapped"), "w"))

    np.savez(tmp_path / "evaluations.npz", timesteps=[1], results=np.array([Trap()], dtype=object))
    assert "allow_pickle=False" in refused(capsys, "compare", tmp_path / "evaluations.npz")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"\x05" + 11 * b"\x00" + b"\xff\xff\xff\xff\xff1234")
    assert "TensorBoard events" in refused(capsys, "compare", tmp_path / "events.out.tfevents.1")
    assert "does not exist" in refused(capsys, "compare", tmp_path / "nowhere.csv")
    assert not (tmp_path / "trapped").exists()


def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = frame()
    for kind in ("csv", "npz", "tensorboard", "wandb"):
        write(kind, rows, tmp_path)
    rows.rename({"return": "eval/return", "method": "algorithm"}).write_csv("results.csv")
    for command in blocks(PAGE, "")[0].splitlines():
        words = shlex.split(command)[1:]
        assert main([name for word in words for name in glob.glob(word) or [word]]) == 0, capsys.readouterr().err
        assert "detectable" in capsys.readouterr().out
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Comparison of logs" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_logs_of_trained_agents_of_stable_baselines3(tmp_path, capsys):
    """PPO and A2C on a cart-pole whose pole grows at step 256, five seeds each."""
    sb3 = pytest.importorskip("stable_baselines3")
    from gymnasium.envs.classic_control import CartPoleEnv
    from gymnasium.wrappers import TimeLimit
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    class Growing(CartPoleEnv):
        taken = 0

        def step(self, action):
            self.taken += 1
            self.length = 0.5 if self.taken < 256 else 1.5
            return super().step(action)

    for name, sizes in (("PPO", {"n_steps": 64}), ("A2C", {"n_steps": 8})):
        for seed in range(1, 6):
            learner = getattr(sb3, name)("MlpPolicy", TimeLimit(Growing(), 50), seed=seed, device="cpu", **sizes)
            place = tmp_path / name / f"seed-{seed}"
            callback = EvalCallback(
                Monitor(TimeLimit(Growing(), 50)), n_eval_episodes=1, eval_freq=64, log_path=str(place), verbose=0
            )
            learner.learn(512, callback=callback)
    files = sorted(tmp_path.rglob("evaluations.npz"))
    words = ["--changes", "256", "--floor", "10", "--out", tmp_path / "report"]
    assert main(list(map(str, ["compare", *files, *words]))) == 0
    printed = capsys.readouterr().out
    assert "10/10 runs are valid" in printed
    assert "PPO, mean return, drift, against A2C" in printed
    tables = (tmp_path / "report" / "tables.md").read_text()
    assert "Recovery after changes" in tables
    assert (tmp_path / "report" / "profiles.png").stat().st_size > 1000

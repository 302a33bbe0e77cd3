"""Tuning: settings are chosen on other seeds and the beginning of runs, refused where they would judge themselves."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from aesjax.registry import UnknownNameError
from experiments import Results, Study, common_setting
from experiments.cli import main
from experiments.measure.catalog import CATALOG
from experiments.session.study import TuneOptions
from experiments.session.tuning import Tuning, TuningPlan
from experiments.study import store
from tests.experiments.configs import config_of
from tests.refusals import refused

NUMBERS = {"kappa": (0.1, 3.0), "fixed.base": (0.02, 0.2)}
SMALL = {"steps": 1200, "evaluations": 6, "episodes": 1, "patterns": "steady,abrupt"}


def study(**options):
    return Study("toy", ["sac", "sac+aes", "sac+fixed"], **{"seeds": "1:2", **SMALL, **options})


def plan(numbers=NUMBERS, seeds="1:2", **options):
    return TuningPlan(study(seeds=seeds), TuneOptions(numbers, **{"choosing": "5:6", "shares": "0.5", **options}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"choosing": "2:3"}, "seeds 2 would choose and judge"),
        ({"numbers": {"kapa": (0.1, 1.0)}}, "no method reads 'kapa'"),
        ({"numbers": {"linear.base": (0.1, 1.0)}}, "no method reads 'linear.base'"),
        ({"numbers": ()}, "one or more axes"),
        ({"numbers": ["kappa=1:0.1:3"]}, "0 < LOW < HIGH"),
        ({"numbers": ["kappa=0.1:1"]}, "NAME=VALUE"),
        ({"shares": "0.1,2"}, "above 0 and at most 1"),
        ({"shares": "0.15"}, "--shares must be a share of the run, .* one of its 6 evaluations"),
        ({"shares": "0.25,0.5"}, "--shares must be a share of the run, .* 6 evaluations .*; got 0.25"),
        ({"clipped": 1.5}, "a share from 0 to 1"),
        (
            {"metric": "nauc"},
            r"--metric nauc needs runs of SAC, and the trials are SAC\+AES\[kappa=0.1\], .*such as return",
        ),
        ({"metric": "drop_ratio", "choosing_patterns": "steady"}, "needs a pattern with drift; .* trials are steady"),
        ({"metric": "drop_ratio", "choosing_patterns": "abrupt"}, "needs the pattern steady; .* trials are abrupt"),
        ({"metric": "recovery"}, "has no value under the pattern steady; .* trials are steady, abrupt"),
        (
            {"metric": "recovery", "choosing_patterns": "abrupt", "shares": str(1 / 6)},
            "which it does not in the first 20 % of the run; --shares has 0.1666",
        ),
    ],
)
def test_a_tuning_that_cannot_choose_is_refused(options, words):
    with pytest.raises(ValueError, match=words) as refused:
        _ = plan(**options).trials.config
    assert len(str(refused.value)) < 300


def test_a_tuning_of_a_sweep_is_refused():
    with pytest.raises(ValueError, match="--sweep varies gamma; tuning tries the values of --numbers alone"):
        TuningPlan(study(sweep=["gamma=0.9,0.98"]), TuneOptions(NUMBERS, choosing="5:6", shares="0.5"))


def test_the_metric_that_chooses_is_looked_up_before_training():
    with pytest.raises(UnknownNameError, match="unknown metric 'retrun'; did you mean 'return'"):
        plan(metric="retrun")
    for name, full in (("return", "mean_return"), ("final_return", "final_return"), ("drop_ratio", "drop_run_safe")):
        assert plan(metric=name, shares="0.5").metric.name == full


def test_every_method_is_tried_with_the_numbers_that_it_reads():
    tuned = plan().tuned
    assert {at: [dict(trial.numbers) for trial in trials] for at, trials in tuned.items()} == {
        1: [{"kappa": 0.1}, {"kappa": 3.0}],
        2: [{"fixed.base": 0.02}, {"fixed.base": 0.2}],
    }
    assert [len(trials) for trials in plan({"base": (0.1, 0.2), "learning_rate": (1e-4, 1e-3)}).tuned.values()] == [
        2,
        4,
        4,
    ]
    assert plan(["kappa=0.01:1:3"]).axes == {"kappa": (0.01, 0.1, 1.0)}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A tuning of two methods, on the first half and on whole runs."""
    out = tmp_path_factory.mktemp("tuned")
    return study().tune(NUMBERS, out=out, choosing="5:6", shares="0.5,1", quiet=True)


@pytest.mark.slow
def test_the_choice_is_the_best_mean_over_patterns_and_seeds_of_each_share(tuned):
    curves = tuned.trials.curves
    for row in tuned.choices.iter_rows(named=True):
        steps = curves.filter(pl.col("method").str.starts_with(row["method"]), pl.col("step") <= 1200 * row["share"])
        # Trapezoids over evenly spaced evaluations.
        weight = pl.when(pl.col("step").is_in([0, int(1200 * row["share"])])).then(0.5).otherwise(1.0)
        means = steps.group_by("method").agg((pl.col("return_mean") * weight).sum() / weight.sum())
        best, second = means.sort("return_mean", descending=True).rows()
        assert (row["chosen"], row["second"]) == (best[0], second[0])
        assert row["score"] == pytest.approx(best[1])
    assert tuned.choices["method"].to_list() == ["SAC+AES"] * 2 + ["SAC+fixed"] * 2
    assert set(tuned.choices["edge"]) == {"kappa", "fixed.base"}  # of two values each is an end


@pytest.mark.slow
def test_a_setting_at_its_clip_is_chosen_only_if_all_are(tuned):
    trials = tuned.trials
    rows = trials.metrics.filter(level="run", metric="saturation")
    shares = dict(rows.group_by("method").agg(pl.col("value").mean()).iter_rows())
    free, clipped = sorted((name for name in shares if "AES" in name), key=shares.get)
    assert shares[free] < shares[clipped]
    for limit, allowed in ((shares[free], {free}), (0.0, {free}), (1.0, {free, clipped})):
        chosen = plan(choosing="5:6", shares="1", clipped=limit).choose(trials)[0]
        assert chosen.chosen in allowed
        assert chosen.clipped == pytest.approx(shares[chosen.chosen])


@pytest.mark.slow
def test_the_chosen_settings_are_judged_on_fresh_seeds(tuned):
    assert set(tuned.results.methods) == {"SAC", *tuned.choices["chosen"]}
    assert tuned.results.config.seeds == (1, 2)
    assert tuned.trials.config.seeds == (5, 6)
    lines = str(tuned).splitlines()
    assert tuned.results.manifest["tuning"] == lines
    assert "cost: 16 runs of 1,200 of 1,200 steps" in lines[-1]


@pytest.mark.slow
def test_trials_are_the_beginning_of_whole_runs(tuned, tmp_path):
    early = plan(shares="0.5").trials.run(tmp_path / "early", quiet=True)
    whole = tuned.trials.curves.filter(pl.col("step") <= 600)
    assert early.curves.equals(whole, null_equal=True)
    assert early.config.horizon == 1200
    assert early.manifest["changes"]["toy"]["abrupt"] == {"5": [240, 480], "6": [240, 480]}
    assert early.policy("SAC+AES[kappa=3]", "abrupt", 5).end == 599


@pytest.mark.slow
def test_a_killed_tuning_continues_to_equal_numbers(tuned, tmp_path, monkeypatch, capsys):
    numbers = [word for name, values in NUMBERS.items() for word in ("--numbers", f"{name}={values[0]},{values[1]}")]
    sizes = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    options = [*numbers, *sizes, "--choosing", "5:6", "--seeds", "1:2", "--shares", "0.5,1"]
    options += ["--schedules", "baseline,aes,fixed", "--quiet", "--no-report", "--out", str(tmp_path / "tuned")]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("experiments.study.train.save_agents", interrupted)
        assert main(["tune", *options]) == 130
    assert "aesjax tune --schedules baseline,aes,fixed" in capsys.readouterr().err
    assert main(["tune", *options, "--resume"]) == 0
    for folder in ("trials", "study"):
        for name in (store.CONFIG, store.CURVES):
            there, here = tuned.trials.directory.parent / folder / name, tmp_path / "tuned" / folder / name
            assert there.read_bytes() == here.read_bytes()


@pytest.mark.slow
def test_one_setting_for_all_tasks_and_its_loss(tuned, tmp_path):
    methods = plan().trials.methods
    Study("reacher", methods, seeds="5:6", **SMALL).run(tmp_path / "other" / "trials", quiet=True)
    frame = common_setting([tuned, tmp_path / "other"])
    assert set(frame["method"]) == {"SAC+AES", "SAC+fixed"}
    assert set(frame["tasks"]) == {2}
    for _, own in frame.group_by("method"):
        scores, common = own["score"], own.filter("common")
        assert scores.sum() == pytest.approx(1.0)  # of two settings one is best and one worst on each task
        assert common["score"].item() == scores.max()
        assert common["loss"].item() == pytest.approx(1 - scores.max())
    with pytest.raises(ValueError, match="tunings of two or more tasks"):
        common_setting([tuned, Results.open(tuned.trials.directory).directory.parent])


@pytest.mark.parametrize("other", [0.0, float("nan")])
def test_a_setting_that_diverged_on_one_task_has_no_numbers_and_is_not_common(monkeypatch, other):
    scores = {
        "toy": {"SAC+AES[kappa=0.1]": 1.0, "SAC+AES[kappa=2]": 3.0, "SAC+AES[kappa=3]": other},
        "reacher": {"SAC+AES[kappa=0.1]": 5.0, "SAC+AES[kappa=2]": float("nan"), "SAC+AES[kappa=3]": 5.0},
    }
    monkeypatch.setattr("experiments.session.tuning._score", lambda study, name, _: scores[study][name])
    tunings = []
    for task in scores:
        config = config_of("sac", "aes", task=task, sweep=("kappa=0.1,2,3",))
        fields = {"config": config, "_recorded": task, "_metric": lambda *_: CATALOG["mean_return"]}
        tunings.append(Tuning(None, SimpleNamespace(**fields), None, ()))
    rows = {row["setting"]: row for row in common_setting(tunings).to_dicts()}
    wild, plain = (rows.pop(f"SAC+AES[kappa={kappa}]") for kappa in ("2", "0.1"))
    assert all(np.isnan(wild[name]) for name in ("score", "worst", "loss", "worst_loss"))
    assert not wild["common"]
    assert plain["common"]
    assert plain["worst_loss"] == 1.0 - plain["worst"]


@pytest.mark.slow
def test_a_tuning_of_a_file_is_continued_with_the_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "two.toml"
    file.write_text('methods = ["sac+aes", "ppo+aes_r"]\npatterns = "steady"\nseeds = "1:2"\n')

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.study.train.train", interrupted)
    options = ["--config", str(file), "--numbers", "kappa=0.1,1", "--out", str(tmp_path / "tuned")]
    assert main(["tune", *options]) == 130
    command = capsys.readouterr().err.splitlines()[-1].split()
    assert command[:4] == ["aesjax", "tune", "--config", str(file)]
    assert command[4:] == ["--numbers", "kappa=0.1,1", "--out", str(tmp_path / "tuned"), "--resume"]


def test_trials_and_study_write_their_events_into_folders_of_their_own(tmp_path, monkeypatch, capsys):
    folders, events = [], tmp_path / "events"
    monkeypatch.setattr("experiments.cli.run.train", lambda _, runtime, **__: folders.append(runtime.tensorboard) or 0)
    monkeypatch.setattr(Results, "open", lambda *_: None)
    for name in ("choose", "lines"):
        monkeypatch.setattr(TuningPlan, name, lambda *_: [])
    options = ["--numbers", "kappa=0.1,1", "--out", str(tmp_path / "tuned"), "--tensorboard", str(events)]
    assert main(["tune", *options]) == 0
    assert folders == [events / "trials", events / "study"]
    (events / "notes").mkdir(parents=True)
    assert f"--tensorboard {events} is not an empty folder" in refused(capsys, "tune", *options)
    assert main(["tune", *options, "--resume"]) == 0


@pytest.mark.parametrize(
    ("patterns", "metric", "chooses"),
    [
        ("steady,abrupt", "drop_ratio", False),
        ("steady,periodic,mixed", "loss_rate", False),
        ("steady,periodic", "drop_ratio", True),
        ("steady,abrupt", "return", True),
    ],
)
def test_a_loss_by_drift_chooses_only_where_jumping_patterns_have_changed(patterns, metric, chooses):
    options = {"metric": metric, "choosing_patterns": patterns, "shares": str(1 / 6)}
    if chooses:
        assert plan(**options).trials.until == pytest.approx(1 / 6)
        return
    with pytest.raises(ValueError, match=f"--metric {metric} needs trials that see the drift change, .* first 20 %"):
        plan(**options)

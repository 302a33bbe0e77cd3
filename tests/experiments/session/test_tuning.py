"""Tuning: settings are chosen on other seeds and the beginning of runs, refused where they would judge themselves."""

from functools import partialmethod

import numpy as np
import polars as pl
import pytest

from aesjax.registry import UnknownNameError
from experiments import Study, common_setting
from experiments.cli import main
from experiments.session.study import TuneOptions
from experiments.session.tuning import TuningPlan
from experiments.study import store
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import STEPS, make_curves
from tests.experiments.report.pages import configure, save
from tests.refusals import refused

NUMBERS = {"kappa": (0.1, 3.0), "fixed.base": (0.02, 0.2)}
SMALL = {"steps": 1200, "evaluations": 6, "episodes": 1, "patterns": "steady,abrupt"}
SIZES = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]


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
    with pytest.raises(ValueError, match=words):
        _ = plan(**options).trials.config


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
def test_a_killed_tuning_continues_to_equal_numbers_and_writes_events_of_trials_and_study(
    tuned, tmp_path, monkeypatch, capsys
):
    events = tmp_path / "events"
    numbers = [word for name, values in NUMBERS.items() for word in ("--numbers", f"{name}={values[0]},{values[1]}")]
    options = [*numbers, *SIZES, "--choosing", "5:6", "--seeds", "1:2", "--shares", "0.5,1"]
    options += ["--schedules", "baseline,aes,fixed", "--quiet", "--no-report", "--out", str(tmp_path / "tuned")]
    options += ["--tensorboard", str(events)]
    (events / "notes").mkdir(parents=True)
    assert f"--tensorboard {events} is not an empty folder" in refused(capsys, "tune", *options)
    (events / "notes").rmdir()

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
        curves = pl.read_parquet(tmp_path / "tuned" / folder / store.CURVES)
        written = {path.parent.relative_to(events / folder).parts for path in (events / folder).rglob("*tfevents*")}
        assert len(written) == curves.select("method", "pattern", "seed").n_unique()


@pytest.mark.slow
def test_a_dry_run_of_a_tuning_prints_trials_and_study_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Study, "forecast", partialmethod(Study.forecast, seconds=0.1))
    monkeypatch.chdir(tmp_path)
    words = "tune --schedules baseline,fixed --numbers fixed.base=0.1,0.2 --choosing 5:6 --seeds 1:2 --shares 0.5,1"
    assert main([*words.split(), *SIZES, "--out", "tuned", "--dry-run"]) == 0
    trials, study = capsys.readouterr().out.split("the study:\n")
    assert trials.startswith("trials:\nsac: 8 runs of 1,200 environment steps")  # two settings, patterns, seeds
    assert study.startswith("sac: ")
    assert not any(tmp_path.iterdir())


def tried(folder, task, returns, diverged=()):
    """The folder of a tuning that has trained its trials, a setting of AES for each of ``returns``."""
    names = {f"SAC+AES[kappa={kappa}]": value for kappa, value in returns.items()}
    curves = make_curves(tuple(names), ("steady",), [5, 6], task=task, every=STEPS // 5)
    curves = curves.with_columns(return_mean=pl.col("method").replace_strict(names, return_dtype=pl.Float64))
    folder.mkdir()
    runs = [(f"SAC+AES[kappa={kappa}]", "steady", 5) for kappa in diverged]
    save(folder / "trials", curves, diverged=runs)
    sizes = {"seeds": [5, 6], "steps": STEPS, "evaluations": 5}
    config = config_of("sac", "aes", task=task, sweep=(f"kappa={','.join(returns)}",), **sizes)
    configure(folder / "trials", **config.to_json())
    return folder


@pytest.mark.parametrize("diverged", [(), ("3",)])
def test_one_setting_for_all_tasks_is_the_best_mean_share_and_has_finished_on_each(tmp_path, diverged):
    toy = tried(tmp_path / "toy", "toy", {"0.1": 1.0, "2": 3.0, "3": 0.0}, diverged)
    reacher = tried(tmp_path / "reacher", "reacher", {"0.1": 5.0, "2": 9.0, "3": 5.0}, ["2"])
    rows = {row["setting"]: row for row in common_setting([toy, reacher]).to_dicts()}
    plain, wild, last = (rows[f"SAC+AES[kappa={kappa}]"] for kappa in ("0.1", "2", "3"))
    assert {row["method"] for row in rows.values()} == {"SAC+AES"}
    assert {row["tasks"] for row in rows.values()} == {2}
    assert all(np.isnan(wild[name]) for name in ("score", "worst", "loss", "worst_loss"))
    assert np.isnan(last["score"]) == bool(diverged)
    assert [row["common"] for row in (plain, wild, last)] == [True, False, False]
    of_toy = 0.0 if diverged else 1.0 / 3.0  # between the worst and the best of the settings that finished
    assert plain["worst"] == pytest.approx(of_toy)
    assert plain["score"] == pytest.approx((of_toy + 1.0) / 2.0)  # both that finished are the best of the reacher
    assert plain["loss"] == pytest.approx(1.0 - plain["score"])
    assert plain["worst_loss"] == pytest.approx(1.0 - of_toy)


def test_a_common_setting_needs_two_tasks_and_was_tried_on_each(tmp_path):
    toy = tried(tmp_path / "toy", "toy", {"0.1": 1.0, "2": 3.0})
    reacher = tried(tmp_path / "reacher", "reacher", {"0.1": 1.0, "3": 3.0})
    with pytest.raises(ValueError, match="tunings of two or more tasks"):
        common_setting([toy, toy])
    with pytest.raises(ValueError, match=r"the setting SAC\+AES\[kappa=[23]\] was not tried on every task"):
        common_setting([toy, reacher])


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

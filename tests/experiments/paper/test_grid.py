"""The design can be trained, tables follow from the records, and the grid's page states them."""

import json
from collections import Counter
from dataclasses import replace

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from experiments.measure.comparisons import DECIDED, contrasts
from experiments.measure.stats import detectable
from experiments.paper import design, early, figures, record, tables
from experiments.session.tuning import TuningPlan
from experiments.study import store
from experiments.study.codec import encode
from experiments.study.text import parse_method
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import save
from tests.pages import ROOT

RECORD = record.read()
GRID = list(tables.settings(RECORD.runs))
SETTINGS = {(each.task, each.carrier): each for each in GRID}


def text(page):
    return " ".join((ROOT / page).read_text().split())


def cell(setting, part, row, pattern):
    return getattr(setting, part)[row, pattern]


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("part", design.PARTS)
def test_every_cell_of_a_part_is_a_study_with_a_folder_of_its_own(part, scale):
    cells = design.cells(part, scale=scale)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        config = cell.untuned.config
        assert config.task == cell.study.task
        if cell.tuned:
            plan = TuningPlan(replace(cell.study, methods=cell.tuned.methods), cell.tuned.options)
            assert plan.trials.config.whole == config.steps
            assert {len(trials) for trials in plan.tuned.values()} == {5}
            assert len(plan.tuned) == len(cell.tuned.methods)
        controls = design.controls(cell, ROOT)
        tuned = part in "AC" and config.carriers[0] in ("sac", "ppo")
        assert (controls is not None) == (part in "ACDE" if scale == "paper" else tuned)
        assert controls is None or len(controls.study.methods) == 2
        if part in "ACD" and scale == "small" and config.carriers != ("ppo",):
            assert config.envs_of(*config.carriers) == 1  # so a gradient step per environment step


def test_unknown_parts_carriers_and_tasks_are_named():
    for words, hint in ((("X",), "unknown part 'X'"), (("A", ["sak"]), "did you mean 'sac'")):
        with pytest.raises(KeyError, match=hint):
            design.cells(*words)
    with pytest.raises(KeyError, match="did you mean 'hopper'"):
        design.cells("D", tasks=["hoper"])


def mean_returns(study, method, pattern):
    """Area under the curve by the trapezoid over the horizon, by seed."""
    rows = RECORD.curves.filter(study=study, method=method, pattern=pattern).sort("seed", "step")
    step, value = (pl.col(name).cast(pl.Float64) for name in ("step", "return_mean"))
    area = ((step - step.shift()) * (value + value.shift()) / 2).sum() / step.max()
    return rows.group_by("seed", maintain_order=True).agg(area.alias("mean"))["mean"].to_numpy()


@pytest.mark.parametrize(
    ("carrier", "row", "pattern", "ours", "theirs", "seeds"),
    [
        ("sac", tables.PUBLISHED, "periodic", ("", "SAC+AES"), ("", "SAC+fixed[base=0.2]"), slice(5, 10)),
        ("ppo", tables.TIMING, "linear", ("", "PPO+AES"), ("-controls", "PPO+permuted(aes)"), slice(0, 10)),
    ],
)
def test_a_number_of_the_tables_is_recomputed_from_the_curves(carrier, row, pattern, ours, theirs, seeds):
    ours, theirs = (mean_returns(f"A-toy-100000-{carrier}{end}", method, pattern) for end, method in (ours, theirs))
    d = (ours - theirs)[seeds]
    part = "tuned" if len(d) == 5 else "published"
    found = cell(SETTINGS["toy", carrier], part, row, pattern).interval
    half = {5: 2.776445, 10: 2.262157}[len(d)] * d.std(ddof=1) / np.sqrt(len(d))  # quantiles of Student's t
    np.testing.assert_allclose(found, (d.mean(), d.mean() - half, d.mean() + half), atol=1e-3)
    assert f"{d.mean():+.1f} ± {half:.1f}" in text("experiments/results/tables.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "earlier"])
def test_runs_are_those_of_the_curves(name):
    """Byte for byte, on the tasks whose scores take seconds; the small tasks alone have scores without curves."""
    curves, runs, studies = record.read(record.RESULTS / name)
    stored = runs.filter(pl.col("study") != "small-tasks")
    assert set(studies) == set(curves["study"].unique()) == set(stored["study"].unique())
    long = set(curves.filter(pl.col("task").is_in(["toy", "cartpole_swingup", "pendulum"]))["study"])
    short = {study: about for study, about in studies.items() if study not in long}
    again = record.scores(curves.filter(pl.col("study").is_in(list(short))), short)
    again = again.with_columns(pl.col(pl.Float64).cast(pl.Float32).cast(pl.Float64).fill_null(np.nan))
    assert len(again) > 100
    assert again.equals(stored.filter(pl.col("study").is_in(list(short))))


def test_the_seeds_of_the_report_choose_nothing_and_the_seeds_of_the_choice_enter_no_reported_difference():
    assert not set(tables.CHOOSING) & set(tables.REPORTING)
    runs = RECORD.runs.filter(task="toy", carrier="sac")
    setting = SETTINGS["toy", "sac"]
    late = pl.col("seed").is_in(list(tables.REPORTING))
    noise = pl.Series(np.random.default_rng(0).normal(size=runs.height))
    other = next(tables.settings(runs.with_columns(mean_return=pl.when(late).then(noise).otherwise("mean_return"))))
    assert (other.methods, other.constant) == (setting.methods, setting.constant)
    shifted = pl.col("mean_return") + pl.when(late).then(0.0).otherwise(3.0)  # of all methods: the choice stays
    again = next(tables.settings(runs.with_columns(mean_return=shifted)))
    assert [each.interval for each in again.tuned.values()] == [each.interval for each in setting.tuned.values()]


def test_with_five_seeds_nothing_is_chosen_and_an_adaptation_is_a_row_of_its_own():
    toy = RECORD.runs.filter(task="toy", carrier="sac")
    (few,) = tables.settings(toy.filter(pl.col("seed") <= 5))
    assert few.tuned == {}
    assert few.methods.keys().isdisjoint({tables.TUNED})
    assert few.constant == "SAC+fixed"
    assert few.published[tables.CONSTANT, "steady"].interval.value == pytest.approx(
        toy.filter(pl.col("seed") <= 5, pattern="steady", method="SAC+AES")["mean_return"].mean()
        - toy.filter(pl.col("seed") <= 5, pattern="steady", method="SAC+fixed")["mean_return"].mean()
    )
    assert "All 5 seeds; nothing was chosen." in tables.tables(toy.filter(pl.col("seed") <= 5))
    definition = json.dumps(encode(parse_method("fixed+recent", "sac")))
    recent = toy.filter(method="SAC+fixed").with_columns(
        method=pl.lit("SAC+fixed+recent"), definition=pl.lit(definition), mean_return=pl.col("mean_return") + 9.0
    )
    (both,) = tables.settings(pl.concat([toy, recent]))
    assert both.tuned["`fixed+recent`", "steady"].outcome == "better"
    assert "fixed+recent" not in both.constant
    assert not list(tables.settings(toy.filter(pattern="abrupt")))  # no level to learn


def test_equivalent_needs_the_complete_interval_inside_the_margin():
    differences = {"steady": [0.1, -0.1, 0.1, -0.1, 0.0], "abrupt": [3.0, -3.0, 3.0, -3.0, 0.0], "mixed": [5.0] * 5}
    cells = {name: np.array(own) - 0.01 * np.arange(5) for name, own in differences.items()}
    found = contrasts(cells, gain=20.0)
    assert [each.outcome for each in found.values()] == ["equivalent", "undecided", "better"]
    assert [each.outcome for each in contrasts(cells).values()] == ["undecided", "undecided", "better"]  # no margin
    assert found["abrupt"].detectable_share == pytest.approx(cells["abrupt"].std(ddof=1) * detectable(5, 3) / 20.0)


def test_a_study_is_added_once_and_its_record_is_read_as_it_was_written(tmp_path):
    folder = save(tmp_path / "made", make_curves(["SAC", "SAC+AES"], seeds=range(1, 4)))
    for _ in range(2):
        record.record([folder], tmp_path / "record")
    curves, runs, studies = record.read(tmp_path / "record")
    stored = pl.read_parquet(folder / store.CURVES)
    np.testing.assert_array_equal(curves["return_mean"], stored["return_mean"].cast(pl.Float32))
    assert list(studies) == ["made"]
    assert runs.height == stored.select("method", "pattern", "seed").unique().height
    beside = record.gather([folder]).runs  # a folder gives the same rows as its record
    keys = ["method", "pattern", "seed"]
    both = runs.join(beside, on=keys, suffix="_again")
    assert both.height == runs.height
    np.testing.assert_allclose(both["nauc_task_safe"], both["nauc_task_safe_again"], rtol=1e-5)
    assert not list(tables.settings(runs))  # three seeds, and no constant
    before = {path.name: path.read_bytes() for path in (tmp_path / "record").glob("*.*")}
    broken = save(tmp_path / "broken", make_curves(["SAC"], seeds=[1]).head(0))
    other = save(tmp_path / "other", make_curves(["SAC"], seeds=[4]))
    with pytest.raises(ValueError, match="config, manifest and curves do not fit together"):
        record.record([other, broken], tmp_path / "record")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "record").glob("*.*")}


def test_the_papers_tables_put_its_numbers_beside_ours_and_say_what_is_missing():
    grid = record.gather([record.GRID])
    text = tables.paper_tables(grid)
    steady = RECORD.runs.filter(carrier="ppo", pattern="steady", task="toy", steps=100_000)
    ours = [steady.filter(method=method)["nauc_task_safe"].mean() for method in ("PPO", "PPO+AES")]
    assert f"| toy PPO | 0.89 → 0.89; {ours[0]:.2f} → {ours[1]:.2f} |" in text
    assert "| isaac SQL | 0.76 → 0.81; no data |" in text
    assert "| `isaac_allegro_hand` | 21.5 → 10.6; no data |" in text
    assert "| Fixed lambda (No AES) | 0.78 | no data |" in tables.appendix_tables(grid)  # nAUC needs SAC
    tables_of_parts = tables.appendix_tables(record.gather([record.GRID, record.RESULTS / "earlier"]))
    for name, carriers in (
        ("quantile", "SAC"),
        ("ema", "SAC"),
        ("clip", "SAC, PPO"),
    ):  # PPO is pinned at any q and beta
        (head,) = [line for line in tables_of_parts.splitlines() if line.startswith(f"| {name} |")]
        assert head.endswith(f"| settings of {carriers} |")


def test_without_a_clear_gain_there_is_no_margin():
    setting = SETTINGS["toy_multigoal_classic", "meow"]  # its mean return is below that of random actions
    assert np.isnan(setting.gain)
    assert "equivalent" not in [each.outcome for each in (setting.tuned | setting.published).values()]
    assert "No margin of equivalence." in tables.tables_of(setting)
    assert "| `toy_multigoal_classic` | none |" in tables.power([setting])


def test_a_run_that_diverged_removes_neither_the_margin_nor_a_pinned_setting():
    whole = SETTINGS["toy", "ppo"]
    assert (whole.methods[tables.PUBLISHED], "steady") in whole.pinned
    broken = whole.runs
    for method in (whole.methods[tables.BASELINE], whole.methods[tables.PUBLISHED]):
        lost = pl.when(method=method, pattern="steady", seed=7).then(np.nan)
        columns = ("mean_return", "saturation_min", "saturation_max", "mean_entropy_weight")
        broken = broken.with_columns(lost.otherwise(name).alias(name) for name in columns)
    (found,) = tables.settings(broken)
    assert found.pinned == whole.pinned
    assert found.gain == pytest.approx(whole.gain, rel=0.1)


def test_the_table_of_power_spans_the_detectable_differences_of_a_task():
    toy = SETTINGS["toy", "sac"]
    row = [each for (row, _), each in toy.published.items() if row == tables.BASELINE]
    shares = [100 * each.detectable / toy.gain for each in row]
    assert f"| `toy` | {min(shares):.0f} to {max(shares):.0f} |" in tables.power([toy])
    noisy = toy.runs.with_columns(
        mean_return=pl.when(method="SAC+AES")
        .then(pl.col("mean_return") + 50.0 * (pl.col("seed") % 2))
        .otherwise("mean_return")
    )
    (wide,) = tables.settings(noisy)
    for pattern in toy.patterns:  # more spread, less power
        key = tables.BASELINE, pattern
        assert wide.published[key].detectable > 2 * toy.published[key].detectable


def test_an_agent_is_compared_with_a_public_one_where_it_has_as_many_steps():
    runs = RECORD.runs.filter(task="hopper", carrier="sac", steps=25_600)
    curves = RECORD.curves.with_columns(return_mean=pl.col("step").cast(pl.Float32))
    assert "| `hopper` SAC | 24,960 (332) | – (1,104) |" in tables.reached(runs, curves)  # of 24,320 and 25,600


def test_a_milestone_has_all_runs_of_as_many_steps():
    own = pl.col("study").is_in(["D-hopper-25600-sac", "S-hopper-100000"])  # five runs each
    short = pl.col("study").str.starts_with("D-")
    curves = RECORD.curves.filter(own).with_columns(return_mean=pl.when(short).then(100.0).otherwise(400.0))
    runs = RECORD.runs.filter(own)
    assert "| `hopper` SAC | 250 (332) | 400 (1,104) |" in tables.reached(runs, curves)
    apart = runs.with_columns(preset=pl.when(short).then(pl.lit("paper")).otherwise("preset"))
    found = tables.reached(apart, curves)
    assert "| `hopper` SAC | 400 (332) | 400 (1,104) |" in found
    assert "| `hopper` SAC, preset `paper` | 100 (332) | – (1,104) |" in found


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("front", lambda path: figures.front(GRID, RECORD.curves, path)),
        ("overview", lambda path: figures.overview(GRID, figures.OPPONENTS, path)),
        ("controls", lambda path: figures.overview(GRID, figures.CONTROLS, path)),
        ("kappa", lambda path: figures.kappa(GRID, path)),
        ("response", lambda path: figures.response(GRID, RECORD.curves, path)),
    ],
)
def test_a_picture_is_drawn_from_the_record(name, draw, tmp_path):
    draw(tmp_path / f"{name}.png")
    drawn, stored = (matplotlib.image.imread(folder / f"{name}.png") for folder in (tmp_path, ROOT / "docs"))
    assert drawn.shape == stored.shape
    assert np.abs(drawn - stored).mean() < 0.01


def test_the_picture_of_weights_draws_the_runs_of_the_tables_as_its_caption_says():
    toy = RECORD.runs.filter(task="toy")
    other = toy.filter(carrier="ppo").with_columns(steps=pl.lit(40_000, pl.Int64), method="other " + pl.col("method"))
    few = other.filter(pl.col("seed") <= 5)
    studies = [few.with_columns(study=pl.lit(name)) for name in ("appendix-toy", "B-toy")]  # another horizon
    for setting in tables.longest(list(tables.settings(pl.concat([toy, *studies])))):
        if setting.carrier in ("sac", "ppo"):
            drawn = list(figures.points(setting, "abrupt"))
            assert {point.seeds for point in drawn} == {10}
            assert setting.steps == 100_000
            assert {point.method for point in drawn} <= set(setting.runs["method"])
            assert not any("other" in point.method for point in drawn)
    assert "*Toy task, 100,000 steps, abrupt drift, ten seeds" in (ROOT / "docs" / "level_and_timing.md").read_text()


def test_pinned_settings_are_counted_apart_and_equal_to_their_controls():
    toy = RECORD.runs.filter(task="toy", carrier="sac")
    aes = (pl.col("method") == "SAC+AES") & (pl.col("pattern") != "abrupt")
    (setting,) = tables.settings(toy.with_columns(saturation_max=pl.when(aes).then(0.95).otherwise("saturation_max")))
    moves, pinned = (tables.outcomes(setting, tables.LEVEL, "published", pinned=which) for which in (False, True))
    assert (moves, set(pinned), len(pinned)) == (["equivalent"], {"equal"}, 5)
    assert "| level: published, against its mean-matched constant | 1 equivalent | none | 4 equal | none |" in (
        tables.verdict([setting])
    )
    drawn = figures.overview_rows([setting], figures.OPPONENTS)
    rows = {row.label: row for row in drawn["published, against the agent alone"]}
    assert rows["toy SAC"].pinned == {"steady", "linear", "periodic", "mixed", "sawtooth"}
    assert rows["toy SAC"].cells["abrupt"] == setting.published[tables.BASELINE, "abrupt"]


def test_the_heat_maps_have_every_contrast_of_the_verdict_whose_agent_gains_or_that_is_decided():
    drawn = figures.overview_rows(GRID, figures.OPPONENTS) | figures.overview_rows(GRID, figures.CONTROLS)
    for words, (row, part) in tables.CONTRASTS.items():
        cells = [tables.cells_of(setting, row, part).values() for setting in tables.longest(GRID)]
        compared = [own for own in cells if any(np.isfinite(each.gain) or each.outcome in DECIDED for each in own)]
        assert len(drawn[words]) == len(compared)
        counted = Counter(each.outcome for own in drawn[words] for each in own.cells.values())
        assert counted == Counter(each.outcome for own in compared for each in own)
    assert not any("classic" in each.label for own in drawn.values() for each in own)


def test_the_weight_responds_less_to_later_changes():
    weight = [1.0, 1.0, 1.1, 1.1, 1.0, 1.0]  # at 20, 40, ... % of the run
    run = pl.DataFrame({"seed": 1, "step": range(0, 101, 10), "entropy_weight": np.repeat(weight, 2)[:11]})
    np.testing.assert_allclose(figures.rises(run, 100.0), [0.1, 0.0, 0.0, 0.0], atol=1e-12)


def test_early_tuning_chooses_on_the_beginning_and_compares_on_the_rest():
    runs = RECORD.runs.filter(task="toy", carrier="ppo", pattern="steady")
    constants = {"PPO+fixed[base=0.003]": (9.0, 1.0), "PPO": (1.0, 5.0)}  # before and after 10 % of the run
    ends = pl.DataFrame(
        [(name, *ends) for name, ends in (constants | {"PPO+AES": (4.0, 3.0)}).items()],
        ["method", "begin", "end"],
        orient="row",
    )
    keys = ["study", "method", "pattern", "seed"]
    few = runs.join(ends.select("method"), on="method", how="semi").select(*keys).join(ends, on="method")
    rows = few.join(pl.DataFrame({"step": [0, 5_000, 10_000, 10_001, 100_000]}), how="cross")
    value = pl.when(pl.col("step") <= 10_000).then("begin").otherwise("end")
    curves = rows.with_columns(return_mean=value + pl.col("seed") * 1e-3)
    halves = early.parts(curves, 10_000).group_by("method").agg(pl.col("early", "late").mean())
    for name, begin, end in ends.iter_rows():
        row = halves.row(by_predicate=pl.col("method") == name, named=True)
        assert (row["early"], row["late"]) == (pytest.approx(begin, abs=0.02), pytest.approx(end, abs=0.02))
    setting = SETTINGS["toy", "ppo"]
    setting = setting._replace(runs=setting.runs.filter(pl.col("method").is_in(ends["method"]), pattern="steady"))
    result = early.early(setting, curves, 0.1)
    assert result.weight == pytest.approx(0.003)  # best before
    assert result.contrasts["steady"].interval.value == pytest.approx(2.0, abs=0.02)
    ours, theirs = (pl.col("method") == name for name in ("PPO+AES", "PPO+fixed[base=0.003]"))
    missing = (ours & (pl.col("seed") == 6)) | (theirs & (pl.col("seed") == 10))
    uneven = curves.with_columns(return_mean=pl.col("return_mean") + 10.0 * pl.col("seed")).filter(~missing)
    paired = early.early(setting, uneven, 0.1).contrasts["steady"].interval
    assert paired.value == pytest.approx(2.0, abs=0.02)  # by position it would be 12
    assert result.costs == [0.0, pytest.approx(4.0, abs=0.02)]

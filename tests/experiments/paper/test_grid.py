"""The design can be trained, tables follow from the records, and the grid's page states them."""

import json
from collections import Counter

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from experiments.measure.comparisons import contrasts
from experiments.measure.stats import detectable
from experiments.paper import design, early, figures, record, tables
from experiments.paper.evidence import having
from experiments.study import store
from experiments.study.codec import encode
from experiments.study.method import Method
from experiments.study.text import parse_method
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import save
from tests.pages import ROOT

RECORD = record.read()
GRID = list(tables.settings(RECORD.runs))
SETTINGS = {(each.task, each.carrier): each for each in GRID}


def text(page):
    return " ".join((ROOT / page).read_text().split())


PAGE, README = text("docs/results.md"), text("README.md")


def cell(setting, part, row, pattern):
    return getattr(setting, part)[row, pattern]


def outcomes(part, row, *carriers, task=None):
    chosen = [s for s in SETTINGS.values() if s.carrier in carriers and task in (None, s.task)]
    return Counter(each.outcome for s in chosen for (own, _), each in getattr(s, part).items() if own == row)


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("part", design.PARTS)
def test_every_cell_of_a_part_is_a_study_with_a_folder_of_its_own(part, scale):
    cells = design.cells(part, scale=scale)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        config = cell.study.config
        assert config.task == cell.study.task
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


@pytest.mark.parametrize("name", ["grid", "earlier"])
def test_runs_are_those_of_the_curves(name):
    """Byte for byte; the small tasks alone have scores without curves."""
    curves, runs, studies = record.read(record.RESULTS / name)
    again = record.scores(curves, studies).with_columns(pl.col(pl.Float64).cast(pl.Float32).cast(pl.Float64))
    stored = runs.filter(pl.col("study") != "small-tasks")
    assert again.with_columns(pl.col(pl.Float64).fill_null(np.nan)).equals(stored)
    assert set(studies) == set(curves["study"].unique()) == set(stored["study"].unique())


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


def test_the_page_states_the_outcomes():
    sac, ppo = (outcomes("tuned", tables.PUBLISHED, carrier) for carrier in ("sac", "ppo"))
    stated = f"worse than a chosen constant in {sac['worse']} of {sac.total()} settings and better in {sac['better']}."
    assert stated in PAGE
    assert (ppo["better"], ppo["worse"]) == (0, 0)
    assert f"from a chosen constant is significant in {ppo.total()} settings" in PAGE
    assert RECORD.runs.filter(carrier="ppo", method="PPO+AES", steps=100_000)["saturation_max"].min() == 1.0
    newer = [s.tuned["`fixed+recent`", pattern].outcome for s in SETTINGS.values() if s.carrier == "sac"
             for pattern in s.patterns if ("`fixed+recent`", pattern) in s.tuned and pattern != "steady"]  # fmt: skip
    counts = f"in {newer.count('better')} of {len(newer)} drifting settings"
    assert f"{counts} and worse in {newer.count('worse')}." in text("docs/what_helps.md")
    assert f"{counts}, worse in {newer.count('worse')}" in text("docs/choose.md")
    assert f"better {counts} of four small tasks" in text("README.md")
    tuned = [each for s in SETTINGS.values() for each in tables.outcomes(s, tables.TUNED, "tuned")]
    moving = [each for s in SETTINGS.values() for each in tables.outcomes(s, tables.TUNED, "tuned", pinned=False)]
    better, worse, rest = moving.count("better"), moving.count("worse"), len(tuned) - len(moving)
    counts = f"{better} of {len(moving)} settings"
    assert f"better than the chosen constant in {counts} where the weight moves, worse in {worse};" in PAGE
    assert f"of the other {rest} none differs." in PAGE
    assert (better, worse) == (tuned.count("better"), tuned.count("worse"))
    undecided = moving.count("undecided")
    assert f"more than a tuned constant in {counts}, by less than 0.5 of 45 to 47; {undecided} are undecided." in README
    gains = SETTINGS["toy", "sac"].tuned.items()
    gains = [each for (row, _), each in gains if (row, each.outcome) == (tables.TUNED, "better")]
    assert len(gains) == better
    assert all(each.interval.value < 0.5 for each in gains)
    for row in (tables.LEVEL, tables.TIMING):
        assert outcomes("published", row, "sac", task="toy") == {"equivalent": 6}
        assert outcomes("published", row, "sac", task="cartpole_swingup")["better"] == 1
        own = outcomes("published", row, "ppo")
        assert (own["better"], own["worse"]) == (0, 0)
        assert own == {"equal": own.total()}  # pinned
        assert f"four tasks: AES is pinned in {own.total()} of {own.total()} settings" in PAGE
    level, alone = (
        [each for s in tables.longest(GRID) for each in tables.outcomes(s, row, "published", pinned=False)]
        for row in (tables.LEVEL, tables.BASELINE)
    )
    better, worse = level.count("better"), level.count("worse")
    assert f"better than a constant weight of equal mean in {better} of {len(level)} such settings" in PAGE
    counts = f"better than a constant weight of equal mean in {better} of {len(level)} settings, worse in {worse}"
    assert f"{counts} and equivalent in {level.count('equivalent')}." in README
    better, worse, moving = alone.count("better"), alone.count("worse"), len(alone)
    assert f"in {moving} settings of small tasks, AES is worse than the agent alone in {worse} and better" in README
    assert (
        f"in the {moving} settings where the weight moves, AES is worse than the agent alone in {worse}"
        in PAGE.lower().replace("aes", "AES")
    )
    every = [each for s in tables.longest(GRID) for each in tables.outcomes(s, tables.BASELINE, "published")]
    assert f"In {len(every) - moving} of {len(every)} settings AES at its published settings is pinned" in README
    assert f"is pinned in {len(every) - moving} of {len(every)} settings" in PAGE
    assert not any(setting.is_robot for setting in GRID)  # nothing is known about robots
    assert outcomes("published", tables.BASELINE, "sac", task="toy") == {"better": 5, "worse": 1}
    assert cell(SETTINGS["toy", "sac"], "published", tables.BASELINE, "steady").outcome == "worse"
    assert outcomes("published", tables.BASELINE, "sql", task="toy") == {"better": 1, "worse": 3, "undecided": 2}
    assert outcomes("published", tables.BASELINE, "meow", task="toy") == {"worse": 5, "undecided": 1}
    for metric, row, part, sentence in (
        ("drop_run_safe", tables.LEVEL, "published", "than its mean-matched constant in DropRatio in {}"),
        ("recovery", tables.LEVEL, "published", "in recovery in {}"),
        ("drop_run_safe", tables.BASELINE, "published", "better in DropRatio in {}"),
        ("drop_run_safe", "`fixed+recent`", "tuned", "`fixed+recent` lowers DropRatio in {}"),
    ):
        own = tables.longest(list(tables.settings(RECORD.runs, metric)))
        found = [each for s in own for each in tables.outcomes(s, row, part, pinned=False)]
        assert sentence.format(f"{found.count('better')} of {len(found)}") in PAGE
    worse = [outcomes("published", tables.BASELINE, "sql", task=t)["worse"] for t in ("reacher", "cartpole_swingup")]
    assert sum(worse) == 11
    assert outcomes("published", tables.BASELINE, "sql", task="pendulum") == {"undecided": 6}
    for task in ("reacher", "cartpole_swingup"):
        assert outcomes("published", tables.BASELINE, "sac", task=task) == {"worse": 6}


def test_the_page_states_what_the_robots_lack_and_the_outcomes_on_the_authors_toy_task():
    published = having(RECORD.runs, lambda method: method == Method(method.carrier, "aes"))
    aes = RECORD.runs.filter(published, pl.col("study").str.contains("^[DE]-"))
    slow = (pl.col("task") == "isaac_anymal") & pl.col("carrier").is_in(["sac", "sql"])  # to reach its clip
    assert aes.filter(~slow)["saturation_max"].min() > 0.999
    assert aes.filter(slow)["saturation_max"].min() > 0.959
    assert aes["first_change"].unique().sort().to_list() == [0.2 * steps for steps in (25_600, 51_200, 512_000)]
    found = {(each.task, each.carrier, each.steps): each for each in GRID}
    outcomes = tables.outcomes(found["toy_multigoal_classic", "meow", 4_000], tables.BASELINE, "published")
    assert Counter(outcomes) == {"undecided": 5}
    steady = RECORD.runs.filter(task="toy_multigoal_classic", carrier="meow", pattern="steady")
    middle = steady.group_by("method").agg(pl.col("final_return", "floor").median())
    assert middle.filter(pl.col("final_return") > pl.col("floor"))["method"].to_list() == ["MEow"]


def test_the_page_counts_the_outcomes_of_resets_after_detections():
    runs, tasks = RECORD.runs.filter(carrier="ppo", preset="quick"), ("toy", "cartpole_swingup", "pendulum", "reacher")
    runs = runs.filter(~pl.col("study").str.starts_with("appendix"))
    methods = ("PPO+AES-C+refresh", "PPO")
    means = runs.filter(pl.col("method").is_in(methods), pl.col("task").is_in(tasks))
    pairs = means.pivot("method", index=["task", "pattern", "seed"], values="mean_return").drop_nulls()
    pairs = pairs.with_columns(difference=pl.col(methods[0]) - pl.col(methods[1]))
    groups = {key: part["difference"].to_numpy() for key, part in pairs.group_by("task", "pattern")}
    own = Counter(each.outcome for each in contrasts(groups).values())
    counts = (
        f"worse than PPO's default constant in {own['worse']} of {own.total()} settings and better in {own['better']}"
    )
    assert counts in text("docs/what_helps.md")


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("overview", lambda path: figures.overview(GRID, path)),
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
    for page in ("README.md", "docs/results.md"):
        assert "*Toy task, 100,000 steps, abrupt drift, ten seeds" in text(page)


def test_pinned_settings_are_counted_apart_and_equal_to_their_controls():
    toy = RECORD.runs.filter(task="toy", carrier="sac")
    aes = (pl.col("method") == "SAC+AES") & (pl.col("pattern") != "abrupt")
    (setting,) = tables.settings(toy.with_columns(saturation_max=pl.when(aes).then(0.95).otherwise("saturation_max")))
    moves, pinned = (tables.outcomes(setting, tables.LEVEL, "published", pinned=which) for which in (False, True))
    assert (moves, set(pinned), len(pinned)) == (["equivalent"], {"equal"}, 5)
    assert "| level: published, against its mean-matched constant | 1 equivalent | none | 5 equal | none |" in (
        tables.verdict([setting])
    )
    rows = {row.label: row for row in figures.overview_rows([setting])["published, against the agent alone"]}
    assert rows["toy SAC"].pinned == {"steady", "linear", "periodic", "mixed", "sawtooth"}
    assert rows["toy SAC"].cells["abrupt"] == setting.published[tables.BASELINE, "abrupt"]


def test_the_overview_has_every_contrast_of_the_verdict():
    drawn = figures.overview_rows(GRID)
    for words, (row, part) in tables.CONTRASTS.items():
        counted = Counter(each.outcome for own in drawn[words] for each in own.cells.values())
        assert counted == Counter(each for s in tables.longest(GRID) for each in tables.outcomes(s, row, part))


def test_the_weight_responds_less_to_later_changes():
    weight = [1.0, 1.0, 1.1, 1.1, 1.0, 1.0]  # at 20, 40, ... % of the run
    run = pl.DataFrame({"seed": 1, "step": range(0, 101, 10), "entropy_weight": np.repeat(weight, 2)[:11]})
    np.testing.assert_allclose(figures.rises(run, 100.0), [0.1, 0.0, 0.0, 0.0], atol=1e-12)
    rises = figures.responses(GRID, RECORD.curves)
    toy, sawtooth, steady = ([f"{100 * rise:.1f}".replace("-0.0", "0.0") for rise in own] for own in rises.values())
    assert f"abrupt drift: {', '.join(toy[:3])} and {toy[3]} % after the four changes." in PAGE
    assert f"sawtooth: {', '.join(sawtooth[:3])} and {sawtooth[3]} %;" in PAGE
    assert f"without drift {', '.join(steady[:3])} and {steady[3]} %." in PAGE


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
    assert result.costs == [0.0, pytest.approx(4.0, abs=0.02)]

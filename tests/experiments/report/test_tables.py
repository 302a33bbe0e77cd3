"""The tables and verdicts of a report: marks, order of patterns, the best constant, fewer than five seeds."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from experiments.measure import summarise
from experiments.measure.comparisons import (
    BEST_CONSTANT,
    BETTER,
    EQUAL,
    EQUIVALENT,
    NO_DATA,
    OUTCOMES,
    UNDECIDED,
    WORSE,
    opponents_of,
    outcome_of,
)
from experiments.measure.metrics import UNCLEAR, clearly_positive
from experiments.measure.runs import Acted
from experiments.measure.stats import Interval, detectable, paired_t_p, pairs_for
from experiments.measure.study import load_study
from experiments.report.cells import Lookup
from experiments.report.figures import plots_of
from experiments.report.tables import build_tables, hindsight_table, paired_table
from experiments.report.verdicts import verdicts
from experiments.report.write import facts_of, limits_of
from experiments.session.results import Results
from experiments.study.method import Control, Method
from experiments.study.text import parse_method_with_carrier
from tests.experiments.measure.synthetic import (
    BUILT_IN,
    MADE_UP,
    config,
    controlled,
    make_curves,
    manifest,
    with_controls,
)
from tests.experiments.report.pages import aimless, save

METHODS = ("SAC", "SAC+AES")
RUN = ("ramp", "steady", "square", "mixed")
SHOWN = ["steady", "square", "ramp", "mixed"]  # steady, then the manifest's order


def look_of(curves, info=None):
    info = manifest(curves) if info is None else info
    return Lookup(summarise(curves, config(), info, replicates=100), load_study(curves, config(), info))


def shifted(curves, method, by, pattern="abrupt"):
    """The returns of a method under a pattern moved by ``by`` with a little noise of its own."""
    noise = np.random.default_rng(1).normal(0, 0.05, curves.height)
    mine = (pl.col("method") == method) & (pl.col("pattern") == pattern)
    return curves.with_columns(
        return_mean=pl.when(mine).then(pl.col("return_mean") + by + pl.Series(noise)).otherwise("return_mean")
    )


def test_a_ratio_by_a_denominator_that_may_be_zero_is_marked_and_last_and_mean_return_leads():
    curves = aimless()
    look = look_of(curves)
    found = verdicts(look)
    assert found[0].metric == "mean_return"
    assert found[0].patterns[BETTER] == ("steady", "abrupt")
    assert not {"nauc_task_safe", "drop_run_safe", "deficit_area"} & {verdict.metric for verdict in found}
    tables = build_tables(look)
    assert (tables[0].key, tables[-1].key) == ("returns", "main")
    assert all("†" in row[2].text for row in tables[-1].rows)  # nAUC
    [paired] = [table for table in tables if table.key == "paired"]
    marks = [any("†" in cell.text for row in rows for cell in row) for _, rows in paired.groups]
    assert marks == sorted(marks)
    flags = {metric: row["flag"] for (_, task, *run, metric), row in look.cells.items() if run == ["SAC+AES", "abrupt"]}
    assert all(UNCLEAR in flags[name] for name in ("nauc_task_safe", "nauc_family_safe", "drop_nauc_task_safe"))
    assert not any(flags[name] for name in ("drop_task_safe", "deficit_area", "mean_return"))  # AES is above the floor


def test_a_comparison_uses_the_return_where_nauc_has_no_verdict(tmp_path):
    results = Results.open(save(tmp_path / "aimless", aimless()))
    assert results.compare("SAC+AES", "SAC")["metric"].unique().to_list() == ["return"]
    ratio = results.compare("SAC+AES", "SAC", metric="nauc")
    assert ratio["outcome"].to_list() == [None, None]
    assert ratio["p_holm"].is_nan().all()
    assert ratio["difference"].is_finite().all()
    clear = make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), range(1, 6), every=2_000)
    results = Results.open(save(tmp_path / "clear", clear))
    assert results.compare("SAC+AES", "SAC")["metric"].unique().to_list() == ["nauc"]


def test_a_ratio_without_a_verdict_is_no_test_of_its_family():
    """PPO is on both sides of the random policy without drift, so its DropRatios have no verdict."""
    curves = make_curves(("SAC", "SAC+AES", "PPO", "PPO+AES"), ("steady", "abrupt", "mixed"), every=2_000)
    ppo = pl.col("method").str.starts_with("PPO")
    curves = curves.with_columns(pl.when(ppo).then(pl.col("return_mean") - 45).otherwise("return_mean"))
    both, alone = (
        summarise(shown, config(), manifest(shown, floor=-2.0), replicates=100)
        for shown in (curves, curves.filter(~ppo))
    )
    for kind in ("p_holm", "detectable"):
        rows = both.filter(metric=f"{kind}:drop_run_safe", method="SAC+AES")
        assert rows.equals(alone.filter(metric=f"{kind}:drop_run_safe", method="SAC+AES"))
    marked = both.filter(metric="p_holm:drop_run_safe", method="PPO+AES")
    assert marked["flag"].str.contains(UNCLEAR).all()
    assert marked["value"].is_nan().all()


@pytest.mark.parametrize(
    ("areas", "clear"),
    [([1.0, 1.1, 0.9], True), ([1.0, -1.0, 1.2], False), ([5.0], False), ([0.5, 0.5], True), ([-1.0, -1.1], False)],
)
def test_a_denominator_is_clearly_positive_if_its_interval_is_above_zero(areas, clear):
    assert clearly_positive(areas) == clear


def test_one_methods_wins_and_anothers_losses_are_two_lines():
    curves = make_curves(("SAC", "SAC+AES", "SAC+AES-R"), ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.0)
    curves = shifted(shifted(curves, "SAC+AES", 3.0), "SAC+AES-R", -3.0)
    found = verdicts(look_of(curves))
    good, bad = [v for v in found if v.metric == "nauc_task_safe"]
    assert (good.method, good.against, good.n) == ("SAC+AES", "SAC", 5)
    assert {outcome: names for outcome, names in good.patterns.items() if names} == {
        BETTER: ("abrupt",),
        EQUAL: ("steady",),
    }
    assert good.sentence == (
        "SAC+AES against SAC, floor-corrected nAUC: better on abrupt; equal on steady (5 pairs of runs, after Holm)"
    )
    assert (bad.method, bad.patterns[WORSE]) == ("SAC+AES-R", ("abrupt",))
    drops = [v.patterns for v in found if v.metric == "drop_run_safe"]  # lower is better; no judgement on steady
    assert drops[0] == dict.fromkeys(OUTCOMES, ()) | {BETTER: ("abrupt",)}
    assert drops[1] == dict.fromkeys(OUTCOMES, ()) | {WORSE: ("abrupt",)}


def test_fewer_than_five_pairs_are_never_significant_in_verdicts_tables_and_comparisons(tmp_path):
    for seeds, outcome, kind in ((range(1, 5), NO_DATA, ""), (range(1, 6), BETTER, BETTER)):
        curves = make_curves(("SAC", "SAC+AES"), ("abrupt",), seeds, every=2_000, gain=0.0)
        curves = shifted(curves, "SAC+AES", 3.0)
        look = look_of(curves)
        (found,) = [v for v in verdicts(look) if v.metric == "mean_return"]
        assert found.patterns[outcome] == ("abrupt",)
        cells = [row[3] for title, rows in paired_table(look).groups if "mean return (" in title for row in rows]
        assert [c.kind for c in cells] == [kind]
        results = Results.open(save(tmp_path / str(len(seeds)), curves))
        frame = results.compare("SAC+AES", "SAC", metric="return")
        assert list(frame["outcome"]) == [outcome]
        row = results.metrics.filter(metric="paired:mean_return", task="toy", method="SAC+AES")
        assert frame.select("low", "high").row(0) == row.select("low", "high").row(0)


@pytest.mark.parametrize(("seeds", "outcome"), [(1, NO_DATA), (4, NO_DATA), (5, EQUIVALENT)])
def test_several_tasks_do_not_replace_seeds(tmp_path, seeds, outcome):
    tasks = ("hopper", "walker2d", "halfcheetah", "ant", "humanoid")
    curves = pl.concat([make_curves(METHODS, ("steady",), task=t, family="mujoco", every=5_000, gain=0) for t in tasks])
    mine = pl.col("method") == "SAC+AES"
    curves = curves.with_columns(pl.col("return_mean") + 0.1 * (pl.col("seed") - 3) * mine)
    curves = curves.filter((pl.col("seed") <= seeds) | ~mine)
    floors = {"floors": dict.fromkeys(tasks, 3.0)}
    (found,) = [v for v in verdicts(look_of(curves, manifest(curves) | floors)) if v.metric == "nauc_task_safe"]
    assert found.patterns[outcome] == ("steady",)
    results = Results.open(save(tmp_path / "made", curves, **floors))
    assert results.compare("SAC+AES", "SAC", metric="return")["outcome"].to_list() == [outcome]


UP, DOWN, NONE = Interval(1.0, 0.9, 1.1), Interval(-1.0, -1.1, -0.9), Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("interval", "p", "seeds", "about", "outcome"),
    [
        (UP, 0.049, 5, {}, BETTER),
        (DOWN, 0.049, 5, {"lower_is_better": True}, BETTER),
        (DOWN, 0.049, 5, {"gain": 1_000.0, "equal": True}, WORSE),  # a significant difference is never hidden
        (UP, 0.05, 5, {"gain": 21.0}, UNDECIDED),  # the margin of 1.05 excludes the interval's end
        (UP, 0.05, 5, {"gain": 23.0}, EQUIVALENT),
        (UP, np.nan, 5, {}, UNDECIDED),
        (UP, 0.05, 5, {"equal": True}, EQUAL),
        (NONE, 1.0, 5, {}, EQUAL),
        (NONE, 1.0, 4, {"gain": 1.0, "equal": True}, NO_DATA),
        (UP, 0.001, 4, {}, NO_DATA),
    ],
)
def test_the_outcomes_of_a_comparison(interval, p, seeds, about, outcome):
    assert outcome_of(interval, p, seeds, **about) == outcome


def test_a_detectable_difference_is_detected_in_four_of_five_samples():
    rng, tests = np.random.default_rng(0), 6
    samples = detectable(5, tests) + rng.normal(size=(4_000, 5))
    assert np.mean([paired_t_p(sample) < 0.05 / tests for sample in samples]) == pytest.approx(0.8, abs=0.02)
    assert [pairs_for(detectable(pairs, tests), tests) for pairs in (5, 10, 55)] == [5, 10, 55]


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (("sac+aes", 0.96, 0.99), ("sac+fixed", 0.0, 1.0), True),
        (("sac+aes", 0.96, 0.94), ("sac+fixed", 0.0, 1.0), False),  # another weight
        (("sac+aes", 0.94, 1.0), ("sac+fixed", 0.0, 1.0), False),  # it moves
        (("sac+aes+recent", 1.0, 1.0), ("sac+fixed", 0.0, 1.0), False),
        (("sac+fixed:base=0.2", 0.0, 0.2), ("sac+fixed+recent", 0.0, 0.2), False),
        (("sac+aes", 0.96, 0.9), ("permuted", 0.0, 1.0), True),  # a control of a pinned schedule
        (("sac+aes", 0.94, 1.0), ("constant_at_mean", 0.0, 1.0), False),
        (("sac+aes:kappa=2", 1.0, 1.0), ("permuted", 0.0, 0.5), False),  # of another method
        (("ppo+aes", 1.0, 0.1), ("sac+fixed", 0.0, 0.1), False),
    ],
)
def test_pinned_schedules_and_constants_of_equal_weight_are_equal(first, second, equal):
    def acted(name, at_max, weight):
        control = name in ("permuted", "constant_at_mean")
        of = parse_method_with_carrier("sac+aes" if control else name)
        return Acted(Method("sac", control=Control(name, of)) if control else of, 0.0, at_max, weight)

    ours, theirs = acted(*first), acted(*second)
    assert (ours.equals(theirs), theirs.equals(ours)) == (equal, equal)


def test_controls_are_opponents_and_no_methods():
    curves, frame = with_controls()
    look = Lookup(frame, load_study(curves, controlled(), manifest(curves)))
    found = verdicts(look)
    assert {v.method for v in found} == {"SAC", "SAC+AES-R", "SAC+AES-R+window[window.power=1]"}
    against = {v.against for v in found if v.method == "SAC+AES-R"}
    assert against == {"SAC", "best constant", "constant at mean"}
    assert {v.against for v in found if v.method == "SAC"} == {"best constant"}
    later = [v for v in found if v.metric == "later_return"]
    assert {v.against for v in later} == {"SAC", "best constant", "constant at mean", "permuted"}
    assert all(sum(v.patterns.values(), ()) == ("abrupt",) for v in later)  # nothing changes on steady
    (_, rows), *_ = [group for group in hindsight_table(look).groups if "abrupt" in group[0]]
    assert [str(cell) for cell in rows[0]][:3] == ["SAC", "2", "SAC+fixed[base=0.4]"]
    assert str(rows[0][4]) == "SAC+permuted(aes_r+window:power=1)"  # the later one suffers least
    assert float(rows[0][3].text) < float(rows[0][5].text)


def test_the_best_constant_of_a_task_is_the_opponent_of_the_paired_differences():
    """At common seeds: on toy the other constant has the higher mean over all of its seeds."""
    names = ("SAC", "SAC+fixed", "SAC+fixed[base=0.4]", "SAC+AES-R")
    toy, other = (make_curves(names, ("abrupt",), (1, 2, 3), every=5_000, task=task) for task in ("toy", "b"))
    third = (pl.col("seed") == 3) & (pl.col("method") == "SAC+fixed")
    toy = toy.filter((pl.col("seed") != 3) | (pl.col("method") != "SAC+fixed[base=0.4]"))
    toy = toy.with_columns(return_mean=pl.col("return_mean") + 100.0 * third)
    other = other.with_columns(return_mean=pl.col("return_mean") + 100.0 * (pl.col("method") == "SAC+fixed"))
    curves, one = pl.concat([toy, other]), controlled()
    data = one | {"steps": {"toy": one["steps"], "b": one["steps"]}, "merged": [one]}
    study = load_study(curves, data, manifest(curves))
    table = hindsight_table(Lookup(summarise(curves, data, manifest(curves), replicates=100), study))
    chosen = {title: [str(shown) for shown in rows[0]][:3] for title, rows in table.groups}
    opponents = opponents_of(study, "SAC+AES-R")[BEST_CONSTANT]
    assert opponents == {("toy", "abrupt"): "SAC+fixed[base=0.4]", ("b", "abrupt"): "SAC+fixed"}
    assert chosen == {f"{task} · {pattern}": ["SAC", "2", name] for (task, pattern), name in opponents.items()}


def test_marks_follow_the_direction_of_the_metric():
    """Of methods that suffer less and less."""
    curves = make_curves(("SAC+AES", "SAC", "SAC+AES-R"), ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.2)
    groups = paired_table(look_of(curves)).groups
    marks = {title: {str(row[0]): str(row[3])[0] for row in rows} for title, rows in groups}
    wanted = {"SAC+AES": "▼", "SAC+AES-R": "▲"}
    assert marks["toy · floor-corrected nAUC (higher is better) · abrupt"] == wanted
    assert marks["toy · floor-corrected DropRatio (lower is better) · abrupt"] == wanted


def report_of(curves, info):
    study, look = load_study(curves, config(), info), look_of(curves, info)
    return SimpleNamespace(
        tables={table.key: table for table in build_tables(look)},
        plots=plots_of(study, curves, info),
        facts=dict(facts_of(study, config(), info)),
        limits=limits_of(study, info),
    )


def patterns_in(table):
    return list(dict.fromkeys(title.split(" · ")[-1] for title, _ in table.groups))


def test_every_table_has_its_rows_in_the_order_of_the_manifest():
    curves = make_curves(METHODS, RUN, [1, 2], every=5_000)
    found = report_of(curves, manifest(curves) | {"patterns": MADE_UP | BUILT_IN, "inert": {"toy": ["joint_damping"]}})
    for key in ("main", "weights", "returns", "paper"):
        assert patterns_in(found.tables[key]) == SHOWN, key
    assert [plot.pattern for plot in found.plots if plot.kind == "curves"] == SHOWN
    assert found.facts["patterns"] == ", ".join(SHOWN)
    assert "In toy the drift of joint_damping has no effect." in found.limits
    assert patterns_in(found.tables["recovery"]) == ["square"]
    method, _, raw, paper, *_ = (cell.text for cell in found.tables["recovery"].rows[0])
    assert (method, float(raw) > 0, paper) == ("SAC", True, "–")
    assert "hindsight" not in found.tables


def test_a_pattern_that_nothing_describes_is_shown_last_and_the_report_says_so():
    curves = make_curves(METHODS, ("square", "steady", "ramp"), [1, 2], every=5_000)
    found = report_of(curves, manifest(curves) | {"patterns": {"ramp": MADE_UP["ramp"]}})
    assert patterns_in(found.tables["main"]) == ["steady", "ramp", "square"]
    assert any("does not describe square: shown as gradual drift" in text for text in found.limits)
    assert found.tables["recovery"].groups == []
    assert "so recovery is not defined" in found.tables["recovery"].notes[0]

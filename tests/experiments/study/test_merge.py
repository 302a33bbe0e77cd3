"""Studies of single tasks become one study of a family."""

import json

import numpy as np
import polars as pl
import pytest

from experiments.cli import main
from experiments.measure.stats import holm
from experiments.measure.study import load_study
from experiments.report.merge import merge_studies
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import BUILT_IN, MADE_UP, STEPS, make_curves
from tests.experiments.report.pages import configure, save
from tests.refusals import refused


def study(folder, task, run=("steady", "abrupt"), patterns=None, **changes):
    curves = make_curves(("SAC", "SAC+AES"), run, [1, 2], every=5_000, task=task, family="mujoco")
    described = {} if patterns is None else {"patterns": patterns}
    save(folder, curves, floors={task: 3.0}, oracle={task: {}}, **described)
    configure(folder, task=task, **changes)
    return folder


def test_two_tasks_are_measured_as_one_family(tmp_path, capsys):
    folders = [study(tmp_path / task, task) for task in ("hopper", "ant")]
    out = tmp_path / "family"
    assert main(["report", *map(str, folders), "--out", str(out)]) == 0
    assert str(out / "report" / "index.html") in capsys.readouterr().out
    merged = load_study(
        pl.read_parquet(out / "curves.parquet"),
        *(json.loads((out / f"{n}.json").read_text()) for n in ("config", "manifest")),
    )
    assert merged.tasks("mujoco") == ["ant", "hopper"]
    assert merged.horizons == {"hopper": STEPS, "ant": STEPS}
    assert merged.floors == {"hopper": 3.0, "ant": 3.0}
    assert len(merged.runs) == 16
    tables = (out / "report" / "tables.md").read_text()
    assert "mujoco numbers average 5 tasks, these 2" in tables
    metrics = pl.read_parquet(out / "report" / "metrics.parquet")
    assert {"ant", "hopper"} <= set(metrics["task"].drop_nulls())


@pytest.mark.parametrize(
    ("task", "changes", "text"),
    [
        ("ant", {"segments": 10}, "two cannot be joined with .*one: segments: 5 -> 10"),
        ("hopper", {"steps": 7}, "steps: .* -> 7"),
        ("hopper", {"evaluations": 7}, "evaluations: 100 -> 7"),
        ("hopper", {"options": {"engine": "mjx"}}, "options: .*mjx"),
        ("hopper", {"drift_seed": 3}, "drift_seed: null -> 3"),
    ],
)
def test_what_does_not_fit_together_is_refused_and_nothing_is_written(tmp_path, task, changes, text):
    folders = [study(tmp_path / "one", "hopper"), study(tmp_path / "two", task, **changes)]
    with pytest.raises(ValueError, match=text):
        merge_studies(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_is_not_joined_with_itself(tmp_path):
    folder = study(tmp_path / "one", "hopper")
    with pytest.raises(ValueError, match="studies must be different folders; got 'one 2 times'"):
        merge_studies([folder, tmp_path / "one" / "." / ""], tmp_path / "out")


def test_a_folder_of_events_in_use_is_refused_before_the_joined_study_is_written(tmp_path, capsys):
    folders = [study(tmp_path / task, task) for task in ("hopper", "ant")]
    words = ["report", *folders, "--out", tmp_path / "family", "--tensorboard", folders[0]]
    assert f"--tensorboard {folders[0]} is not an empty folder" in refused(capsys, *words)
    assert not (tmp_path / "family").exists()


def test_a_merged_study_is_joined_by_its_parts(tmp_path):
    one, two = study(tmp_path / "one", "hopper"), study(tmp_path / "two", "ant")
    merged = merge_studies([one, two], tmp_path / "merged")
    other = study(tmp_path / "other", "hopper", evaluations=7)
    for folders in ([merged, other], [other, merged]):
        with pytest.raises(ValueError, match=r"cannot be joined with .*: evaluations: "):
            merge_studies(folders, tmp_path / "none")
    third = study(tmp_path / "three", "walker2d")
    whole, at_once = merge_studies([merged, third], tmp_path / "a"), merge_studies([one, two, third], tmp_path / "b")
    for name in ("config.json", "curves.parquet"):
        assert (whole / name).read_bytes() == (at_once / name).read_bytes()


def test_a_run_that_both_studies_hold_counts_once_or_is_named(tmp_path):
    """As a baseline does that two studies of the same seeds have trained alike."""
    curves = make_curves(("SAC", "SAC+AES", "SAC+AES-R"), ("steady", "abrupt"), [1, 2], every=5_000)
    first = save(tmp_path / "one", curves.filter(pl.col("method") != "SAC+AES-R"))
    second = save(tmp_path / "two", curves.filter(pl.col("method") != "SAC+AES"))
    out = merge_studies([first, second], tmp_path / "out")
    order = ["method", "pattern", "seed", "step"]
    assert pl.read_parquet(out / "curves.parquet").sort(order).equals(curves.sort(order))
    runs = json.loads((out / "manifest.json").read_text())["runs"]
    assert len(runs) == len({(r["method"], r["pattern"], r["seed"]) for r in runs}) == 12
    moved = pl.when(method="SAC", pattern="abrupt", seed=2).then(pl.col("return_mean") + 1e-6).otherwise("return_mean")
    other = save(tmp_path / "other", curves.with_columns(return_mean=moved))
    with pytest.raises(ValueError, match=r"studies have different numbers of SAC on toy, 'abrupt', seed 2"):
        merge_studies([first, other], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_studies_of_other_methods_and_seeds_are_compared_as_one(tmp_path):
    """Settings of carriers and sources of objects must be equal where both studies have them."""
    from experiments import Method, Results

    folders = []
    for name, schedules, seeds in (("one", "baseline,aes", [1, 2]), ("two", "baseline,aes_r", [2, 1, 3])):
        config = config_of("sac", schedules, steps=STEPS, evaluations=20, patterns="steady,abrupt", seeds=max(seeds))
        methods = ("SAC", {"aes": "SAC+AES", "aes_r": "SAC+AES-R"}[schedules.split(",")[1]])
        folders.append(save(tmp_path / name, make_curves(methods, ("steady", "abrupt"), seeds, every=5_000)))
        configure(folders[-1], **config.to_json())
    joined = Results.join([folders[0], Results.open(folders[1])])
    assert joined.methods == ["SAC", "SAC+AES", "SAC+AES-R"]
    for method in ("SAC+AES-R", "sac+aes_r", Method("sac", "aes_r")):
        frame = joined.compare(method, "sac+aes", metric="return")
        assert frame["pairs"].to_list() == [2, 2]
    assert joined.metrics.filter(level="run", metric="mean_return").height == 2 * (3 + 2 + 3)
    assert len(joined.plot(pattern="abrupt").axes[0].get_legend_handles_labels()[1]) == 3
    assert "2 studies" in repr(joined)
    assert "<ul>" in joined._repr_html_()
    with pytest.raises(ValueError, match="results of joined studies or of logs have no folder"):
        joined.policy("SAC", "abrupt", 1)
    with pytest.raises(ValueError, match="studies must be one or more results or folders"):
        Results.join([])
    settings = json.loads((folders[1] / "config.json").read_text())["settings"]
    settings["sac"]["config"]["layer_norm"] = True
    configure(folders[1], settings=settings)
    with pytest.raises(ValueError, match=r"cannot be joined with .*: settings: .*layer_norm"):
        Results.join(folders)


def test_joined_results_are_joined_again_and_read_from_a_merged_folder(tmp_path):
    from experiments import Results

    methods = {"one": ("SAC", "SAC+AES"), "two": ("SAC", "SAC+AES-R"), "three": ("SAC", "SAC+fixed")}
    folders = [
        save(tmp_path / name, make_curves(names, ("steady", "abrupt"), [1, 2], every=5_000))
        for name, names in methods.items()
    ]
    for folder, schedule in zip(folders, ("aes", "aes_r", "fixed"), strict=True):
        config = config_of(
            "sac", f"baseline,{schedule}", steps=STEPS, evaluations=20, patterns="steady,abrupt", seeds=2
        )
        configure(folder, **config.to_json())
    merged = Results.open(merge_studies(folders[:2], tmp_path / "merged"))
    assert repr(merged) == f"Results('{tmp_path / 'merged'}'): 12 runs on toy"
    at_once = Results.join(folders)
    assert merged.compare("sac+aes_r", "SAC+AES", metric="return")["pairs"].to_list() == [2, 2]
    for joined in (Results.join([Results.join(folders[:2]), folders[2]]), Results.join([merged, folders[2]])):
        assert joined.compare("sac+aes_r", "sac+fixed", "return").equals(
            at_once.compare("sac+aes_r", "sac+fixed", "return")
        )
        assert joined.profiles("sac+aes").equals(at_once.profiles("sac+aes"))
    with pytest.raises(ValueError, match="results of 2 joined studies have no single configuration; open one study"):
        _ = merged.config
    with pytest.raises(ValueError, match="studies must be different folders; got 'one 2 times'"):
        Results.join([Results.join(folders[:2]), folders[0]])


def test_joined_families_are_compared_each_with_one_correction_over_all_of_them(tmp_path):
    from experiments import Results

    folders = []
    for task, family, patterns in (("toy", "toy", ("steady", "abrupt")), ("hopper", "mujoco", ("abrupt",))):
        curves = make_curves(
            ("SAC", "SAC+AES"), patterns, range(1, 6), every=5_000, task=task, family=family, gain=0.01
        )
        folders.append(save(tmp_path / task, curves, floors={task: 3.0}, oracle={task: {}}))
        configure(folders[-1], task=task)
    own = [Results.open(folder).compare("SAC+AES", "SAC", "return") for folder in folders]
    both = Results.join(folders).compare("SAC+AES", "SAC", "return")
    assert both.select("family", "pattern").rows() == [("toy", "steady"), ("toy", "abrupt"), ("mujoco", "abrupt")]
    alike = ["metric", "pattern", "pairs", "difference", "low", "high", "p"]
    assert both.select(alike).equals(pl.concat(own).select(alike))
    np.testing.assert_allclose(both["p_holm"], holm(both["p"]))
    only = Results.join(folders).compare("SAC+AES", "SAC", "return", patterns="steady")
    assert only["family"].to_list() == ["toy"]


def test_the_patterns_of_all_studies_are_described_in_the_order_of_first_mention(tmp_path):
    square, ramp = ({name: MADE_UP[name]} for name in ("square", "ramp"))
    other = {"square": MADE_UP["square"] | {"summary": "the same in other words"}}
    folders = [
        study(tmp_path / "one", "hopper", ("steady", "square"), square),
        study(tmp_path / "two", "ant", ("steady", "ramp", "square"), ramp | other),
        study(tmp_path / "three", "walker2d"),
    ]
    manifest = json.loads((merge_studies(folders, tmp_path / "out") / "manifest.json").read_text())
    assert list(manifest["patterns"].items()) == list((MADE_UP | BUILT_IN).items())
    curves = pl.read_parquet(tmp_path / "out" / "curves.parquet")
    merged = load_study(curves, json.loads((tmp_path / "out" / "config.json").read_text()), manifest)
    assert [name for name, facts in merged.patterns.items() if facts.recovery] == ["square", "abrupt"]


def test_patterns_of_one_name_that_are_not_the_same_are_refused(tmp_path):
    gradual = {"square": MADE_UP["ramp"]}
    folders = [
        study(tmp_path / "one", "hopper", ("steady", "square"), MADE_UP),
        study(tmp_path / "two", "ant", ("steady", "square"), gradual),
    ]
    text = "two describes the pattern 'square' as .*, another study as "
    with pytest.raises(ValueError, match=text):
        merge_studies(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["a", "b"], []])
def test_the_command_names_what_it_needs(words, capsys):
    assert "or several folders and --out" in refused(capsys, "report", *words)


def test_the_optimum_of_both_studies_is_kept_by_pattern_and_seed(tmp_path):
    folders = []
    for name, pattern, seed in (("one", "steady", "1"), ("two", "abrupt", "1"), ("three", "abrupt", "2")):
        curves = make_curves((name,), (pattern,), [int(seed)], every=5_000)
        folders.append(save(tmp_path / name, curves, oracle={"toy": {pattern: {seed: [1.0, 2.0]}}}))
    merged = json.loads((merge_studies(folders, tmp_path / "out") / "manifest.json").read_text())["oracle"]
    assert merged == {"toy": {"steady": {"1": [1.0, 2.0]}, "abrupt": {"1": [1.0, 2.0], "2": [1.0, 2.0]}}}

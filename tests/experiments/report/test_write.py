"""A written report: complete, self-contained, honest about what is missing, and never half written."""

import html
import json
import re

import numpy as np
import polars as pl
import pytest

from experiments.measure.runs import pinned
from experiments.report import write, write_report
from experiments.report.page import Page as PageOfReport
from experiments.session.results import Results
from experiments.study.store import write_manifest
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import config, make_curves, manifest
from tests.experiments.report.pages import SMALL_WINDOW, TROUBLED, Page, aimless, configure, save

PATTERNS = ("steady", "abrupt")  # of the shared pages
SOME = ("SAC", "SAC+AES")
FEW = 100


@pytest.fixture
def small(tmp_path):
    return save(tmp_path / "study", make_curves(SOME, ("steady", "abrupt"), [1, 2], every=5_000))


def test_the_page_is_one_well_formed_file_that_loads_nothing(troubled):
    text = troubled.read_text()
    page = Page(text)
    (home,) = set(re.findall(r"https?://[^ ]+", text))  # named in the licence's line of the plotting library
    assert home == "https://github.com/leeoniya/uPlot"
    assert not re.search(r"//cdn|@import|url\(", text)
    assert not {"link", "iframe", "object"} & set(page.tags)
    assert "default-src 'none'" in text
    assert page.sources
    assert all(s.startswith("data:image/png;base64,") for s in page.sources)
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids)
    files = {link for link in page.links if not link.startswith("#")}
    assert files
    assert all((troubled.parent / file).is_file() for file in files)
    assert len(set(page.ids)) == len(page.ids)
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(("bound", "factor"), [("upper", 1.0), ("lower", 0.001)])
def test_a_schedule_that_is_pinned_at_a_bound_is_named_before_all_results(bound, factor, tmp_path):
    curves = aimless().with_columns(pl.col("weight_raw") * factor)
    if bound == "lower":
        on = pl.when(pl.col("method") == "SAC+AES").then(0.0001).otherwise("entropy_weight")
        curves = curves.rename({"at_max": "at_min", "at_min": "at_max"}).with_columns(entropy_weight=on)
        curves = curves.with_columns(weight_raw=pl.col("weight_raw") * 1e-3)
    folder = save(tmp_path / "study", curves)
    (folder / "config.json").write_text(json.dumps(config_of("sac", "baseline,aes", steps=100_000).to_json()))
    configure(folder)
    page = html.unescape(write_report(folder, replicates=FEW).read_text())
    [named] = [line for line in Results.open(folder).remarks if "pinned" in line]
    assert named.startswith(f"SAC+AES is pinned at its {bound} bound")
    assert page.index(named) < page.index('id="answer"')
    assert named in (folder / "report" / "tables.md").read_text()
    kappa = float(re.search(r"kappa=([\d.e-]+)", named)[1])
    share = 0.9 if bound == "upper" else 0.1
    after = curves.filter(pl.col("step") > 0, method="SAC+AES")
    edge = after["weight_raw"].quantile(share, "linear")
    assert kappa == pytest.approx(after["entropy_weight"][0] / edge, rel=0.05)


def test_a_schedule_inside_its_bounds_and_a_constant_are_not_pinned(small):
    assert not any("pinned" in line for line in Results.open(small).remarks)
    assert [pinned(0.0, 0.95), pinned(0.96, 0.0), pinned(0.5, 0.5), pinned(np.nan, np.nan)] == [
        "upper",
        "lower",
        "",
        "",
    ]


def test_every_table_is_there_in_the_page_and_in_markdown(troubled):
    page, markdown = Page(troubled.read_text()), (troubled.parent / "tables.md").read_text()
    for key in ("main", "recovery", "paired", "weights", "returns", "paper"):
        assert f"table-{key}" in page.ids
    tables = [block for block in markdown.split("\n\n") if block.startswith("|")]
    for block in tables:
        assert len({re.sub(r"\\\|", "", line).count("|") for line in block.splitlines()}) == 1
    for method in TROUBLED:
        assert f"| {method} |" in markdown


def test_from_ten_methods_on_a_sentence_counts_what_is_significant(crowded, troubled):
    frame = pl.read_parquet(crowded.parent / "metrics.parquet").filter(pl.col("task").is_null(), level="method")
    compared = frame.filter(pl.col("metric") == "paired:nauc_task_safe", pl.col("value").is_finite()).height
    clear = frame.filter(pl.col("metric") == "p_holm:nauc_task_safe", pl.col("value") < 0.05).height
    assert f"{clear} of {compared} comparisons with" in (crowded.parent / "tables.md").read_text()
    assert "comparisons with" not in troubled.read_text()


def test_broken_runs_are_named_with_step_and_reason_and_counted_and_small_windows_stand_with_what_was_run(troubled):
    text, tables = html.unescape(troubled.read_text()), (troubled.parent / "tables.md").read_text()
    assert "47/50 runs are valid" in text
    assert "SAC+AES, toy, abrupt, seed 2: diverged at step 42 000 (critic loss is not finite)" in text
    assert re.search(r"\*\*toy · abrupt\*\* \|[ |]+\n\| SAC \| .*\n\| SAC\+AES \| 4/5 ", tables)
    assert SMALL_WINDOW in text
    assert SMALL_WINDOW in tables


def test_the_folder_holds_the_frame_and_the_figures(troubled):
    frame = pl.read_parquet(troubled.parent / "metrics.parquet")
    assert {"nauc_family", "paired:nauc_task_safe", "saturation"} <= set(frame["metric"])
    names = sorted(p.name for p in troubled.parent.iterdir())
    stems = ["profiles", *(f"{kind}_toy_{p}" for kind in ("curves", "signals") for p in PATTERNS)]
    figures = [stem + suffix for stem in stems for suffix in (".png", ".svg")]
    assert names == sorted([*figures, "index.html", "metrics.parquet", "tables.md"])
    assert all((troubled.parent / f"{stem}.png").read_bytes().startswith(b"\x89PNG") for stem in stems)
    assert all("<svg" in (troubled.parent / f"{stem}.svg").read_text() for stem in stems)
    assert not [p for p in troubled.parent.parent.iterdir() if p.name.startswith(".")]


def test_the_papers_number_stands_beside_ours_only_where_it_has_one(troubled):
    lines = (troubled.parent / "tables.md").read_text().split("## Paper parity")[1].split("**toy · abrupt**")[1]
    rows = {name.lstrip("| "): numbers for name, *numbers in (line.split(" | ") for line in lines.splitlines())}
    for method, paper in {"SAC+AES": ("0.88", "0.22"), "SAC+AES-R": ("–", "–")}.items():
        assert (rows[method][1], rows[method][3].rstrip(" |")) == paper


def test_a_single_seed_without_references_weights_and_floor_still_gets_a_report(tmp_path):
    curves = make_curves(("PPO+AES",), ("steady",), [7], every=5_000)
    directory = save(tmp_path, curves.drop("entropy_weight", "at_min", "at_max", "proxy_smooth", "train_return"))
    write_manifest(directory, {})
    text = html.unescape(write_report(directory, replicates=FEW).read_text())
    Page(text)
    assert "there are no intervals and no tests" in text
    assert "nAUC needs SAC on Steady" in text
    assert "need the random policy's return" in text
    assert "the weight was not logged" in text
    assert "[nan" not in text
    assert "[0." not in text.split('id="table-main"')[1].split("</table>")[0]  # one run has no interval


def test_a_failure_leaves_the_old_report_alone(small, monkeypatch):
    (small / "report").mkdir()
    (small / "report" / "index.html").write_text("old")

    def broken(_):
        raise OSError("disk full")

    monkeypatch.setattr(write, "render_markdown", broken)
    with pytest.raises(OSError, match="disk full"):
        write.write_folder(small / "report", PageOfReport("new"), pl.DataFrame())
    assert (small / "report" / "index.html").read_text() == "old"
    names = ["config.json", "curves.parquet", "manifest.json", "report"]
    assert sorted(p.name for p in small.iterdir()) == names


def test_text_from_the_data_is_escaped_in_page_and_tables(tmp_path):
    method, reason = "SAC+<script>", "</li><script>alert('\"')</script>"
    curves = make_curves(("SAC", method), ("abrupt",), [1, 2], every=5_000)
    info = manifest(curves, diverged=[(method, "abrupt", 2)])
    for run in info["runs"]:
        run |= {"reason": reason} if run["status"] == "diverged" else {}
    directory = save(tmp_path, curves, runs=info["runs"], commit="<script>")
    configure(directory, **config("sac", "baseline,aes:label=<script>"))
    configure(directory, preset="<script>[x](http://evil)\n# heading")
    path = write_report(directory, replicates=FEW)
    text = path.read_text()
    page = Page(text)
    assert page.tags.count("script") == text.count("<script") == 3  # the page's own: data, library, switches
    assert "SAC+&lt;script&gt;" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert method in data["plots"]["curves_toy_abrupt"]["looks"]
    assert f"{method}, toy, abrupt, seed 2: diverged at step 42 000 ({reason})" in page.texts
    assert "\\<script>[x]\\(http://evil) # heading" in (path.parent / "tables.md").read_text()

"""The README and the pages linked from it: code runs, commands run, names exist."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from experiments import Results
from experiments.cli import main
from experiments.paper import audit
from tests.pages import PAGES, ROOT, blocks, commands, tables

README = ROOT / "README.md"
FIRST = ROOT / "docs" / "start.md"
OWN = ROOT / "docs" / "own_schedule.md"
TEXT = README.read_text()


def test_the_lines_for_an_agent_follow_its_residuals():
    scope = {}
    exec(compile(blocks(README, "python")[1], "README.md", "exec"), scope)
    update, state, ring = scope["schedule"].update, scope["state"], scope["fresh"]
    update, fill = jax.jit(update), jax.jit(scope["ring"].update)
    for size, above in ((1.0, 1.0), (4.0, 1.2)):
        for _ in range(300):
            ring = fill(ring, jnp.full((2, 4), size))
            state = update(scope["Signals"](td_error=jnp.ones(512), fresh_td_error=ring.td_error), state)
        assert above <= state.weight / scope["weight"] < above + 1.0


@pytest.mark.slow
def test_the_study_in_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(blocks(README, "python")[0], "README.md", "exec"), scope)
    assert scope["results"].methods[:2] == ["SAC", "SAC+AES"]


def test_the_theory_example_repairs_the_start(capsys):
    exec(compile(blocks(ROOT / "docs" / "theory.md", "python")[0], "theory.md", "exec"), {})
    paper, prior, maximal = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert maximal < prior < paper


def test_its_commands_are_those_of_the_first_study():
    shown = commands(README)
    assert [line for line in commands(FIRST) if line in shown] == shown


SMALL = ["--steps", "2000", "--seeds", "1:2", "--patterns", "steady,abrupt"]  # the last word of an option wins


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the first study of the pages is trained, small."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*shlex.split(commands(FIRST)[1])[1:], *SMALL]) == 0
    return folder


@pytest.mark.slow
def test_the_commands_run_in_the_order_shown(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    shown = ("list", "run", "report", "video", "calibrate")
    assert [shlex.split(line)[:2] for line in commands(FIRST)] == [["aesjax", word] for word in shown]
    (place / "runs" / "first" / "report" / "index.html").unlink()
    for line in commands(FIRST):
        words = shlex.split(line)[1:]
        assert words[0] == "run" or main(words) == 0, line
    assert (place / "runs" / "first" / "report" / "index.html").stat().st_size > 10_000
    said = capsys.readouterr().out
    assert "report: runs/first/report/index.html" in said
    assert "calibration: runs/first/calibration.md" in said
    assert "video: runs/first/video/SAC-abrupt-1.gif" in said
    assert (place / "runs" / "first" / "video" / "SAC-abrupt-1.gif").stat().st_size > 10_000


@pytest.mark.slow
def test_a_schedule_of_ones_own_goes_from_the_page_to_a_comparison_with_its_controls(
    place, monkeypatch, capsys, registries
):
    """The page's module and its commands, small, after the study that `make run` would have trained."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    module, replay = blocks(OWN, "python")
    assert module.startswith("# mine.py\n")
    (place / "mine.py").write_text(module)
    scope = {}
    exec(compile(replay, "own_schedule.md", "exec"), scope)
    assert set(scope["weights"]["replayed"]) == {"mine:burst", "mine:burst:gain=3", "aes_r", "aes"}
    for line in commands(OWN):
        words = shlex.split(line)[1:]
        assert main([*words, *(SMALL if words[0] == "run" else [])]) == 0, line
    del sys.modules["mine"]
    methods = set(pl.read_parquet("runs/both/report/metrics.parquet")["method"])
    assert {"SAC", "SAC+fixed", "SAC+BURST"} <= methods
    assert len([name for name in methods if "permuted" in name or "constant_at_mean" in name]) == 2


@pytest.mark.slow
def test_the_stored_audit_is_that_of_the_stored_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    record = json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())
    again = audit.record(audit.audit([Path("experiments/results")]))
    assert again["sentence"] == record["sentence"]
    for name in ("claims", "questions"):
        ours, theirs = ([(c["key"], c["verdict"], c["why"]) for c in data[name]] for data in (again, record))
        assert ours == theirs


def stars(name):
    """Significant differences (row, pattern) -> sign, of a table."""
    family = tables.FAMILIES[name]
    values = tables.tested(family)
    return {(family.rows[at].label, pattern): np.sign(d) for (at, pattern), (d, p) in values.items() if p < 0.05}


def counts(signs):
    """Better and worse without drift, better and worse under drift."""
    return [
        sum((pattern != "steady") == drift and sign == side for (_, pattern), sign in signs.items())
        for drift in (False, True)
        for side in (1, -1)
    ]


def text(page):
    return " ".join((ROOT / page).read_text().split())


def every_method_minus_the_best_constant():
    """Of every record of a robot task that has a constant."""
    names = {row.record for family in ("robots", "robot-adaptations") for row in tables.FAMILIES[family].rows}
    for name in sorted(names):
        constants = tables.grid(name)
        for method in set(tables.record(name)["scores"]).difference(constants) if constants else ():
            yield tables.Contrast(method, name, method, constants)


def test_sentences_about_results_follow_from_the_tables():
    readme, results, adapt = text("README.md"), text("docs/results.md"), text("docs/adaptation_results.md")
    aes = stars("aes")
    assert counts(aes) == [0, 4, 1, 9]
    assert "lowers the return of all four agents on the toy task without drift" in readme
    assert "better in 1 of 16 settings and worse in 9" in readme
    assert "better in one setting of sixteen (PPO, linear) and worse in nine" in results
    assert aes["PPO", "linear"] == 1
    long = tables.long_runs()
    assert tables.verdict(long) == [0, 4, 1, 4]
    assert all(value > 0 for (c, pattern), (value, _) in long.items() if c in ("SAC", "PPO") and pattern != "steady")
    assert "Over 100,000 steps at `kappa=1` AES is better in one of the 16 settings and worse in four" in readme
    assert "has the higher mean on SAC and PPO in all eight drifting settings. One of them is significant." in results
    robots = counts(stars("robots"))
    assert (robots[0] + robots[2], robots[1] + robots[3]) == (0, 5)
    assert len(tables.tested(tables.FAMILIES["robots"])) == 31
    assert "On robot tasks it is better in no setting and worse in five of 31." in results
    default, best = stars("robot-default"), stars("robot-best")
    assert [key for key, sign in default.items() if sign > 0] == [("Walker2d SAC", "steady")]
    assert "AES is better in one setting: Walker2d without drift" in results
    assert counts(best)[::2] == [0, 0]
    tried = tables.Family("", list(every_method_minus_the_best_constant()), tables.THREE)
    assert not any(d > 0 and p < 0.05 for d, p in tables.tested(tried).values())
    assert "no method is better than the best constant tried" in readme
    assert counts(stars("robot-adaptations")) == [0, 0, 0, 1]
    assert "A replay window driven by the true drift is worse on HalfCheetah under periodic drift." in adapt
    learning = json.loads((ROOT / "benchmarks" / "parity" / "learning.json").read_text())
    (_, low, high), (_, other_low, other_high) = (learning[engine]["end"] for engine in ("warp", "mujoco"))
    assert max(low, other_low) < min(high, other_high)
    assert "the intervals of the last evaluation overlap" in text("docs/clusters.md")
    timing = stars("timing")
    assert counts(timing)[::2] == [0, 0]
    assert counts({key: sign for key, sign in timing.items() if "oracle" in key[0]}) == [0, 0, 0, 2]
    assert "`oracle` follows the speed of the true drift; it is better in no setting and worse in two" in results


def test_sentences_about_adaptations_follow_from_the_tables():
    adapt, choose = text("docs/adaptation_results.md"), text("docs/choose.md")
    signs = stars("helps")
    drifting = Counter((label, sign) for (label, pattern), sign in signs.items() if pattern != "steady")
    better = {label: n for (label, sign), n in drifting.items() if sign == 1}
    recent = tables.TYPED[tables.RECENT]
    assert [better.get(f"{c} `{recent}`", 0) for c in ("SAC", "SQL", "MEow")] == [4, 0, 4]
    assert "better in eight of twelve drifting settings: all of SAC and of MEow, none of SQL" in adapt
    assert "better in four of four drifting settings each" in choose
    assert {key: sign for key, sign in signs.items() if key[1] == "steady"} == {}
    reset, fixed = (tables.scores("toy_sac", f"SAC+fixed{end}", "steady") for end in ("+reset[reset.strength=0.5]", ""))
    assert round((reset - fixed).mean(), 1) == -7.5
    assert "Resets ten times a run cost 7.5 without drift" in adapt
    level = stars("level")
    assert sum(label == "SAC, tuned" for label, _ in level) == 5
    values = {key: d for key, (d, p) in tables.tested(tables.FAMILIES["level"]).items() if p < 0.05}
    untuned = sorted(d for (at, _), d in values.items() if at)
    assert untuned[0] < -3 < -0.75 < untuned[1]
    means = {name: tables.scores("walker2d_sac", name, "steady").mean() for name in ("SAC+fixed[base=1]", "SAC+fixed")}
    assert [f"{mean:.0f}" for mean in means.values()] == ["500", "411"]
    for record, carrier, share in (("halfcheetah_sac", "SAC", 29), ("isaac_ant_ppo", "PPO", 42)):
        own, aes = (tables.scores(record, carrier + end, "steady").mean() for end in ("", "+AES"))
        assert round(100 * (1 - aes / own)) == share
        assert f"{share} %" in text("docs/results.md")


@cache
def late(study, method):
    """Curves of a method of a stored study after the first tenth of the run."""
    curves = pl.read_parquet(ROOT / "experiments" / "results" / study / "curves.parquet").filter(method=method)
    return curves.filter(pl.col("step") > 0.1 * pl.col("step").max())


def test_resets_are_recorded_at_the_change_points():
    """Such a reset knows when the world changes; no page recommends it."""
    curves = late("responses-toy-ppo-resets", f"PPO+{tables.RESET}")
    fired = curves.filter(pl.col("refreshes") > 0).group_by("step").len().sort("step")
    assert (fired["step"] / curves.item(-1, "step")).round(2).to_list() == [0.2, 0.4, 0.6, 0.8, 1.0]
    for page in PAGES:
        for line in page.read_text().splitlines():
            if "reset:every=0.2" in line and line.startswith("|") and "benchmarks" not in str(page):
                assert "at change" in line or "at the change" in line, (page, line)


@pytest.mark.parametrize(("pattern", "window"), [("linear", 56), ("periodic", 29)])
def test_the_oracle_has_no_timing_where_the_drift_has_constant_speed(pattern, window):
    for study, method in (("sac-more", "SAC"), ("sql-more", "SQL"), ("meow-more", "MEow"), ("ppo", "PPO")):
        curves = late(f"responses-toy-{study}", f"{method}+oracle").filter(pattern=pattern)
        for (_,), own in curves.group_by("seed"):
            weights = own["entropy_weight"].to_numpy()
            assert weights.max() < 1.003 * weights.min()
    assert "constant within 0.3 %" in text("docs/results.md")
    share = late("responses-toy-sac", "SAC+oracle+window").filter(pattern=pattern)["window_share"].to_numpy()
    assert np.ptp(share) < 0.01
    assert round(100 * share.mean()) == window
    assert "the window of `oracle` is constant, 56 and 29 % of the replay" in text("docs/adaptation_results.md")


def significant(judged):
    """Signs by method, opponent, task and pattern."""
    return {(m, o, *setting): np.sign(c.interval.value) * (p < 0.05) for (m, o, setting), (c, p) in judged.items()}


def test_sentences_about_small_tasks_follow_from_the_records():
    readme, adapt, choose = text("README.md"), text("docs/adaptation_results.md"), text("docs/choose.md")
    carriers = tables.scored("small-tasks")
    sac, ppo, sql = (significant(tables.small.family_of(carriers[name])[1]) for name in ("SAC", "PPO", "SQL"))
    new = significant(tables.small.confirmed(carriers["SAC"]))

    def of(signs, method, opponent="SAC+fixed", *tasks):
        found = [sign for (m, o, task, _), sign in signs.items() if (m, o) == (method, opponent) and task in tasks]
        return [found.count(1), found.count(-1)]

    two, three = ("reacher", "cartpole_swingup"), ("toy", "reacher", "cartpole_swingup")
    more, recent, reset = "SAC+fixed+recent+utd", "SAC+fixed+recent", f"PPO+{tables.RESET}"
    assert of(sac, more, "SAC+fixed", *two) == of(new, more, "SAC+fixed", *two) == [10, 0]
    assert "**Four of them help SAC in all ten settings there**" in adapt
    assert "improves both mechanical tasks, with and without drift" in readme
    assert of(sac, more, "SAC+fixed", *three) == of(new, more, "SAC+fixed", *three) == [14, 0]
    assert "better in 14 of 15 settings of three tasks, on new seeds, too" in choose
    assert of(sac, more, tables.small.GRID, *three) == [0, 0]
    assert "Against the best of a grid (weight x replay x gradient steps) no difference is significant." in adapt
    replay = significant(tables.small.replay_of(carriers["SAC"]))
    assert [sign for (*_, pattern), sign in replay.items() if sign and pattern != "steady"] == [1] * 5
    assert (
        "recent replay beats the full replay in 5 of 12 drifting settings (weight 0.03) and is worse in none" in adapt
    )
    assert "not significant against constants with as many gradient steps" in choose
    assert of(sac, recent, "SAC+fixed", *two) == [0, 1]
    assert of(new, recent, "SAC+fixed", *two) == [0, 2]
    assert "0 of 10 settings better, 1 worse (new seeds: 2 worse)" in adapt
    assert "`fixed+recent` is better in none of ten settings of two mechanical tasks" in choose
    assert of(sac, "SAC+AES-C+burst", "SAC+fixed", *three) == [1, 0]
    assert "are better in one setting of fifteen" in adapt
    assert of(sac, "SAC", "SAC+fixed", *two) == of(sac, "SAC+AES", "SAC+fixed", *two) == [0, 10]
    assert of(ppo, reset, "PPO", *two) == [0, 9]
    assert "they are worse in nine settings of ten" in adapt
    again = significant(tables.small.confirmed(carriers["PPO"]))
    assert of(again, reset, "PPO", "toy") == [4, 0]
    assert of(again, reset, "PPO", *two) == [0, 6]
    assert "better in four settings of the toy task, worse in six of the ten" in adapt
    assert of(ppo, "PPO+AES", "PPO", *three) == [1, 1]
    assert of(ppo, "PPO+AES", tables.small.GRID, *three)[0] == 0
    assert "better in one setting and worse in one, and never better than the best constant" in adapt
    assert of(sql, "SQL+AES", "SQL", "reacher") == [0, 4]
    others = {name: significant(tables.small.family_of(carriers[name])[1]) for name in ("SQL", "MEow")}
    for name, signs in others.items():
        assert of(signs, f"{name}+fixed+recent+utd", name, "reacher") == [4, 0]
        assert of(signs, f"{name}+fixed+recent+utd", tables.small.GRID, "reacher") == [0, 0]
    assert "better in eight of ten settings. Against the best of their grids no difference is significant." in adapt
    assert "SQL and MEow: in eight of ten of one task" in choose
    assert not any(significant(tables.small.observed_of(tables.scored("bounds")["PPO"])).values())
    assert "PPO on three MuJoCo tasks gains nothing from observing the drift" in adapt
    seen = significant(tables.small.observed_of(carriers["SAC"]))
    worse = [pattern for (_, o, task, pattern), sign in seen.items() if (o, task, sign) == ("SAC+fixed", two[1], -1)]
    assert worse == ["abrupt", "mixed"]
    assert "SAC is worse with the observation than without it under abrupt and mixed drift" in adapt
    bound, abrupt = tables.scored("bounds")["PPO"], ("halfcheetah, trained", "abrupt")
    high = tables.small.observed_of(bound)[tables.small.true_of("PPO"), tables.small.GRID, abrupt][0].interval.high
    best = [
        np.mean(list(bound.scores[method][abrupt[0], pattern].values()))
        for method, pattern in (("PPO", "steady"), ("PPO+fixed[base=0.01]", "abrupt"))
    ]
    assert "fall from {:,.0f} to {:,.0f} under abrupt drift".format(*best) in adapt
    assert f"observing the drift recovers at most {high:.0f}" in adapt


def test_sentences_about_the_hard_robots_follow_from_the_records():
    outcomes, losses = {}, []
    for task in ("humanoid", "isaac-humanoid", "isaac-allegro-hand"):
        results = Results.open(ROOT / "experiments" / "results" / f"claims-{task}-ppo")
        found = results.compare("PPO+AES", "PPO", metric="return")
        outcomes[task] = found["outcome"].to_list()
        means = results.curves.group_by("method", "pattern").agg(pl.col("return_mean").mean())
        for pattern in ("steady", "abrupt") if task == "humanoid" else ():
            aes, own = (means.filter(method=m, pattern=pattern)["return_mean"].item() for m in ("PPO+AES", "PPO"))
            losses.append(1 - aes / own)
    assert outcomes["humanoid"] == ["worse"] * 2
    assert set(outcomes["isaac-humanoid"] + outcomes["isaac-allegro-hand"]) == {"not significant"}
    np.testing.assert_allclose(losses, 1 / 3, atol=0.03)
    assert "AES lowers the return of PPO by a third, with and without drift" in text("docs/results.md")


def test_its_counts_of_claims_are_those_of_the_audit():
    record = json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())
    claims, holding, contradicted, open_, absent = (int(number) for number in re.findall(r"\d+", record["sentence"]))
    assert (holding, contradicted) == (0, 5)
    assert f"makes {claims} quantitative claims" in text("README.md")
    assert f"Five are contradicted; {open_} cannot be judged" in text("README.md")
    assert f"{open_} of {claims} cannot be judged: {absent} name tasks or carriers" in text("docs/results.md")


def test_a_grid_of_constants_has_the_size_that_the_readme_states():
    sizes = [len({c.replace("+fixed", "", 1) for c in tables.constants(carrier)}) for carrier in tables.CARRIERS]
    assert sizes == [4, 6, 2, 1]
    assert "SAC four values, SQL two, MEow its default alone" in text("README.md")


def test_its_picture_is_drawn_from_the_records(tmp_path):
    import matplotlib.image

    finding = import_module("finding")
    finding.draw(tmp_path / "finding.png")
    drawn, stored = (matplotlib.image.imread(folder / "finding.png") for folder in (tmp_path, ROOT / "docs"))
    assert drawn.shape == stored.shape
    assert np.abs(drawn - stored).mean() < 0.01


def test_every_make_target_it_names_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", TEXT, flags=re.MULTILINE)
    for target in map("".join, targets):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize("target", ["docs", "test", "own"])
def test_make_leaves_the_environment_of_another_checkout_alone(tmp_path, target):
    gone = target == "own"  # of a checkout that is gone nothing is installed here, only the check runs
    other, place = tmp_path / "other checkout", tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "__editable__.aesjax.pth").write_text(f"{other}\n")
    if not gone:
        (other / "aesjax").mkdir(parents=True)
        (other / "aesjax" / "__init__.py").touch()
    before = sorted(place.rglob("*"))
    words = ["make", "-C", ROOT, target, f"VENV={place}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == gone
    assert (f"has the aesjax of {other} installed" in done.stderr) != gone
    assert sorted(place.rglob("*")) == before

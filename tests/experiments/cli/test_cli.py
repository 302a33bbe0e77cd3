"""The command line as a person meets it: exit codes, one clear sentence, nothing overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import polars as pl
import pytest

import aesjax
import envs
from aesjax.adaptations import ADAPTATIONS, CONTROLS
from aesjax.registry import unknown
from aesjax.schedules import PROXIES, SCHEDULES
from agents import CARRIERS, make_train
from envs.bridge.names import GYM_TASKS, LAB_TASKS
from experiments import Results, Study
from experiments.cli import main
from experiments.cli.run import Runtime, again
from experiments.study.folder import Owner, claim
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import aimless, configure, save
from tests.refusals import refused, sentence


def run(*words):
    return main(["run", *map(str, words)])


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--task", "toi"], ["unknown task 'toi'", "did you mean 'toy'?"]),
        (["--carriers", "sak"], ["unknown carrier 'sak'", "did you mean 'sac'?"]),
        (["--schedules", "baseline,aess"], ["unknown schedule 'aess'", "did you mean 'aes'?", "aes_r"]),
        (["--preset", "qick"], ["unknown preset 'qick'", "did you mean 'quick'?"]),
        (["--source", "old"], ["--source", "update, fresh", "'old'"]),
        (["--steps", "-400"], ["--steps must be a positive multiple of 100", "got -400"]),
        (["--steps", "1234"], ["multiple of 100", "got 1234", "nearest is 1200"]),
        (["--evaluations", "7"], ["num_envs=1 times 35, a multiple of 7 evaluations", "nearest is 12005"]),
        (["--seeds", "one"], ["seeds must look like 1:5", "'one'"]),
        (["--seeds", "1,1"], ["every seed may be given once", "'1,1'"]),
        (["--sweep", "kapa=1,2"], ["varies 'kapa', which nothing in the study reads; did you mean 'kappa'?"]),
        (["--sweep", "kappa=a"], ["NAME=VALUE,VALUE", "'kappa' takes a number; got 'a'"]),
        (["--sweep", "gamma=1.5"], ["gamma must lie in [0, 1]", "got 1.5"]),
        (["--schedules", "aes,aes"], ["duplicate method"]),
        (["--devices", "0"], ["--devices must be between 1", "got 0"]),
        (["--num-envs", "4", "--steps", "8000000000"], ["MiB", "free"]),
        (["--steps", "400000000000"], ["--steps may be at most", "got 400000000000"]),
        (["--seeds", "0:99999"], ["at most 10000 seeds", "'0:99999'"]),
        (["--seeds", "1:9999"], ["runs", "fewer seeds or methods"]),
        (["--sweep", "kappa=1", "--sweep", "kappa=2"], ["--sweep gives 'kappa' twice"]),
        (["--sweep", "kappa=1,1"], ["each value of 'kappa' once"]),
        (["--schedules", "aes:kappa=1e99"], ["'kappa'", "single precision", "'1e99'"]),
    ],
)
def test_bad_arguments_exit_with_2_and_say_what_is_allowed(tmp_path, capsys, words, parts):
    assert run("--out", tmp_path / "new", *words) == 2
    text = sentence(capsys)
    for part in parts:
        assert part in text
    assert not (tmp_path / "new").exists()  # refused before anything is made


HARMLESS = """JAX_NUMPY_DTYPE_PROMOTION=strict JAX_NUMPY_RANK_PROMOTION=raise JAX_TRANSFER_GUARD=disallow
JAX_LEGACY_PRNG_KEY=error JAX_DEBUG_NANS=1 JAX_DEBUG_INFS=1 JAX_DEBUG_KEY_REUSE=1 JAX_CHECK_TRACER_LEAKS=1
JAX_ENABLE_CUSTOM_PRNG=1 JAX_THREEFRY_PARTITIONABLE=0 JAX_DEFAULT_MATMUL_PRECISION=bfloat16"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "code"),
    [(HARMLESS, 0), ("JAX_DISABLE_JIT=1", 0), ("JAX_DEFAULT_PRNG_IMPL=rbg", 2), ("JAX_ENABLE_X64=1", 2)],
)
def test_settings_of_jax_in_the_environment_do_no_harm_or_are_named(tmp_path, settings, code):
    words = "run --steps 800 --evaluations 2 --episodes 2 --seeds 1 --patterns abrupt --schedules baseline,aes"
    given = dict(setting.split("=") for setting in settings.split())
    command = [sys.executable, "-m", "experiments.cli", *words.split(), "--out", str(tmp_path / "study")]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | given, check=False)
    assert ran.returncode == code, ran.stderr
    assert len(ran.stderr.splitlines()) <= code // 2
    assert ran.stderr == "" or all(f"aesjax needs {name.lower()}=" in ran.stderr for name in given)


@pytest.mark.parametrize("name", ["rbg", "unsafe_rbg"])
def test_another_generator_is_refused_in_python(name):
    with jax.default_prng_impl(name), pytest.raises(ValueError, match="needs jax_default_prng_impl=threefry2x32"):
        make_train("toy")


@pytest.mark.parametrize("entries", [envs.TASKS, envs.PATTERNS, CARRIERS, SCHEDULES, PROXIES, ADAPTATIONS, CONTROLS])
def test_an_unknown_name_of_a_registry_is_refused_with_the_nearest(entries):
    name = next(iter(entries))
    assert f"did you mean '{name}'?" in unknown("kind of object", entries, f"{name}X")


def test_an_unknown_command_exits_with_2_and_the_nearest_name(capsys):
    assert "unknown command 'lsit'; did you mean 'list'? commands: run, tune," in refused(capsys, "lsit")
    assert "unknown command 'RUN'; did you mean 'run'?" in refused(capsys, "RUN", "--out", "x")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--steps", "1.5"], "--steps: it must be a whole number; got '1.5'"),
        (["--steps", "two"], "--steps: it must be a whole number; got 'two'"),
        (["--num-envs", "inf"], "--num-envs: it must be a whole number; got 'inf'"),
        (["--evaluations", "0"], "evaluations must be a whole number, at least 1 and at most 2,147,483,647; got 0"),
        (["--drift-seed", "-1"], "drift_seed must be a whole number, at least 0 and at most 4,294,967,295; got -1"),
    ],
)
def test_what_is_no_whole_number_is_refused(tmp_path, capsys, words, says):
    with pytest.raises(SystemExit) as stop:
        run("--out", tmp_path / "new", *words)
    assert stop.value.code == 2
    text = " ".join(line.strip("│ ") for line in capsys.readouterr().err.splitlines())
    assert says in text


@pytest.mark.slow
def test_a_whole_number_may_have_an_exponent(tmp_path, capsys):
    words = ("--schedules", "fixed", "--patterns", "abrupt", "--dry-run", "--out", tmp_path / "new")
    assert run("--steps", "12e2", "--evaluations", "3", *words) == 0
    assert "runs of 1,200 environment steps" in capsys.readouterr().out


def test_a_path_may_begin_with_the_home_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(tmp_path / "nothing") in refused(capsys, "report", "~/nothing")
    assert str(tmp_path / "nothing") in refused(capsys, "run", "--resume", "--out=~/nothing")
    assert str(tmp_path / "nothing") in refused(capsys, "run", "--warm-start=~/nothing", "--out", tmp_path / "new")


def test_a_folder_whose_name_is_no_text_is_refused_before_training(tmp_path, capsys):
    words = ("--patterns", "abrupt", "--seeds", "1", "--schedules", "fixed", "--out", f"{tmp_path}/caf\udce9")
    assert "the name of a folder must be text in UTF-8" in refused(capsys, "run", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_touched(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert run("--out", tmp_path) == 2
    assert "is not empty" in sentence(capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_another_process_owns_is_refused(tmp_path, capsys):
    with Owner(tmp_path):
        assert run("--out", tmp_path) == 2
    assert f"is in use by process {os.getpid()} on" in sentence(capsys)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_study_left_before_it_began_is_no_obstacle(tmp_path):
    """Its configuration, half of another one and a lock that nobody holds."""
    for name in ("config.json", ".config.json.partial", ".lock"):
        (tmp_path / name).write_text("{}")
    config = config_of("ppo", "fixed", steps=1600)
    claim(config, tmp_path, resume=False).owner.release()
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "config.json").read_text()) == config.to_json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evaluations", 0),
        ("segments", 10**9),
        ("seeds", [1.5]),
        ("settings", {"sac": 3}),
        ("sweep", {"kappa": "x"}),
        ("patterns", [["abrupt"]]),
        ("warmup", None),
    ],
)
def test_a_configuration_of_wrong_kinds_is_refused_in_one_sentence(tmp_path, capsys, name, value):
    config = config_of(schedules="aes", patterns="abrupt", seeds=2, steps=2000)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json() | {name: value}))
    assert run("--resume", "--out", tmp_path) == 2
    text = sentence(capsys)
    assert f"config.json cannot be used: {name}" in text
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_the_command_that_continues_a_study_has_its_folder():
    words = again("aesjax run --task toy", Runtime(None, quiet=True), Path("runs/of today")).split(" --")
    assert words == ["aesjax run", "task toy", "out 'runs/of today'", "quiet", "resume"]


def test_resuming_nothing_is_refused(tmp_path, capsys):
    assert run("--out", tmp_path / "none", "--resume") == 2
    assert "there is no study" in sentence(capsys)


def test_resuming_with_another_configuration_names_the_fields(tmp_path, capsys):
    config = config_of(schedules="aes", patterns="abrupt", seeds=2, steps=2000)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    words = ["--schedules", "aes", "--patterns", "abrupt", "--seeds", "1:3", "--steps", "4000", "--resume"]
    assert run("--out", tmp_path, *words) == 2
    text = sentence(capsys)
    assert "seeds: [1, 2] -> [1, 2, 3]" in text
    assert "steps: 2000 -> 4000" in text


def test_list_prints_every_registered_name(capsys):
    from aesjax.schedules import PROXIES, SCHEDULES
    from agents import CARRIERS

    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for registry in (envs.TASKS, envs.PATTERNS, SCHEDULES, PROXIES, CARRIERS):
        for name in registry:
            assert f"  {name}" in text
    assert all(f"  bridge:{name} " in text for name in GYM_TASKS)
    assert all(name in text for name in LAB_TASKS)


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"aesjax {aesjax.__version__}\n"


def test_names_of_one_kind_are_listed_as_text_and_as_json(capsys):
    assert main(["list", "proxies"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert (title, {line.split()[0] for line in lines}) == ("proxies:", {*PROXIES})
    assert main(["list", "proxies", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described == {"proxies": {name: factory.summary for name, factory in PROXIES.items()}}
    assert "unknown kind of name 'proxys'; did you mean 'proxies'?" in refused(capsys, "list", "proxys")


def test_a_terminal_without_unicode_shows_an_audit(tmp_path):
    study = save(tmp_path / "study", make_curves(("SAC", "SAC+AES"), every=5_000))
    plain = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    words = [sys.executable, "-m", "experiments.cli", "audit", str(study)]
    done = subprocess.run(words, capture_output=True, text=True, env=plain, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "claims" in done.stdout


@pytest.mark.slow
def test_a_study_of_a_file_is_that_of_its_options_and_takes_no_others(tmp_path, capsys):
    sizes = {"seeds": 1, "steps": 800, "evaluations": 5, "episodes": 1, "num_envs": 8}
    study = Study("toy", ["ppo+fixed:base=0.2"], patterns="abrupt", **sizes)
    file = tmp_path / "study.toml"
    file.write_text(study.to_toml())
    words = ["--config", file, "--no-report", "--out"]
    assert "is the complete study" in refused(capsys, "run", *words, tmp_path / "other", "--steps", "400")
    assert run(*words, tmp_path / "study") == 0
    assert json.loads((tmp_path / "study" / "config.json").read_text()) == study.config.to_json()
    assert not (tmp_path / "other").exists()


def test_a_reader_that_stops_early_ends_the_list_quietly():
    command = [sys.executable, "-m", "experiments.cli", "list"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """A sweep in which one setting of the learning rate cannot work."""
    folder = tmp_path_factory.mktemp("diverged") / "study"
    words = ["--task", "toy_multigoal_classic", "--schedules", "baseline", "--patterns", "steady,abrupt"]
    words += "--seeds 1:2 --steps 2000 --evaluations 20 --episodes 2 --sweep critic_learning_rate=1e-3,1e6".split()
    code = run("--out", folder, *words)
    return folder, code


def test_a_diverging_run_is_marked_and_the_others_finish(diverged):
    folder, code = diverged
    assert code == 3
    runs = json.loads((folder / "manifest.json").read_text())["runs"]
    wild = [r for r in runs if "1e+06" in r["method"]]
    calm = [r for r in runs if "1e+06" not in r["method"]]
    assert len(wild) == len(calm) == 4
    assert all(r["status"] == "diverged" and r["diverged_at"] > 0 and "not finite" in r["reason"] for r in wild)
    assert all(r["status"] == "finished" for r in calm)
    curves = pl.read_parquet(folder / "curves.parquet")
    assert curves.filter(pl.col("method") == "SAC")["return_mean"].is_finite().all()
    assert curves.filter(pl.col("method") == "SAC")["step"].max() == 2000


def test_the_remarks_of_a_study_are_printed_after_it(tmp_path, capsys):
    folder = save(tmp_path / "study", aimless())
    config = config_of("sac", "baseline,aes", steps=100_000, patterns="steady,abrupt", seeds="1:5")
    configure(folder, **config.to_json())
    assert run("--out", folder, "--resume", "--no-report") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert notes
    assert notes == [f"note: {remark}" for remark in Results.open(folder).remarks]


def test_the_proxies_of_a_trained_study_are_calibrated_without_the_runs_that_diverged(diverged, capsys):
    folder, _ = diverged
    assert main(["calibrate", str(folder), "--delta", "0.3"]) == 0
    text = capsys.readouterr().out
    assert "4 diverged runs are excluded" in text
    found = json.loads((folder / "calibration.json").read_text())["methods"]
    assert list(found) == ["SAC"]
    assert found["SAC"]["groups"]["all"]["runs"] == 4
    assert found["SAC"]["rho"] > 0.0
    assert found["SAC"]["groups"]["steady"]["bounded_runs"] == 0  # two runs of the other seed bound nothing at 0.3


def test_the_traceback_behind_a_sentence_is_shown_on_request(monkeypatch, capsys):
    monkeypatch.setenv("AESJAX_TRACEBACK", "1")
    assert main(["run", "--schedules", "aess"]) == 2
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "in parse_method" in text
    assert "aesjax: unknown schedule 'aess'; did you mean 'aes'" in text


@pytest.mark.parametrize("option", ["--task", "--carriers"])
def test_an_export_of_results_refuses_options_of_agents(option, tmp_path, capsys):
    words = [tmp_path / "study", "--out", tmp_path / "record", "--results", option, "mine:thing"]
    text = "--results reads no custom objects; leave out --task and --carriers, got mine:thing"
    assert text in refused(capsys, "export", *words)

"""Studies in parts as a person meets them: refusals, a killed part that is trained again, the same bytes.

The processes here run one program, which the first compiles for all of them (see `tests/conftest.py`).
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.cli import main
from experiments.cli.run import Run, configured, typed
from experiments.study.build import build_part
from experiments.study.folder import open_study
from experiments.study.parts import begin, make_plan, read_plan, write_plan
from experiments.study.snapshots import load_agent
from tests.refusals import sentence
from tests.waiting import wait_until

# The smallest study with several groups: eight runs, four groups of two; no oracle, whose solution is not tested here.
STUDY = ["--task", "toy_multigoal_classic", "--patterns", "abrupt", "--schedules", "baseline,aes_r", "--seeds", "1:4"]
STUDY += ["--steps", "400", "--together", "2", "--no-report"]
LOCAL = ["--cluster", "local", "--parts", "2"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["--cluster (slurm or local)", "--parts"]),
        (["--cluster", "local"], ["--parts, how many"]),
        (["--cluster", "slrum", "--parts", "2"], ["unknown cluster 'slrum'", "did you mean 'slurm'?"]),
        (["--cluster", "local", "--parts", "5"], ["4 groups of at most 2 runs", "1 to 4 parts; got 5"]),
        (["--cluster", "local", "--parts", "0"], ["1 to 4 parts; got 0"]),
        ([*LOCAL, "--together", "0"], ["--together must be between 1", "got 0"]),
        ([*LOCAL, "--cpus", "0"], ["--cpus must be at least 1; got 0"]),
        ([*LOCAL, "--time", "0"], ["--time must be at least 3 minutes", "got 0"]),
        ([*LOCAL, "--time", "2"], ["--time must be at least 3 minutes", "last 90 s", "got 2"]),
        ([*LOCAL, "--sbatch", "array=0-3"], ["--sbatch array: aesjax submit sets it"]),
        ([*LOCAL, "--sbatch", "=x"], ["--sbatch must look like account=mine", "'=x'"]),
        ([*LOCAL, "--carriers", "sak"], ["unknown carrier 'sak'", "did you mean 'sac'?"]),
    ],
)
def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(tmp_path, capsys, words, parts):
    out = tmp_path / "study"
    assert main(["submit", "--out", str(out), *STUDY, *words]) == 2
    text = sentence(capsys)
    for part in parts:
        assert part in text
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--part", "1/2"], ["--part needs --together"]),
        (["--together", "2", "--part", "3/2"], ["--part must look like 2/4", "'3/2'"]),
        (["--together", "2", "--part", "two"], ["--part must look like 2/4", "'two'"]),
        (["--together", "100000000"], ["--together must be between 1 and 100000", "got 100000000"]),
        (["--together", "100", "--seeds", "1:1", "--part", "1/40"], ["1 groups", "got 40"]),
    ],
)
def test_a_part_that_does_not_exist_is_refused(tmp_path, capsys, words, parts):
    out = tmp_path / "study"
    assert main(["run", "--out", str(out), "--task", "toy", "--schedules", "aes", "--patterns", "abrupt", *words]) == 2
    text = sentence(capsys)
    for part in parts:
        assert part in text
    assert not out.exists()


@pytest.mark.parametrize("words", [("--partition", "a\n#SBATCH --uid=0"), ("--mem", "1G\nx"), ("--sbatch", "qos=a\nb")])
def test_no_option_ends_a_line_of_the_job_script(words, tmp_path, capsys):
    assert main(["submit", "--cluster", "slurm", "--parts", "1", "--out", str(tmp_path / "out"), *words]) == 2
    assert "must be one line" in sentence(capsys)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def planned(tmp_path):
    """A study of which no part has begun."""
    out = tmp_path / "study"
    options = Run(out=out, task="toy_multigoal_classic", patterns="abrupt", schedules="aes_r", seeds="1:4", together=2)
    begin(
        out,
        make_plan(configured(options), 2, typed(options, besides=("out",)), report=False, cluster={"name": "local"}),
    )
    return out


def test_parts_that_have_not_begun_are_waiting_and_cannot_be_joined(planned, capsys):
    assert main(["status", str(planned)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("4 runs in 2 parts on local, 0 done")
    assert [line.split() for line in lines[1:3]] == [["part", n, "waiting", "2", "runs", "0.0", "%"] for n in "12"]
    assert main(["join", str(planned)]) == 2
    assert "2 of its 2 parts have not ended (1, 2)" in sentence(capsys)
    assert {path.name for path in planned.iterdir()} == {"plan.json"}


def test_a_folder_with_parts_is_neither_begun_again_nor_resumed_as_a_study(planned, capsys):
    assert main(["submit", "--out", str(planned), *STUDY, *LOCAL]) == 2
    assert "add --resume to go on with its parts" in sentence(capsys)
    assert main(["run", "--out", str(planned), *STUDY, "--resume"]) == 2
    assert "is made of parts; go on with aesjax submit --resume" in sentence(capsys)
    assert main(["submit", "--out", str(planned), "--resume", "--parts", "3"]) == 2
    assert "has 2 parts, not 3" in sentence(capsys)
    assert main(["submit", "--out", str(planned), "--resume", *STUDY]) == 2
    assert "is another one (schedules: " in sentence(capsys)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Commands in place of SLURM's: sbatch refuses, squeue knows no job."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("srun", ""), ("sbatch", "echo 'invalid partition' >&2; exit 1"), ("squeue", "echo")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


@pytest.mark.parametrize("there", [False, True])
def test_a_submission_that_slurm_refuses_leaves_nothing(tmp_path, slurm, there):
    out = tmp_path / "study"
    if there:
        out.mkdir()
    done = finish("submit", "--out", out, *STUDY, "--cluster", "slurm", "--parts", "2")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("aesjax: --cluster slurm: sbatch refused the job")
    assert out.exists() == there
    assert not there or not list(out.iterdir())


OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.\n"


@pytest.mark.parametrize(
    ("error", "exit_code", "state"),
    [
        (OOM, None, "failed (out of memory; --mem was 2G)"),
        (OOM, -9, "failed (out of memory; --mem was 2G)"),
        ("slurmstepd: error: *** JOB 12 CANCELLED ***\n", None, "failed (the queue no longer has job 12_0)"),
        (None, None, "failed (the queue no longer has job 12_0)"),
        (None, 2, "failed (exit code 2)"),
    ],
)
def test_a_job_that_slurm_ended_early_has_failed_and_its_error_file_is_quoted(
    planned, slurm, capsys, error, exit_code, state
):
    plan = read_plan(planned)
    write_plan(planned, dataclasses.replace(plan, cluster={"name": "slurm", "mem": "2G"}, jobs={"1": "12_0"}))
    if error is not None:
        (planned / "slurm").mkdir()
        (planned / "slurm" / "12_0_0_log.err").write_text(error)
    if exit_code is not None:
        (planned / "tasks" / "1").mkdir(parents=True)
        (planned / "tasks" / "1" / "exit").write_text(f"{exit_code}\n")
    assert main(["status", str(planned)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"  part 1  {state}  ")
    assert lines[2].startswith("  part 2  waiting")  # of which there is no job
    assert lines[-1] == f"train them again:  aesjax submit --resume --out {planned}"
    assert (error is None) or f"  | {error.strip()}" in lines
    (slurm / "squeue").write_text("#!/bin/sh\necho 'cannot contact the controller' >&2; exit 1\n")
    assert main(["status", str(planned)]) == 0
    assert ("waiting" in capsys.readouterr().out.splitlines()[1]) == (exit_code is None)


def test_parts_end_when_the_process_that_submitted_them_is_killed(tmp_path):
    out = tmp_path / "study"
    words = [*STUDY, "--steps", "4000000", "--cluster", "local", "--parts", "1", "--out", out]
    process = subprocess.Popen(command("submit", *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until((out / "parts" / "1" / ".lock").exists, 120)
    part = int((out / "parts" / "1" / ".lock").read_text().split()[1])
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{part}").exists(), 120)


# --- trained


def command(*words):
    code = "import sys; from experiments.cli import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", code, *map(str, words)]


def finish(*words):
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study on one device, without parts."""
    out = tmp_path_factory.mktemp("whole") / "study"
    result = finish("run", *STUDY, "--out", out)
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture(scope="module")
def killed(whole, tmp_path_factory):
    """Three parts, one of them killed; and what was said."""
    out = tmp_path_factory.mktemp("killed") / "study"
    words = ["submit", "--cluster", "local", "--parts", "3", "--checkpoint-seconds", "0", *STUDY, "--out", out]
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    part = out / "parts" / "3"
    wait_until(lambda: list(part.glob("checkpoints/sac/0*/about.json")) or process.poll() is not None, 500)
    os.kill(int((part / ".lock").read_text().split()[1]), signal.SIGKILL)
    _, error = process.communicate(timeout=500)
    assert process.returncode == 2, error
    return out, error


@pytest.mark.slow
def test_a_killed_part_is_trained_again_alone_and_the_joined_bytes_are_those_without_parts(
    whole, killed, tmp_path, capsys
):
    out = shutil.copytree(killed[0], tmp_path / "study")
    assert "not done: part 3; see aesjax status" in killed[1]
    assert main(["status", str(out)]) == 0
    assert "part 3  failed (signal 9)" in capsys.readouterr().out
    before = [(out / "parts" / n / "manifest.json").read_bytes() for n in "12"]
    result = finish("submit", "--resume", "--out", out)
    assert result.returncode == 0, result.stderr
    assert "part 3 of 3 begins" in result.stdout
    assert "part 1 of 3" not in result.stdout
    assert [(out / "parts" / n / "manifest.json").read_bytes() for n in "12"] == before
    for name in ("curves.parquet", "streams.parquet", "config.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert json.loads((out / "parts" / "3" / "manifest.json").read_text())["resumed"]
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (out, whole)]
    assert len(manifests[0].pop("joined")) == 3
    apart = manifests[0].keys() ^ manifests[1].keys()
    assert apart <= {"commit"}  # of a checkout that is edited meanwhile
    assert all("--together 2" in m["command"] and "--part" not in m["command"] for m in manifests)
    assert manifests[0]["runs"] == manifests[1]["runs"]
    for words in (["video", out], ["join", out]):
        assert main([*map(str, words)]) == 0
    assert "joined before" in capsys.readouterr().out
    config = open_study(out).config
    part = build_part(config, "sac")
    for run in (0, len(part.labels) - 1):
        agents = [load_agent(folder, config, part, run) for folder in (out, whole)]
        assert agents[0].step == agents[1].step == 400
        leaves = [jax.tree.leaves(agent.agent) for agent in agents]
        assert all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


@pytest.mark.slow
def test_what_cannot_be_joined_is_named_and_nothing_is_written(whole, killed, tmp_path, capsys):
    out = shutil.copytree(killed[0], tmp_path / "study")
    assert main(["join", str(out)]) == 2
    assert "1 of its 3 parts have not ended (3)" in sentence(capsys)
    shutil.rmtree(out / "parts" / "3")
    shutil.copytree(out / "parts" / "2", out / "parts" / "3")
    assert main(["join", str(out)]) == 2
    assert "parts/3 is not part 3 of this study (part: " in sentence(capsys)
    shutil.rmtree(out / "parts" / "3")
    shutil.copytree(whole, out / "parts" / "3")
    assert main(["join", str(out)]) == 2
    assert "parts/3 is not part 3 of this study (part: " in sentence(capsys)
    damaged = next(Path(out / "parts" / "1" / "agents").rglob("rows.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["join", str(out)]) == 2
    text = sentence(capsys)
    assert "rows.parquet was changed or damaged" in text
    assert f"remove {out / 'parts' / '1'} and train it again: " in text
    assert not {"config.json", "manifest.json", "curves.parquet", "agents"} & {path.name for path in out.iterdir()}

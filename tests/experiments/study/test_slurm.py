"""Studies in parts: refusals, states of parts, interrupted and killed parts, an array job, and the rows of one study.

SLURM's commands are scripts that start the job script, so that submitit and the parts run as on a cluster.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from experiments.cli import main
from experiments.study.checkpoint import load_agent
from experiments.study.folder import open_study
from experiments.study.program import blocks_of, share_of
from experiments.study.slurm import StudyPlan, read_plan
from tests.refusals import refused
from tests.waiting import wait_until

TASK = ["--task", "toy_multigoal_classic", "--patterns", "abrupt", "--steps", "400", "--no-report"]
STUDY = [*TASK, "--schedules", "baseline,aes_r", "--seeds", "1:4"]  # eight runs
LOCAL = ["--cluster", "local", "--parts", "2"]
#: A job's process leaves its number beside the commands.
COMMANDS = {
    "srun": """
        while [ "${1#--}" != "$1" ]; do case $1 in --output | --error) shift ;; esac; shift; done
        echo $$ >"$(dirname "$0")/7_$SLURM_ARRAY_TASK_ID.pid"; exec "$@" """,
    "sbatch": """
        export SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SUBMITIT_EXECUTOR=slurm SCRIPT=$1
        for task in $(seq 0 "$(sed -n 's/#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")"); do
          SLURM_ARRAY_TASK_ID=$task bash "$1" >/dev/null 2>"$(dirname "$1")/7_${task}_0_log.err" &
        done
        echo "Submitted batch job 7" """,
    "scontrol": 'bash "$SCRIPT" >/dev/null 2>>"$(dirname "$SCRIPT")/$2_0_log.err" &',
    "squeue": """
        for job in "$(dirname "$0")"/*.pid; do
          if kill -0 "$(cat "$job")" 2>/dev/null; then echo "$(basename "$job" .pid) RUNNING"; fi
        done""",
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder of SLURM's commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in COMMANDS:
        install(folder, name, COMMANDS[name])
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def install(folder, name, text):
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


def start(*words, **variables):
    argv = [sys.executable, "-c", "from experiments.cli import entry; entry()", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(argv, **pipes, env={**os.environ, **variables})


def finish(process):
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def lines_of(capsys, out):
    assert main(["status", str(out)]) == 0
    return capsys.readouterr().out.splitlines()


def pid_of(part):
    """The process that trains a part, once it has locked the part's folder."""
    lock = part / ".lock"
    wait_until(lambda: lock.exists() and Path("/proc", lock.read_text().split()[1]).exists(), 300, every=0.1)
    return int(lock.read_text().split()[1])


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["--cluster (slurm or local)", "--parts"]),
        (["--cluster", "local", "--parts", "9"], ["divides into 1 to 8 parts; got 9"]),
        (["--cluster", "local", "--parts", "0"], ["1 to 8 parts; got 0"]),
        ([*LOCAL, "--cpus", "0"], ["--cpus must be at least 1; got 0"]),
        ([*LOCAL, "--time", "2"], ["--time must be at least 3; got 2"]),
        ([*LOCAL, "--sbatch", "array=0-3"], ["--sbatch must look like account=mine", "'array=0-3'"]),
        ([*LOCAL, "--sbatch", "=x"], ["--sbatch must look like account=mine", "'=x'"]),
        ([*LOCAL, "--carriers", "sak"], ["unknown carrier 'sak'", "did you mean 'sac'?"]),
        ([*LOCAL, "--partition", "a\n#SBATCH --uid=0"], ["--partition must be one line"]),
        ([*LOCAL, "--sbatch", "qos=a\nb"], ["--sbatch must be one line"]),
    ],
)
def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(tmp_path, capsys, words, parts):
    text = refused(capsys, "submit", "--out", tmp_path / "study", *STUDY, *words)
    assert all(part in text for part in parts)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("block", "part"),
    [("3:2", "must look like 1:40"), ("2", "'2'"), ("0:1", "'0:1'"), ("3:9", "the study has 8 runs")],
)
def test_a_block_that_does_not_exist_is_refused(tmp_path, capsys, block, part):
    assert part in refused(capsys, "run", "--out", tmp_path / "study", *STUDY, "--block", block)
    assert not (tmp_path / "study").exists()


@given(st.dictionaries(st.sampled_from(["sac", "ppo", "sql"]), st.integers(1, 90), min_size=1), st.data())
def test_parts_hold_every_run_once_in_order_and_differ_by_one_run_at_most(counts, data):
    total = sum(counts.values())
    plan = StudyPlan(Path(), {}, total, data.draw(st.integers(1, total)), [], False, True, {})
    blocks = [blocks_of(counts, plan.block(number)) for number in range(1, plan.parts + 1)]
    assert [(carrier, run) for block in blocks for carrier, runs in block.items() for run in runs] == [
        (carrier, run) for carrier, count in counts.items() for run in range(count)
    ]
    sizes = [sum(map(len, block.values())) for block in blocks]
    assert max(sizes) - min(sizes) <= 1


@pytest.fixture(scope="module")
def unsubmitted(tmp_path_factory):
    """A study of two parts whose submission SLURM refused, so that none has begun."""
    folder = tmp_path_factory.mktemp("unsubmitted")
    for name, text in (("srun", ""), ("sbatch", "echo 'invalid partition' >&2; exit 1")):
        install(folder, name, text)
    words = ["submit", *STUDY, "--cluster", "slurm", "--parts", "2", "--out", folder / "study"]
    code, _, error = finish(start(*words, PATH=f"{folder}:{os.environ['PATH']}"))
    assert code == 2
    assert "aesjax: --cluster slurm: sbatch refused the job" in error
    assert "correct the options: aesjax submit --resume" in error
    return folder / "study"


@pytest.fixture
def planned(unsubmitted, slurm, tmp_path):
    """A copy of that study, where SLURM's commands answer."""
    return shutil.copytree(unsubmitted, tmp_path / "study")


def test_parts_that_have_not_begun_wait_and_their_study_is_neither_joined_nor_another_one(planned, capsys):
    lines = lines_of(capsys, planned)
    assert lines[0].endswith("8 runs in 2 parts on slurm, 0 done")
    assert [line.split() for line in lines[1:]] == [["part", n, "waiting", "4", "runs"] for n in "12"]
    assert "2 of its 2 parts have not ended (1, 2)" in refused(capsys, "join", planned)
    assert "add --resume to go on with its parts" in refused(capsys, "submit", "--out", planned, *STUDY, *LOCAL)
    resume = ["submit", "--resume", "--out", planned]
    assert "go on with aesjax submit" in refused(capsys, "run", "--out", planned, *STUDY, "--resume")
    assert "has 2 parts, not 3" in refused(capsys, *resume, "--parts", "3")
    assert "is another one (seeds: " in refused(capsys, *resume, *STUDY, "--seeds", "1:5")
    (planned / "plan.json").write_text('{"format": 3}')
    assert "plan.json cannot be used" in refused(capsys, "status", planned)


OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.\n"
ENDED = "slurmstepd: error: *** STEP 12.0 ON node CANCELLED AT 2026-01-01T00:00:00 DUE TO {} ***\n"


@pytest.mark.parametrize(
    ("error", "code", "state"),
    [
        (OOM, None, "failed (out of memory; --mem was 2G)"),
        (OOM, -9, "failed (out of memory; --mem was 2G)"),
        (ENDED.format("TIME LIMIT"), None, "failed (time limit; --time was 60)"),
        (ENDED.format("PREEMPTION"), None, "failed (preempted)"),
        ("slurmstepd: error: *** JOB 12 CANCELLED ***\n", None, "failed (the queue no longer has job 12_0)"),
        (None, None, "failed (the queue no longer has job 12_0)"),
        (None, 2, "failed (exit code 2)"),
        (None, 130, "interrupted"),
    ],
)
def test_a_job_that_slurm_ended_early_has_failed_and_its_error_file_is_quoted(
    planned, slurm, capsys, error, code, state
):
    cluster = {"name": "slurm", "mem": "2G", "time": 60}
    dataclasses.replace(read_plan(planned), cluster=cluster, jobs={"1": "12_0"}).write()
    (planned / "slurm" / "12_0_0_log.err").write_text(error or "")
    if code is not None:
        (planned / "logs").mkdir()
        (planned / "logs" / "1.txt").write_text(f"--- now: aesjax run\nno room\n--- exit code {code}\n")
    lines = lines_of(capsys, planned)
    assert lines[1].startswith(f"  part 1  {state}  ")
    assert lines[2].startswith("  part 2  waiting")  # without a job
    assert lines[-1] == f"train them again:  aesjax submit --resume --out {planned}"
    assert error is None or f"  | {error.strip()}" in lines
    assert code is None or error is not None or "  | no room" in lines
    install(slurm, "squeue", "echo 'cannot contact the controller' >&2; exit 1")
    assert ("waiting" in lines_of(capsys, planned)[1]) == (code is None)


def test_parts_end_when_the_process_that_submitted_them_is_killed(tmp_path, capsys):
    out = tmp_path / "study"
    process = start("submit", *STUDY, "--steps", "4000000", *LOCAL, "--out", out)
    parts = [pid_of(out / "parts" / n) for n in "12"]
    process.kill()
    process.communicate()
    wait_until(lambda: not any(Path(f"/proc/{part}").exists() for part in parts), 120)
    assert [line.split()[2] for line in lines_of(capsys, out)[1:3]] == ["lost", "lost"]


# --- trained


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study without parts."""
    out = tmp_path_factory.mktemp("whole") / "study"
    assert finish(start("run", *STUDY, "--devices", "1", "--out", out))[0] == 0
    return out


def check_joined(out, whole):
    """The joined study is the undivided one, up to rounding: programs of other widths round differently."""
    for name in ("curves.parquet", "streams.parquet"):
        ours, theirs = (pl.read_parquet(folder / name) for folder in (out, whole))
        assert_frame_equal(ours, theirs, rel_tol=1e-3, abs_tol=1e-3)
    assert (out / "config.json").read_bytes() == (whole / "config.json").read_bytes()
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (out, whole)]
    assert len(manifests[0].pop("joined")) == 2
    assert manifests[0].keys() ^ manifests[1].keys() <= {"commit"}  # of a checkout that is edited meanwhile
    assert manifests[0]["runs"] == manifests[1]["runs"]
    assert not any("--block" in manifest["command"] for manifest in manifests)
    config = open_study(out).config
    share = share_of(config, "sac")
    assert [load_agent(out, config, share.learner, share.labels[run]).step for run in (0, 7)] == [400, 400]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Two parts of which Ctrl-C interrupted both and, resumed, the second was killed."""
    out = tmp_path_factory.mktemp("killed") / "study"
    process = start("submit", *LOCAL, "--checkpoint-seconds", "0", *STUDY, "--out", out)
    for n in "12":
        pid_of(out / "parts" / n)
    process.send_signal(signal.SIGINT)
    code, _, error = finish(process)
    assert code == 130, error
    assert f"Continue with:\n  aesjax submit --resume --out {out}" in error
    process = start("submit", "--resume", "--out", out)
    os.kill(pid_of(out / "parts" / "2"), signal.SIGKILL)
    code, _, error = finish(process)
    assert code == 2
    assert "not done: part 2; see aesjax status" in error
    return out


@pytest.mark.slow
def test_a_part_that_was_killed_is_trained_again_alone_and_the_rows_are_those_without_parts(
    whole, killed, tmp_path, capsys
):
    out = shutil.copytree(killed, tmp_path / "study")
    lines = lines_of(capsys, out)
    assert lines[1].startswith("  part 1  done")
    assert lines[2].startswith("  part 2  failed (signal 9)")
    before = (out / "parts" / "1" / "manifest.json").read_bytes()
    code, text, error = finish(start("submit", "--resume", "--out", out))
    assert code == 0, error
    assert "part 2 of 2 begins" in text
    assert "part 1 of 2" not in text
    assert (out / "parts" / "1" / "manifest.json").read_bytes() == before
    assert json.loads((out / "parts" / "2" / "manifest.json").read_text())["resumed"]
    check_joined(out, whole)
    assert main(["join", str(out)]) == 0
    assert "joined before" in capsys.readouterr().out


@pytest.mark.slow
def test_what_cannot_be_joined_is_named_and_nothing_is_written(killed, tmp_path, capsys):
    out = shutil.copytree(killed, tmp_path / "study")
    assert "1 of its 2 parts have not ended (2)" in refused(capsys, "join", out)
    shutil.rmtree(out / "parts" / "2")
    shutil.copytree(out / "parts" / "1", out / "parts" / "2")
    assert "parts/2 is not part 2 of this study (block: " in refused(capsys, "join", out)
    damaged = next(Path(out / "parts" / "1" / "agents").rglob("rows.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    text = refused(capsys, "join", out)
    assert "rows.parquet was changed or damaged" in text
    assert f"remove {out / 'parts' / '1'} and train it again: " in text
    assert not {"config.json", "manifest.json", "curves.parquet", "agents"} & {path.name for path in out.iterdir()}


@pytest.mark.slow
def test_an_array_job_is_queued_again_before_its_end_and_its_last_part_joins_the_study(whole, slurm, tmp_path, capsys):
    out = tmp_path / "study"
    options = ["--cluster", "slurm", "--parts", "2", "--partition", "low", "--checkpoint-seconds", "0"]
    code, text, error = finish(start("submit", *options, *STUDY, "--out", out))
    assert code == 0, error
    assert "job 7: parts 1, 2 of 2" in text
    script = next((out / "slurm").glob("*submission*.sh")).read_text().splitlines()
    assert {"#SBATCH --partition=low", "#SBATCH --requeue", "#SBATCH --time=60"} <= set(script)
    assert {"#SBATCH --array=0-1%2", "#SBATCH --signal=USR2@90"} <= set(script)
    part = pid_of(out / "parts" / "1")
    os.kill(part, signal.SIGUSR2)  # as SLURM does, to all processes of the job
    os.kill(int((slurm / "7_0.pid").read_text()), signal.SIGUSR2)
    wait_until((out / "manifest.json").exists, 600)
    log = (out / "logs" / "1.txt").read_text()
    assert "--- exit code 130" in log
    assert "--resume" in log
    assert all("done" in line for line in lines_of(capsys, out)[1:3])
    check_joined(out, whole)

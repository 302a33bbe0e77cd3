"""Studies in parts: refusals, states of parts, an array job with an interrupted and a killed part, the joined study.

SLURM's commands are scripts that start the job script, so that submitit and the parts run as on a cluster.
"""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from experiments import Study
from experiments.cli import main
from experiments.cli.run import Methods, Run, study_of
from experiments.study.checkpoint import load_agent
from experiments.study.folder import open_study
from experiments.study.program import Plan, blocks_of
from experiments.study.slurm import StudyPlan, read_plan
from tests.refusals import refused
from tests.waiting import wait_until

TASK = ["--task", "toy_multigoal_classic", "--patterns", "abrupt", "--steps", "240", "--evaluations", "20"]
STUDY = [*TASK, "--no-report", "--schedules", "baseline,aes_r", "--seeds", "1:4", "--num-envs", "4"]  # eight runs
#: A job's process leaves its number beside the commands; a second submission is job 8.
COMMANDS = {
    "srun": """
        while [ "${1#--}" != "$1" ]; do
          case $1 in --output) out=$2; shift ;; --error) err=$2; shift ;; esac; shift
        done
        name=$SLURM_JOB_ID${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}; logs=$(dirname "$out")/${name}_0_log
        echo $$ >"$(dirname "$0")/$name.pid"; exec "$@" >>"$logs.out" 2>>"$logs.err" """,
    "sbatch": """
        job=7; if [ -e "$(dirname "$0")/7_0.pid" ]; then job=8; fi
        export SLURM_JOB_ID=$job SUBMITIT_EXECUTOR=slurm SCRIPT=$1
        if grep -q -e --array "$1"; then  # of two parts
          for task in 0 1; do SLURM_ARRAY_JOB_ID=$job SLURM_ARRAY_TASK_ID=$task bash "$1" >/dev/null 2>&1 & done
        else bash "$1" >/dev/null 2>&1 &
        fi
        echo "Submitted batch job $job" """,
    "scontrol": 'bash "$SCRIPT" >/dev/null 2>&1 &',
    "sacct": """
        echo "JobID|State|NodeList"
        for job in "$(dirname "$0")"/*.pid; do
          if grep -q . "/proc/$(cat "$job")/cmdline" 2>/dev/null; then state=RUNNING; else state=FAILED; fi
          echo "$(basename "$job" .pid)|$state|here"
        done""",
}


def install(folder, name, text):
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


def cluster_in(folder):
    """The folder of SLURM's commands, and the environment in which they are found."""
    for name, text in COMMANDS.items():
        install(folder, name, text)
    return folder, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    folder, environment = cluster_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # its logger would keep the captured streams
    return folder


def aesjax(*words, environment=None):
    argv = [sys.executable, "-c", "from experiments.cli import entry; entry()", *map(str, words)]
    process = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def lines_of(capsys, out):
    assert main(["status", str(out)]) == 0
    return capsys.readouterr().out.splitlines()


def pid_of(part):
    """The process that trains a part, once it has locked the part's folder and written its number there."""
    lock = part / ".lock"

    def running():
        number = re.match(r"process (\d+) on ", lock.read_text() if lock.exists() else "")
        return number and Path("/proc", number[1]).exists() and int(number[1])

    return wait_until(running, 300, every=0.1)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "divides into 1 to 8 parts; got None"),
        (["--parts", "9"], "divides into 1 to 8 parts; got 9"),
        (["--parts", "2", "--time", "2"], "--time must be at least 3 minutes; got 2"),
        (["--parts", "2", "--sbatch", "=x"], "--sbatch must look like account=mine; got '=x'"),
        (["--parts", "2", "--carriers", "sak"], "unknown carrier 'sak'; did you mean 'sac'?"),
        (["--parts", "2", "--dry-run"], "--dry-run is no option of aesjax submit, got True; estimate the study with"),
        (
            ["--parts", "2", "--devices", "4"],
            "--devices is no option of aesjax submit, got 4; give the cores of a job by",
        ),
        (["--resume", "--tensorboard", "x"], "--tensorboard is no option of aesjax submit, got x; write the events of"),
    ],
)
def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(slurm, tmp_path, capsys, words, text):
    assert text in refused(capsys, "submit", "--out", tmp_path / "study", *STUDY, *words)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(("block", "text"), [("3:2", "must look like 1:40"), ("3:9", "the study has 8 runs")])
def test_a_block_that_does_not_exist_is_refused(tmp_path, capsys, block, text):
    assert text in refused(capsys, "run", "--out", tmp_path / "study", *STUDY, "--block", block)
    assert not (tmp_path / "study").exists()


@given(st.dictionaries(st.sampled_from(["sac", "ppo", "sql"]), st.integers(1, 90), min_size=1), st.data())
def test_parts_hold_every_run_once_in_order_and_differ_by_one_run_at_most(counts, data):
    total = sum(counts.values())
    plan = StudyPlan(Path(), {}, total, data.draw(st.integers(1, total)), [], False, {})
    blocks = [blocks_of(counts, plan.block(number)) for number in range(1, plan.parts + 1)]
    assert [(carrier, run) for block in blocks for carrier, runs in block.items() for run in runs] == [
        (carrier, run) for carrier, count in counts.items() for run in range(count)
    ]
    sizes = [sum(map(len, block.values())) for block in blocks]
    assert max(sizes) - min(sizes) <= 1


def test_a_submission_that_slurm_refuses_waits_and_a_part_that_it_ended_shows_its_state_and_last_lines(
    slurm, tmp_path, capsys
):
    install(slurm, "sbatch", "echo 'invalid partition' >&2; exit 1")
    out = tmp_path / "study"
    assert main(["submit", *STUDY, "--parts", "2", "--out", str(out)]) == 2
    text = capsys.readouterr().err  # after sbatch's own
    assert "sbatch rejected the job" in text
    assert f"correct the options: aesjax submit --resume --out {out}" in text
    lines = lines_of(capsys, out)
    assert lines[0].endswith("8 runs in 2 parts, 0 done")
    assert [line.split() for line in lines[1:3]] == [["part", n, "waiting", "4", "runs"] for n in "12"]
    assert "2 of its 2 parts have not ended (1, 2)" in refused(capsys, "join", out)
    assert "add --resume to continue its parts" in refused(capsys, "submit", "--out", out, *STUDY, "--parts", "2")
    assert "leave out its options" in refused(capsys, "submit", "--resume", "--out", out, "--seeds", "1:6")
    assert "run aesjax submit" in refused(capsys, "run", "--out", out, *STUDY, "--resume")

    dataclasses.replace(read_plan(out), jobs={"1": "12_0", "2": "12_1"}).write()
    install(slurm, "sacct", "printf 'JobID|State|NodeList\\n12_0|OUT_OF_MEMORY|a\\n12_1|PENDING|\\n12_0.0|FAILED|a\\n'")
    for name, line in (("out", "aesjax: no room"), ("err", "slurmstepd: error: Detected 1 oom_kill event")):
        (out / "slurm" / f"12_0_0_log.{name}").write_text(f"{line}\n")
    lines = lines_of(capsys, out)
    assert lines[1].split()[2:] == ["OUT_OF_MEMORY", "4", "runs", "job", "12_0"]
    assert lines[2].split()[2] == "PENDING"
    assert lines[-3:-1] == ["  | aesjax: no room", "  | slurmstepd: error: Detected 1 oom_kill event"]
    assert lines[-1] == f"train the others:  aesjax submit --resume --out {out}"
    (out / "plan.json").write_text('{"format": 4}')
    assert "plan.json cannot be used" in refused(capsys, "status", out)


def test_parts_of_a_study_that_only_a_file_can_express_read_a_copy_of_the_file(slurm, tmp_path):
    study = Study("toy_multigoal_classic", ["sac+aes", "ppo+fixed"], patterns="abrupt", seeds=2, steps=16_000)
    (tmp_path / "mine.toml").write_text(study.to_toml())
    install(slurm, "sbatch", "exit 1")
    out = tmp_path / "study"
    assert main(["submit", "--config", str(tmp_path / "mine.toml"), "--parts", "2", "--out", str(out)]) == 2
    plan = read_plan(out)
    assert plan.words == ["--config", str(out / "study.toml")]
    part = Run(Methods(config=out / "study.toml"), Study(block=plan.block(2)))
    assert json.loads(json.dumps(study_of(part).config.to_json())) == plan.part_config(2)
    with pytest.raises(ValueError, match="leave out the other options of the study, except --block"):
        study_of(Run(part.methods, Study(seeds=1)))


# --- trained


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study without parts."""
    out = tmp_path_factory.mktemp("whole") / "study"
    aesjax("run", *STUDY, "--devices", "1", "--out", out)
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An array job whose first part SLURM signals and whose second part is killed, and then submitted again."""
    (folder := tmp_path_factory.mktemp("slurm") / "bin").mkdir()
    bin_, environment = cluster_in(folder)
    out = folder.parent / "study"
    words = ["--parts", "2", "--partition", "low", "--checkpoint-seconds", "0", *STUDY, "--out", out]
    assert "job 7: parts 1, 2 of 2" in aesjax("submit", *words, environment=environment)

    def end(part):
        """As soon as it trains, whichever part starts first, since training takes seconds."""
        process, log = pid_of(out / "parts" / f"{part + 1}"), out / "slurm" / f"7_{part}_0_log.out"
        wait_until(lambda: "compiling" in log.read_text(), 300)
        if part == 1:
            os.kill(process, signal.SIGKILL)
        else:
            os.kill(process, signal.SIGUSR2)  # as SLURM does, to all processes of the job
            os.kill(int((bin_ / "7_0.pid").read_text()), signal.SIGUSR2)

    with ThreadPoolExecutor() as pool:
        list(pool.map(end, range(2)))
    wait_until((out / "parts" / "1" / "manifest.json").exists, 600)
    wait_until((out / "slurm" / "7_1_0_result.pkl").exists, 60)
    part = next(line for line in aesjax("status", out, environment=environment).splitlines() if "part 2  " in line)
    assert part.split()[2] == "FAILED"
    said = aesjax("submit", "--resume", "--mem", "1G", "--out", out, environment=environment)
    assert "job 8: parts 2 of 2" in said
    wait_until((out / "manifest.json").exists, 600)
    return out


@pytest.mark.slow
def test_an_array_job_is_queued_again_and_its_last_part_joins_the_study(whole, trained, capsys):
    """The joined study is the undivided one, up to rounding: programs of other widths round differently."""
    scripts = [set(path.read_text().splitlines()) for path in sorted((trained / "slurm").glob("*submission*.sh"))]
    assert {"#SBATCH --partition=low", "#SBATCH --requeue", "#SBATCH --time=60"} <= set.intersection(*scripts)
    assert any({"#SBATCH --array=0-1%2", "#SBATCH --signal=USR2@90"} <= script for script in scripts)
    assert any("#SBATCH --mem=1G" in script for script in scripts)
    log = (trained / "slurm" / "7_0_0_log.out").read_text()
    assert "interrupted; " in log
    assert "--resume" in log
    for name in ("curves.parquet", "streams.parquet"):
        ours, theirs = (pl.read_parquet(folder / name) for folder in (trained, whole))
        assert_frame_equal(ours, theirs, rel_tol=1e-3, abs_tol=1e-3)
    assert (trained / "config.json").read_bytes() == (whole / "config.json").read_bytes()
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (trained, whole)]
    assert manifests[0].keys() ^ manifests[1].keys() <= {"commit"}  # of a checkout that is edited meanwhile
    assert manifests[0]["runs"] == manifests[1]["runs"]
    assert not any("--block" in manifest["command"] for manifest in manifests)
    config = open_study(trained).config
    share = Plan(config).share("sac")
    assert [load_agent(trained, config, share.learner, share.labels[run]).step for run in (0, 7)] == [240, 240]
    assert main(["join", str(trained)]) == 0
    assert "joined before" in capsys.readouterr().out


@pytest.mark.slow
def test_what_cannot_be_joined_is_named_and_nothing_is_written(trained, tmp_path, capsys):
    out = tmp_path / "study"
    (out / "parts").mkdir(parents=True)
    shutil.copy(trained / "plan.json", out)
    for number in "12":
        shutil.copytree(trained / "parts" / "1", out / "parts" / number)
    assert "parts/2 is not part 2 of this study (block: " in refused(capsys, "join", out)
    shutil.rmtree(out / "parts" / "2")
    shutil.copytree(trained / "parts" / "2", out / "parts" / "2")
    manifest = json.loads((out / "parts" / "2" / "manifest.json").read_text())
    for name, value in manifest["numerics"].items():
        other = manifest | {"numerics": manifest["numerics"] | {name: "other"}}
        (out / "parts" / "2" / "manifest.json").write_text(json.dumps(other))
        assert f"parts/2 needs {name}=other, with which it was made; {value} gives" in refused(capsys, "join", out)
    damaged = next((out / "parts" / "1" / "agents").rglob("rows.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    text = refused(capsys, "join", out)
    assert "rows.parquet was changed or damaged" in text
    assert f"remove {out / 'parts' / '1'} and train it again: " in text
    assert not {"config.json", "manifest.json", "curves.parquet", "agents"} & {path.name for path in out.iterdir()}

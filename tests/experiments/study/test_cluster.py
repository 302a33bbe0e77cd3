"""Tasks on this machine: as many at a time as there are places, each alone, stopped in an orderly way."""

import signal
import sys

import pytest

from experiments.study.cluster import EXIT, LOG, Task, Worker, queue_states, run_local
from tests.waiting import wait_until

# Writes the slot and the number of concurrent tasks, and ends orderly on request.
SCRIPT = """
import os, pathlib, signal, sys, time
out, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: (print("stopped"), sys.exit(130)))
running = out.parent / (out.name + ".running")
running.touch()
at_once = len(list(out.parent.glob("*.running")))
time.sleep(seconds)
running.unlink()
out.write_text(f"{os.environ.get('PLACE')} {at_once} {' '.join(sys.argv[3:])}")
"""


def task(folder, number, seconds=0.3, code=SCRIPT):
    result = folder / f"result-{number}"
    argv = (sys.executable, "-c", code, str(result), str(seconds))
    return Task(folder / "tasks" / str(number), argv, begun=folder / f"begun-{number}", result=result)


def test_every_task_runs_once_at_one_of_the_places_and_no_more_at_a_time(tmp_path):
    tasks, ended = [task(tmp_path, n) for n in range(5)], []
    left = run_local(tasks, [{"PLACE": "a"}, {"PLACE": "b"}], on_end=lambda task, done: ended.append((task, done)))
    assert left == []
    assert sorted(ended) == [(one, True) for one in tasks]
    lines = [one.result.read_text().split() for one in tasks]
    assert {place for place, _ in lines} == {"a", "b"}
    assert max(int(count) for _, count in lines) <= 2
    assert all((one.folder / EXIT).read_text() == "0\n" for one in tasks)


def test_a_task_that_has_begun_is_resumed(tmp_path):
    one, other = task(tmp_path, 1, 0.0), task(tmp_path, 2, 0.0)
    one.begun.touch()
    assert run_local([one, other], [{}]) == []
    assert one.result.read_text().split()[2:] == ["--resume"]
    assert other.result.read_text().split()[2:] == []


def test_a_failed_task_is_named_and_the_others_are_done(tmp_path):
    failing = task(tmp_path, 1, code="import sys; sys.exit('no room')")
    assert run_local([failing, task(tmp_path, 2, 0.0)], [{}]) == [failing]
    assert (failing.folder / EXIT).read_text() == "1\n"
    assert "no room" in (failing.folder / LOG).read_text()


def test_asked_to_stop_it_lets_those_under_way_end_and_begins_no_others(tmp_path):
    tasks = [task(tmp_path, n, 60.0) for n in range(3)]
    running = tmp_path / "result-0.running"
    left = run_local(tasks, [{}], asked=running.exists)
    assert left == tasks
    assert (tasks[0].folder / EXIT).read_text() == "130\n"
    assert "stopped" in (tasks[0].folder / LOG).read_text()
    assert not tasks[1].folder.exists()


def test_a_worker_does_not_hand_on_the_signal_that_slurm_ends_jobs_with(tmp_path):
    worker = Worker(task(tmp_path, 1, 1.0))
    wait_until((tmp_path / "result-1.running").exists)
    worker.process.send_signal(signal.SIGUSR2)
    assert worker.wait()


def test_a_signal_handler_that_interrupts_the_waiting_sees_the_end(tmp_path):
    """As submitit's does before it asks SLURM to queue the job again."""
    worker, seen = Worker(task(tmp_path, 1, 60.0)), []
    wait_until((tmp_path / "result-1.running").exists)

    def handle(number, frame):
        worker.stop()
        wait_until(worker.over)
        seen.append(worker.over())

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert not worker.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [True]
    assert worker.over()
    assert worker.process.returncode == 130


@pytest.mark.parametrize("jobs", [[], ["12_0"]])
def test_without_slurm_no_job_is_known(jobs, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert queue_states(jobs) == {}

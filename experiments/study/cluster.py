"""Processes that do the parts of a whole: on this machine, one per device, or as an array job of SLURM.

A task is a command that can resume. A worker starts it, watches it, asks it to end when its time is up, and writes its
output and exit code into the task's folder.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study import lock, store
from experiments.study.stop import PARENT

LOG, EXIT = "log.txt", "exit"  # in a task's folder: what it said, and the code that it ended with
_POLL = 0.2  # seconds
_PATIENCE = 90.0  # seconds for the process that had the task before to end
NOTICE = 90  # seconds before its end that SLURM tells a task
SHORTEST = 3  # minutes of a job: to start, and the notice
INTERRUPTED = 130  # the exit code of a command that a signal ended in an orderly way
_LINGER = 600.0  # seconds
_LAST_WORDS = 60.0  # of them for the task's last checkpoint
_MOST_TIME_OUTS = 1000  # a task that got no further within its time would go on for ever
#: Signal of SLURM and submitit that time is up; the command receives it, too, and ignores it.
_SLURM_SIGNAL = signal.SIGUSR2


class Task(NamedTuple):
    """A command, and how it is known how far it came."""

    folder: Path  # of its log and its exit code
    argv: tuple[str, ...]
    begun: Path  # where there is this file, --resume is added
    result: Path  # where there is this file, it is done


class Worker:
    """Starts a task. The command itself locks the folder of its results against a second process.

    Args:
      env: variables that it gets besides those of this process.
      apart: it does not get the signals of our terminal.
    """

    def __init__(self, task: Task, env: Mapping[str, str] | None = None, *, apart: bool = False):
        self.task = task
        task.folder.mkdir(parents=True, exist_ok=True)
        (task.folder / EXIT).unlink(missing_ok=True)
        argv = [*task.argv, *(["--resume"] if task.begun.exists() else [])]
        when = datetime.now(UTC).isoformat(timespec="seconds")
        with open(task.folder / LOG, "ab") as log, _deaf():
            log.write(f"--- {when} on {socket.gethostname()}: {shlex.join(argv)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {}), PARENT: str(os.getpid())},
                start_new_session=apart,
            )

    def wait(self) -> bool:
        """Until it ends; whether it is done then."""
        code = self.process.wait()
        store.write_text(self.task.folder / EXIT, f"{code}\n")
        return self.task.result.exists()

    def over(self) -> bool:
        """Whether its process has ended. Popen does not tell a signal handler that has interrupted its `wait`."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # and it was waited for
            return True

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask it to end at its next checkpoint, or, with SIGKILL, end it."""
        if self.process.poll() is None:
            self.process.send_signal(number)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started in the block ignore `_SLURM_SIGNAL`, which would end them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {_SLURM_SIGNAL})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_local(
    tasks: Sequence[Task],
    places: Sequence[Mapping[str, str]],
    *,
    asked: Callable[[], bool] = lambda: False,
    on_start: Callable[[Task], None] = lambda task: None,
    on_end: Callable[[Task, bool], None] = lambda task, done: None,
) -> list[Task]:
    """Do the tasks with as many processes at a time as there are ``places``; those that were not done in the end.

    Args:
      places: variables of the process at each place, such as its device.
      asked: whether to stop; those under way are then asked to end at their next checkpoint, no others begin.
      on_end: called with whether the task is done.
    """
    waiting: deque[Task] = deque(tasks)
    under_way: dict[int, Worker] = {}
    stopped, left, failure = False, [], None
    while (waiting and not stopped) or under_way:
        for place in range(len(places)):
            if place in under_way or not waiting or stopped:
                continue
            task = waiting.popleft()
            try:
                under_way[place] = Worker(task, places[place], apart=True)
            except OSError as error:
                failure, left = error, [*left, task]
                break
            on_start(task)
        for place, worker in list(under_way.items()):
            if worker.process.poll() is not None:
                done = worker.wait()
                del under_way[place]
                on_end(worker.task, done)
                left += [] if done else [worker.task]
        if (failure is not None or asked()) and not stopped:
            stopped = True
            for worker in under_way.values():
                worker.stop()
        time.sleep(_POLL)
    if failure is not None:
        raise failure
    return [*left, *waiting]


class SlurmTask:
    """A submitit job: a task and, after the last task, its continuation.

    Args:
      after: a command for the task after which all ``results`` exist.
    """

    def __init__(self, task: Task, results: Sequence[Path], after: Sequence[str]):
        self.task, self.results, self.after = task, tuple(results), tuple(after)
        self._worker: Worker | None = None

    def __call__(self) -> str:
        """Do the task.

        Raises:
          RuntimeError: it failed, and SLURM shall know.
        """
        self._worker = _patiently(self.task)
        done = self._worker.wait()
        if not done and self._worker.process.returncode == INTERRUPTED:
            # SLURM asked all of us to end, before it pre-empts the job or because it was cancelled, and will end us;
            # a job that ends by itself is not queued again.
            time.sleep(_LINGER)
        if not done:
            raise RuntimeError(f"{shlex.join(self.task.argv)} failed: see {self.task.folder / LOG}")
        if all(path.exists() for path in self.results):
            with open(self.task.folder / LOG, "ab") as log:
                subprocess.run(self.after, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        return str(self.task.result)

    def checkpoint(self) -> Any:
        """Time is up, or somebody more important comes: end at a checkpoint, to be continued."""
        from submitit.helpers import DelayedSubmission

        if self._worker is not None:
            self._worker.stop()
            deadline = time.monotonic() + _LAST_WORDS
            while not self._worker.over() and time.monotonic() < deadline:
                time.sleep(_POLL)
        return DelayedSubmission(SlurmTask(self.task, self.results, self.after))


def _patiently(task: Task) -> Worker:
    """Start a task whose last worker may have been lost with its host and still hold the lock."""
    deadline = time.monotonic() + _PATIENCE
    while lock.in_use(task.begun.parent) and time.monotonic() < deadline:
        time.sleep(1.0)
    return Worker(task)


def check_slurm() -> None:
    """Refuse where submitit or SLURM is missing."""
    if find_spec("submitit") is None:
        raise ValueError("--cluster slurm needs submitit, which is not installed: pip install 'aesjax[cluster]'")
    for name in ("sbatch", "srun"):
        if shutil.which(name) is None:
            raise ValueError(f"--cluster slurm: there is no {name} on this machine; submit where jobs are submitted")


def submit_slurm(tasks: Sequence[SlurmTask], folder: Path, parameters: Mapping[str, Any], python: str) -> list[str]:
    """Submit an array job; the id of each task's job (ValueError in SLURM's words where it refuses).

    Args:
      folder: of submitit's files, on a file system that all hosts share.
      parameters: of `submitit.SlurmExecutor`, of which ``additional_parameters`` go to sbatch as they are.
      python: the command that starts Python.
    """
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = submitit.SlurmExecutor(folder, max_num_timeout=_MOST_TIME_OUTS, python=python)
    executor.update_parameters(**{"signal_delay_s": NOTICE, "array_parallelism": len(tasks), **parameters})
    try:
        return [str(job.job_id) for job in executor.submit_array(tasks)]
    except (FailedJobError, FailedSubmissionError) as error:
        raise ValueError(f"--cluster slurm: sbatch refused the job: {store.reason(error)}") from None


def queue_states(jobs: Sequence[str]) -> dict[str, str]:
    """Job id -> SLURM's word for it, empty where its queue no longer knows it; nothing where SLURM does not answer."""
    if not jobs or shutil.which("squeue") is None:
        return {}
    arrays = ",".join(dict.fromkeys(job.partition("_")[0] for job in jobs))
    command = ["squeue", "--noheader", "--array", "--jobs", arrays, "--format", "%i %T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    if answer.returncode and "Invalid job id" not in answer.stderr:  # as SLURM calls jobs that ended some time ago
        return {}
    known = dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if len(line.split()) == 2)
    return {job: known.get(job, "") for job in jobs}

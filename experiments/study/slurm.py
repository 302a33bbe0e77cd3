"""A study in parts: blocks of its runs, each trained by `aesjax run`, on this machine or as an array job of SLURM.

The folder of the study holds `plan.json`, the results in `parts/K`, the output in `logs/K.txt` and submitit's files in
`slurm`. After the last part, `join` writes the files of one study beside them.
"""

import dataclasses
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from experiments.study import checkpoint, store
from experiments.study.config import fingerprint_of
from experiments.study.folder import Owner, clean, in_use
from experiments.study.process import PARENT
from experiments.study.store import FILES, FOLDERS, Results, check_folder, open_results, write_manifest

NOTICE = 90  # seconds before its end at which SLURM signals a job
SHORTEST = 3  # minutes of a job: to start, and the notice
INTERRUPTED = 130  # exit code of a command that a signal ended in an orderly way
_FORMAT = 3
_POLL = 0.2  # seconds
_PATIENCE = 90.0  # seconds for the lock of a part whose last process was lost with its host
_LAST_CHECKPOINT = 60.0  # seconds for a part's last checkpoint
_LINGER = 600.0  # seconds
_MOST_TIME_OUTS = 1000
_MARK, _EXIT = "--- ", "--- exit code "  # lines of a part's log at the beginning and the end of a process
_LAST_LINES = 5
_COMMON = ("floors", "oracle", "inert", "patterns", "simulator")  # of manifests; hosts may differ by rounding
_SUMS = ("runs", "batches", "seconds")  # of one carrier in a manifest
#: `aesjax` by this Python; -P: no module in the working folder hides one of our packages.
_AESJAX = (sys.executable, "-P", "-c", "from experiments.cli import entry; entry()")
#: Reasons in the scheduler's log of a job that SLURM ended, and the option that was too small.
_EARLY = (
    (r"out of memory|oom.kill", "out of memory", "mem"),
    (r"due to time limit", "time limit", "time"),
    (r"due to preemption", "preempted", None),
    (r"due to node failure", "node failure", None),
)


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """A study and its division into parts, which count from 1: the contents of `plan.json`."""

    directory: Path  # of the study; not stored
    config: Mapping[str, Any]  # of the complete study, as its config.json
    runs: int  # of the complete study
    parts: int
    words: Sequence[str]  # after `aesjax run` in every part, besides its block and its folder
    report: bool  # write one when the parts are joined
    alone: bool  # the study uses registered objects only, so that `--resume --out DIR` continues it
    cluster: Mapping[str, Any]  # its name and its options
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # part -> its newest job of SLURM

    def write(self) -> None:
        """Write `plan.json`."""
        data = {name: value for name, value in vars(self).items() if name != "directory"}
        store.write_json(self.directory / store.PLAN, {"format": _FORMAT, **data})

    def block(self, number: int) -> tuple[int, int]:
        """First and last run of a part, counted from 1."""
        return (number - 1) * self.runs // self.parts + 1, number * self.runs // self.parts

    def part_config(self, number: int) -> dict[str, Any]:
        """The configuration of a part as JSON."""
        return {**self.config, "block": list(self.block(number))}

    def place(self, number: int) -> Path:
        """The folder of a part's results."""
        return self.directory / store.PARTS / str(number)

    def log(self, number: int) -> Path:
        """The file of a part's output."""
        return self.directory / store.LOGS / f"{number}.txt"

    def done(self, number: int) -> bool:
        """Whether a part has ended."""
        return (self.place(number) / store.MANIFEST).exists()

    def missing(self) -> list[int]:
        """The parts that have not ended."""
        return [number for number in range(1, self.parts + 1) if not self.done(number)]


def read_plan(directory: Path) -> StudyPlan:
    """The plan of the study in ``directory`` (ValueError where there is none, or it is damaged)."""
    path = directory / store.PLAN
    if not path.exists():
        raise ValueError(f"{directory} holds no study in parts: there is no {store.PLAN}")
    data = store.read_json(path)
    try:
        if data.pop("format") != _FORMAT:
            raise ValueError("it was written by another version")
        plan = StudyPlan(directory, **data)
        plan.block(1)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None
    return plan


class Training:
    """A process that trains one part, or continues it; the process itself locks the part's folder.

    Args:
      variables: of its environment, besides those of this process.
    """

    def __init__(self, plan: StudyPlan, number: int, variables: Mapping[str, str] | None = None):
        place, self._log = plan.place(number), plan.log(number)
        block = ":".join(map(str, plan.block(number)))
        words = ["run", *plan.words, "--devices", "1", "--no-report", "--block", block, "--out", str(place)]
        words += ["--resume"] if (place / store.CONFIG).exists() else []
        self._log.parent.mkdir(exist_ok=True)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self._write(f"{_MARK}{when} on {socket.gethostname()}: aesjax {shlex.join(words)}")
        environment = {**os.environ, **(variables or {}), PARENT: str(os.getpid())}
        # Blocked: SLURM signals all processes of a job, and by default the signal ends them. Ctrl-C stays here.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        with open(self._log, "ab") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._process = subprocess.Popen([*_AESJAX, *words], **streams, env=environment, start_new_session=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _write(self, line: str) -> None:
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(f"{line}\n")

    def wait(self, stopping: Callable[[], bool] = lambda: False, most: float = math.inf) -> int | None:
        """The exit code, once the process has ended; None after ``most`` seconds.

        Args:
          stopping: whether the process shall end at its next checkpoint.
        """
        deadline, stopped = time.monotonic() + most, False
        while (code := self._process.poll()) is None and time.monotonic() < deadline:
            if not stopped and stopping():
                stopped = True
                self._process.terminate()
            time.sleep(_POLL)
        if code is not None:
            self._write(f"{_EXIT}{code}")
        return code


def train_here(
    plan: StudyPlan, numbers: Sequence[int], places: Sequence[Mapping[str, str]], stopping: Callable[[], bool]
) -> list[int]:
    """Train parts on this machine, as many at a time as there are ``places``; the parts that did not end.

    Args:
      places: variables of the environment at each place, such as its device.
      stopping: whether to stop; parts under way then end at their next checkpoint and no others begin.
    """
    free: SimpleQueue[Mapping[str, str]] = SimpleQueue()
    for variables in places:
        free.put(variables)

    def train(number: int) -> None:
        if not stopping():
            variables = free.get()
            print(f"part {number} of {plan.parts} begins", flush=True)
            Training(plan, number, variables).wait(stopping)
            print(f"part {number} {'is done' if plan.done(number) else 'has ended before it was done'}", flush=True)
            free.put(variables)

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(train, numbers))  # raises errors
    return plan.missing()


class SlurmPart:
    """A job of submitit: it trains one part and, after the last one, joins the study."""

    def __init__(self, directory: Path, number: int):
        self.directory, self.number = directory, number
        self._training: Training | None = None

    def __call__(self) -> None:
        """Train the part (RuntimeError, which SLURM records, where it does not end)."""
        plan, deadline = read_plan(self.directory), time.monotonic() + _PATIENCE
        while in_use(plan.place(self.number)) and time.monotonic() < deadline:
            time.sleep(_POLL)
        self._training = Training(plan, self.number)
        code = self._training.wait()
        if not plan.done(self.number):
            if code == INTERRUPTED:  # SLURM pre-empts the job: only a job that it ends itself is queued again
                time.sleep(_LINGER)
            raise RuntimeError(f"part {self.number} has not ended: see {plan.log(self.number)}")
        if not plan.missing():
            with open(plan.log(self.number), "ab") as log:
                subprocess.run([*_AESJAX, "join", str(self.directory)], stdout=log, stderr=log, check=False)

    def checkpoint(self) -> Any:
        """End at a checkpoint before the time limit or a pre-emption; submitit queues the job again."""
        from submitit.helpers import DelayedSubmission

        if self._training is not None:
            self._training.wait(lambda: True, _LAST_CHECKPOINT)
        return DelayedSubmission(SlurmPart(self.directory, self.number))


def check_slurm() -> None:
    """Refuse, with a ValueError, where submitit or SLURM is missing."""
    if find_spec("submitit") is None or not (shutil.which("sbatch") and shutil.which("srun")):
        raise ValueError("--cluster slurm needs submitit (pip install 'aesjax[cluster]'), sbatch and srun")


def submit(plan: StudyPlan, numbers: Sequence[int], parameters: Mapping[str, Any]) -> dict[str, str]:
    """Submit parts as one array job; part -> its job (ValueError with SLURM's message where SLURM refuses).

    Args:
      plan: its directory is absolute, on a file system that all hosts share.
      parameters: of `submitit.SlurmExecutor`.
    """
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    python = f"{shlex.quote(sys.executable)} -P"
    executor = submitit.SlurmExecutor(plan.directory / store.SLURM, max_num_timeout=_MOST_TIME_OUTS, python=python)
    executor.update_parameters(**{"signal_delay_s": NOTICE, "array_parallelism": len(numbers), **parameters})
    try:
        jobs = executor.submit_array([SlurmPart(plan.directory, number) for number in numbers])
    except (FailedJobError, FailedSubmissionError) as error:
        again = f"correct the options: aesjax submit --resume --out {plan.directory}"
        raise ValueError(f"--cluster slurm: sbatch refused the job: {store.reason(error)}; {again}") from None
    return {str(number): str(job.job_id) for number, job in zip(numbers, jobs, strict=True)}


def queue_states(jobs: Sequence[str]) -> dict[str, str]:
    """Job -> its state in SLURM's queue, empty where the job has left it; no job where SLURM does not answer."""
    if not jobs:
        return {}
    arrays = ",".join(dict.fromkeys(job.partition("_")[0] for job in jobs))
    command = ["squeue", "--noheader", "--array", "--jobs", arrays, "--format", "%i %T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    if answer.returncode and "Invalid job id" not in answer.stderr:  # SLURM's message for jobs that ended long ago
        return {}
    known = dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if len(line.split()) == 2)
    return {job: known.get(job, "") for job in jobs}


class PartStatus(NamedTuple):
    """State of one part, from its folder, its log and SLURM."""

    number: int
    runs: int
    state: str  # waiting, queued, running, done, interrupted, failed (reason) or lost: its process is gone
    job: str = ""  # SLURM's number and state of it; empty where its queue has none
    diverged: int = 0  # runs
    log: Path = Path()  # the part's own, or the scheduler's of a job that ended early
    last: Sequence[str] = ()  # the last lines of the log of a part that was begun and has to be trained again


def statuses(plan: StudyPlan) -> list[PartStatus]:
    """The states of all parts, in order. Checksums are not checked here but by `join`."""
    queue = queue_states(list(plan.jobs.values()))
    return [_status(plan, number, queue) for number in range(1, plan.parts + 1)]


def _status(plan: StudyPlan, number: int, queue: Mapping[str, str]) -> PartStatus:
    place, log, job = plan.place(number), plan.log(number), plan.jobs.get(str(number), "")
    first, last = plan.block(number)
    part = PartStatus(number, last - first + 1, "done", f"{job} {queue[job]}" if queue.get(job) else "")
    if plan.done(number):
        runs = store.read_json(place / store.MANIFEST).get("runs", ())
        return part._replace(diverged=sum(run["status"] == "diverged" for run in runs))
    lines = _lines(log)
    mark = next((line for line in reversed(lines) if line.startswith(_MARK)), "")
    begun = bool(mark) and not mark.startswith(_EXIT)
    if in_use(place) or queue.get(job) == "RUNNING" or (begun and in_use(plan.directory)):
        return part._replace(state="running")
    if queue.get(job):
        return part._replace(state="queued")
    state = "waiting" if not mark else "lost" if begun else _ending(mark.removeprefix(_EXIT))
    if job in queue and state != "interrupted":
        errors = [path for path in (plan.directory / store.SLURM).glob(f"{job}_*_log.err") if path.stat().st_size]
        log = max(errors, key=lambda path: path.stat().st_mtime, default=log)
        lines = _lines(log)
        state = state if state.startswith("failed") else f"failed (the queue no longer has job {job})"
        state = _early_end(plan, "\n".join(lines[-50:])) or state
    last_lines = [line for line in lines if line and not line.startswith(_EXIT)][-_LAST_LINES:]
    return part._replace(state=state, log=log, last=last_lines)


def _early_end(plan: StudyPlan, text: str) -> str:
    """The state of a part whose job SLURM ended, by the scheduler's log; empty where the log gives no reason."""
    for pattern, reason, option in _EARLY:
        if re.search(pattern, text, re.IGNORECASE):
            limit = f"; --{option} was {plan.cluster.get(option, 'not given')}" if option else ""
            return f"failed ({reason}{limit})"
    return ""


def _ending(code: str) -> str:
    """The state of a part that is not done, by the exit code of its last process."""
    if code == str(INTERRUPTED):
        return "interrupted"
    return f"failed (signal {code[1:]})" if code.startswith("-") else f"failed (exit code {code})"


def _lines(log: Path) -> list[str]:
    """The lines of a log, of printable characters; none where there is no log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return ["".join(letter for letter in line if letter.isprintable()) for line in lines]


def join(directory: Path) -> tuple[StudyPlan, bool]:
    """Make one study of the parts in ``directory``; the plan, and whether that was still to be done.

    Parts stay as they are; agents are linked, not copied, where the file system can.

    Raises:
      ValueError: a part has not ended, is damaged or belongs to another study; nothing is written.
    """
    plan = read_plan(directory)
    with Owner(directory):
        if (directory / store.MANIFEST).exists():
            return plan, False
        if left := plan.missing():
            named = ", ".join(map(str, left[:20])) + (", ..." if len(left) > 20 else "")
            raise ValueError(
                f"{directory} cannot be joined: {len(left)} of its {plan.parts} parts have not ended ({named}); "
                f"see aesjax status {directory}"
            )
        parts = [_opened(plan, number) for number in range(1, plan.parts + 1)]
        clean(directory)
        _write(plan, parts)
    return plan, True


def _opened(plan: StudyPlan, number: int) -> Results:
    """Open a part, checked to be this part of this study with all files as they were written."""
    place, (first, last) = plan.place(number), plan.block(number)
    try:
        part = open_results(place)
        check_folder(place, place)
        if differing := store.differing_fields(plan.part_config(number), part.config):
            raise ValueError(f"{place} is not part {number} of this study ({'; '.join(differing)})")
        if (count := len(part.manifest["runs"])) != last - first + 1:
            raise ValueError(f"{place} holds {count} runs; part {number} of this study has {last - first + 1}")
    except ValueError as error:
        remedy = f"remove {place} and train it again: aesjax submit --resume --out {plan.directory}"
        raise ValueError(f"{error}; {remedy}") from None
    return part


def _write(plan: StudyPlan, parts: Sequence[Results]) -> None:
    import polars as pl

    for name in (store.CURVES, store.STREAMS):
        store.write_rows(plan.directory / name, pl.concat([part.rows(name) for part in parts], how="diagonal"))
    for folder in FOLDERS:
        shutil.rmtree(plan.directory / folder, ignore_errors=True)  # of a join that was ended
    whole, before = fingerprint_of(plan.config), Counter[str]()  # batches of runs of each carrier
    for number, part in enumerate(parts, 1):
        own = fingerprint_of(plan.part_config(number))
        for source in sorted(path for name in FOLDERS for path in part.directory.glob(f"{name}/*/*")):
            *_, folder, carrier, name = source.parts
            batch, dash, evaluation = name.partition("-")
            at = int(batch) + before[carrier]
            checkpoint.adopt(source, plan.directory / folder / carrier / f"{at:03d}{dash}{evaluation}", own, at, whole)
        before.update({carrier: facts["batches"] for carrier, facts in part.manifest["parts"].items()})
    store.write_json(plan.directory / store.CONFIG, plan.config)
    command = shlex.join(["aesjax", "run", *plan.words, "--out", "DIR"])
    write_manifest(plan.directory, _manifest([part.manifest for part in parts]) | {"command": command})


def _manifest(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One manifest of all: fields that agree, sums, and under ``joined`` the other fields of each part."""
    first, carriers = manifests[0], {}
    whole = {n: v for n, v in first.items() if n in _COMMON or all(other.get(n) == v for other in manifests)}
    merged = {*whole, "command", "parts", "runs", "warm_start", FILES}
    whole["joined"] = [{n: v for n, v in other.items() if n not in merged} for other in manifests]
    for carrier, facts in (item for manifest in manifests for item in manifest["parts"].items()):
        known = carriers.setdefault(carrier, {**facts, **dict.fromkeys(_SUMS, 0)})
        known.update({name: round(known[name] + facts[name], 2) for name in _SUMS})
    whole |= {
        "resumed": any(manifest["resumed"] for manifest in manifests),
        "wall_seconds": round(sum(manifest["wall_seconds"] for manifest in manifests), 2),
        "parts": carriers,
        "runs": [run for manifest in manifests for run in manifest["runs"]],
    }
    if "warm_start" in first:
        agents = {carrier: own for other in manifests for carrier, own in other["warm_start"]["agents"].items()}
        whole["warm_start"] = {**first["warm_start"], "agents": agents}
    return whole

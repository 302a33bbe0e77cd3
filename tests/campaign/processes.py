"""The command as a user has it: a process of its own, watched until it ends, with whatever it leaves running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.campaign.judge import Outcome
from tests.campaign.listing import Listing, listing

LONGEST = 600.0  # seconds until a command counts as hung
POLL = 0.002


class Started(NamedTuple):
    """A command under way. It leads a session, by which its descendants are known."""

    process: "subprocess.Popen[Any]"
    out: Path
    err: Path
    began: float  # of `time.monotonic`


def aesjax() -> list[str]:
    """The installed command, else the module that it stands for."""
    script = Path(sys.executable).with_name("aesjax")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "experiments.cli"]


def environment(cache: Path) -> dict[str, str]:
    """One CPU device's worth of JAX, optimising little, which reads from ``cache`` what another process compiled."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
        "MPLBACKEND": "Agg",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "--xla_backend_optimization_level=1"),
    }


def start(argv: Sequence[str], env: Mapping[str, str], logs: Path, **options: Any) -> Started:
    """Start `aesjax` with these arguments; what it prints goes to new files in ``logs``."""
    logs.mkdir(parents=True, exist_ok=True)
    number = len(list(logs.glob("*.out")))
    out, err = (logs / f"{number:03d}.{name}" for name in ("out", "err"))
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        began = time.monotonic()
        process = subprocess.Popen(
            [*aesjax(), *argv], env=env, stdout=stdout, stderr=stderr, start_new_session=True, **options
        )
    return Started(process, out, err, began)


def ended(started: Started, longest: float = LONGEST) -> Outcome:
    """Wait for the command; after ``longest`` seconds it is killed, and its exit code is None."""
    code: int | None
    try:
        code = started.process.wait(longest)
    except subprocess.TimeoutExpired:
        os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()
        code = None
    out, err = (path.read_text(errors="replace") for path in (started.out, started.err))
    return Outcome(code, out, err)


def run(argv: Sequence[str], env: Mapping[str, str], logs: Path, **options: Any) -> Outcome:
    """Start a command and wait for its end."""
    return ended(start(argv, env, logs, **options))


def wait_for(started: Started, landmark: Callable[[], bool], longest: float = LONGEST) -> bool:
    """Look until ``landmark`` holds; False if the command ended before."""
    while not landmark():
        if started.process.poll() is not None or time.monotonic() - started.began > longest:
            return False
        time.sleep(POLL)
    return True


def orphans(started: Started, grace: float = 2.0) -> list[int]:
    """Processes of the command's session that outlive it by ``grace`` seconds; they are killed."""
    deadline = time.monotonic() + grace
    while found := _of_session(started.process.pid):
        if time.monotonic() > deadline:
            for process in found:
                os.kill(process, signal.SIGKILL)
            return found
        time.sleep(0.05)
    return []


def _of_session(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def results(folder: Path) -> Listing:
    """Digests of the files that must be the same whatever happened on the way."""
    return {name: value for name, value in listing(folder).items() if name in ("curves.parquet", "streams.parquet")}

"""Client of a worker: starts the simulator's interpreter, sends commands, reads arrays from shared memory."""

import contextlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from envs.bridge import errors
from envs.bridge.names import PYTHON

SCRIPT = Path(__file__).parent / "worker" / "worker.py"
_COMPILING = 900.0  # seconds for the start, in which simulators may compile
_TAIL = 40  # last lines of a worker's output
# Harmless output of the simulators.
_NOISE = re.compile(r"FBX|Not connected to PVD|GPU Pipeline|Physics Device|Physics Engine|\+\+\+ Using GPU PhysX")


class Rows(NamedTuple):
    """Results of one step of N environments."""

    #: (N, O) float32; of the terminal state at the end of an episode, unless the simulator resets within the step
    obs: Any
    reward: Any  # (N,) float32
    terminated: Any  # (N,) bool
    truncated: Any  # (N,) bool, never with terminated
    valid: Any  # (N,) bool, the step took place
    live: Any  # (N,) bool, the next step will take place
    final: Any = None  # (N, O) float32, before a reset within the step; None if it is not read


def learned(xp: ModuleType, rows: Rows, before: Any, lost: bool) -> tuple[Any, Any, Any]:
    """Successors (N, O), rewards (N,), 0 at invalid steps, and a mask (N,) of the steps to store in a replay.

    Args:
      xp: ``numpy`` or ``jax.numpy``.
      before: (N, O) the observations acted on.
      lost: whether the last observation of an episode is lost.
    """
    successor, stored = rows.obs if rows.final is None else rows.final, rows.valid
    if lost:
        # The bootstrap uses the observation before the step; such a row is not stored in a replay.
        done = rows.terminated | rows.truncated
        successor, stored = xp.where(done[:, None], before, rows.obs), rows.valid & ~rows.truncated
    return successor, xp.where(rows.valid, rows.reward, 0.0), stored


def check_finite(rows: Rows, step: int) -> None:
    """Raise for NaN and infinity in valid rows (NumPy arrays).

    Raises:
      SimBridgeError: names the field, the first copy, the count and the step.
    """
    raise_non_finite("observation", ~np.isfinite(rows.obs).all(axis=1), step)
    raise_non_finite("reward", ~np.isfinite(rows.reward) & rows.valid, step)
    if rows.final is not None:
        raise_non_finite("last observation", ~np.isfinite(rows.final).all(axis=1), step)


def raise_non_finite(field: str, bad: Any, step: int) -> None:
    """Raise SimBridgeError if any of ``bad`` (N,) is set."""
    if bad.any():
        first, count = int(np.argmax(bad)), int(bad.sum())
        raise errors.SimBridgeError(
            f"the {field} of {count} of {bad.size} copies is not finite at step {step}, that of copy {first} first; "
            "only finite numbers are allowed"
        )


class Worker:
    """One simulation in a separate process; calls are synchronous.

    Arrays of `Rows` are views, which are overwritten two steps later.
    """

    def __init__(
        self,
        task: str,
        num_envs: int,
        *,
        python: str | None = None,
        options: Mapping[str, Any] | None = None,
        simulation: Mapping[str, Any] | None = None,
        label: str = "",
        timeout: float = 120.0,
    ) -> None:
        """Start the process and wait for the simulation.

        Args:
          task: as `envs.bridge.build` passes it to the worker.
          python: the simulator's interpreter; by default that of ``AESJAX_ISAAC_PYTHON``, or this one.
          options: for the function that builds the environment.
          simulation: options of the interface, such as ``mode`` and ``quantum``.
          label: name of the task in the simulator.
          timeout: seconds allowed for a response.

        Raises:
          SimBridgeError: the simulator cannot be started.
        """
        self.python = python or os.environ.get(PYTHON) or sys.executable
        self.timeout, self.sequence = timeout, 0
        self._drift: dict[str, float] = {}
        self._end: weakref.finalize | None = None
        # Unnamed files, so that nothing is left if this process is killed.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115
        self._shared = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        self._connection, theirs = multiprocessing.Pipe()
        try:
            with theirs:
                self._start(theirs.fileno(), self._shared.fileno())
            built = {"task": task, "num_envs": num_envs, "seed": 0, "options": dict(options or {})}
            self.about = self._ask("make", _COMPILING, **built, simulation=dict(simulation or {}), label=label or task)
            if self.about["num"] != num_envs:
                raise errors.SimBridgeError(f"requested {num_envs} environments, but there are {self.about['num']}")
            self._share()
        except BaseException:
            self.close()
            raise

    def _start(self, *numbers: int) -> None:
        try:
            self._process = subprocess.Popen(
                [self.python, str(SCRIPT), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                start_new_session=True,  # Ctrl-C goes to the parent, which closes this process
                pass_fds=numbers,
            )
        except OSError as error:
            raise errors.SimBridgeError(
                f"the interpreter {self.python} cannot be started ({error.strerror}); give the simulator's with "
                f"--sim-python or {PYTHON}, install a simulator, or run one of our own tasks (isaac_ant, ...)"
            ) from None
        self._end = weakref.finalize(self, _end, self._process)

    def drift(self, values: Mapping[str, float]) -> None:
        """Set factors before the next step; calls the simulator only if they differ."""
        if values != self._drift:
            self._ask("drift", values=dict(values))
            self._drift = dict(values)

    def restart(self, seed: int, sequence: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Observations (N, O) of new episodes, and live (N,); the step count continues from ``sequence``."""
        slot = sequence % 2
        self._ask("restart", max(self.timeout, _COMPILING), slot=slot, seed=seed)
        self.sequence = sequence
        return self._slots[slot]["obs"], self._slots[slot]["live"]

    def step(self, actions: np.ndarray) -> Rows:
        """One step of all copies under ``actions`` (N, A) float32."""
        sequence = self.sequence + 1
        arrays = self._slots[sequence % 2]
        if actions.shape != arrays["actions"].shape:
            raise errors.SimBridgeError(f"actions must have shape {arrays['actions'].shape}; got {actions.shape}")
        if actions.dtype != np.float32:
            raise errors.SimBridgeError(f"actions must be float32, as there is no silent cast; got {actions.dtype}")
        raise_non_finite("action", ~np.isfinite(actions).all(axis=1), sequence)
        arrays["actions"][:] = actions
        self._ask("step", slot=sequence % 2)
        self.sequence = sequence
        rows = Rows(*(arrays.get(name) for name in Rows._fields))
        check_finite(rows, sequence)
        return rows

    def close(self) -> None:
        """End the process, after 10 s by force."""
        if self._end and self._end.alive:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._connection.send_bytes(json.dumps({"command": "close"}).encode())
                self._process.wait(10.0)
            self._end()
        for each in (self._connection, self._printed, self._shared):
            each.close()

    def _share(self) -> None:
        """Two slots of all arrays of a step, used alternately."""
        n, s, a = self.about["num"], self.about["obs_size"], self.about["action_size"]
        fields = [("actions", "f4", (n, a)), ("obs", "f4", (n, s)), ("reward", "f4", (n,))]
        fields += [("final", "f4", (n, s))] if self.about["final"] else []
        fields += [(name, "?", (n,)) for name in ("terminated", "truncated", "valid", "live")]
        memory = np.asarray(np.memmap(self._shared, np.dtype(fields), "w+", shape=(2,)))
        self._ask("map", fields=fields)
        self._slots = [{name: memory[name][slot] for name, *_ in fields} for slot in (0, 1)]

    def _ask(self, command: str, patience: float | None = None, **arguments: Any) -> Any:
        patience = self.timeout if patience is None else patience
        deadline = time.monotonic() + patience
        try:
            self._connection.send_bytes(json.dumps({"command": command, **arguments}).encode())
            # A process forked by the simulator may keep the other end open, so the worker is polled too.
            while not self._connection.poll(max(0.0, min(0.5, deadline - time.monotonic()))):
                if self._process.poll() is not None:
                    raise EOFError
                if time.monotonic() >= deadline:
                    text = f"did not answer within {patience:g} s and was ended; increase timeout, or see what"
                    self._failed(text)
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
            self._failed(f"ended with exit code {self._process.returncode};")
        if "error" in answer:
            raise errors.raised(**answer["error"])
        return answer["answer"]

    def _failed(self, text: str) -> NoReturn:
        self._printed.seek(0)
        lines = self._printed.read().decode(errors="replace").splitlines()
        tail = "\n".join([line for line in lines if not _NOISE.search(line)][-_TAIL:])
        assert self._end is not None  # the process has been started
        self._end()
        raise errors.SimBridgeError(f"the simulator's process {self.python} {text} it printed last:\n{tail}")


def _end(process: subprocess.Popen) -> None:
    """End this child process only."""
    if process.poll() is None:
        process.kill()
        process.wait()

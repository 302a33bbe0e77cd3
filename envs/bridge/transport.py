"""The client of a worker: starts the simulator's interpreter, sends commands, reads arrays from shared memory."""

import contextlib
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envs.bridge import errors
from envs.bridge.names import PYTHON

PROTOCOL = 1
SCRIPT = Path(__file__).parent / "worker" / "worker.py"
_ALIGNED = 64  # bytes, so that JAX and PyTorch can share what is there
_TAIL = 40  # lines of what a worker printed
# Output of the simulators that needs no action.
_NOISE = re.compile(r"FBX|Not connected to PVD|GPU Pipeline|Physics Device|Physics Engine|\+\+\+ Using GPU PhysX")


class Rows(NamedTuple):
    """Results of one step of N environments."""

    obs: (
        Any  # (N, O) float32; of the terminal state where an episode ended, unless the simulator resets within the step
    )
    reward: Any  # (N,) float32
    terminated: Any  # (N,) bool
    truncated: Any  # (N,) bool, never with terminated
    valid: Any  # (N,) bool, the step took place
    live: Any  # (N,) bool, the next one will
    final: Any = None  # (N, O) float32, as it was before a reset within the step; None where that is not read


def check_finite(rows: Rows, step: int) -> None:
    """Refuse NaN and infinity in what counts (NumPy arrays).

    Raises:
      NonFiniteError: with field, first copy, count and step.
    """
    for field, bad in (
        ("observation", ~np.isfinite(rows.obs).all(axis=1)),
        ("reward", ~np.isfinite(rows.reward) & rows.valid),
        ("last observation", np.zeros(1, bool) if rows.final is None else ~np.isfinite(rows.final).all(axis=1)),
    ):
        raise_non_finite(field, bad, step)


def raise_non_finite(field: str, bad: Any, step: int) -> None:
    """NonFiniteError if any of ``bad`` (N,) is set."""
    if bad.any():
        first, count = int(np.argmax(bad)), int(bad.sum())
        raise errors.NonFiniteError(
            f"the {field} of {count} of {bad.size} copies is not finite at step {step}, that of copy {first} first; "
            "only finite numbers are allowed"
        )


class Worker:
    """One simulation in a process of its own; calls wait for its answer.

    Arrays of `Rows` are views that the step after the next one overwrites.
    """

    def __init__(
        self,
        task: str,
        num_envs: int,
        *,
        python: str | None = None,
        options: Mapping[str, Any] | None = None,
        simulation: Mapping[str, Any] | None = None,
        on_inert: str = "warn",
        label: str = "",
        timeout: float = 120.0,
        first_timeout: float = 900.0,
        script: Path = SCRIPT,
    ) -> None:
        """Start it, and wait until the simulation stands.

        Args:
          task: as `envs.bridge.build` passes it to the worker.
          python: the simulator's interpreter; by default that of ``AESJAX_ISAAC_PYTHON``, or this one.
          options: for the function that builds the environment.
          simulation: of the surface, such as ``mode`` and ``quantum``.
          label: the name that the simulator gives the task.
          timeout, first_timeout: seconds for an answer, and for the first, before which simulators compile.

        Raises:
          SimBridgeError: of the class that fits.
        """
        self.python = python or os.environ.get(PYTHON) or sys.executable
        self.timeout, self.sequence, self.num = timeout, 0, num_envs
        self._drift: dict[str, float] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="aesjax-bridge-")
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            said = self._meet(script, first_timeout)
            if said.get("protocol") != PROTOCOL:
                raise errors.ProtocolVersionError(
                    f"the worker speaks protocol {said.get('protocol')}, this side {PROTOCOL}; they must be equal"
                )
            self.about = self._ask(
                "make",
                first_timeout,
                task=task,
                num_envs=num_envs,
                seed=0,
                options=dict(options or {}),
                simulation=dict(simulation or {}),
                on_inert=on_inert,
                label=label or task,
            )
            if self.about["num"] != num_envs:
                raise errors.ShapeMismatchError(f"requested {num_envs} environments, but there are {self.about['num']}")
            self._share()
        except BaseException:
            self.close()
            raise

    def _meet(self, script: Path, patience: float) -> dict[str, Any]:
        """Start the process; what it says first."""
        path = str(Path(self._folder.name) / "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(1)
            try:
                self._process = subprocess.Popen(
                    [self.python, str(script), path],
                    stdin=subprocess.DEVNULL,
                    stdout=self._printed,
                    stderr=self._printed,
                    start_new_session=True,  # Ctrl-C is for the parent, which then closes this
                )
            except OSError as error:
                raise errors.SimulatorNotInstalledError(
                    f"the interpreter {self.python} cannot be started ({error.strerror}); give the simulator's with "
                    f"--sim-python or {PYTHON}, install a simulator, or run one of our own tasks (isaac_ant, ...)"
                ) from None
            self._end = weakref.finalize(self, _end, self._process)
            self._wait(listener, patience, patience)
            self._connection, _ = listener.accept()
        self._folder.cleanup()  # before we can be killed and leave it
        return self._receive(patience)

    def drift(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Put factors in force before the next step; asks the simulator only when they differ."""
        if values != self._drift:
            self._ask("drift", values=dict(values))
            self._drift = dict(values)
        return self._drift

    def restart(self, seed: int, sequence: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Observations (N, O) of fresh episodes, and live (N,); steps count on from ``sequence``."""
        slot = sequence % 2
        self._ask("restart", max(self.timeout, 900.0), slot=slot, seed=seed, sequence=sequence)
        self.sequence = sequence
        return self._slots[slot]["obs"], self._slots[slot]["live"].view(bool)

    def step(self, actions: np.ndarray) -> Rows:
        """One step of all copies under ``actions`` (N, A) float32."""
        sequence, slot = self.sequence + 1, (self.sequence + 1) % 2
        arrays = self._slots[slot]
        if actions.shape != arrays["actions"].shape:
            raise errors.ShapeMismatchError(f"actions must have shape {arrays['actions'].shape}; got {actions.shape}")
        if actions.dtype != np.float32:
            raise errors.DtypeError(f"actions must be float32, as there is no silent cast; got {actions.dtype}")
        raise_non_finite("action", ~np.isfinite(actions).all(axis=1), sequence)
        arrays["actions"][:] = actions
        answer = self._ask("step", slot=slot, sequence=sequence)
        if answer != {"slot": slot, "sequence": sequence}:
            raise errors.ProtocolVersionError(f"requested step {sequence} in slot {slot}; the worker returned {answer}")
        self.sequence = sequence
        flags = (arrays[name].view(bool) for name in ("terminated", "truncated", "valid", "live"))
        rows = Rows(arrays["obs"], arrays["reward"], *flags, final=arrays.get("final"))
        check_finite(rows, sequence)
        return rows

    def close(self) -> None:
        """End the process: politely, then after 10 s by force."""
        if hasattr(self, "_end") and self._end.alive:
            with contextlib.suppress(OSError, AttributeError):
                self._send({"command": "close"})
                self._process.wait(10.0)
            self._end()
        for thing in ("_connection", "_printed"):
            if hasattr(self, thing):
                getattr(self, thing).close()
        self._folder.cleanup()

    def _share(self) -> None:
        n, s, a = self.about["num"], self.about["obs_size"], self.about["action_size"]
        fields = [("actions", "f4", (n, a)), ("obs", "f4", (n, s)), ("reward", "f4", (n,))]
        fields += [(name, "u1", (n,)) for name in ("terminated", "truncated", "valid", "live")]
        fields += [("final", "f4", (n, s))] if self.about["final"] else []
        slots, size = [], 0
        for _ in range(2):
            placed = []
            for name, kind, shape in fields:
                placed.append((name, kind, shape, size))
                size += -(-int(np.prod(shape)) * int(kind[1]) // _ALIGNED) * _ALIGNED
            slots.append(placed)
        where = "/dev/shm" if os.path.isdir("/dev/shm") else None
        descriptor, path = tempfile.mkstemp(prefix="aesjax-bridge-", dir=where)
        try:
            os.ftruncate(descriptor, size)
            memory = np.memmap(path, np.uint8, "r+", shape=(size,))
            self._ask("map", path=path, size=size, slots=slots)
        finally:
            os.close(descriptor)
            os.unlink(path)
        self._slots = [
            {
                name: memory[at : at + int(np.prod(shape)) * int(kind[1])].view(kind).reshape(shape)
                for name, kind, shape, at in placed
            }
            for placed in slots
        ]

    def _ask(self, command: str, patience: float | None = None, **arguments: Any) -> Any:
        try:
            self._send({"command": command, **arguments})
        except OSError:
            self._died()
        said = self._receive(self.timeout if patience is None else patience)
        if "error" in said:
            raise errors.raised(**said["error"])
        return said["answer"]

    def _send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._connection.sendall(struct.pack(">I", len(body)) + body)

    def _receive(self, patience: float) -> dict[str, Any]:
        deadline, data, size = time.monotonic() + patience, b"", 4
        while len(data) < size:
            self._wait(self._connection, deadline - time.monotonic(), patience)
            try:
                piece = self._connection.recv(size - len(data))
            except OSError:
                piece = b""
            if not piece:
                self._died()
            data += piece
            if size == 4 and len(data) == 4:
                size += struct.unpack(">I", data)[0]
        return json.loads(data[4:])

    def _wait(self, readable: socket.socket, left: float, patience: float | None = None) -> None:
        """Until something can be read, looking after the process meanwhile."""
        deadline = time.monotonic() + left
        while not select.select([readable], [], [], max(0.0, min(0.5, deadline - time.monotonic())))[0]:
            if self._process.poll() is not None:
                self._died()
            if time.monotonic() >= deadline:
                tail = self._tail()
                self._end()
                raise errors.WorkerTimeoutError(
                    f"the simulator's process {self.python} did not answer within {patience or left:g} s and was "
                    f"ended; allow more with timeout, or look at what it printed last:\n{tail}"
                )

    def _died(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        tail = self._tail()
        self._end()
        raise errors.WorkerDiedError(
            f"the simulator's process {self.python} ended with exit code {self._process.returncode}; "
            f"it printed last:\n{tail}"
        )

    def _tail(self) -> str:
        self._printed.flush()
        self._printed.seek(0)
        lines = self._printed.read().decode(errors="replace").splitlines()
        return "\n".join([line for line in lines if not _NOISE.search(line)][-_TAIL:])


def _end(process: subprocess.Popen) -> None:
    """This child and no other."""
    if process.poll() is None:
        process.kill()
        process.wait()

"""The line between the processes of a program over several hosts: they meet, and none of them ends unnoticed.

JAX's coordination service ends the processes of a program by an abort and a stack trace when one of them is gone. Here
the first process listens and all others connect to it, over one TCP connection each, on which a thread hears three
things: signs of life, the word that everything ends and why, and silence. Words are JSON lists, one a line.
"""

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

GONE = 130  # exit code where another process is gone: interrupted, to be resumed
POLL = 0.2  # seconds between looks at the connections
_HELLO = 10.0  # seconds for the first word of whoever connects


class Place(NamedTuple):
    """Where one process stands among all."""

    host: str  # of the first process, as the others reach it
    port: int
    index: int  # 0: the first
    count: int


class _Peer:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket, index: int, host: str):
        self.index, self.host = index, host
        self.heard = time.monotonic()
        self.leaving = False  # it has said that nobody needs it any more
        self._connection = connection
        self._rest = b""
        self._sending = threading.Lock()

    def send(self, *word: Any) -> None:
        """A word; whoever is gone does not hear it, which is noticed elsewhere."""
        with self._sending, suppress(OSError):
            self._connection.sendall(json.dumps(word).encode() + b"\n")

    def receive(self, within: float) -> list[list[Any]] | None:
        """The words that have arrived; None where no more will come."""
        self._connection.settimeout(within)
        try:
            data = self._connection.recv(4096)
        except TimeoutError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def word(self, within: float) -> list[Any]:
        """The next word; the others must not have begun to talk.

        Raises:
          ValueError: none came in time, or something else than words.
        """
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            words = self.receive(max(0.001, deadline - time.monotonic()))
            if words is None:
                break
            if words:
                return words[0]
        raise ValueError(f"process {self.index} on {self.host} did not answer")

    def close(self) -> None:
        with suppress(OSError):
            self._connection.close()


class Link:
    """This process's connections, watched by a thread from the moment it is made; see `meet`.

    Args:
      silence: seconds after which a process that gives no sign of life is taken for gone.
      on_end: called by the thread with a sentence and an exit code where everything must end; it does not return.
      port: the one that the processes agreed on for JAX's service.
    """

    def __init__(self, place: Place, peers: list[_Peer], silence: float, on_end: Callable[[str, int], Any], port: int):
        self.place, self.port = place, port
        self._peers, self._silence, self._on_end = peers, silence, on_end
        self._own = threading.RLock()  # held by the thread while it ends the process, whose clean-up calls `tell`
        self._over = False
        self._done: list[int] = []
        self._threads = [threading.Thread(target=self._watch, args=(p,), name="link", daemon=True) for p in peers]
        for thread in [*self._threads, threading.Thread(target=self._beat, name="beat", daemon=True)]:
            thread.start()

    def tell(self, text: str, code: int) -> None:
        """Everything ends: so do the other processes, with this sentence and exit code. It is told once."""
        with self._own:
            if self._over:
                return
            self._over = True
        for peer in self._peers:
            peer.send("end", text, code)
            peer.close()

    def finish(self, code: int) -> int:
        """The exit code of all processes, which is the first one's; the others wait for it, while it writes results."""
        if self.place.index == 0:
            with self._own:
                self._over = True
            for peer in self._peers:
                peer.send("done", code)
                peer.close()
            return code
        self._peers[0].send("bye")
        while not self._done:
            time.sleep(POLL)
        self._over = True
        return self._done[0]

    def _beat(self) -> None:
        while not self._over:
            for peer in self._peers:
                peer.send("beat")
            time.sleep(min(1.0, self._silence / 4))

    def _watch(self, peer: _Peer) -> None:
        """Hear one of them out."""
        try:
            self._hear(peer)
        finally:
            peer.close()

    def _hear(self, peer: _Peer) -> None:
        while not self._over and not self._done:
            try:
                words = peer.receive(POLL)
            except ValueError:  # none of ours
                words = None
            if words is None:
                if not peer.leaving:
                    self._end(f"process {peer.index} on {peer.host} is gone", GONE, peer)
                return
            for word in words:
                if word[0] == "end" and not peer.leaving:
                    self._end(word[1], word[2], peer)
                elif word[0] == "bye":
                    peer.leaving = True
                elif word[0] == "done":
                    self._done.append(word[1])
            if not peer.leaving and time.monotonic() - peer.heard > self._silence:
                sign = f"has given no sign of life for {self._silence:g} s"
                self._end(f"process {peer.index} on {peer.host} {sign}", GONE, peer)

    def _end(self, text: str, code: int, source: _Peer) -> None:
        with self._own:
            if self._over:
                return
            self._over = True
            for peer in self._peers:
                if peer is not source:
                    peer.send("end", text, code)
            self._on_end(text, code)


def meet(place: Place, within: float, silence: float, on_end: Callable[[str, int], Any]) -> Link:
    """Wait until all processes are there.

    Args:
      within: seconds to wait.
      silence, on_end: see `Link`.

    Raises:
      ValueError: they are not, or do not belong together; one sentence.
    """
    if place.index > 0:
        peer, port = _reach(place, within)
        return Link(place, [peer], silence, on_end, port)
    peers: dict[int, _Peer] = {}
    try:
        _gather(place, within, peers)
    except ValueError as error:
        for peer in peers.values():
            peer.send("end", str(error), 2)
            peer.close()
        raise
    port = _free_port()
    for peer in peers.values():
        peer.send("go", port)
    return Link(place, list(peers.values()), silence, on_end, port)


def _gather(place: Place, within: float, peers: dict[int, _Peer]) -> None:
    """Fill ``peers`` with all others, by their index."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        listener = socket.create_server(("", place.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ValueError(f"--coordinator: port {place.port} cannot be listened on: {error.strerror}") from None
    deadline = time.monotonic() + within
    with listener:
        while len(peers) < place.count - 1:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                connection, address = listener.accept()
            except TimeoutError:
                missing = [str(k) for k in range(1, place.count) if k not in peers]
                raise ValueError(
                    f"only {len(peers) + 1} of {place.count} processes came within {within:g} s; "
                    f"missing: {', '.join(missing)}"
                ) from None
            peer = _Peer(connection, -1, str(address[0]))
            try:
                kind, index, count, host = peer.word(_HELLO)
            except (ValueError, TypeError):  # a stranger
                peer.close()
                continue
            if kind != "hello":
                peer.close()
                continue
            wrong = ""
            if count != place.count:
                wrong = f"process {index} was started with --processes {count}, process 0 with {place.count}"
            elif index in peers or not 0 < index < place.count:
                wrong = f"two processes were started with --process-id {index}"
            peers[index if not wrong else -1] = peer
            peer.index, peer.host = index, host
            if wrong:
                raise ValueError(wrong)


def _reach(place: Place, within: float) -> tuple[_Peer, int]:
    """The first process, and the port that it has chosen."""
    address = f"{place.host}:{place.port}"
    deadline = time.monotonic() + within
    while True:
        try:
            connection = socket.create_connection((place.host, place.port), timeout=_HELLO)
            break
        except socket.gaierror as error:
            raise ValueError(f"--coordinator {address}: {error.strerror}") from None
        except OSError as error:
            if time.monotonic() > deadline:
                why = error.strerror or "no answer"
                raise ValueError(f"no process 0 at {address} within {within:g} s: {why}") from None
            time.sleep(POLL)
    peer = _Peer(connection, 0, place.host)
    peer.send("hello", place.index, place.count, socket.gethostname())
    try:
        kind, told = peer.word(within + _HELLO)[:2]  # it may have come later than we did
        if kind == "end":
            raise ValueError(told)
    except ValueError:
        peer.close()
        raise
    return peer, int(told)


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]

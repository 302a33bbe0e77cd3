"""The processes of a program meet, hear why one of them ends, and notice when one is gone; here they are threads."""

import queue
import socket
import threading
import time
from contextlib import suppress

import pytest

from experiments.study.link import GONE, Link, Place, meet
from tests.waiting import wait_until


def free_port():
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


def connected(port):
    connections = []

    def connect():
        with suppress(OSError):
            connections.append(socket.create_connection(("127.0.0.1", port)))
        return connections

    wait_until(connect)
    return connections[0]


class Process:
    """One process, whose `link` is there when it has met the others, `error` when it has not."""

    def __init__(self, port, index, count, within=30.0, silence=30.0):
        self.ended: queue.Queue = queue.Queue()
        self.link, self.error = None, None
        self.place = Place("127.0.0.1", port, index, count)
        self.thread = threading.Thread(target=self._meet, args=(within, silence))
        self.thread.start()

    def _meet(self, within, silence):
        try:
            self.link = meet(self.place, within, silence, lambda *word: self.ended.put(word))
        except ValueError as error:
            self.error = str(error)

    def met(self) -> Link:
        self.thread.join()
        assert self.link is not None, self.error
        return self.link

    def refused(self) -> str:
        self.thread.join()
        assert self.error is not None
        return self.error


def processes(count, **options):
    port = free_port()
    started = [Process(port, index, count, **options) for index in reversed(range(count))][::-1]
    for process in started:
        process.met()
    return started


def test_they_meet_in_any_order_and_end_with_the_first_ones_code():
    first, *others = processes(3)
    assert len({process.link.port for process in (first, *others)}) == 1
    codes = queue.Queue()
    waiting = [threading.Thread(target=lambda p=p: codes.put(p.link.finish(0))) for p in others]
    for thread in waiting:
        thread.start()
    time.sleep(0.5)
    assert codes.empty()  # the first is still writing
    assert first.link.finish(3) == 3
    for thread in waiting:
        thread.join()
    assert [codes.get(), codes.get()] == [3, 3]
    assert all(process.ended.empty() for process in (first, *others))


def test_what_one_is_refused_for_all_hear():
    first, second, third = processes(3)
    second.link.tell("--steps must be positive; got -1", 2)
    for process in (first, third):
        assert process.ended.get(timeout=60) == ("--steps must be positive; got -1", 2)
    second.link.tell("again", 1)
    time.sleep(0.5)
    assert all(process.ended.empty() for process in (first, second, third))


@pytest.mark.parametrize("gone", [0, 2])
def test_a_process_that_is_gone_ends_all(gone):
    all_three = processes(3)
    all_three[gone].link._over = True  # it says nothing
    for peer in all_three[gone].link._peers:
        with suppress(OSError):  # its own thread may have closed it by now
            peer._connection.shutdown(socket.SHUT_RDWR)  # as the kernel does for a process that was killed
    for process in all_three:
        if process is not all_three[gone]:
            text, code = process.ended.get(timeout=60)
            assert (text.partition(" on ")[0], code) == (f"process {gone}", GONE)
            assert text.endswith(" is gone")


def test_a_silent_process_is_taken_for_gone():
    port = free_port()
    first = Process(port, 0, 2, silence=2.0)
    with connected(port) as silent:  # a host that loses power after its first word
        silent.sendall(b'["hello", 1, 2, "node7"]\n')
        first.met()
        assert first.ended.get(timeout=60) == ("process 1 on node7 has given no sign of life for 2 s", GONE)


def test_one_that_does_not_come_is_named():
    port = free_port()
    first, second = Process(port, 0, 3, within=2.0), Process(port, 1, 3, within=2.0)
    expected = "only 2 of 3 processes came within 2 s; missing: 2"
    assert first.refused() == second.refused() == expected


def test_without_a_first_process_the_others_end():
    port = free_port()
    error = Process(port, 1, 2, within=1.0).refused()
    assert error == f"no process 0 at 127.0.0.1:{port} within 1 s: Connection refused"


@pytest.mark.parametrize(
    ("index", "count", "sentence"),
    [
        (1, 3, "process 1 was started with --processes 3, process 0 with 2"),
        (5, 2, "two processes were started with --process-id 5"),
    ],
)
def test_processes_that_do_not_belong_together_are_refused(index, count, sentence):
    port = free_port()
    first, other = Process(port, 0, 2), Process(port, index, count)
    assert first.refused() == other.refused() == sentence


def test_a_stranger_does_not_matter():
    port = free_port()
    first = Process(port, 0, 2)
    with connected(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        second = Process(port, 1, 2)
        first.met()
        second.met()


def test_a_taken_port_is_named():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert Process(port, 0, 2).refused().startswith(f"--coordinator: port {port} cannot be listened on: ")

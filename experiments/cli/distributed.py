"""`aesjax run --distributed`: the processes of one program meet, agree on what they train, and end together."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from experiments.cli.errors import INTERRUPTED, WRONG, Refusal, refusing
from experiments.cli.interrupts import current

if TYPE_CHECKING:
    from experiments.study.config import StudyConfig
    from experiments.study.link import Link, Place


_OPTIONS = ("coordinator", "process_id", "processes")
_SLURM_PORTS = 61_440, 4_096  # the first of SLURM jobs' ports, and how many there are
_LONGEST = 86_400.0  # seconds
_VERDICT = 3.0  # seconds in which it is known whether another process is gone


class _Options(Protocol):
    """What was typed."""

    distributed: bool
    coordinator: str | None
    process_id: int | None
    processes: int | None
    join_seconds: float
    heartbeat_seconds: float


@contextmanager
def joined(options: _Options) -> "Iterator[Link | None]":
    """The line to the other processes while the block runs, all of which are told how it ended; None without others.

    Raises:
      Refusal: the options do not say where this process stands, or the others did not come.
    """
    with refusing():
        place = _place(options)
    if place is None or place.count == 1:
        yield None
        return
    from experiments.study import hosts
    from experiments.study.link import meet

    watch = current()
    with refusing():
        link = meet(place, options.join_seconds, options.heartbeat_seconds, watch.end)
    who = f"process {place.index} of {place.count}"
    with watch.cleaning(partial(link.tell, f"{who} was interrupted", INTERRUPTED)):
        try:
            yield link
        except Refusal as refusal:
            link.tell(str(refusal), WRONG)
            raise
        except hosts.Gone as error:
            time.sleep(_VERDICT)  # the line knows better, and ends this process meanwhile
            link.tell(str(error), INTERRUPTED)
            watch.end(str(error))
        except Exception as error:
            time.sleep(_VERDICT)  # what fails because a process is gone may have other names
            link.tell(f"{who} failed: {type(error).__name__}", 1)
            raise


def _place(options: _Options) -> "Place | None":
    if not options.distributed:
        typed = [name for name in _OPTIONS if getattr(options, name) is not None]
        if typed:
            raise ValueError(f"--{typed[0].replace('_', '-')} is an option of --distributed, which is not given")
        return None
    for name in ("join_seconds", "heartbeat_seconds"):
        value = getattr(options, name)
        if not 1.0 <= value <= _LONGEST:  # false for nan, too
            raise ValueError(f"--{name.replace('_', '-')} must be between 1 and {_LONGEST:g}; got {value:g}")
    return place_of(options.coordinator, options.process_id, options.processes, os.environ)


def place_of(coordinator: str | None, index: int | None, count: int | None, environ: Mapping[str, str]) -> "Place":
    """Where this process stands, from the options or, where they are not given, from SLURM's variables.

    Raises:
      ValueError: neither says so, or they make no sense; one sentence.
    """
    from experiments.study.link import Place

    try:
        index = int(environ["SLURM_PROCID"]) if index is None else index
        count = int(environ["SLURM_NTASKS"]) if count is None else count
        coordinator = _slurm_coordinator(environ) if coordinator is None else coordinator
    except KeyError as missing:
        raise ValueError(
            "--distributed needs --coordinator HOST:PORT, --process-id and --processes outside of a SLURM job step "
            f"({missing.args[0]} is not set)"
        ) from None
    if count < 1:
        raise ValueError(f"--processes must be at least 1; got {count}")
    if not 0 <= index < count:
        raise ValueError(f"--process-id must be between 0 and {count - 1}; got {index}")
    host, _, port = coordinator.rpartition(":")
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"--coordinator must be HOST:PORT with a port between 1 and 65535; got '{coordinator}'")
    return Place(host.strip("[]"), int(port), index, count)


def _slurm_coordinator(environ: Mapping[str, str]) -> str:
    """The first node of the job step, and a port that other jobs hardly have."""
    nodes = environ["SLURM_STEP_NODELIST"]
    name, bracket, rest = nodes.partition("[")  # a,b or a[01-03,7],b
    first = name.partition(",")[0]
    if bracket and first == name:
        first += rest.replace("]", ",").replace("-", ",").partition(",")[0]
    start, number = _SLURM_PORTS
    return f"{first}:{start + int(environ['SLURM_JOB_ID']) % number}"


def introduce(link: "Link | None", within: float) -> None:
    """Start JAX as one program of all processes, with one mesh over the devices of all; nothing without others.

    JAX's service is in the first process, and whoever depends on it is aborted when it goes. On a CPU it is needed only
    until the processes are connected, and the others leave it then; on an accelerator compiling may need it.

    Raises:
      ValueError: the processes do not have equally many devices each, or no connection.
    """
    if link is None:
        return
    import jax

    from experiments.study import hosts

    place = link.place
    jax.config.update("jax_enable_preemption_service", False)  # would take SIGTERM for itself
    jax.config.update("jax_enable_recoverability", True)  # so that the others may leave the service
    host = f"[{place.host}]" if ":" in place.host else place.host
    timer = threading.Timer(within, _unmet, (link, within))  # JAX itself would abort
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            f"{host}:{link.port}",
            place.count,
            place.index,
            cluster_detection_method="deactivate",
            initialization_timeout=int(within) + 60,
        )
    except RuntimeError as error:
        raise ValueError(f"--distributed: JAX cannot start: {str(error).splitlines()[0]}") from None
    try:
        jax.devices("cpu")
    except RuntimeError:
        raise ValueError("--distributed: JAX_PLATFORMS must leave JAX its cpu platform, too") from None
    found = [int(devices) for devices in hosts.every(str(len(jax.local_devices())).encode())]
    timer.cancel()
    if place.index > 0 and jax.default_backend() == "cpu":
        jax.distributed.shutdown()
    if len(set(found)) > 1:
        raise ValueError(
            f"--distributed: every process must have as many devices; they have {', '.join(map(str, found))}"
        )


def _unmet(link: "Link", within: float) -> None:
    """End all processes, which reach each other, but not for JAX."""
    sentence = f"JAX's processes did not find each other within {within:g} s; the ports between the hosts must be open"
    link.tell(sentence, WRONG)
    current().end(sentence, WRONG)


def finished(link: "Link | None", code: int) -> int:
    """The exit code of all processes, of which this one has done its part; ``code`` without others."""
    if link is None:
        return code
    import jax

    if code == WRONG:  # nobody else knows, and the others are still training
        link.tell(f"process {link.place.index} could not go on; its last words say why", WRONG)
        return code
    if link.place.index > 0:
        jax.distributed.shutdown()
    return link.finish(code)


def check_same(link: "Link | None", config: "StudyConfig", keep_replay: bool, resume: bool) -> None:
    """Refuse processes that would not train the same study with the same software.

    Raises:
      ValueError: with the first process that differs from process 0, and in what.
    """
    if link is None:
        return
    from experiments.study import hosts, store

    mine = {**config.to_json(), **store.environment(), "keep_replay": keep_replay, "resume": resume}
    first, *others = (json.loads(told) for told in hosts.every(json.dumps(mine).encode()))
    for index, other in enumerate(others, 1):
        differing = store.differing_fields(first, other)
        if differing:
            raise ValueError(
                f"process {index} differs from process 0 in {'; '.join(differing)}; give all of them the same options "
                "and the same installation"
            )

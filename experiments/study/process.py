"""Settings of the process: JAX's devices and compilation cache, set before JAX starts, and signals."""

import hashlib
import json
import os
import platform
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

LARGEST_CACHE = 512 * 2**20  # size of the cache, bytes; JAX removes the least recently used programs
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def cache_folder() -> Path:
    """Folder of the programs that JAX compiled for this kind of processor, in the user's cache folder.

    The environment variable `JAX_COMPILATION_CACHE_DIR` overrides it.
    """
    if named := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(named)
    words = [platform.machine(), platform.system()]  # code for this kind of processor may not run on another
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    processor = hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
    caches = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "aesjax" / "compiled" / processor


def start_jax(devices: int | None, resumed: Path | None = None) -> None:
    """Set up JAX before it starts: the number of CPU devices and the cache of compiled programs.

    Args:
      devices: CPU devices; None: one per usable core.
      resumed: folder of a study to continue, on the same number of devices.

    Raises:
      ValueError: a number of devices that is not available, or a fork of a process with JAX.
    """
    import jax

    from aesjax.compiling import refuse_fork
    from envs.physics.host import usable_cores

    refuse_fork()

    cores = usable_cores()
    most = max(8, 4 * cores)  # more than one per core is useful only in tests of sharding
    if devices is not None and not 1 <= devices <= most:
        raise ValueError(f"--devices must be between 1 and {most}; got {devices}")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_compilation_cache_max_size", LARGEST_CACHE)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a start reads many small programs
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    try:
        jax.config.update("jax_num_cpu_devices", devices or _recorded(resumed) or cores)
    except RuntimeError:  # JAX has started (a notebook, a test): its devices are used
        if devices is not None and devices != len(jax.local_devices()):
            there = len(jax.local_devices())
            raise ValueError(f"--devices {devices}: JAX has already started with {there} devices") from None


def _recorded(study: Path | None) -> int:
    """Number of devices in the checkpoints of a folder; 0 if not recorded."""
    found = 0
    for about in () if study is None else study.glob("checkpoints/*/[0-9]*/about.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = max(found, int(json.loads(about.read_bytes())["devices"]))
    return found


class StopFlag:
    """Catch signals inside a ``with`` block: the first sets ``asked``; a later Ctrl-C ends the process.

    Outside the main thread no signal is caught. A signal that is ignored on entry (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopFlag":
        with suppress(ValueError):  # not the main thread
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        for each in self._previous:  # the default also interrupts a long call into XLA
            signal.signal(each, signal.SIG_DFL if each == signal.SIGINT else signal.SIG_IGN)
        with suppress(OSError, ValueError):  # the terminal may be closed
            print("aesjax: stopping at the next checkpoint; Ctrl-C to stop now", file=sys.stderr, flush=True)

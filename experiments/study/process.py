"""Settings of the process: JAX's devices and compilation cache, set before JAX starts, and signals."""

import hashlib
import json
import os
import platform
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

LARGEST_CACHE = 512 * 2**20  # size of the cache, bytes; JAX removes the least recently used programs
#: Settings of JAX that decide random draws, and with them the drift of a seed.
DRAWS = ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_random_seed_offset", "jax_enable_x64")
_ROUNDING = ("jax_default_matmul_precision", "jax_disable_most_optimizations")  # settings that decide other numbers
#: Checks of a user's own code, under which JAX refuses our programs or other libraries.
_CHECKS = {"jax_numpy_dtype_promotion": "standard", "jax_transfer_guard": "allow", "jax_debug_nans": False}
_CHECKS |= {"jax_check_tracer_leaks": False, "jax_debug_infs": False, "jax_disable_jit": False}
TRIALS, JUDGED = "trials", "study"  # folders of the studies in a tuning's folder
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


def numerics() -> dict[str, str]:
    """Settings of JAX and versions on which the numbers of a study depend, by name."""
    import jax

    settings = {name: str(jax.config.values[name]) for name in DRAWS + _ROUNDING}
    return settings | {name: metadata.version(name) for name in ("jax", "jaxlib")}


def check_numerics(place: Any, recorded: Mapping[str, Any], now: Mapping[str, str] | None = None) -> None:
    """Raise a ValueError if the recorded "numerics" of ``place`` differ from ``now``, by default `DRAWS` here."""
    for name, value in (now or {name: numerics()[name] for name in DRAWS}).items():
        if (needed := recorded.get("numerics", {}).get(name, value)) != value:
            raise ValueError(f"{place} needs {name}={needed}, with which it was made; {value} gives other numbers")


def start_jax(devices: int | None, resumed: Path | None = None) -> None:
    """Set up JAX before it starts: the number of CPU devices, the cache of compiled programs, and no `_CHECKS`.

    Args:
      devices: CPU devices; None: one per usable core.
      resumed: folder of a study or tuning to continue, on the same number of devices.

    Raises:
      ValueError: a number of devices that is not available, a process in which JAX cannot run, or other numerics
        than those of ``resumed``.
    """
    import jax

    from aesjax.compiling import check_process
    from envs.physics.host import usable_cores

    check_process()
    recorded = _recorded(resumed)
    check_numerics(f"--resume: the study in {resumed}", recorded, numerics())
    for name, value in _CHECKS.items():
        jax.config.update(name, value)
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
        jax.config.update("jax_num_cpu_devices", devices or recorded.get("devices") or cores)
    except RuntimeError:  # JAX has started (a notebook, a test): its devices are used
        if devices is not None and devices != len(jax.local_devices()):
            there = len(jax.local_devices())
            raise ValueError(f"--devices {devices}: JAX has already started with {there} devices") from None


def _recorded(folder: Path | None) -> dict[str, Any]:
    """Facts in the checkpoints of the unfinished studies in a folder, with the number of devices and numerics.

    Empty without checkpoints. Studies are that of the folder, those of a tuning, and those with added runs.
    """
    facts: dict[str, Any] = {}
    if folder is None:
        return facts
    begun = [folder, folder / TRIALS, folder / JUDGED]
    for study in [*begun, *(added for parent in begun for added in parent.glob("added/*"))]:
        if (study / "manifest.json").exists():
            continue
        for about in study.glob("checkpoints/*/[0-9]*/about.json"):
            with suppress(OSError, ValueError, TypeError):
                facts |= json.loads(about.read_bytes())
    return facts


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

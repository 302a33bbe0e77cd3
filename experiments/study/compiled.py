"""Compiled programs, kept in the user's cache folder, so that the second study of a shape need not compile.

JAX looks its programs up by the hash of what would be compiled, the versions and the flags: what is found is what
would have been made. Only the command line and the scripts use it, through `start_jax`; no package does when imported.
"""

import glob
import hashlib
import os
import platform
import re
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study.store import reason

SWITCH = "AESJAX_COMPILED"  # `off`, or another folder than the platform's
LARGEST = 512 * 2**20  # bytes; what was not used for longest goes first
_AFTER = 0.75  # of them are left when too much was kept, so that not every start has to look what goes
_OURS = "JAX_COMPILATION_CACHE_DIR"  # who names JAX's own folder wants that
_TROUBLE = r"Error (reading|writing) persistent compilation cache entry for '(.*?)': (.*)"
_FOUND_OR_WRITTEN = ("/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses")
_ENTRY = "-cache"  # how JAX's files of programs end


class Kept(NamedTuple):
    """What is kept, of all processors."""

    folder: Path
    programs: int
    size: int  # bytes


def folder_of(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where programs are kept: `SWITCH`'s folder or the platform's place for caches; None where it says ``off``.

    Raises:
      ValueError: the switch names a relative folder.
    """
    given = environment.get(SWITCH, "")
    if given.lower() == "off":
        return None
    if given:
        if not Path(given).expanduser().is_absolute():
            raise ValueError(f"{SWITCH} must be off or an absolute folder; got '{given}'")
        return Path(given).expanduser()
    if sys.platform == "darwin":
        caches = "~/Library/Caches"
    else:
        caches = environment.get("XDG_CACHE_HOME", "")
        caches = caches if os.path.isabs(caches) else "~/.cache"  # relative ones are to be ignored, by its definition
    return Path(os.path.expanduser(caches)) / "aesjax" / "compiled"


def kept(folder: Path) -> Kept:
    """How much is kept in ``folder``; nothing where there is none."""
    sizes = [found.st_size for _, found in _entries(folder)]
    return Kept(folder, len(sizes), sum(sizes))


def keep_compiled(wanted: bool = True) -> None:
    """From now on this process keeps what it compiles and reads what was kept, unless it is not ``wanted``.

    Where that is impossible one line on stderr says so. Called before JAX compiles anything.

    Raises:
      ValueError: see `folder_of`.
    """
    import jax

    folder = folder_of()
    if folder is None or not wanted:
        jax.config.update("jax_compilation_cache_dir", None)
        return
    if os.environ.get(_OURS):
        return
    place = folder / _processor()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _trim(folder)
    except OSError as error:
        _say(f"compiled programs are not kept: {folder}: {reason(error)} ({SWITCH}=off or another folder)")
        return
    keep_in(place)
    _listen(place)


def keep_in(place: Path) -> None:
    """Make ``place`` JAX's folder for everything that this process will compile."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a start reads seventy small ones, too
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collects what JAX finds among what was kept, and what it writes there, while the block runs."""
    import jax

    seen: list[str] = []

    def on_event(event: str, **_: Any) -> None:
        if event in _FOUND_OR_WRITTEN:
            seen.append(event)

    jax.monitoring.register_event_listener(on_event)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_listener(on_event)


def _processor() -> str:
    """Code for one processor may not run on another, and a home folder may serve many: a name for this kind."""
    words = [platform.machine(), platform.system()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.glob(f"*/*{_ENTRY}"):
        with suppress(OSError):  # another process has just removed it
            yield path, path.stat()


def _trim(folder: Path) -> None:
    """Remove what was not used for longest, where more than `LARGEST` is kept.

    Raises:
      OSError: what is there cannot be removed.
    """
    found = sorted(_entries(folder), key=lambda entry: max(entry[1].st_atime, entry[1].st_mtime))
    size = sum(entry.st_size for _, entry in found)
    if size <= LARGEST:
        return
    for path, entry in found:
        if size <= _AFTER * LARGEST:
            return
        path.unlink(missing_ok=True)
        size -= entry.st_size


def _listen(place: Path) -> None:
    """JAX warns of every program that it cannot read or write: the first of each becomes a line here.

    A file that is there is never written by JAX again, so a damaged one is removed before it goes on to compile.
    """
    warnings.filterwarnings("always", message=_TROUBLE, category=UserWarning)
    usual, told = warnings.showwarning, set[str]()

    def show(message: Any, *where: Any, **more: Any) -> None:
        found = re.match(_TROUBLE, str(message))
        if found is None:
            usual(message, *where, **more)
            return
        kind, program, why = found.groups()
        if kind == "reading":
            _remove_damaged(place, program)
        if kind not in told:
            told.add(kind)
            _say(f"compiled programs in {place}: error {kind} {program} ({why}); it is compiled again")

    warnings.showwarning = show


def _remove_damaged(place: Path, program: str) -> None:
    """Remove what is kept under a program's name and does not unpack; everything of that name where all does."""
    entries = list(place.glob(f"{glob.escape(program)}-*{_ENTRY}"))
    with suppress(OSError):
        for path in [path for path in entries if not _unpacks(path)] or entries:
            path.unlink(missing_ok=True)


def _unpacks(path: Path) -> bool:
    try:
        zlib.decompress(path.read_bytes())
    except (OSError, zlib.error):
        return False
    return True


def _say(text: str) -> None:
    print(f"aesjax: {text}", file=sys.stderr, flush=True)

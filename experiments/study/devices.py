"""Settings of JAX that must be made before it starts: CPU devices and the cache of compiled programs."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

LARGEST_CACHE = 512 * 2**20  # bytes of compiled programs, of which JAX removes the least recently used


def cache_folder() -> Path:
    """Folder of the programs that JAX compiled for this kind of processor: in the user's cache folder.

    `JAX_COMPILATION_CACHE_DIR` names another one.
    """
    if named := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(named)
    caches = os.environ.get("XDG_CACHE_HOME", "")  # a relative one is to be ignored, by its definition
    if sys.platform == "darwin":
        caches = "~/Library/Caches"
    elif not os.path.isabs(caches):
        caches = "~/.cache"
    return Path(caches).expanduser() / "aesjax" / "compiled" / _processor()


def _processor() -> str:
    """Name of this kind of processor: compiled code may not run on another, and a home folder may serve many."""
    words = [platform.machine(), platform.system()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def start_jax(devices: int | None, compiled: bool = True, resumed: Path | None = None) -> None:
    """Set up JAX before it starts: the number of CPU devices and the cache of compiled programs.

    Args:
      devices: CPU devices; None: one per usable core.
      compiled: keep compiled programs in `cache_folder`; `JAX_ENABLE_COMPILATION_CACHE=false` forbids it as well.
      resumed: folder of a study that continues on as many devices as it began with.
    """
    import jax

    from envs.physics.host import usable_cores

    cores = usable_cores()
    most = max(8, 4 * cores)  # more than one per core is of use in a test of sharding only
    if devices is not None and not 1 <= devices <= most:
        raise ValueError(f"--devices must be between 1 and {most}; got {devices}")
    if not compiled:
        jax.config.update("jax_enable_compilation_cache", False)
    elif "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_compilation_cache_max_size", LARGEST_CACHE)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a start reads seventy small ones, too
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    try:
        jax.config.update("jax_num_cpu_devices", devices or _recorded(resumed) or cores)
    except RuntimeError:  # JAX runs already (a notebook, a test): the devices there are will do
        if devices is not None and devices != len(jax.local_devices()):
            there = len(jax.local_devices())
            raise ValueError(f"--devices {devices}: JAX has already started with {there} devices") from None


def _recorded(study: Path | None) -> int:
    """Devices that the study in a folder trains on, by its checkpoints; 0 where none records them."""
    found = 0
    for about in () if study is None else study.glob("checkpoints/*/[0-9]*/about.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = max(found, int(json.loads(about.read_bytes())["devices"]))
    return found


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that a process may use, as `CUDA_VISIBLE_DEVICES` names them; none where JAX has no use for them.

    JAX is not asked: it would take their memory.
    """
    if "cuda" not in os.environ.get("JAX_PLATFORMS", "cuda"):
        return []
    if not any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listing = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60, check=False)
    return [str(number) for number, line in enumerate(listing.stdout.splitlines()) if line.startswith("GPU ")]

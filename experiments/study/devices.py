"""Starting JAX with one CPU device per core and the compiled programs kept so far, before anything else does."""

import os
import shutil
import subprocess
from importlib.util import find_spec


def start_jax(devices: int | None, compiled: bool = True) -> None:
    """Set the number of CPU devices (one per usable core unless told) before JAX starts its backend.

    Args:
      compiled: keep what is compiled for later processes, see `experiments.study.compiled`.

    Raises:
      ValueError: a number of devices that the machine does not have.
    """
    import jax

    from envs.physics.host import usable_cores
    from experiments.study.compiled import keep_compiled

    cores = usable_cores()
    most = max(8, 4 * cores)  # more than one per core is of use in a test of sharding only
    if devices is not None and not 1 <= devices <= most:
        raise ValueError(f"--devices must be between 1 and {most}; got {devices}")
    keep_compiled(compiled)
    try:
        jax.config.update("jax_num_cpu_devices", cores if devices is None else devices)
    except RuntimeError:  # JAX runs already (a notebook, a test): the devices there are will do
        if devices is not None and devices != len(jax.local_devices()):
            there = len(jax.local_devices())
            raise ValueError(f"--devices {devices}: JAX has already started with {there} devices") from None


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
    told = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60, check=False)
    return [str(number) for number, line in enumerate(told.stdout.splitlines()) if line.startswith("GPU ")]

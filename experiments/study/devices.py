"""Starting JAX with one CPU device per core and the compiled programs kept so far, before anything else does."""

from envs.physics.host import usable_cores
from experiments.study.compiled import keep_compiled

__all__ = ["start_jax"]


def start_jax(devices: int | None, compiled: bool = True) -> None:
    """Set the number of CPU devices (one per usable core unless told) before JAX starts its backend.

    Args:
      compiled: keep what is compiled for later processes, see `experiments.study.compiled`.

    Raises:
      ValueError: a number of devices that the machine does not have.
    """
    import jax

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

"""Compiler options for programs on a CPU: XLA's YNNPACK fusions compute some products and sums wrong."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax

# jaxlib 0.10.2 and 0.11.0 send fused products and reductions to YNNPACK, which writes past its buffers (jax #39103,
# #39257). Products alone are correct and fast, so they stay enabled; disabling all fusions costs a few per cent more.
# The other option keeps optimisation barriers (`agents.common.draws`), which XLA removes before it fuses for a CPU.
_SAFE = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


@cache
def _known() -> bool:
    """Whether this jaxlib has the option; takes milliseconds."""
    try:
        device = jax.local_devices(backend="cpu")[0]
        jax.jit(lambda x: x, compiler_options=_SAFE).lower(jax.device_put(0.0, device)).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def safe_options(platform: str | None = None) -> dict[str, str]:
    """Options for `jax.jit` under which programs compute correctly; empty if the compiler has no such option.

    Args:
      platform: of the devices, such as "cpu"; by default JAX's default backend, which this starts.
    """
    return dict(_SAFE) if (platform or jax.default_backend()) == "cpu" and _known() else {}


def jit(
    function: Callable[..., Any],
    *,
    platform: str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """`jax.jit` with `safe_options`; not to be called inside another compiled function.

    Args:
      compiler_options: further compiler options, which take precedence.
      **options: of `jax.jit`.

    >>> float(jit(lambda x: 2.0 * x)(1.0))
    2.0
    """
    chosen = {**safe_options(platform), **(compiler_options or {})}
    return jax.jit(function, compiler_options=chosen or None, **options)


def _note_fork() -> None:
    """In a forked process, record whether JAX had started before the fork, which does not copy its threads."""
    devices = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_num_cpu_devices", devices + 1)  # JAX raises an error once it has started
        jax.config.update("jax_num_cpu_devices", devices)
    except RuntimeError:
        _FORKED.append(os.getpid())


_FORKED: list[int] = []  # process id of a fork without JAX's threads
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def check_process() -> None:
    """Raise a ValueError where JAX would hang, in a fork of its process, or where its settings do not suit programs.

    Programs are written for float32, and draws of the generator ``rbg`` would depend on the vmapped runs.
    """
    for name, value in {"jax_default_prng_impl": "threefry2x32", "jax_enable_x64": False}.items():
        if (found := getattr(jax.config, name)) != value:
            raise ValueError(f"aesjax needs {name}={value}; this process has {found} (jax.config, or {name.upper()})")
    if _FORKED:
        raise ValueError(
            "JAX had started before this process was forked, and a fork does not copy JAX's threads; start processes "
            "with multiprocessing.get_context('spawn')"
        )

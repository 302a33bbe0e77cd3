"""Compiler options for programs on a CPU: XLA's YNNPACK fusions compute some products and sums wrong."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax

# jaxlib 0.10.2 and 0.11.0 send fused products and reductions to YNNPACK, which writes past its buffers (jax #39103,
# #39257). Products alone are right and fast there, so they stay: all fusions off costs a few per cent more.
_SAFE = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}


@cache
def _known() -> bool:
    """Whether this jaxlib has the option; a compilation of milliseconds."""
    try:
        device = jax.local_devices(backend="cpu")[0]
        jax.jit(lambda x: x, compiler_options=_SAFE).lower(jax.device_put(0.0, device)).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def safe_options(platform: str | None = None) -> dict[str, str]:
    """Options for `jax.jit` under which programs compute correctly; none where the compiler has no such option.

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
    """`jax.jit` with `safe_options`; like every program with compiler options, not to be called inside another.

    Args:
      compiler_options: further ones, which win.
      **options: of `jax.jit`.

    >>> float(jit(lambda x: 2.0 * x)(1.0))
    2.0
    """
    chosen = {**safe_options(platform), **(compiler_options or {})}
    return jax.jit(function, compiler_options=chosen or None, **options)

"""Tensors to JAX and back without a copy (DLPack), and everything that must hold for that to be safe.

What the consumer reads is ordered after what the producer wrote; what the producer writes next is not ordered after
the consumer's reading. So torch exports clones of its own and the newest two stay referenced, and JAX exports arrays
that nobody writes to. See `docs/elsewhere.md`.
"""

import logging
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from envs.bridge import errors

Mode = Literal["zero_copy", "staging", "auto"]
MODES: tuple[Mode, ...] = ("zero_copy", "staging", "auto")
_SHARED = ("float32", "bool", "uint8", "int32", "bfloat16")  # what JAX takes as it is, whether or not it has 64 bits

_log = logging.getLogger(__name__)
_told: set[tuple[str, str]] = set()


def share_device(tensor: Any) -> bool:
    """Whether JAX can read the memory of ``tensor`` where it is."""
    kind, index = tensor.device.type, tensor.device.index or 0
    if kind == "cpu":
        return not tensor.is_pinned()  # pinned memory looks like a GPU's to DLPack
    try:
        return kind == "cuda" and index < len(jax.devices("cuda"))
    except RuntimeError:  # a JAX without that backend
        return False


def check_tensor(tensor: Any, field: str, shape: tuple[int, ...], dtype: str = "float32") -> None:
    """Refuse what would be copied, cast or read wrongly without anybody noticing.

    Raises:
      ShapeMismatchError, DtypeError, GradTensorError, NonContiguousError: naming the field, what it is and what not.
    """
    if tuple(tensor.shape) != shape:
        raise errors.ShapeMismatchError(f"{field} must have shape {shape}; got {tuple(tensor.shape)}")
    got = str(tensor.dtype).removeprefix("torch.")
    if got != dtype:
        raise errors.DtypeError(f"{field} must be {dtype}, as there is no silent cast; got {got}")
    if getattr(tensor, "requires_grad", False):
        raise errors.GradTensorError(f"{field} requires a gradient, which ends at this bridge; detach first")
    if not tensor.is_contiguous():
        strides = tuple(tensor.stride())
        raise errors.NonContiguousError(
            f"{field} has strides {strides} for shape {shape} and cannot be shared; "
            "clone(memory_format=torch.contiguous_format) it first"
        )


def to_jax(tensor: Any, field: str, mode: Mode = "auto") -> jax.Array:
    """``tensor`` as a JAX array; shared memory unless ``mode`` is or leads to ``staging``, which is a host copy.

    The caller keeps ``tensor`` alive and unwritten for as long as the array is read.

    Raises:
      SimBridgeError: of the classes `check_tensor` raises, or DeviceMismatchError where nothing can be shared.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _SHARED:
        raise errors.DtypeError(f"{field} must be one of {', '.join(_SHARED)}, as there is no silent cast; got {name}")
    check_tensor(tensor, field, tuple(tensor.shape), name)
    shared = _chosen(tensor, field, mode)
    if shared:
        return jax.dlpack.from_dlpack(tensor, copy=False)
    if name == "bfloat16":
        return jnp.asarray(tensor.float().cpu().numpy()).astype(jnp.bfloat16)
    return jnp.array(tensor.cpu().numpy())  # a copy: on a CPU JAX would keep NumPy's memory


def to_torch(array: Any, field: str, mode: Mode = "auto", private: bool = False, device: Any = None) -> Any:
    """A JAX array as a tensor; nobody may write to it, as the array is immutable and the memory is shared.

    Args:
      private: a copy, which its owner may write to.
      device: torch's, where it must end up; by default where the array is.

    Raises:
      TracedCallError: JAX is tracing, so that there are no values.
      DeviceMismatchError: mode ``zero_copy`` and another device.
    """
    torch = errors.torch()
    if isinstance(array, Tracer):
        raise errors.TracedCallError(
            f"{field} is being traced: a simulator is stepped in a host loop, or through buffer_callback "
            "(envs.bridge.compiled.step_of)"
        )
    tensor = torch.from_numpy(np.array(array)) if mode == "staging" else torch.from_dlpack(array)
    if device is not None and tensor.device != torch.device(device):
        if mode == "zero_copy":
            raise errors.DeviceMismatchError(_apart(field, tensor.device, device))
        return tensor.to(device)
    return tensor.clone() if private else tensor


def _chosen(tensor: Any, field: str, mode: Mode) -> bool:
    if mode not in MODES:
        raise errors.SimBridgeError(f"mode must be one of {', '.join(MODES)}; got '{mode}'")
    if mode == "staging":
        return False
    shared = share_device(tensor)
    if mode == "zero_copy" and not shared:
        raise errors.DeviceMismatchError(_apart(field, tensor.device, ", ".join(map(str, jax.devices()))))
    if mode == "auto" and (field, str(tensor.device)) not in _told:
        _told.add((field, str(tensor.device)))
        _log.info(
            "%s on %s: %s", field, tensor.device, "shared without a copy" if shared else "copied through the host"
        )
    return shared


def _apart(field: str, here: Any, there: Any) -> str:
    return f'{field} is on {here}, the other side on {there}: nothing can be shared; mode="staging" copies'

"""Zero-copy exchange of tensors with JAX (DLPack), and the checks that make it safe.

Reads by the consumer are ordered after earlier writes by the producer, but later writes are not ordered after those
reads. Therefore torch exports clones, of which the newest two stay referenced, and JAX exports immutable arrays. See
`docs/bridge.md`.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from envs.bridge import errors

Mode = Literal["zero_copy", "staging", "auto"]
MODES: tuple[Mode, ...] = ("zero_copy", "staging", "auto")


def share_device(tensor: Any) -> bool:
    """Whether JAX can read the memory of ``tensor`` in place."""
    kind, index = tensor.device.type, tensor.device.index or 0
    if kind == "cpu":
        return not tensor.is_pinned()  # pinned memory looks like a GPU's to DLPack
    try:
        return kind == "cuda" and index < len(jax.devices("cuda"))
    except RuntimeError:  # a JAX without that backend
        return False


def check_tensor(tensor: Any, field: str, shape: tuple[int, ...], dtype: str = "float32") -> None:
    """Raise for a tensor that would be copied, cast or misread silently.

    Raises:
      SimBridgeError: names the field, its value and the allowed values.
    """
    if tuple(tensor.shape) != shape:
        raise errors.SimBridgeError(f"{field} must have shape {shape}; got {tuple(tensor.shape)}")
    got = str(tensor.dtype).removeprefix("torch.")
    if got != dtype:
        raise errors.SimBridgeError(f"{field} must be {dtype}, as there is no silent cast; got {got}")
    if getattr(tensor, "requires_grad", False):
        raise errors.SimBridgeError(f"{field} requires a gradient, which ends at this bridge; detach first")
    if not tensor.is_contiguous():
        strides = tuple(tensor.stride())
        raise errors.SimBridgeError(
            f"{field} has strides {strides} for shape {shape} and cannot be shared; "
            "clone(memory_format=torch.contiguous_format) it first"
        )


def to_jax(tensor: Any, field: str, mode: Mode = "auto") -> jax.Array:
    """Convert ``tensor`` of float32 or bool to a JAX array, in shared memory or by a copy through the host.

    The caller must keep ``tensor`` alive and unchanged while the array is in use.

    Raises:
      SimBridgeError: as in `check_tensor`, or memory cannot be shared.
    """
    if mode not in MODES:
        raise errors.SimBridgeError(f"mode must be one of {', '.join(MODES)}; got '{mode}'")
    kind = "bool" if str(tensor.dtype) == "torch.bool" else "float32"
    check_tensor(tensor, field, tuple(tensor.shape), kind)
    if mode != "staging" and share_device(tensor):
        return jax.dlpack.from_dlpack(tensor, copy=False)
    if mode == "zero_copy":
        raise errors.SimBridgeError(_apart(field, tensor.device, ", ".join(map(str, jax.devices()))))
    return jnp.array(tensor.cpu().numpy())  # a copy: on a CPU JAX would keep NumPy's memory


def to_torch(array: Any, field: str, mode: Mode = "auto", device: Any = None) -> Any:
    """Convert a JAX array to a writable tensor.

    Args:
      device: torch device of the tensor; by default the device of the array.

    Raises:
      SimBridgeError: mode ``zero_copy`` with different devices.
    """
    torch = errors.torch()
    if mode == "staging":
        return torch.from_numpy(np.array(array)).to(device or "cpu")
    tensor = torch.from_dlpack(array)
    if device is None or tensor.device == torch.device(device):
        return tensor.clone()
    if mode == "zero_copy":
        raise errors.SimBridgeError(_apart(field, tensor.device, device))
    return tensor.to(device)


def _apart(field: str, here: Any, there: Any) -> str:
    return f'{field} is on {here}, the other side on {there}: nothing can be shared; mode="staging" copies'

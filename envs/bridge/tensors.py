"""Tensors to JAX and back without a copy (DLPack), and everything that must hold for that to be safe.

What the consumer reads is ordered after what the producer wrote; what the producer writes next is not ordered after
the consumer's reading. So torch exports clones of its own and the newest two stay referenced, and JAX exports arrays
that nobody writes to. See `docs/elsewhere.md`.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from envs.bridge import errors

Mode = Literal["zero_copy", "staging", "auto"]
MODES: tuple[Mode, ...] = ("zero_copy", "staging", "auto")


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
      SimBridgeError: naming the field, what it is and what it must be.
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
    """``tensor`` of float32 or bool as a JAX array; shared memory, or a copy through the host.

    The caller keeps ``tensor`` alive and unwritten for as long as the array is read.

    Raises:
      SimBridgeError: as `check_tensor`, or nothing can be shared.
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
    """A tensor with the values of a JAX array, which its owner may write to.

    Args:
      device: torch's, where it must end up; by default where the array is.

    Raises:
      SimBridgeError: mode ``zero_copy`` and another device.
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

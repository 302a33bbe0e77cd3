"""Failures of a simulator, with a remedy in their text."""


class SimBridgeError(ValueError):
    """Any failure of the bridge; its text is for a person."""


class TorchNotInstalledError(SimBridgeError, ModuleNotFoundError):
    """This process shares tensors with PyTorch, which it has not got."""


def raised(kind: str, text: str, traceback: str = "") -> SimBridgeError:
    """The error that the simulator's side, in another interpreter, calls ``kind``; its own say what is wrong."""
    if kind in ("Refused", "Fault"):
        return SimBridgeError(text)
    return SimBridgeError(f"the simulator failed with {kind}: {text}. In its process:\n{traceback}")


def torch():
    """PyTorch, imported on first use.

    Raises:
      TorchNotInstalledError: it is not installed.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchNotInstalledError(
            "this part of the bridge shares tensors with PyTorch, which is not installed here; "
            "install it with `pip install torch==2.13.0`, or run the simulator in a worker of its own interpreter"
        ) from None
    return torch

"""Failures of a simulator, with a remedy in their text."""


class SimBridgeError(ValueError):
    """Failure of the bridge; its text is for the user."""


class TorchNotInstalledError(SimBridgeError, ModuleNotFoundError):
    """PyTorch is not installed in this process, which shares tensors with it."""


def raised(kind: str, text: str, traceback: str = "") -> SimBridgeError:
    """Error of the kind ``kind`` from the simulator's interpreter; errors of the worker contain their explanation."""
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

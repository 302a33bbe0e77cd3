"""Failures of a simulator: one class for each cause, with a remedy in its text.

The simulator's side of the bridge runs in another interpreter and reports the class by its name (`raised`).
"""


class SimBridgeError(ValueError):
    """Any failure of the bridge; its text is for a person."""


class TorchNotInstalledError(SimBridgeError, ModuleNotFoundError):
    """This process shares tensors with PyTorch, which it has not got."""


class SimulatorNotInstalledError(SimBridgeError):
    """The chosen interpreter cannot import the simulator."""


class PythonVersionError(SimBridgeError):
    """The interpreter is none that the simulator's binaries load in."""


class ImportOrderError(SimBridgeError):
    """A module was imported before one that must come first."""


class SimulatorDependencyError(SimBridgeError):
    """The simulator is there, but not what it needs."""


class UnsupportedGpuError(SimBridgeError):
    """The GPU is newer than the PyTorch build."""


class UnknownTaskError(SimBridgeError):
    """The simulator has no such task."""


class DeviceMismatchError(SimBridgeError):
    """A tensor is where JAX cannot read it without a copy."""


class ShapeMismatchError(SimBridgeError):
    """Something has another shape than agreed."""


class DtypeError(SimBridgeError):
    """Something has a type that would be cast silently."""


class NonContiguousError(SimBridgeError):
    """A strided or expanded tensor, which cannot be shared."""


class GradTensorError(SimBridgeError):
    """A tensor that requires a gradient."""


class NonFiniteError(SimBridgeError):
    """NaN or infinity where a number must be."""


class DriftNotSupportedError(SimBridgeError):
    """A channel that changes nothing, or that the simulator cannot change."""


class DriftNotAppliedError(SimBridgeError):
    """The simulator reads back other values than were written."""


class StateDisturbedError(SimBridgeError):
    """A change of parameters moved the state, and writing it back did not help."""


class WorkerDiedError(SimBridgeError):
    """The simulator's process ended by itself."""


class WorkerTimeoutError(SimBridgeError):
    """The simulator's process does not answer."""


class ProtocolVersionError(SimBridgeError):
    """Steps of one simulation out of their order."""


def raised(kind: str, text: str, traceback: str = "") -> SimBridgeError:
    """The error that the simulator's side calls ``kind``; a name that is none of ours is reported as it is."""
    found = globals().get(kind)
    if isinstance(found, type) and issubclass(found, SimBridgeError):
        return found(text)
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

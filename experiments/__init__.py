"""The laboratory: `Study`, `Method` and `Results` for scripts and notebooks, and the command line on top of them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.session import Control, Method, Policy, Results, Study

__all__ = ["Control", "Method", "Policy", "Results", "Study"]


def __getattr__(name: str) -> Any:
    """Import the laboratory when one of its names is used: the command line answers `--help` without JAX."""
    if name not in __all__:
        raise AttributeError(f"module 'experiments' has no attribute '{name}'")
    from experiments import session

    return getattr(session, name)

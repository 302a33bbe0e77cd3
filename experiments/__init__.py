"""The laboratory: `Study`, `Method` and `Results` for scripts and notebooks, and the command line on top of them."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.session.policy import Policy
    from experiments.session.results import Results
    from experiments.session.study import Study
    from experiments.study.method import Control, Method

__all__ = ["Control", "Method", "Policy", "Results", "Study"]


def _check_neighbours() -> None:
    """Refuse a foreign package of the same name as one of ours, which a folder beside a script may be.

    Raises:
      ImportError: naming its folder, and the remedy.
    """
    ours = Path(__file__).resolve().parents[1]
    for name in ("agents", "envs"):
        spec = find_spec(name)
        places = [] if spec is None else [Path(place).resolve() for place in spec.submodule_search_locations or ()]
        if places and ours / name not in places:
            raise ImportError(
                f"'{places[0]}' hides aesjax's package '{name}': rename that folder, or start Python in another one"
            )


_check_neighbours()


def __getattr__(name: str) -> Any:
    """Import the laboratory when one of its names is used: the command line answers `--help` without JAX."""
    if name not in __all__:
        raise AttributeError(f"module 'experiments' has no attribute '{name}'")
    module = f"session.{name.lower()}" if name in ("Policy", "Results", "Study") else "study.method"
    return getattr(import_module(f"experiments.{module}"), name)

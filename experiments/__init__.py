"""The laboratory: `Study`, `Method`, `Results` and `Metric` for scripts and notebooks, and the command line."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.measure.catalog import Metric
    from experiments.session.logs import compare
    from experiments.session.policy import Policy
    from experiments.session.results import Results
    from experiments.session.study import Study
    from experiments.session.tuning import common_setting
    from experiments.study.method import Control, Method

__all__ = ["Control", "Method", "Metric", "Policy", "Results", "Study", "common_setting", "compare"]
_MODULES = {
    **dict.fromkeys(("Control", "Method"), "study.method"),
    "Metric": "measure.catalog",
    "Policy": "session.policy",
    "Results": "session.results",
    "Study": "session.study",
    "common_setting": "session.tuning",
    "compare": "session.logs",
}


def _check_neighbours() -> None:
    """Raise for a foreign module with the name of one of ours, in the script's folder or installed.

    Raises:
      ImportError: names its file and the remedies.
    """
    ours = Path(__file__).resolve().parents[1]
    for name in ("agents", "envs"):
        spec = find_spec(name)
        file = Path(spec.origin if spec and spec.origin else __file__).resolve()
        if file.parents[1] != ours or "aesjax" not in file.read_text():
            raise ImportError(
                f"'{file}' hides aesjax's package '{name}': rename it, start Python in another folder, or install "
                "aesjax in a separate environment"
            )


_check_neighbours()


def __getattr__(name: str) -> Any:
    """Import the laboratory when one of its names is used, so that `--help` needs no JAX."""
    if name not in __all__:
        raise AttributeError(f"module 'experiments' has no attribute '{name}'")
    return getattr(import_module(f"experiments.{_MODULES[name]}"), name)

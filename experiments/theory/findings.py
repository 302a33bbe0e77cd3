"""Predictions of the theory studies with their outcome and interval, and the files that hold them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tyro

from experiments.measure.stats import Interval, t_interval

RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "recorded_proxies.parquet"
_OUTCOMES = {True: "confirmed", False: "refuted", None: "undecided"}


@dataclass(frozen=True)
class TheoryStudy:
    """A theory study as it is typed."""

    out: Path
    """Folder for the results; must be new or empty."""
    name: tyro.conf.Positional[Literal["oco", "detection"]] = "oco"
    """oco: online learning under drift, schedules compared with constants and rivals. detection: AES-C compared
    with CUSUM, Page-Hinkley and ADWIN, at equal false alarms."""
    recorded: tuple[Path, ...] = (RECORD,)
    """For detection: stored streams, or folders of studies of SAC on the patterns steady and abrupt."""
    seeds: int = 20
    """Paired repetitions (common random numbers across methods)."""
    quick: bool = False
    """A small version that shows the script works; its findings say nothing."""


class Finding(NamedTuple):
    """A prediction beside what was measured."""

    name: str  # as in `docs/proofs/claims.md`, such as "5.1-3"
    prediction: str
    outcome: str  # confirmed, refuted or undecided
    measured: str  # numbers with their 95 % intervals


def claim(name: str, prediction: str, holds: bool | None, measured: str) -> Finding:
    """A finding whose outcome is ``holds``; None where the intervals decide nothing."""
    return Finding(name, prediction, _OUTCOMES[None if holds is None else bool(holds)], measured)


def paired(x: np.ndarray, y: np.ndarray) -> Interval:
    """95 % Student interval of the mean of ``x - y``, both (seeds,), equal seeds in equal places."""
    return t_interval(np.asarray(x, np.float64) - np.asarray(y, np.float64))


def show(interval: Interval) -> str:
    """``value [low, high]`` to three significant digits."""
    return f"{interval.value:.3g} [{interval.low:.3g}, {interval.high:.3g}]"


def slopes(x: Sequence[float], y: np.ndarray) -> np.ndarray:
    """(seeds,): slope of ``log y`` against ``log x`` for every seed; y (len(x), seeds), positive."""
    return np.polyfit(np.log(x), np.log(np.asarray(y, np.float64)), 1)[0]


def log_log_slope(x: Sequence[float], y: np.ndarray) -> Interval:
    """The mean of `slopes` with its interval."""
    return t_interval(slopes(x, y))


def open_folder(study: TheoryStudy) -> None:
    """Make the folder for the results.

    Raises:
      ValueError, OSError: that is impossible; one sentence.
    """
    from experiments.study import store

    if study.seeds < 2:
        raise ValueError(f"--seeds must be at least 2, for intervals over paired seeds; got {study.seeds}")
    store.check_new(study.out, "--out")
    study.out.mkdir(parents=True, exist_ok=True)


def start_double_precision() -> None:
    """Double precision and one CPU device per core, before JAX starts."""
    import jax

    from experiments.study.devices import start_jax

    start_jax(None)
    jax.config.update("jax_enable_x64", True)


def write(
    study: TheoryStudy,
    name: str,
    findings: Sequence[Finding],
    data: Mapping[str, Any],
    seconds: float,
    *,
    tables: str = "",
) -> None:
    """``NAME.json`` (findings, data, versions), ``NAME.md`` (findings, then ``tables``)."""
    from experiments.study import store

    record = {
        "study": name,
        "seeds": study.seeds,
        "quick": study.quick,
        "seconds": round(seconds, 1),
        "environment": store.environment(),
        "findings": [finding._asdict() for finding in findings],
        "data": data,
    }
    store.write_text(study.out / f"{name}.json", _dump(record) + "\n")
    lines = ["| | prediction | outcome | measured |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {f.prediction} | **{f.outcome}** | {f.measured} |" for f in findings]
    store.write_text(study.out / f"{name}.md", "\n".join(lines) + "\n" + (f"\n{tables}" if tables else ""))
    for f in findings:
        print(f"{f.name:8} {f.outcome:10} {f.measured}")


def _dump(record: Mapping[str, Any]) -> str:
    """JSON with a line per array, so that a record stays readable and its differences small."""
    text = json.dumps(_plain(record), indent=1)
    return re.sub(r"\[\s+((?:[-+.\deINaninfty]+,\s+)*[-+.\deINaninfty]+)\s+\]", _one_line, text)


def _one_line(found: re.Match[str]) -> str:
    return "[" + ", ".join(found.group(1).split()).replace(",,", ",") + "]"


def _plain(x: Any) -> Any:
    """Plain lists and numbers of six digits, which is more than any interval here resolves."""
    if isinstance(x, Mapping):
        return {str(key): _plain(value) for key, value in x.items()}
    if hasattr(x, "_asdict"):
        return _plain(x._asdict())
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    if isinstance(x, str | bool | int | None):
        return x
    if isinstance(x, float):
        return float(f"{x:.6g}")
    return _plain(np.asarray(x).tolist())

"""Turns a study's folder into its report: a self-contained page, Markdown tables, tidy metrics and figures."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aesjax.lab import store
from aesjax.measure.study import Study, load_study
from aesjax.measure.summary import summarise
from aesjax.report.cells import Lookup, number
from aesjax.report.compare import verdicts
from aesjax.report.figures import draw_figures
from aesjax.report.page import render_html, render_markdown, settings_text
from aesjax.report.tables import build_tables

if TYPE_CHECKING:
    import polars as pl

__all__ = ["write_report"]

HEADER = (
    ("preset", "preset"),
    ("steps", "steps"),
    ("segments", "segments"),
    ("evaluations", "evaluations"),
    ("episodes", "episodes per evaluation"),
    ("replay_capacity", "replay capacity"),
    ("warmup", "random warm-up steps"),
    ("proxy", "drift proxy"),
    ("source", "proxy source"),
    ("drift_seed", "drift seed"),
)


def write_report(directory: str | Path, *, replicates: int = 10_000) -> Path:
    """Write ``directory/report`` and return the path of its ``index.html``.

    Reads ``config.json``, ``manifest.json`` and ``curves.parquet``; writes ``index.html``, ``tables.md``,
    ``metrics.parquet`` and the figures. The folder appears complete or not at all; an older report is replaced.

    Args:
      directory: a study's folder.
      replicates: bootstrap replicates of the intervals.

    Raises:
      ValueError: a file is missing or broken; one sentence that names it.
    """
    directory = Path(directory)
    config, manifest = (_read_json(directory / name) for name in ("config.json", "manifest.json"))
    curves = _read_curves(directory / "curves.parquet")
    try:
        study = load_study(curves, config, manifest)
        frame = summarise(curves, config, manifest, replicates=replicates)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{directory}: config, manifest and curves do not fit together ({error!r})") from error
    look = Lookup(frame)
    figures = draw_figures(curves, config, manifest)
    status, problems = _status(study, manifest)
    shared: dict[str, Any] = {
        "title": _title(study),
        "facts": _facts(study, look, config, manifest),
        "status": status,
        "problems": problems,
        "verdicts": verdicts(look),
        "tables": build_tables(look),
        "honesty": _honesty(study, look),
    }
    page = render_html(**shared, figures=figures, methods=look.methods, settings=settings_text(config, manifest))
    partial = directory / f".report-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        (partial / "index.html").write_text(page, encoding="utf-8")
        (partial / "tables.md").write_text(render_markdown(**shared), encoding="utf-8")
        frame.write_parquet(partial / "metrics.parquet")
        for figure in figures:
            (partial / figure.name).write_bytes(figure.png)
        _swap(partial, directory / "report")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory / "report" / "index.html"


def _swap(new: Path, place: Path) -> None:
    """Put ``new`` at ``place``; a folder cannot be replaced in one rename, so the old one steps aside first."""
    aside = place.with_name(f".{place.name}-old-{os.getpid()}")
    if place.exists():
        os.replace(place, aside)
    try:
        os.replace(new, place)
    except OSError:
        if aside.exists():
            os.replace(aside, place)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; is this the folder of a finished study?") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a JSON object")
    return data


def _read_curves(path: Path) -> "pl.DataFrame":
    curves = store.read_rows(path)
    if curves.is_empty():
        raise ValueError(f"{path} holds no evaluations")
    return curves


def _title(study: Study) -> str:
    tasks = ", ".join(sorted(study.horizons))
    carriers = dict.fromkeys(m.split("+")[0].split("[")[0] for m in study.methods())
    return f"Entropy schedules under drift: {tasks}, {', '.join(carriers)}"


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds as typed: ``1:5, 8``."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}:{p[-1]}" for p in parts)


def _facts(study: Study, look: Lookup, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [("task", ", ".join(sorted(study.horizons))), ("patterns", ", ".join(look.patterns))]
    facts += [
        ("seeds", f"{_ranges(study.seeds())} ({len(study.seeds())})"),
        ("methods", ", ".join(look.methods)),
    ]
    for key, name in HEADER:
        value = config.get(key)
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            facts.append((name, f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)))
    capacity, steps = config.get("replay_capacity"), config.get("steps")
    if isinstance(capacity, int) and isinstance(steps, int) and steps:
        facts.append(("replay as share of the run", f"{number(100 * capacity / steps, 1)} %"))
    copies = {name: own.get("num_envs") for name, own in (config.get("settings") or {}).items()}
    if copies:
        alike = len(set(copies.values())) == 1
        text = str(next(iter(copies.values()))) if alike else ", ".join(f"{n} {c}" for n, c in copies.items())
        facts.append(("parallel environments", text))
    options = config.get("options") or {}
    facts += [(name, ", ".join(v) if isinstance(v, list | tuple) else str(v)) for name, v in options.items()]
    floors = [f"{number(b)} ({t})" if len(study.floors) > 1 else number(b) for t, b in study.floors.items()]
    facts.append(("floor (random policy)", ", ".join(floors) or "not measured"))
    facts.append(("device", _device(manifest)))
    wall = manifest.get("wall_seconds", manifest.get("wall_time"))
    if isinstance(wall, int | float):
        facts.append(("wall time", _duration(float(wall))))
    if manifest.get("commit"):
        facts.append(("commit", str(manifest["commit"])[:12]))
    return facts


def _device(manifest: Mapping[str, Any]) -> str:
    count, kind = manifest.get("num_devices"), str(manifest.get("device", "not recorded"))
    precision = manifest.get("matmul_precision")
    return (f"{count} × {kind}" if count else kind) + (f", matmul precision {precision}" if precision else "")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{number(seconds, 0)} s"
    return f"{number(seconds / 60, 1)} min" if seconds < 5400 else f"{number(seconds / 3600, 1)} h"


def _status(study: Study, manifest: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The headline of the status box and one line per run that could not be measured."""
    told = {(r.get("task"), r.get("method"), r.get("pattern"), r.get("seed")): r for r in manifest.get("runs", ())}
    lines = []
    for key, run in study.runs.items():
        if not run.problem:
            continue
        entry = told.get((key.task, key.method, key.pattern, key.seed), {})
        line = f"{key.method}, {key.task}, {key.pattern}, seed {key.seed}: {run.problem}"
        if run.problem == "diverged" and entry.get("diverged_at") is not None:
            line += f" at step {entry['diverged_at']:,}".replace(",", " ")
        elif run.problem == "incomplete" and len(run.steps):
            line += f", last evaluation at step {int(run.steps[-1])}"
        lines.append(line + (f" ({entry['reason']})" if entry.get("reason") else ""))
    total = len(study.runs)
    valid = total - len(lines)
    head = f"{valid}/{total} runs are valid" + ("" if lines else ": all finished, none diverged")
    return head + (". The others count in no mean, and every table prints how many did." if lines else "."), lines


def _honesty(study: Study, look: Lookup) -> list[str]:
    n = len(study.seeds())
    lines = [f"{n} seed{'s' if n > 1 else ''}: "]
    if n == 1:
        lines[0] += "there is no interval and no claim can be made."
    elif n < 10:
        lines[0] += (
            "percentile intervals of so few runs are too narrow (84 % instead of 95 % at five seeds on one task), "
            "so they are stretched by √(n/(n−1)); even so, a single interval is a hint. A claim needs ten seeds."
        )
    else:
        lines[0] += "intervals are over seeds; evaluation episodes and steps are never counted as replicates."
    lines += [
        "DropRatio is anchored at the method's own Steady level: whatever lowers that level lowers the ratio. Read it "
        "beside nAUC only.",
        "A method that learned little regains its level easily; the recovery against its own Steady run removes this.",
        "The optimum after a change can lie below the level before it; then no method can recover, whatever it does.",
        "Evaluation is deterministic and hides the cost of entropy; the training return shows it.",
        "Many comparisons are shown. About one in twenty intervals excludes zero by chance; Holm's p accounts for it.",
    ]
    if "steady" not in look.patterns:
        lines.append("Steady was not run: nAUC, DropRatio and the null values of recovery are missing.")
    return lines

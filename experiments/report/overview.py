"""A report's text: the study, its broken runs and the limits of its numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.measure.study import OFF_GRID, STEADY, RecordedStudy, describe
from experiments.report.cells import Lookup, number, spaced
from experiments.study.config import OBSERVED

#: Fields of the configuration that are shown, and the names of those that their own do not explain.
_CONFIGURED = ("preset", "steps", "segments", "evaluations", "episodes", "replay_capacity", "warmup")
_CONFIGURED += ("proxy", "source", "drift_seed")
_NAMES = {"episodes": "episodes per evaluation", "proxy": "drift proxy", "source": "proxy source"}


def title(study: RecordedStudy) -> str:
    """The title of the page: tasks and carriers."""
    tasks = ", ".join(sorted(study.horizons))
    carriers = dict.fromkeys(m.split("+")[0].split("[")[0] for m in study.methods())
    return f"Entropy schedules under drift: {tasks}, {', '.join(carriers)}"


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds as typed: ``1:5, 8``."""
    first = [seed for seed in seeds if seed - 1 not in seeds]
    last = [seed for seed in seeds if seed + 1 not in seeds]
    return ", ".join(str(a) if a == b else f"{a}:{b}" for a, b in zip(first, last, strict=True))


def facts(
    study: RecordedStudy, look: Lookup, config: Mapping[str, Any], manifest: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """(name, value) of what was run and on what, as printed; what neither file tells is left out."""
    lines = [("task", ", ".join(sorted(study.horizons))), ("patterns", ", ".join(study.patterns))]
    lines += [("seeds", f"{_ranges(study.seeds())} ({len(study.seeds())})"), ("methods", ", ".join(look.methods))]
    lines += [("observations", f"with {OBSERVED}")] if config.get("observe") else []
    lines += [("smallest window", line) for line in manifest.get("small_windows", [])]
    warm = config.get("warm_start") or {}
    warming = "warm-up steps" if warm else "random warm-up steps"  # a trained agent acts itself
    for key in _CONFIGURED:
        name, value = (_NAMES | {"warmup": warming}).get(key, key.replace("_", " ")), config.get(key)
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            lines.append((name, spaced(value) if isinstance(value, int) else str(value)))
    capacity, steps = config.get("replay_capacity"), config.get("steps")
    if isinstance(capacity, int) and isinstance(steps, int) and steps:
        lines.append(("replay as share of the run", f"{number(100 * capacity / steps, 1)} %"))
    warmups = {name: own["warmup"] for name, own in (config.get("settings") or {}).items() if "warmup" in own}
    lines += [(f"{warming} of {name}", spaced(steps)) for name, steps in warmups.items()]
    if warm:
        replay = "with" if warm.get("replay") else "without"
        lines.append(("runs begin with trained agents", f"{replay} their replays; SHA-256 {str(warm['sha256'])[:12]}"))
    copies = {name: own.get("num_envs") for name, own in (config.get("settings") or {}).items()}
    if copies:
        alike = len(set(copies.values())) == 1
        text = str(*set(copies.values())) if alike else ", ".join(f"{n} {c}" for n, c in copies.items())
        lines.append(("parallel environments", text))
    options = config.get("options") or {}
    lines += [(name, ", ".join(v) if isinstance(v, list | tuple) else str(v)) for name, v in options.items()]
    floors = [f"{number(b)} ({t})" if len(study.floors) > 1 else number(b) for t, b in study.floors.items()]
    lines.append(("floor (random policy)", ", ".join(floors) or "not measured"))
    lines.append(("device", _device(manifest)))
    if "wall_seconds" in manifest:
        lines.append(("wall time", _duration(manifest["wall_seconds"])))
    lines += [("commit", manifest["commit"][:12])] if manifest.get("commit") else []
    return lines + ([("command", manifest["command"])] if manifest.get("command") else [])


def _device(manifest: Mapping[str, Any]) -> str:
    count, kind = manifest.get("num_devices"), str(manifest.get("device", "not recorded"))
    precision = manifest.get("matmul_precision")
    return (f"{count} × {kind}" if count else kind) + (f", matmul precision {precision}" if precision else "")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{number(seconds, 0)} s"
    return f"{number(seconds / 60, 1)} min" if seconds < 5400 else f"{number(seconds / 3600, 1)} h"


def status(study: RecordedStudy, manifest: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The headline of the status box and one line per run that could not be measured."""
    recorded = {(r.get("task"), r.get("method"), r.get("pattern"), r.get("seed")): r for r in manifest.get("runs", ())}
    lines = []
    for key, run in study.runs.items():
        if not run.problem:
            continue
        entry = recorded.get((key.task, key.method, key.pattern, key.seed), {})
        line = f"{key.method}, {key.task}, {key.pattern}, seed {key.seed}: {run.problem}"
        if run.problem == "diverged" and entry.get("diverged_at") is not None:
            line += f" at step {spaced(entry['diverged_at'])}"
        elif run.problem == "incomplete" and len(run.steps):
            line += f", last evaluation at step {int(run.steps[-1])}"
        elif run.problem == OFF_GRID:
            line = f"{line.removesuffix(OFF_GRID)}{_misses(run.steps, study.grids[key.task])}"
        lines.append(line + (f" ({entry['reason']})" if entry.get("reason") else ""))
    total = len(study.runs)
    valid = total - len(lines)
    head = f"{valid}/{total} runs are valid" + ("" if lines else ": all finished, none diverged")
    return head + (". The others count in no mean, and every table prints how many did." if lines else "."), lines


def _misses(steps: np.ndarray, grid: np.ndarray) -> str:
    """How the evaluations of a run differ from those of its task."""
    missing, more = len(np.setdiff1d(grid, steps)), len(np.setdiff1d(steps, grid))
    text = f"misses {missing} of {len(grid)} evaluations"
    return f"{text} and has {more} at other steps" if more else text


def limits(study: RecordedStudy, manifest: Mapping[str, Any]) -> list[str]:
    """Limits of this study's numbers, one or two sentences each."""
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
    if STEADY not in study.patterns:
        lines.append("Steady was not run: nAUC, DropRatio and the null values of recovery are missing.")
    known = describe(manifest)
    if unknown := [name for name in study.patterns if name not in (STEADY, *known)]:
        lines.append(
            f"The manifest does not describe {', '.join(unknown)}: shown as gradual drift, without times of recovery."
        )
    return lines

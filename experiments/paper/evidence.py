"""Finished studies as evidence: runs of one task under equal settings pooled, and found by what a method is."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aesjax.schedules import SCHEDULES
from experiments.measure.comparisons import Scores, best_of, constants_of, scores_of
from experiments.measure.curves import Metric
from experiments.measure.runs import run_metrics
from experiments.measure.study import RecordedStudy, RunKey, carrier_of, load_study
from experiments.study import store
from experiments.study.store import open_results

if TYPE_CHECKING:
    import polars as pl


CARRIERS = ("SAC", "PPO", "SQL", "MEow")
PATTERNS = ("abrupt", "linear", "periodic", "mixed")  # without the steady one
#: The paper's families and their tasks, by our names.
TASKS: Mapping[str, tuple[str, ...]] = {
    "toy": ("toy",),
    "mujoco": ("hopper", "halfcheetah", "walker2d", "ant", "humanoid"),
    "isaac": (
        *("isaac_ant", "isaac_humanoid", "isaac_ingenuity"),
        *("isaac_anymal", "isaac_allegro_hand", "isaac_franka_cabinet"),
    ),
}
FAMILY_OF = {task: family for family, tasks in TASKS.items() for task in tasks}
#: Fields that must agree before runs of two studies are compared, besides the settings of common carriers.
_ALIKE = ("task", "preset", "steps", "evaluations", "episodes", "segments", "drift_seed", "proxy", "source", "options")
SIZES = ("replay_capacity", "warmup")  # of the carriers that both have
_RUN = ["method", "pattern", "seed"]
NAN = float("nan")
#: Seed -> value of one run, NaN where it has none.
Values = dict[int, float]


class Spec(NamedTuple):
    """Identity of a method apart from its label: its parts, and the options that differ from the defaults."""

    rule: str  # as in `--schedules`, without options; "" is the carrier's own weight
    options: tuple[tuple[str, str], ...] = ()


def of(rule: str, **options: str | float) -> Spec:
    """A method by its rule and the options that it must have."""
    return Spec(rule, tuple((name, str(value)) for name, value in options.items()))


BASELINE = Spec("")


def _parts_of(rule: str) -> tuple[str, ...]:
    """A rule with its adaptations in alphabetical order: ``aes_c+recent+refresh`` is ``aes_c+refresh+recent``.

    >>> _parts_of("permuted:of=aes_c+recent+refresh")
    ('permuted:of=aes_c', 'recent', 'refresh')
    """
    first, *adaptations = rule.split("+")
    return (first, *sorted(adaptations))


def _same(ours: str, theirs: str) -> bool:
    """Whether two options have the same value: 1e-5 is 0.00001."""
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return ours == theirs


@dataclass
class Group:
    """Runs of one task that may be compared: equal horizon, sizes and settings, from one study or several."""

    study: RecordedStudy
    task: str
    preset: str
    steps: int
    warm: bool  # whether they began with trained agents
    schedules: Mapping[str, Mapping[str, float]]  # carrier in lower case -> its preset's schedule settings
    sources: list[Path] = field(default_factory=list)
    _metrics: dict[RunKey, dict[str, Metric]] = field(default_factory=dict)

    def named(self, carrier: str, spec: Spec) -> str | None:
        """The method of this carrier that ``spec`` describes, or None."""
        if spec == BASELINE:
            return carrier if carrier in self.study.methods() else None
        for method, (rule, variant) in self.study.rules.items():
            if (
                carrier_of(method) == carrier
                and _parts_of(rule) == _parts_of(spec.rule)
                and self._has(carrier, variant, spec)
            ):
                return method
        return None

    def _has(self, carrier: str, variant: str, spec: Spec) -> bool:
        """Whether a variant has the options asked for and no others; one that it does not tell is the default."""
        options = dict(part.split("=", 1) for part in variant.split(",") if "=" in part)
        known = SCHEDULES.get(spec.rule.partition("+")[0])  # none: a baseline or a control
        own = {"q": 0.9, "base": 0.2, **(known.signature.defaults if known else {})}
        own |= self.schedules.get(carrier.lower(), {})
        for name, wanted in spec.options:
            default = own.get(name, "")
            if not _same(options.pop(name, str(default)), wanted):
                return False
        return not options

    def values(self, metric: str, method: str, pattern: str) -> Values:
        """One metric of all seeds of a method under a pattern; `weight_noise` is computed below."""
        keys = [k for k in self.study.runs if k.task == self.task and k[2:4] == (method, pattern)]
        return {key.seed: self._value(key, metric) for key in keys}

    def _value(self, key: RunKey, metric: str) -> float:
        if metric == "weight_noise":
            return self._noise(key)
        if key not in self._metrics:
            self._metrics[key] = run_metrics(self.study, key)
        return self._metrics[key].get(metric, Metric(NAN)).value

    def _noise(self, key: RunKey) -> float:
        """Standard deviation of the entropy weight over its mean, in the second half of a run."""
        run = self.study.runs[key]
        weight = run.logs.get("entropy_weight", np.zeros(0))
        late = weight[(run.steps >= self.study.horizons[key.task] / 2) & np.isfinite(weight)] if len(weight) else weight
        return float(np.std(late) / np.mean(late)) if not run.problem and len(late) > 1 and np.mean(late) > 0 else NAN

    @cached_property
    def _scores(self) -> Scores:
        return scores_of(self.study, self.task)

    def best_constant(self, carrier: str, pattern: str) -> str | None:
        """The constant weight of highest mean return here, chosen in hindsight; None where there are not two."""
        own = [m for m in constants_of(self.study) if carrier_of(m) == carrier and pattern in self._scores.get(m, {})]
        return best_of(self._scores, own, pattern) if len(own) > 1 else None

    @property
    def broken(self) -> int:
        """Runs that count in no mean."""
        return sum(bool(run.problem) for run in self.study.runs.values())


@dataclass(frozen=True)
class Evidence:
    """All groups, those of a task with the longest horizon first, then those with the most runs."""

    groups: tuple[Group, ...]

    def of_task(self, task: str) -> Iterator[Group]:
        """The groups of one task."""
        return (group for group in self.groups if group.task == task)


def gather(directories: Sequence[Path]) -> Evidence:
    """Read finished studies, whose checksums are checked.

    Args:
      directories: folders of studies, or folders in which such folders lie, however deep.

    Raises:
      ValueError: there is none, or one cannot be read; one sentence that names it.
    """
    parts: list[_Part] = []
    for folder in dict.fromkeys(path for directory in directories for path in _studies(directory)):
        parts += _parts(folder)
    groups: list[list[_Part]] = []
    for part in parts:
        fitting = next((group for group in groups if all(part.fits(other) for other in group)), None)
        if fitting is None:
            groups.append([part])
        else:
            fitting.append(part)
    made = [_group(group) for group in groups]
    return Evidence(tuple(sorted(made, key=lambda g: (-g.steps, -len(g.study.runs)))))


def _studies(directory: Path) -> list[Path]:
    """``directory`` if it is a study, else the finished ones in it, and none that lies inside another."""
    if (directory / store.CONFIG).exists():
        return [directory]
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    found: list[Path] = []
    for path in sorted(directory.rglob(store.MANIFEST)):
        if (path.parent / store.CONFIG).exists() and not any(path.is_relative_to(other) for other in found):
            found.append(path.parent)
    if not found:
        raise ValueError(f"{directory} holds no finished study: there is no {store.MANIFEST} beside a {store.CONFIG}")
    return found


class _Part(NamedTuple):
    """One task of one folder."""

    folder: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    rows: "pl.DataFrame"

    def fits(self, other: "_Part") -> bool:
        ours, theirs = self.config, other.config
        common = set(ours.get("settings", {})) & set(theirs.get("settings", {}))
        if any(ours.get(name) != theirs.get(name) for name in _ALIKE) or _began(ours, common) != _began(theirs, common):
            return False
        if common and any(ours.get(name) != theirs.get(name) for name in SIZES):
            return False
        return all(ours["settings"][name] == theirs["settings"][name] for name in common)


def _began(config: Mapping[str, Any], common: Collection[str]) -> dict[str, Any]:
    """With what runs began, wherever it lies: nothing where they were untrained.

    The digest is of the agents of a study's own carriers, so without a ``common`` one it tells nothing.
    """
    apart = {"from"} if common else {"from", "sha256"}
    return {name: value for name, value in (config.get("warm_start") or {}).items() if name not in apart}


def _parts(folder: Path) -> Iterator[_Part]:
    results = open_results(folder)
    rows = results.rows(store.CURVES)
    for config in results.config.get("merged") or [results.config]:
        if config.get("observe"):  # a reference is no evidence about methods
            continue
        task = config.get("task")
        yield _Part(folder, config, results.manifest, rows.filter(task=task))


def _group(parts: Sequence[_Part]) -> Group:
    """Runs that two folders have count once, as the first has them."""
    import polars as pl

    frames: list[pl.DataFrame] = []
    runs: dict[tuple, Mapping[str, Any]] = {}
    for part in parts:
        task = part.config["task"]
        own = {tuple(r[key] for key in _RUN): r for r in part.manifest.get("runs", ()) if r["task"] == task}
        fresh = part.rows
        for frame in frames:
            fresh = fresh.join(frame, on=_RUN, how="anti")
        frames.append(fresh)
        runs = (
            {key: own.get(key, {}) for key in fresh.select(_RUN).unique(maintain_order=True).iter_rows()} | own | runs
        )
    first = parts[0]
    manifest = dict(first.manifest) | {"runs": [run for run in runs.values() if run]}
    manifest["patterns"] = _joined(part.manifest.get("patterns") or {} for part in parts)
    try:
        config = {**first.config, "merged": [part.config for part in parts]}
        study = load_study(pl.concat(frames, how="diagonal_relaxed"), config, manifest)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{first.folder}: config, manifest and curves do not fit together ({error!r})") from error
    settings = _joined(part.config.get("settings", {}) for part in parts)
    return Group(
        study=study,
        task=first.config["task"],
        preset=str(first.config.get("preset", "")),
        steps=int(first.config["steps"]),
        warm=bool(first.config.get("warm_start")),
        schedules={name: own.get("schedule", {}) for name, own in settings.items()},
        sources=[part.folder for part in parts],
    )


def _joined(maps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    together: dict[str, Any] = {}
    for entries in maps:
        together = {**entries, **together}
    return together

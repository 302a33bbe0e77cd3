"""The record of the grid in `experiments/results/grid`, its tables and its figure.

`curves.parquet` holds the evaluations of all studies and `grid.json` their configurations, versions and devices.
`runs.parquet` has one row per run, computed from both; tables and figure are made of it alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from experiments.measure import stats
from experiments.measure.comparisons import BETTER, NOT_SIGNIFICANT, WORSE, outcome_of
from experiments.measure.runs import run_metrics
from experiments.measure.study import STEADY, RunKey, load_study
from experiments.report.draw import canvas_to_files
from experiments.report.plots import PALETTE, REFERENCE_INK
from experiments.study import store
from experiments.study.store import open_results

RECORD = Path(__file__).resolve().parents[1] / "results" / "grid"
STUDIES, RUNS = "grid.json", "runs.parquet"
#: Seeds on which kappa and the constant are chosen, and seeds on which their differences are reported.
CHOOSING, REPORTING = range(1, 6), range(6, 11)
#: A difference whose 95 % interval lies within this share of the steady baseline's gain over the random policy.
EQUIVALENT, MARGIN = "equivalent", 0.05
_LABELS = ("study", "family", "task", "carrier", "method", "schedule", "variant", "pattern", "seed", "step")
_LOGS = ("return_mean", "entropy_weight", "at_min", "at_max", "drift_value", "gradient_steps")
_ABOUT = ("aesjax", "commit", "python", "versions", "platform", "device", "num_devices", "matmul_precision", "x64",
          "xla_flags", "wall_seconds", "parts", "floors", "patterns")  # fmt: skip
_METRICS = ("mean_return", "final_return", "nauc_task", "nauc_task_safe", "drop_run", "drop_run_safe",
            "recovery", "recovery_robust", "recovery_vs_steady",
            "mean_entropy_weight", "saturation_min", "saturation_max")  # fmt: skip
_SETTING = ("task", "steps", "carrier")
_RUN = ("carrier", "method", "schedule", "variant", "pattern", "seed")


def record(folders: Sequence[Path], out: Path = RECORD) -> None:
    """Add finished studies to the record in ``out`` and score all of its runs; a study of the same name is replaced.

    Raises:
      ValueError: a folder holds no finished study, or files that do not match their checksums.
    """
    studies, frames = {}, []
    if (out / STUDIES).exists():
        curves, _, studies = read(out)
        frames = [curves.filter(~pl.col("study").is_in([folder.name for folder in folders]))]
    for folder in folders:
        results = open_results(folder)
        config, manifest = dict(results.config), results.manifest
        if "controls" in config:  # the folder's name, without its place
            config["controls"] = config["controls"] | {"from": Path(config["controls"]["from"]).name}
        unfinished = [run for run in manifest["runs"] if run["status"] != "finished"]
        about = {name: manifest.get(name) for name in _ABOUT}
        studies[folder.name] = {"config": config, **about, "unfinished": unfinished}
        rows = results.rows(store.CURVES).with_columns(study=pl.lit(folder.name))
        frames.append(rows.select(name for name in (*_LABELS, *_LOGS) if name in rows.columns))
    curves = pl.concat(frames, how="diagonal_relaxed").sort("study", maintain_order=True)
    curves = curves.with_columns(pl.col(name).cast(pl.Float32) for name in _LOGS if name in curves.columns)
    studies = dict(sorted(studies.items()))
    out.mkdir(parents=True, exist_ok=True)
    store.write_rows(out / store.CURVES, curves)
    store.write_rows(out / RUNS, scores(curves, studies))
    store.write_json(out / STUDIES, studies)


class Record(NamedTuple):
    """The three files of the record."""

    curves: pl.DataFrame
    runs: pl.DataFrame
    studies: dict[str, Any]  # name -> configuration, versions, device, commit, seconds


def read(folder: Path = RECORD) -> Record:
    """The record in a folder (ValueError where a file is missing or damaged)."""
    curves, runs = (store.read_rows(folder / name) for name in (store.CURVES, RUNS))
    return Record(curves, runs.cast({pl.Float32: pl.Float64}), store.read_json(folder / STUDIES))


def scores(curves: pl.DataFrame, studies: Mapping[str, Any]) -> pl.DataFrame:
    """One row per run: its metrics, gradient steps, status, and the random policy's return on its task."""
    together: dict[tuple[str, int], list[str]] = {}  # studies of one task and horizon share their steady references
    for name, study in studies.items():
        together.setdefault((study["config"]["task"], study["config"]["steps"]), []).append(name)
    rows = []
    for (task, steps), names in together.items():
        of = [studies[name] for name in names]
        manifest = {
            "runs": [run for study in of for run in study["unfinished"]],
            "floors": of[0]["floors"],
            "patterns": {name: facts for study in of for name, facts in study["patterns"].items()},
        }
        own = curves.filter(pl.col("study").is_in(names))
        study = load_study(own, of[0]["config"], manifest)
        for name, family, *run in own.select("study", "family", *_RUN).unique(maintain_order=True).iter_rows():
            carrier, method, _, _, pattern, seed = run
            key = RunKey(family, task, method, pattern, seed)
            found = run_metrics(study, key)
            updates = found["gradient_steps"].value if "gradient_steps" in found else float("nan")
            updates = studies[name]["parts"][carrier]["updates"] if np.isnan(updates) else int(updates)
            values = [float(found[metric].value) for metric in _METRICS]
            status = study.runs[key].problem or "finished"
            rows.append((name, task, steps, *run, status, updates, of[0]["floors"][task], *values))
    columns = ["study", *_SETTING[:2], *_RUN, "status", "gradient_steps", "floor", *_METRICS]
    return pl.DataFrame(rows, columns, orient="row").with_columns(pl.col(pl.Float64).cast(pl.Float32))


class Contrast(NamedTuple):
    """A paired difference of mean return under one pattern."""

    row: str
    pattern: str
    interval: stats.Interval  # 95 %, of the mean difference, by t over seeds
    outcome: str


class Setting(NamedTuple):
    """A carrier on a task, with its runs, its methods by their part in the tables, and its contrasts."""

    task: str
    steps: int
    carrier: str
    runs: pl.DataFrame
    methods: dict[str, str]  # row of the tables -> method
    constant: str  # the chosen one
    margin: float  # units of return
    tuned: list[Contrast]  # minus the chosen constant, on `REPORTING`
    published: list[Contrast]  # published AES minus others, on all seeds

    @property
    def patterns(self) -> list[str]:
        """In the order of the studies."""
        return self.runs["pattern"].unique(maintain_order=True).to_list()


BASELINE, PUBLISHED, TUNED, RATIO, LEVEL, TIMING, ZERO = (
    "baseline",
    "`aes`, published",
    "`aes`, chosen kappa",
    "`aes_r`",
    "mean-matched constant of `aes`",
    "time-permuted weights of `aes`",
    "constant 0",
)


def settings(runs: pl.DataFrame) -> Iterator[Setting]:
    """Every setting whose runs have seeds for choice and report."""
    for (task, steps, carrier, *_), own in runs.group_by(_SETTING, maintain_order=True):
        if set(REPORTING) <= set(own["seed"]):
            yield _setting(task, steps, carrier, own)


def _setting(task: str, steps: int, carrier: str, runs: pl.DataFrame) -> Setting:
    first = runs.filter(pl.col("seed").is_in(list(CHOOSING))).group_by("method", "schedule", "variant")
    # A method with a run that diverged is not chosen.
    means = first.agg(pl.col("mean_return").mean().fill_nan(-np.inf), pl.col("mean_entropy_weight").mean())
    means = means.sort("mean_return", "method", descending=True).rows(named=True)
    constants = [m for m in means if m["schedule"] == "fixed"]
    rules = [m["method"] for m in means if m["schedule"] == "aes"]
    tests = {
        BASELINE: lambda m: "+" not in m["method"],
        PUBLISHED: lambda m: m["schedule"] == "aes" and "kappa" not in m["variant"],
        TUNED: lambda m: m["method"] == rules[0],
        RATIO: lambda m: m["schedule"] == "aes_r",
        LEVEL: lambda m: m["schedule"] == "constant_at_mean:of=aes",
        TIMING: lambda m: m["schedule"] == "permuted:of=aes",
        ZERO: lambda m: m["schedule"] == "fixed" and m["mean_entropy_weight"] == 0.0,
    }
    methods = {row: m["method"] for row, test in tests.items() for m in means if test(m)}
    constant = next(m["method"] for m in constants if m["mean_entropy_weight"] > 0.0)
    steady = runs.filter(method=methods[BASELINE], pattern=STEADY)
    margin = MARGIN * (steady["mean_return"].mean() - steady["floor"][0])
    others = {row: m for row, m in methods.items() if m != constant and (row != TUNED or m != methods[PUBLISHED])}
    tuned = _contrasts(runs, {row: (m, constant) for row, m in others.items()}, REPORTING, margin)
    pairs = {row: (methods[PUBLISHED], methods[row]) for row in (BASELINE, LEVEL, TIMING) if row in methods}
    published = _contrasts(runs, pairs, (*CHOOSING, *REPORTING), margin)
    return Setting(task, steps, carrier, runs, methods, constant, margin, tuned, published)


def _contrasts(
    runs: pl.DataFrame, pairs: Mapping[str, tuple[str, str]], seeds: Sequence[int], margin: float
) -> list[Contrast]:
    """Differences of the pairs under every pattern; Holm over all of them."""
    columns, nan = runs.select("method", "pattern", "seed", "mean_return").iter_rows(), float("nan")
    values = {(method, pattern, seed): value for method, pattern, seed, value in columns}
    found = {
        (row, pattern): np.array(
            [values.get((ours, pattern, s), nan) - values.get((theirs, pattern, s), nan) for s in seeds]
        )
        for row, (ours, theirs) in pairs.items()
        for pattern in runs["pattern"].unique(maintain_order=True)
    }
    adjusted = stats.holm([stats.paired_t_p(d) for d in found.values()])
    out = []
    for (place, d), p in zip(found.items(), adjusted, strict=True):
        interval = stats.t_interval(d)
        outcome = outcome_of(interval.value, p, "mean_return", int(np.isfinite(d).sum()))
        small = outcome == NOT_SIGNIFICANT and -margin < interval.low and interval.high < margin
        out.append(Contrast(*place, interval, EQUIVALENT if small else outcome))
    return out


def tables(runs: pl.DataFrame) -> str:
    """All tables in Markdown: outcomes of every setting, then two tables of differences per setting."""
    found = list(settings(runs))
    return "\n".join([_overview(found), *(_tables_of(setting) for setting in found)])


def _overview(found: Sequence[Setting]) -> str:
    columns = {
        "published minus chosen constant": (PUBLISHED, "tuned"),
        "chosen kappa minus chosen constant": (TUNED, "tuned"),
        "published minus baseline": (BASELINE, "published"),
        "minus mean-matched (level)": (LEVEL, "published"),
        "minus time-permuted (timing)": (TIMING, "published"),
    }
    body = []
    for setting in found:
        row = [f"`{setting.task}` {setting.methods[BASELINE]}"]
        for name, of in columns.values():
            outcomes = [each.outcome for each in getattr(setting, of) if each.row == name]
            counts = {kind: outcomes.count(kind) for kind in (BETTER, WORSE, EQUIVALENT, NOT_SIGNIFICANT)}
            text = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
            row.append(text or ("as published" if name == TUNED else "not trained"))
        body.append(row)
    read = (
        "read: patterns of each setting by outcome, from the tables below. Better and worse: p < 0.05 after Holm. "
        "Equivalent: not significant, and the 95 % interval (without Holm) lies within the margin. "
        "The margin is 5 % of the baseline's gain over the random policy without drift."
    )
    return f"*{read}*\n\n" + _markdown(["`aes`", *columns], body)


def _tables_of(setting: Setting) -> str:
    runs, title = setting.runs, f"`{setting.task}`, {setting.methods[BASELINE]}"
    updates = np.median(runs["gradient_steps"].to_numpy()) / setting.steps
    common = f"{setting.steps:,} steps, {updates:.2g} gradient steps per environment step."
    weights = dict(runs.group_by("method").agg(pl.col("mean_entropy_weight").mean()).iter_rows())
    own = runs.filter(method=setting.methods[TUNED])
    kappa = own["variant"][0].rpartition("kappa=")[2] or "1"
    sizes = [
        runs.filter(test)["method"].n_unique()
        for test in (pl.col("schedule") == "aes", (pl.col("schedule") == "fixed") & (pl.col("mean_entropy_weight") > 0))
    ]
    chosen = (
        f"read: mean return minus the chosen constant's, ± half of the 95 % t interval, paired by seed. {common} "
        f"Seeds 1 to 5 chose kappa {kappa} of {sizes[0]} and the constant {weights[setting.constant]:.2g} of "
        f"{sizes[1]}. Seeds 6 to 10 are reported. Holm family: the {len(setting.tuned)} contrasts of this table. "
        f"Margin of equivalence: {setting.margin:.2f}."
    )
    level = runs.filter(pl.col("seed").is_in(list(REPORTING)), method=setting.constant)
    means = dict(level.group_by("pattern").agg(pl.col("mean_return").mean()).iter_rows())
    body = [["mean return of the constant", *(f"{means[pattern]:.1f}" for pattern in setting.patterns)]]
    body += _rows(setting, setting.tuned, setting.methods)
    published = runs.filter(method=setting.methods[PUBLISHED])
    clipped = f"at its upper clip in {100 * published['saturation_max'].to_numpy().mean():.0f} % of the updates."
    fixed = (
        f"read: mean return of published `aes` minus each row's, ± half of the 95 % t interval, paired by seed. "
        f"{common} Mean weight of `aes`: {weights[published['method'][0]]:.2g}; {clipped} "
        f"All ten seeds; nothing was chosen. "
        f"Holm family: the {len(setting.published)} contrasts of this table."
    )
    rest = _rows(setting, setting.published, dict.fromkeys(each.row for each in setting.published))
    head = ["no drift" if pattern == STEADY else pattern for pattern in setting.patterns]
    return (
        f"### {title}\n\n*{chosen}*\n\n{_markdown(['minus the chosen constant', *head], body)}\n"
        f"*{fixed}*\n\n{_markdown(['published `aes` minus', *head], rest)}"
    )


def _rows(setting: Setting, contrasts: Sequence[Contrast], rows: Any) -> list[list[str]]:
    cells = {(each.row, each.pattern): each for each in contrasts}
    out = []
    for row in rows:
        line = [row]
        for pattern in setting.patterns:
            if (row, pattern) in cells:
                (value, _, high), outcome = cells[row, pattern][2:]
                difference = f"{value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
                line.append(f"{difference} ± {high - value:.1f} {outcome.replace(NOT_SIGNIFICANT, 'n.s.')}")
            else:
                line.append("the constant" if setting.methods[row] == setting.constant else "as published")
        out.append(line)
    return out


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


#: Kinds of points in the figure: legend, mark, test of the schedule.
_POINTS = (
    ("constants", "o", lambda schedule: schedule == "fixed"),
    ("aes, four kappas", "s", lambda schedule: schedule == "aes"),
    ("aes, mean-matched", "D", lambda schedule: schedule.startswith("constant_at_mean")),
    ("aes, time-permuted", "X", lambda schedule: schedule.startswith("permuted")),
    ("aes_r", "^", lambda schedule: schedule == "aes_r"),
    ("SAC's own tuning", "*", lambda schedule: schedule == "auto"),
)


def figure(runs: pl.DataFrame, path: Path, task: str = "toy", pattern: str = "abrupt") -> None:
    """Draw mean return against mean entropy weight, a panel per carrier, with 95 % t intervals over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    own = runs.filter(task=task, pattern=pattern)
    canvas, legend = Canvas(figsize=(9.6, 4.2), layout="constrained"), {}
    axes = canvas.subplots(1, 2)
    for axis, carrier in zip(axes, ("sac", "ppo"), strict=True):
        kinds = own.filter(carrier=carrier).group_by("method", "schedule", "variant", maintain_order=True)
        for (_, schedule, variant), part in kinds:
            value, low, high = stats.t_interval(part["mean_return"].to_numpy())
            weight = part["mean_entropy_weight"].mean()
            if weight == 0.0:  # has no place on a logarithmic axis
                legend["constant 0"] = axis.axhline(value, color=REFERENCE_INK, lw=0.9, ls="--", zorder=1)
                continue
            known = zip(PALETTE, _POINTS, strict=False)
            for colour, (label, mark, _) in ((c, point) for c, point in known if point[2](schedule)):
                height = [[value - low], [high - value]]
                legend[label] = axis.errorbar(weight, value, height, fmt=mark, color=colour, ms=6, lw=1.0)
                if schedule == "aes":
                    text = f"κ {variant.rpartition('kappa=')[2] or '1'}"
                    axis.annotate(text, (weight, low), (0, -10), textcoords="offset points", fontsize=8, color=colour,
                                  ha="center")  # fmt: skip
        axis.set_xscale("log")
        axis.margins(x=0.12)
        axis.set_title(carrier.upper(), fontsize=10, fontweight="bold", loc="left")
        axis.set_xlabel("mean entropy weight, reward per nat", fontsize=8)
        axis.grid(True, color="#e6e6e6", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel("mean return", fontsize=9)
    canvas.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    store.write_bytes(path, canvas_to_files(canvas, 120).png)

"""Tables of the README and of these pages, made from stored records and from the registries.

`python docs/page_tables.py` rewrites everything between `<!-- table: NAME -->` and `<!-- /table -->`; a test compares.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats

from experiments.measure import holm, paired_differences
from experiments.measure.stats import paired_t_p
from experiments.paper import grid_tables
from experiments.paper import small_tasks as small

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = ROOT / "experiments" / "results"
PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")
TABLES: dict[str, Callable[[], str]] = {}
MARK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- /table -->)", flags=re.DOTALL)

RECENT = "fixed+recent"
CHANGE = "AES-C+refresh+recent[refresh.threshold=3]"
RESET = "fixed+reset[reset.every=0.2,reset.strength=0.5]"
TYPED = {
    RECENT: "fixed+recent",
    CHANGE: "aes_c+recent+refresh:threshold=3",
    RESET: "fixed+reset:every=0.2:strength=0.5",
}


class Contrast(NamedTuple):
    """One row of a table: a method of a record minus its opponent, pattern by pattern."""

    label: str
    record: str  # benchmarks/responses_NAME.json, or experiments/results/NAME
    first: str
    second: str | tuple[str, ...]  # several: the best of them, setting by setting, on the runs of the table


class Family(NamedTuple):
    """A table of differences, over all of which Holm corrects."""

    head: str
    rows: list[Contrast]
    patterns: tuple[str, ...] = PATTERNS
    places: int = 1


def table(function: Callable[[], str]) -> Callable[[], str]:
    """Register a table under its function's name."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


def rows(header: list[str], body: list[list[str]]) -> str:
    """A Markdown table; all columns but the first are aligned right if their first cell is a number."""
    right = ["---:" if re.match(r"[-+]?[\d.]", cell) else "---" for cell in body[0]]
    lines = [header, ["---", *right[1:]], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@cache
def record(name: str) -> dict:
    """A stored record of `aesjax table responses`, or the scores of a stored study."""
    if not (RESULTS / name).exists():
        return json.loads((BENCHMARKS / f"responses_{name}.json").read_text())
    scores = small.scores_of(small.scores_of_studies([RESULTS / name]))
    by_pattern = {method: {p: own for (_, p), own in runs.items()} for method, runs in scores.items()}
    return {"scores": by_pattern, "constants": [m for m in by_pattern if "AES" not in m]}


def scores(name: str, method: str, pattern: str) -> np.ndarray | None:
    """Mean return of every run, (1, seeds), or None where the method was not trained under the pattern."""
    own = record(name)["scores"][method].get(pattern)
    return None if own is None else np.array([[own[seed] for seed in sorted(own, key=int)]])


def opponent(contrast: Contrast, pattern: str) -> np.ndarray | None:
    """The opponent's scores: of several constants those of the largest mean."""
    names = (contrast.second,) if isinstance(contrast.second, str) else contrast.second
    found = [own for own in (scores(contrast.record, name, pattern) for name in names) if own is not None]
    return max(found, key=np.mean) if found else None


def tested(family: Family) -> dict[tuple[int, str], tuple[float, float]]:
    """(row, pattern) -> difference and p-value of the paired t test after Holm over all of the table."""
    differences = {}
    for at, contrast in enumerate(family.rows):
        for pattern in family.patterns:
            ours, theirs = scores(contrast.record, contrast.first, pattern), opponent(contrast, pattern)
            if ours is not None and theirs is not None:
                differences[at, pattern] = paired_differences(ours, theirs)[0]
    adjusted = holm([paired_t_p(d) for d in differences.values()])
    return {key: (float(np.mean(d)), float(p)) for (key, d), p in zip(differences.items(), adjusted, strict=True)}


def contrasts(family: Family) -> str:
    """The table of differences; a star is p < 0.05 after Holm."""
    values = tested(family)

    def cell(at, pattern):
        if (at, pattern) not in values:
            return ""
        difference, p = values[at, pattern]
        text = f"{difference:+,.{family.places}f}" + ("*" if p < 0.05 else "")
        return text[1:] if float(f"{difference:.{family.places}f}") == 0.0 else text

    body = [[r.label, *(cell(at, pattern) for pattern in family.patterns)] for at, r in enumerate(family.rows)]
    return rows([family.head, *("no drift" if p == "steady" else p for p in family.patterns)], body)


def toy(*found: tuple[str, str, str | tuple[str, ...]]) -> list[Contrast]:
    """Rows (label, first, second) of a carrier's record of the toy task."""
    return [Contrast(label, f"toy_{first.partition('+')[0].lower()}", first, second) for label, first, second in found]


def constants(carrier: str) -> tuple[str, ...]:
    """The constant weights of a carrier's record of the toy task: its grid."""
    return grid(f"toy_{carrier.lower()}")


def grid(name: str) -> tuple[str, ...]:
    """The constant weights of a record."""
    return tuple(record(name)["constants"])


CARRIERS = ("SAC", "PPO", "SQL", "MEow")
THREE = ("steady", "abrupt", "periodic")
HC, HT, HO = "halfcheetah_sac", "halfcheetah_sac_threshold", "hopper_sac_threshold"
REFRESH = "AES-C+refresh[refresh.threshold=3]"

#: The tables of differences, by name.
FAMILIES = {
    "aes": Family("AES minus its carrier", toy(*((c, f"{c}+AES", c) for c in CARRIERS))),
    "helps": Family(
        "return minus a constant weight's",
        toy(
            *((f"{c} `{TYPED[RECENT]}`", f"{c}+{RECENT}", constants(c)) for c in ("SAC", "SQL", "MEow")),
        ),
    ),
    # Recorded with a detector that is no longer there, or at times that an agent does not know.
    "not-recommended": Family(
        "return minus a constant weight's",
        toy(
            *(
                (f"{c} `{TYPED[CHANGE]}`, earlier detector", f"{c}+{CHANGE}", constants(c))
                for c in ("SAC", "SQL", "MEow")
            ),
            (f"PPO `{TYPED[RESET]}`, at the change points", f"PPO+{RESET}", constants("PPO")),
        ),
    ),
    "robots": Family(
        "AES minus its carrier",
        [
            Contrast("HalfCheetah SAC", "halfcheetah_sac", "SAC+AES", "SAC"),
            Contrast("HalfCheetah PPO", "halfcheetah_ppo", "PPO+AES", "PPO"),
            Contrast("Hopper SAC", "hopper_sac", "SAC+AES", "SAC"),
            Contrast("Hopper PPO", "hopper_ppo", "PPO+AES", "PPO"),
            Contrast("Walker2d SAC", "walker2d_sac", "SAC+AES", "SAC"),
            Contrast("Isaac Ant PPO", "isaac_ant_ppo", "PPO+AES", "PPO"),
            Contrast("Isaac Ant SAC", "isaac_ant_sac", "SAC+AES", "SAC"),
            Contrast("FrankaCabinet PPO", "franka_cabinet_ppo", "PPO+AES", "PPO"),
            Contrast("Ingenuity PPO", "ingenuity_ppo", "PPO+AES", "PPO"),
            Contrast("Humanoid PPO", "claims-humanoid-ppo", "PPO+AES", "PPO"),
            Contrast("Isaac Humanoid PPO", "claims-isaac-humanoid-ppo", "PPO+AES", "PPO"),
            Contrast("AllegroHand PPO", "claims-isaac-allegro-hand-ppo", "PPO+AES", "PPO"),
        ],
        THREE,
        0,
    ),
    # PPO's default constant is PPO itself, in the table above.
    "robot-default": Family(
        "AES minus the default constant",
        [
            Contrast(f"{label} SAC", f"{label.lower()}_sac", "SAC+AES", "SAC+fixed")
            for label in ("HalfCheetah", "Hopper", "Walker2d")
        ],
        THREE,
        0,
    ),
    "robot-best": Family(
        "AES minus the best constant",
        [
            Contrast(f"{label}, {len(grid(name))} values", name, f"{label.rpartition(' ')[2]}+AES", grid(name))
            for label, name in (
                ("HalfCheetah SAC", "halfcheetah_sac"),
                ("Walker2d SAC", "walker2d_sac"),
                ("Isaac Ant PPO", "isaac_ant_ppo"),
                ("FrankaCabinet PPO", "franka_cabinet_ppo"),
                ("Humanoid PPO", "claims-humanoid-ppo"),
                ("Isaac Humanoid PPO", "claims-isaac-humanoid-ppo"),
                ("AllegroHand PPO", "claims-isaac-allegro-hand-ppo"),
            )
        ],
        THREE,
        0,
    ),
    # Only opponents that were trained under every pattern of the row count as its grid.
    "robot-adaptations": Family(
        "return minus the default constant's",
        [
            Contrast("HalfCheetah SAC, optimiser state loaded: `fixed+recent`", HC, f"SAC+{RECENT}", "SAC+fixed"),
            Contrast("the same: `aes_c+refresh` †", HC, "SAC+AES-C+refresh", "SAC+fixed"),
            Contrast("the same: `oracle+window`", HC, "SAC+oracle+window", "SAC+fixed"),
            Contrast("HalfCheetah SAC: `fixed+recent`", HT, f"SAC+{RECENT}", "SAC+fixed"),
            Contrast("the same: `aes_c+refresh:threshold=3` †", HT, f"SAC+{REFRESH}", "SAC+fixed"),
            Contrast("the same: `aes_c+recent+refresh:threshold=3` †", HT, f"SAC+{CHANGE}", "SAC+fixed"),
            Contrast("the same: `budget`", HT, "SAC+budget", "SAC+fixed"),
            Contrast("Hopper SAC: `aes_c+refresh:threshold=3` †", HO, f"SAC+{REFRESH}", "SAC+fixed"),
            Contrast("the same: `aes_c+recent+refresh:threshold=3` †", HO, f"SAC+{CHANGE}", "SAC+fixed"),
            Contrast(f"Walker2d SAC: `{TYPED[CHANGE]}` †", "walker2d_sac", f"SAC+{CHANGE}", "SAC+fixed"),
            Contrast("Isaac Ant PPO: `aes_c+refresh:threshold=3` †", "isaac_ant_ppo", f"PPO+{REFRESH}", "PPO"),
            Contrast(f"HalfCheetah PPO: `{TYPED[RESET]}`, at changes", "halfcheetah_ppo", f"PPO+{RESET}", "PPO"),
            Contrast("Hopper PPO: the same", "hopper_ppo", f"PPO+{RESET}", "PPO"),
            Contrast("Ingenuity PPO: the same", "ingenuity_ppo", f"PPO+{RESET}", "PPO"),
        ],
        THREE,
        0,
    ),
    "timing": Family(
        "toy task",
        toy(
            *(
                (f"{c} `aes` minus {label}", f"{c}+AES", f"{c}+{control}(aes)")
                for c in ("SAC", "PPO")
                for label, control in (("mean-matched", "constant_at_mean"), ("time-permuted", "permuted"))
            ),
            *(
                (f"{c} `{name}` minus its base", f"{c}+{label}", "SAC+fixed" if c == "SAC" else c)
                for name, label in (("aes_r", "AES-R"), ("oracle", "oracle"))
                for c in CARRIERS
            ),
        ),
    ),
    "signal": Family(
        "toy task, SAC",
        [
            *toy(
                ("`aes_r+window` minus `aes_r`", "SAC+AES-R+window", "SAC+AES-R"),
                ("`aes_r+window` minus time-permuted", "SAC+AES-R+window", "SAC+permuted(aes_r+window)"),
                ("`oracle+window` minus `fixed`", "SAC+oracle+window", "SAC+fixed"),
                ("`aes_c+refresh` minus `aes_c` †", "SAC+AES-C+refresh", "SAC+AES-C"),
                (
                    "`fixed+reset:strength=0.5` minus `fixed`",
                    "SAC+fixed+reset[reset.strength=0.5]",
                    "SAC+fixed",
                ),
                ("`fixed+ere` minus `fixed`", "SAC+fixed+ere", "SAC+fixed"),
                ("`fixed+redo` minus `fixed`", "SAC+fixed+redo", "SAC+fixed"),
                ("`fixed+forget` minus `fixed`", "SAC+fixed+forget", "SAC+fixed"),
                (f"`{TYPED[CHANGE]}` minus `fixed+recent` †", f"SAC+{CHANGE}", f"SAC+{RECENT}"),
                ("the same minus time-permuted †", f"SAC+{CHANGE}", f"SAC+permuted({TYPED[CHANGE]})"),
            ),
            Contrast(
                "the same on ten new seeds, minus `fixed+recent` †", "confirm_sac", f"SAC+{CHANGE}", f"SAC+{RECENT}"
            ),
        ],
    ),
    "level": Family(
        "return minus a constant weight's",
        toy(
            ("SAC, tuned", "SAC", constants("SAC")),
            ("SAC `budget`", "SAC+budget", constants("SAC")),
            ("SAC `auto_floor`", "SAC+auto-F", constants("SAC")),
            *((f"{c} `budget`", f"{c}+budget", constants(c)) for c in ("SQL", "PPO", "MEow")),
        ),
    ),
}
TABLES.update({name: partial(contrasts, family) for name, family in FAMILIES.items()})


@table
def audit() -> str:
    """Each task family alone, as the audit judges it."""
    from experiments.paper.audit import FAMILIES, families

    return rows(FAMILIES, families(json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())))


def measured(name: str) -> dict:
    """A stored record of `aesjax bench`."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text())


@table
def rejax() -> str:
    """Updates per second of SAC on the toy task and of PPO on the pendulum, as ratios."""
    cases = measured("updates_rejax")["cases"]
    head = ["median [range]", *(f"{c['carrier'].upper()}, {c['task']}, {c['runs']} runs" for c in cases)]

    def line(label, key):
        found = [c["ratios"].get(key) for c in cases]
        return [label, *(f"{r['median']:.2f} [{r['min']:.2f}, {r['max']:.2f}]" if r else "" for r in found)]

    return rows(
        head,
        [
            line("constant weight over rejax", "fixed_over_rejax"),
            line("`aes` over rejax", "aes_over_rejax"),
            line("time of `aes` over a constant's", "schedule_cost_aes"),
            line("time of `aes_r+window` over `aes_r`'s", "lever_cost_aes_r+window"),
        ],
    )


@table
def costs() -> str:
    """Time of a vector step with adaptations or the proxy `dynamics`, over the time of the schedule alone."""
    (case,) = measured("adaptation_cost")["cases"]
    prefix, body = "lever_cost_", []
    for key, ratio in case["ratios"].items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            label = f"`{re.split('[:+]', name)[0]}:proxy=dynamics`" if ":" in name else f"`{name}`"
            body.append([label, f"{ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"])
    return rows(["SAC, toy, 10 runs", "time over the schedule's alone, median [range]"], body)


@table
def physics() -> str:
    """Environment steps of the C engine as ratios, with 512 environments."""
    body = []
    for case in measured("mujoco_physics_512")["cases"]:
        ratios = [case["ratios"][f"mujoco_over_{other}"]["median"] for other in ("raw_batch", "gymnasium")]
        body.append([case["task"], *(f"{ratio:.2f}" for ratio in ratios)])
    return rows(["task", "over bare `mujoco.batch.Batch`", "over a Gymnasium loop"], body)


@table
def growth() -> str:
    """Rates and times of studies of 1, 50 and 400 runs."""
    runs = measured("growth")["runs"]
    body = [
        [
            f"{r['carrier'].upper()}, {r['runs']} runs",
            f"{r['updates_per_second']:,.0f}",
            f"{r['study_seconds']:.0f}",
            f"{r['peak_bytes_of_the_process'] / 2**30:.2f}",
        ]
        for r in runs
    ]
    return rows(["toy task, 20,000 steps", "updates per second, all runs", "study, s", "process, GiB"], body)


@table
def forecasts() -> str:
    """Dry runs and the studies they forecast."""
    studies = measured("dry_run")["studies"]
    body = [
        [name, f"{s['forecast']:.1f}", f"{s['real']:.1f}", f"{s['forecast_over_real']:.2f}"]
        for name, s in studies.items()
    ]
    return rows(["study", "forecast, s", "taken, s", "ratio"], body)


@table
def compiler() -> str:
    """Curves with and without the safe compiler options."""
    body = []
    for curve in measured("compiler_options")["curves"]:
        change = f"{curve['difference']:+.2f} ± {curve['half_width']:.2f}"
        body.append([curve["study"], f"{curve['first_difference']:.0e}", change, f"{curve['mean_return'][0]:.1f}"])
    return rows(["8 runs each", "first relative difference", "mean return, with minus without", "without"], body)


@table
def compiling() -> str:
    """Seconds of tracing, compiling and reading of a carrier's three programs."""
    body: dict[str, list[str]] = {}
    for case in measured("compile_times")["cases"]:
        cold, warm = ([case[kind][p] for p in ("init", "chunk", "evaluate")] for kind in ("cold", "warm"))
        traced, compiled = (sum(p[key] for p in cold) for key in ("lowering", "compiling"))
        cells = [f"{traced:.1f}", f"{compiled:.1f}"]
        if case["task"] == "toy":
            cells.append(f"{sum(p['compiling'] for p in warm):.1f}")
        body.setdefault(CARRIERS[("sac", "ppo", "sql", "meow").index(case["carrier"])], []).extend(cells)
    head = ["carrier", "toy: tracing", "compiling", "reading", "Hopper, C engine: tracing", "compiling"]
    return rows(head, [[name, *cells] for name, cells in body.items()])


@table
def bridged() -> str:
    """Vector steps per second of Isaac Ant, native and through the bridge."""
    columns = {
        "native": "native, compiled",
        "torch": "torch alone",
        "in_process": "in process",
        "worker": "worker",
        "worker_in_program": "worker, compiled loop",
    }
    body = [
        [f"{int(copies):,}", *(f"{case['vector_steps_per_second'][key]:.0f}" for key in columns)]
        for copies, case in measured("bridge")["copies"].items()
    ]
    return rows(["environments", *columns.values()], body)


def lines_of(page: str, heading: str, start: str) -> list[list[str]]:
    """Cells of the rows of a recorded page that begin so, below the first heading that begins so."""
    text = (BENCHMARKS / page).read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith(start)]


def long_runs() -> dict[tuple[str, str], tuple[float, float]]:
    """(carrier, pattern) -> AES minus its carrier in mean return, and p after Holm, of the record over 100,000 steps.

    The record has no scores of runs. The p-values come from its 95 % t intervals of floor-corrected nAUC, which is the
    mean return up to one factor for all methods; five paired seeds, so four degrees of freedom.
    """
    means = {(c[1], c[0].split()[-1]): float(c[4].split()[0]) for c in lines_of("toy_table.md", "Returns", "| toy")}
    values = {}
    for name, method, carrier, _, difference, *_ in lines_of("toy_table.md", "Paired", "| toy · safe nAUC"):
        if method == f"{carrier}+AES":
            value, low, high = map(float, re.findall(r"-?[\d.]+", difference))
            t = abs(value) / ((high - low) / 2 / stats.t.ppf(0.975, 4))
            values[carrier, name.split()[-1]] = 2 * stats.t.sf(t, 4)
    adjusted = holm(list(values.values()))
    return {(c, p): (means[f"{c}+AES", p] - means[c, p], own) for (c, p), own in zip(values, adjusted, strict=True)}


@table
def aes_long() -> str:
    """AES minus its carrier over 100,000 steps."""
    values, body = long_runs(), []
    for carrier in CARRIERS:
        cells = [values[carrier, pattern] for pattern in PATTERNS]
        body.append([carrier, *(f"{value:+.1f}" + "*" * bool(p < 0.05) for value, p in cells)])
    return rows(["AES minus its carrier", "no drift", *PATTERNS[1:]], body)


def verdict(values: Mapping[tuple, tuple[float, float]]) -> list[int]:
    """Better and worse without drift, better and worse under drift; the pattern is the last part of a key."""
    signs = [(key[-1] != "steady", np.sign(value) * (p < 0.05)) for key, (value, p) in values.items()]
    return [signs.count((drift, side)) for drift in (False, True) for side in (1, -1)]


@table
def horizons() -> str:
    """AES minus its carrier on the toy task, counted at both horizons."""
    body = []
    for steps, seeds, values in (("40,000", 10, tested(FAMILIES["aes"])), ("100,000", 5, long_runs())):
        counts = verdict(values)
        above = sum(value > 0 for key, (value, _) in values.items() if key[-1] != "steady")
        body.append([steps, str(seeds), *map(str, counts), f"{above} of {len(values) - len(CARRIERS)}"])
    sides = ("better without drift", "worse", "better under drift", "worse", "mean above the carrier's under drift")
    return rows(["steps", "seeds", *sides], body)


@table
def hopper_scratch() -> str:
    """AES minus its carrier on Hopper from scratch, in floor-corrected nAUC; the record has no paired differences."""
    cells = lines_of("mujoco_quick.md", "Main results", "| hopper")
    means = {(c[1], c[0].split()[-1]): float(c[3].split()[0]) for c in cells}
    body = [[f"{c}", *(f"{means[f'{c}+AES', p] - means[c, p]:+.2f}" for p in PATTERNS)] for c in ("SAC", "PPO")]
    return rows(["AES minus its carrier, nAUC", "no drift", *PATTERNS[1:]], body)


@table
def weight() -> str:
    """Mean weight, share of updates at the upper clip, and rise after a change, of AES."""
    cells = lines_of("toy_table.md", "Entropy weight: saturation", "| toy · abrupt")
    body = [[c[1], c[2], c[5], c[6]] for c in cells if c[1].endswith("+AES")]
    return rows(["abrupt drift", "mean weight", "at the upper clip, %", "rise within 2 % after a change, %"], body)


_RECORDED = {"td_quantile/fresh": "newest transitions", "td_quantile/update": "update batch"}
_DETECTORS = {"`aes_c`": "aes_c", "CUSUM": "cusum_restarted", "Page-Hinkley": "page_hinkley", "ADWIN": "adwin"}
_AT_EQUAL = [("`aes_c`, default", "aes_c", "common"), *((label, name, "own") for label, name in _DETECTORS.items())]


def _detected(of: Mapping, name: str, which: str, apart: int) -> str:
    """Share of all jumps that are detected, and the median delay."""
    jump = of[name][which][str(apart)]
    share = sum(jump["found"]) / len(jump["found"])
    return f"{share:.0%}" + ("" if jump["median"] is None else f", {jump['median']:.0f}")


@table
def detection() -> str:
    """Recorded jumps of SAC on the toy task: each jump's share of the runs, and the median delay."""
    data, body = measured("theory_detection")["data"], []
    for kind, label in _RECORDED.items():
        for apart in (500, 1000, 2000):
            jumps = [data[kind][name][which][str(apart)] for _, name, which in _AT_EQUAL]
            cells = [f"{', '.join(f'{100 * x:.0f}' for x in jump['found'])} %; {jump['median']:.0f}" for jump in jumps]
            body.append([f"{label}, {apart:,}", *cells])
        count = data[kind]["observations"]
        false = [f"{data[kind][name][which]['false']:.0f}" for _, name, which in _AT_EQUAL]
        body.append([f"{label}, false in {count:,}", *false])
    return rows(["stream, updates between jumps", *(label for label, _, _ in _AT_EQUAL)], body)


@table
def detectors() -> str:
    """Synthetic jumps at equal false detections: share of all jumps detected, and the median delay."""
    data, body = measured("theory_detection")["data"], []
    for kind, of in data.items():
        for apart in (key for key in of["aes_c"]["own"] if key.isdigit() and kind not in _RECORDED):
            cells = [_detected(of, name, which, int(apart)) for _, name, which in _AT_EQUAL]
            body.append([f"{kind}, {int(apart):,}", *cells])
    return rows(["stream, observations between jumps", *(label for label, _, _ in _AT_EQUAL)], body)


@table
def detector_settings() -> str:
    """One setting for all streams: share of quiet streams with a false detection, and share of jumps detected."""
    data, body = measured("theory_detection")["data"], []
    for kind, of in data.items():
        cells = []
        for name in _DETECTORS.values():
            cells.append(f"{of[name]['common']['streams'] / of['streams']:.0%}")
            cells.append(_detected(of, name, "common", 1000).partition(",")[0])
        body.append([_RECORDED.get(kind, kind), *cells])
    head = (cell for label in _DETECTORS for cell in (f"{label}: false", "found"))
    return rows(["stream", *head], body)


@table
def trained() -> str:
    """The stored trained agents: their last returns, seeds 1 to 5."""
    body = []
    for task in ("halfcheetah", "hopper"):
        stored = json.loads((ROOT / "experiments" / "warm" / task / "warm.json").read_text())["carriers"]
        for carrier, own in stored.items():
            returns = ", ".join(f"{run['return_mean']:,.0f}" for run in own["runs"])
            link = f"[`{task}`](../experiments/warm/{task})"
            body.append([link, carrier.upper(), f"{own['runs'][0]['step']:,}", returns])
    return rows(["folder", "carrier", "steps", "returns, seeds 1 to 5"], body)


PUBLISHED = {  # levels of other simulators, with 33 to 655 million samples
    "isaac_ingenuity": "7,162 (skrl), 5,300 (MEow's authors)",
    "isaac_ant": "5,873 (rl_games), 3,953 (CleanRL)",
    "isaac_humanoid": "6,255 (rl_games), 2,988 (CleanRL)",
    "isaac_anymal": "62.8 (rl_games), 29.3 (CleanRL)",
    "isaac_franka_cabinet": "3,369 (skrl)",
    "isaac_allegro_hand": "3,480 (rl_games), 763 (CleanRL)",
}


@table
def isaac_learning() -> str:
    """PPO on the Isaac tasks without drift: last five evaluations of each seed."""
    body = []
    for own in measured("isaac_learning")["studies"]:
        chance = [f"{own[key]['mean']:.0f}" for key in ("random_actions", "zero_actions")]
        seeds = ", ".join(f"{value:,.0f}" for value in own["last_five_evaluations"])
        body.append([own["task"], f"{own['trained'] / 1e6:.1f} M", *chance, seeds, PUBLISHED[own["task"]]])
    return rows(["task", "samples", "random actions", "zero actions", "PPO, each seed", "published"], body)


@table
def mujoco_learning() -> str:
    """Agents on MuJoCo tasks without drift, and SBX's SAC: the last evaluation of each seed."""
    studies = [(own, own["trained"]) for own in measured("mujoco_learning")["studies"]]
    sbx = measured("sbx_learning")
    body = []
    for own, steps in (*studies, (sbx, sbx["step"][-1])):
        seeds = ", ".join(f"{curve[-1]:,.0f}" for curve in own["return_mean"].values())
        body.append([f"{own['task']}, {own['carrier']}", f"{steps:,}", seeds])
    return rows(["task, carrier", "steps", "return of each seed"], body)


_OFF_POLICY = {
    "+AES": "`aes`",
    "+fixed+recent": "`fixed+recent`",
    "+fixed+recent+utd": "`fixed+recent+utd`",
    "+AES-C+burst": "`aes_c+burst`",
}
SMALL = {
    "SAC": {"": "auto-tuned", **_OFF_POLICY},
    "PPO": {"+AES": "`aes`", f"+{RESET}": "partial resets at the change points"},
    "SQL": _OFF_POLICY,
    "MEow": _OFF_POLICY,
}


@cache
def scored(name: str) -> dict[str, small.Carrier]:
    """The carriers of a record of scores."""
    runs = pl.read_csv(ROOT / "experiments" / "results" / name / small.RUNS)
    return {carrier.name: carrier for carrier in small.carriers_of(runs)}


def marked(found: tuple[small.Contrast, float], digits: int = 1) -> str:
    """A difference, with a star where it is significant."""
    value = round(found[0].interval.value, digits) + 0.0  # no -0.0
    return f"{value:+,.{digits}f}{'*' * (found[1] < 0.05)}"


def _small(*names: str) -> str:
    body = []
    for name in names:
        carrier = scored("small-tasks")[name]
        observed = small.observed_of(carrier)
        family = small.family_of(carrier)[1] | observed
        labels = {name + part: label for part, label in SMALL[name].items()}
        labels |= {small.true_of(name): "true drift observed"} if observed else {}
        for task in filter(carrier.tasks.__contains__, ("toy", "reacher", "cartpole_swingup")):
            for method, label in labels.items():
                cells = [family[method, small.constant_of(name), (task, pattern)] for pattern in PATTERNS]
                body.append([f"{f'{name}, ' if len(names) > 1 else ''}`{task}` {label}", *map(marked, cells)])
    return rows([f"{' and '.join(names)}: return minus a constant weight's", "no drift", *PATTERNS[1:]], body)


@table
def small_tasks() -> str:
    """SAC on three small tasks: schedules and adaptations minus a constant weight, and the true drift observed."""
    return _small("SAC")


@table
def small_tasks_ppo() -> str:
    """The same on PPO."""
    return _small("PPO")


@table
def small_tasks_others() -> str:
    """SQL and MEow on one of the tasks."""
    return _small("SQL", "MEow")


@table
def confirmed() -> str:
    """Four gradient steps per vector step minus a constant weight: on the seeds of the choice and on ten others."""
    carrier, body = scored("small-tasks")["SAC"], []
    for task in ("toy", "reacher", "cartpole_swingup"):
        for label, judged in (("1 to 10", small.family_of(carrier)[1]), ("11 to 20", small.confirmed(carrier))):
            cells = [judged["SAC+fixed+recent+utd", "SAC+fixed", (task, pattern)] for pattern in PATTERNS]
            body.append([f"`{task}`, seeds {label}", *map(marked, cells)])
    return rows(["SAC `fixed+recent+utd` minus `fixed`", "no drift", *PATTERNS[1:]], body)


@table
def bounds() -> str:
    """The true drift observed by PPO on bodies, minus the best of three constants."""
    carrier = scored("bounds")["PPO"]
    judged, body = small.observed_of(carrier), []
    for task in carrier.tasks:
        cells = [judged[small.true_of("PPO"), small.GRID, (task, pattern)] for pattern in carrier.patterns]
        spans = [f"{c.interval.value:+,.0f} [{c.interval.low:+,.0f}, {c.interval.high:+,.0f}]" for c, _ in cells]
        name, comma, rest = task.partition(",")
        marks = [span + "*" * (p < 0.05) for span, (_, p) in zip(spans, cells, strict=True)]
        body.append([f"`{name}`{comma}{rest}", *marks])
    return rows(["true drift observed minus the best constant", "no drift", *carrier.patterns[1:]], body)


@table
def the_grid() -> str:
    """Methods with equal tuning on every task and carrier of the grid."""
    return grid_tables.tables(grid_tables.read().runs)


@table
def engines() -> str:
    """MuJoCo Warp compared with the C engine under equal random actions."""
    body = []
    for own in json.loads((BENCHMARKS / "parity" / "engines.json").read_text())["tasks"]:
        gaps = [f"{own['observation'][steps][1]:.0e}".replace("e-0", "e-").replace("e+0", "e") for steps in ("1", "20")]
        returns = ["{:,.1f} [{:,.1f}, {:,.1f}]".format(*own["returns"][engine]) for engine in ("warp", "mujoco")]
        body.append([f"`{own['task']}`", *gaps, f"{own['departed']:.0%}", *returns])
    head = ["task", "after 1 step", "after 20", "departed by 200", "return, Warp", "return, C engine"]
    return rows(head, body)


@table
def alarms() -> str:
    """Alarms of `aes_c` on HalfCheetah with three proxies."""
    body = []
    for study, of in measured("alarms")["data"].items():
        for name, row in of.items():
            proxy, _, source = name.split()[1].partition("/")
            label = f"`{proxy}`" + ("" if proxy == "dynamics" else {"fresh": ", newest", "update": ", batch"}[source])
            found = f"{sum(row['found'])} of {len(row['found']) * row['changes']}"
            delay = "" if row["median_delay"] is None else f"{row['median_delay']:.0f}"
            body.append([study.partition("-")[2], label, found, delay, f"{row['false']} in {row['observations']:,}"])
    return rows(["what changes", "proxy", "changes found", "median delay, updates", "false alarms"], body)


def number(value: float) -> str:
    """A number as it is typed."""
    return f"{value:g}".replace("e-0", "e-")


@table
def tasks() -> str:
    """A row per task: sizes, time limit and drifting parameters with their default ranges."""
    import envs

    body = []
    for name in envs.TASKS:
        task = envs.make(name)
        spec = task.env.spec
        drift = [
            f"`{c.name}` {number(c.low)} to {number(c.high)}" + (" (2-D radius)" if c.kind == "planar" else "")
            for c in task.channels
        ]
        sizes = [str(spec.obs_size), str(spec.action_size), f"{spec.time_limit:,}"]
        body.append([f"`{name}`", *sizes, ", ".join(drift)])
    return rows(["task", "observation", "action", "time limit", "drifting parameters"], body)


def defaults(function: Callable, options: tuple[str, ...] | None = None) -> str:
    """Options of a factory with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    own = [p for p in parameters if p.name not in ("proxy", "now", "memory") and (not options or p.name in options)]
    study = [f"`{p.name}`" for p in own if p.default is p.empty]
    typed = [f"`{p.name}={number(p.default)}`" for p in own if isinstance(p.default, int | float)]
    return " ".join([*study, *typed])


@table
def schedules() -> str:
    """A row per schedule: rule, options, default source."""
    from aesjax.schedules import SCHEDULES

    body = []
    for name, factory in SCHEDULES.items():
        options = tuple(o for o in factory.options if o != "q")
        body.append([f"`{name}`", factory.label, factory.summary, defaults(factory.__wrapped__, options)])
    return rows(["name", "label", "rule", "options"], body)


@table
def proxies() -> str:
    """A row per proxy."""
    from aesjax.schedules import PROXIES

    return rows(
        ["proxy", "value"],
        [[f"`{name}`", factory.summary.replace("|", r"\|")] for name, factory in PROXIES.items()],
    )


@table
def adaptations() -> str:
    """A row per adaptation: rule and options."""
    from aesjax.adaptations import ADAPTATIONS

    body = [[f"`{n}`", rule.lever, rule.summary, defaults(rule.__wrapped__)] for n, rule in ADAPTATIONS.items()]
    return rows(["`+`", "adjusts", "rule", "options"], body)


@table
def single_file_lines() -> str:
    """Lines of the single-file SAC that an entropy schedule adds or changes: those with a number or "here"."""
    lines = (ROOT / "experiments" / "single_file_sac.py").read_text().splitlines()
    marked = [line.strip() for line in lines if re.search(r"  # (\d\b|.*\bhere$)", line)]
    return "\n".join(["```python", marked[0], "", *marked[1:], "```", ""])


def filled(text: str) -> str:
    """A page with its tables made again."""
    return MARK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def pages() -> list[Path]:
    """Pages that may have tables."""
    return [ROOT / "README.md", BENCHMARKS / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))

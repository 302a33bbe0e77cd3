"""Tables of the README and of these pages, made from stored records and from the registries.

`docs/fill_pages.py` writes them between `<!-- table: NAME -->` and `<!-- /table -->`.
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

from aesjax.schedules import fixed
from agents import CarrierSpec
from experiments.measure import comparisons
from experiments.paper import early, helps, record, tables, times
from experiments.paper.design import PARTS
from experiments.paper.evidence import NAMES, having
from experiments.study.method import Method
from experiments.study.text import parse_method, parse_method_with_carrier

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = ROOT / "experiments" / "results"
PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")
TABLES: dict[str, Callable[[], str]] = {}

RECENT = "fixed+recent"
CHANGE = "aes_c+recent+refresh:threshold=3"
REFRESH = "aes_c+refresh:threshold=3"
RESET = "fixed+reset:every={}:strength=0.5"
CARRIERS = ("SAC", "PPO", "SQL", "MEow")
THREE = ("steady", "abrupt", "periodic")
MECHANICS = ("reacher", "cartpole_swingup")


class Contrast(NamedTuple):
    """One row of a table: a method minus its opponent, pattern by pattern, on the runs of one task of a record."""

    label: str
    source: str  # RECORD/STUDY,STUDY*: of these names; * stands for any part
    task: str
    first: Method
    second: Method | tuple[Method, ...]  # several: the best of them, setting by setting, on the runs of the table
    seeds: tuple[int, ...] = ()  # some of them; empty: all


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
def runs_of(source: str, task: str) -> pl.DataFrame:
    """The runs of some studies of a record on one task."""
    name, _, studies = source.partition("/")
    name_is = pl.col("study")
    own = [name_is.str.contains(f"^{of.replace('*', '.*')}$") for of in studies.split(",")]
    return record.read(RESULTS / name).runs.filter(pl.any_horizontal(own), task=task)


def scores(contrast: Contrast, method: Method, pattern: str) -> dict[int, float]:
    """Mean return of every run by seed; empty where the method was not trained under the pattern."""
    runs = runs_of(contrast.source, contrast.task)
    runs = runs.filter(having(runs, method.__eq__), pattern=pattern)
    returns = dict(runs.unique("seed").select("seed", "mean_return").iter_rows())
    return {seed: value for seed, value in returns.items() if not contrast.seeds or seed in contrast.seeds}


def tested(family: Family) -> dict[tuple[int, str], comparisons.Contrast]:
    """(row, pattern) -> difference, interval and outcome, after Holm over all of the table."""
    differences = {}
    for at, contrast in enumerate(family.rows):
        opponents = (contrast.second,) if isinstance(contrast.second, Method) else contrast.second
        for pattern in family.patterns:
            ours = scores(contrast, contrast.first, pattern)
            others = [scores(contrast, opponent, pattern) for opponent in opponents]
            if theirs := max((own for own in others if own), key=lambda own: np.mean(list(own.values())), default={}):
                common = sorted(set(ours) & set(theirs))
                differences[at, pattern] = np.array([ours[seed] - theirs[seed] for seed in common])
    return comparisons.contrasts({place: d for place, d in differences.items() if d.size})


def starred(contrast: comparisons.Contrast, places: int = 1) -> str:
    """A difference, with a star if p < 0.05 after Holm."""
    difference = contrast.interval.value
    text = f"{difference:+,.{places}f}" + ("*" if contrast.p < 0.05 else "")
    return text[1:] if float(f"{difference:.{places}f}") == 0.0 else text


def contrasts(family: Family) -> str:
    """The table of differences; a star is p < 0.05 after Holm."""
    values = tested(family)

    def cell(place):
        return starred(values[place], family.places) if place in values else ""

    body = [[r.label, *(cell((at, pattern)) for pattern in family.patterns)] for at, r in enumerate(family.rows)]
    return rows([family.head, *("no drift" if p == "steady" else p for p in family.patterns)], body)


def constants(source: str, task: str, carrier: CarrierSpec) -> tuple[Method, ...]:
    """The constant weights of a carrier."""
    methods = record.methods_of(runs_of(source, task)).values()
    return tuple(method for method in methods if method.carrier == carrier and method.follows("fixed"))


def robot(label: str, names: str, task: str, first: str, second: str | None = None) -> Contrast:
    """A row of the earlier robot studies, of methods as `sac+aes`; ``second`` None: the best of their constants."""
    source = "earlier/" + ",".join(n if n.startswith("claims") else f"responses-{n}" for n in names.split())
    ours = parse_method_with_carrier(first)
    if second is not None:
        return Contrast(label, source, task, ours, parse_method_with_carrier(second))
    best = constants(source, task, ours.carrier)
    return Contrast(f"{label} {len(best)}", source, task, ours, best)


def small(
    label: str, first: str, second: str, tasks: tuple[str, ...] = ("toy", *MECHANICS), seeds: tuple[int, ...] = ()
) -> list[Contrast]:
    """Rows of the earlier small studies, a task each, which replaces the braces of the label."""
    ours, theirs = parse_method_with_carrier(first), parse_method_with_carrier(second)
    texts = {task: label.format(f"`{task}`") for task in tasks}
    return [Contrast(text, "earlier/small-tasks", task, ours, theirs, seeds) for task, text in texts.items()]


HC, HT = (
    "halfcheetah-sac-calm halfcheetah-sac-drift halfcheetah-sac-controls halfcheetah-sac-refresh",
    "halfcheetah-sac-threshold",
)
HC_PPO, HO = "halfcheetah-ppo*", "hopper-sac*"
SMALL_TASKS = ("toy", "reacher", "cartpole_swingup", "pendulum")
CHOICE, CONFIRMATION = tuple(range(1, 11)), tuple(range(11, 21))

_REFRESH, _CHANGE = {"`aes_c+refresh:threshold=3` †": REFRESH}, {"`aes_c+recent+refresh:threshold=3` †": CHANGE}
_LOADED = {"`fixed+recent`": RECENT, "`aes_c+refresh` †": "aes_c+refresh", "`oracle+window`": "oracle+window"}
_RESETS = {"`fixed+reset:every=0.2:strength=0.5`, at changes": RESET.format(0.2)}
#: Label, carrier, studies, task, opponent, label -> method.
_ON_ROBOTS = [
    ("HalfCheetah SAC, Adam loaded", "sac", HC, "halfcheetah", "sac+fixed", _LOADED),
    ("HalfCheetah SAC", "sac", HT, "halfcheetah", "sac+fixed", {"`fixed+recent`": RECENT, **_REFRESH, **_CHANGE}),
    ("Hopper SAC", "sac", HO, "hopper", "sac+fixed", _REFRESH | _CHANGE),
    ("HalfCheetah PPO", "ppo", HC_PPO, "halfcheetah", "ppo", _RESETS),
]

_RELEASE, _STARTS_LOW = "grid/B-toy_multigoal_classic-4000-meow", "meow+aes:base=0.0001"

#: The tables of differences, by name.
FAMILIES = {
    "robots": Family(
        "AES minus the agent alone",
        [
            robot("HalfCheetah SAC", HC, "halfcheetah", "sac+aes", "sac"),
            robot("HalfCheetah SAC, against the best constant of", HC, "halfcheetah", "sac+aes"),
            robot("HalfCheetah PPO", HC_PPO, "halfcheetah", "ppo+aes", "ppo"),
            robot("Humanoid PPO", "claims-humanoid-ppo", "humanoid", "ppo+aes", "ppo"),
        ],
        THREE,
        0,
    ),
    "robot-adaptations": Family(
        "return minus the default constant's",
        [
            robot(f"{head}: {label}", names, task, f"{carrier}+{method}", default)
            for head, carrier, names, task, default, methods in _ON_ROBOTS
            for label, method in methods.items()
        ],
        THREE,
        0,
    ),
    "release": Family(
        "MEow, AES minus a constant",
        [
            Contrast(
                f"constant {weight:g}",
                _RELEASE,
                "toy_multigoal_classic",
                parse_method_with_carrier(_STARTS_LOW),
                Method("meow", fixed(weight)),
            )
            for weight in (1.0, 0.3)
        ],
        ("steady", "abrupt", "sawtooth", "periodic", "mixed_release"),
        0,
    ),
    "recent-toy": Family(
        "return minus a constant weight's",
        [
            Contrast(
                f"{ours.carrier.label} `fixed+recent`", source, "toy", ours, constants(source, "toy", ours.carrier)
            )
            for ours in (parse_method(RECENT, "sql"), parse_method(RECENT, "meow"))
            for source in (f"earlier/responses-toy-{ours.carrier.name}",)
        ],
    ),
    "recent": Family(
        "SAC `fixed+recent` minus `fixed`",
        [
            Contrast(f"`{task}`", f"grid/*-{task}-*-sac*", task, parse_method(RECENT, "sac"), Method("sac", "fixed"))
            for task in SMALL_TASKS
        ],
        (*PATTERNS, "sawtooth"),
    ),
    "recent-small": Family(
        "SAC `fixed+recent` minus `fixed`",
        [
            *small("{} 1:1", "sac+fixed:base=0.03+recent+utd", "sac+fixed:base=0.03+utd", seeds=CHOICE),
            *small("{} 1:4", f"sac+{RECENT}", "sac+fixed", seeds=CHOICE),
            *small("{} 1:4, new seeds", f"sac+{RECENT}", "sac+fixed", seeds=CONFIRMATION),
        ],
    ),
    "steps-small": Family(
        "SAC `fixed`: 1:1 minus 1:4",
        small("{}", "sac+fixed:base=0.03+utd", "sac+fixed:base=0.03", seeds=CHOICE),
    ),
    "resets": Family(
        "PPO `fixed+reset` minus PPO",
        [
            Contrast(
                f"`{task}`, every {every * 100:.0f} %",
                f"grid/*-{task}-*-ppo",
                task,
                parse_method(RESET.format(every), "ppo"),
                Method("ppo"),
            )
            for task in SMALL_TASKS
            for every in (0.2, 0.17, 0.23)
        ],
        (*PATTERNS, "sawtooth"),
    ),
    "resets-detected": Family(
        "PPO `aes_c+refresh` minus PPO",
        [
            Contrast(f"`{task}`", f"grid/*-{task}-*-ppo", task, parse_method("aes_c+refresh", "ppo"), Method("ppo"))
            for task in SMALL_TASKS
        ],
        (*PATTERNS, "sawtooth"),
    ),
    "small-tasks-others": Family(
        "return minus a constant weight's, 1:4",
        [
            *small("SQL, {} `fixed`, 1:1", "sql+fixed:base=0.03+utd", "sql", ("reacher",)),
            *(
                row
                for carrier in ("SQL", "MEow")
                for method, ratio in ((RECENT, "1:4"), ("fixed+recent+utd", "1:1"))
                for row in small(
                    f"{carrier}, {{}} `fixed+recent`, {ratio}",
                    f"{NAMES[carrier]}+{method}",
                    NAMES[carrier],
                    ("reacher",),
                )
            ),
        ],
    ),
}
TABLES.update({name: partial(contrasts, family) for name, family in FAMILIES.items()})


@table
def weight() -> str:
    """Mean weight of AES, share of updates at the upper clip, and rise after a change."""
    body = []
    for carrier in CARRIERS:
        own = runs_of(f"grid/A-toy-100000-{NAMES[carrier]}", "toy")
        own = own.filter(having(own, parse_method("aes", NAMES[carrier]).__eq__), pattern="abrupt")
        shares = (100 * own[name].mean() for name in ("saturation_max", "responsiveness"))
        body.append([carrier, f"{own['mean_entropy_weight'].mean():.2f}", *(f"{share:.1f}" for share in shares)])
    return rows(["`aes`, abrupt drift", "mean weight", "at the upper clip, %", "rise after a change, %"], body)


@table
def paper_tables() -> str:
    """The paper's two main tables, ours beside the paper's."""
    return tables.paper_tables(every_run())


@table
def appendix() -> str:
    """The paper's tables of Appendix B, ours beside the paper's."""
    return tables.appendix_tables(every_run())


@cache
def every_run() -> record.Gathered:
    """The runs of all records."""
    return record.gather([RESULTS / "grid", RESULTS / "earlier"])


@table
def audit() -> str:
    """Each task family alone, as the audit judges it."""
    from experiments.paper.audit import FAMILIES, families

    return rows(FAMILIES, families(audited()))


def audited() -> dict:
    """The stored audit."""
    return json.loads((RESULTS / "audit.json").read_text())


def _claims(verdict: str) -> list[list[str]]:
    """Claims with a verdict as the audit prints them, without their families: cells by column."""
    from experiments.paper.audit import tables as of_the_audit

    _, found, _ = of_the_audit(audited())
    cells = ([cell.text for cell in row] for row in found.rows if not row[0].text.startswith("·"))
    return [row for row in cells if row[1].startswith(verdict)]


def _settled(verdict: str) -> str:
    """A row per claim; the reason without the settings that do not count."""
    body = []
    for claim, _, paper, ours, counts, _, why in _claims(verdict):
        body.append([claim, paper, ours, counts, re.split("; (?:judged|settings)", why)[0]])
    return tables.markdown(["claim", "paper", "ours", "settings + / − / ?", "why"], body)


@table
def claims_reproduced() -> str:
    """Claims that are reproduced."""
    return _settled("reproduced")


@table
def claims_contradicted() -> str:
    """Claims that are contradicted."""
    return _settled("contradicted")


#: What would decide a claim, by the reason for which it is undecided; `horizon` states hours, `no data` says why.
_DECIDED_BY = {
    "power": "more seeds",
    "premise": "a task on which the part that is taken away matters",
    "lower level": "methods that return to an equal level",
}


@table
def claims_undecided() -> str:
    """Claims that are undecided, with what would decide them."""
    body = []
    for claim, verdict, paper, ours, counts, _, why in _claims("undecided"):
        reason = verdict.partition(": ")[2]
        hours = re.search(r"about ([\d,]+ h)", why)
        by = f"trained agents: {hours[1]}" if hours else _DECIDED_BY.get(reason, why)
        body.append([claim, paper, ours, counts, by])
    return tables.markdown(["claim", "paper", "ours", "settings + / − / ?", "would be decided by"], body)


def measured(name: str) -> dict:
    """A stored record of `aesjax bench`."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text())


def counted(case: Mapping) -> str:
    """Number of runs in words."""
    return f"{case['runs']} run{'s' * (case['runs'] > 1)}"


def ranged(ratio: Mapping[str, float]) -> str:
    """Median of a ratio, with its range over rounds."""
    return "{median:.2f} [{min:.2f}, {max:.2f}]".format(**ratio)


@table
def rejax() -> str:
    """Updates per second of SAC on the toy task and of PPO on the pendulum, as ratios."""
    cases = measured("updates_rejax")["cases"]
    head = [
        "median [range]",
        *(f"{c['carrier'].upper()}, {c['task']}, {counted(c)}" for c in cases),
    ]

    def line(label, key):
        found = [c["ratios"].get(key) for c in cases]
        return [label, *(ranged(ratio) if ratio else "" for ratio in found)]

    return rows(
        head,
        [
            line("rate of a constant weight / rejax", "fixed_over_rejax"),
            line("rate of `aes` / rejax", "aes_over_rejax"),
            line("time of `aes` / constant weight", "schedule_cost_aes"),
            line("time of `aes_r+window` / `aes_r`", "lever_cost_aes_r+window"),
        ],
    )


@table
def learning_step() -> str:
    """A gradient step of vmapped runs of SAC, and its matrix products alone."""
    body = []
    for case in measured("learning_step")["cases"]:
        step, products = (case["medians"][name] for name in ("gradient step", "matrix products alone"))
        share = case["ratios"]["time of matrix products alone / gradient step"]
        gflops = 1e-9 * case["operations"]
        numbers = [f"{1_000 / step:.1f}", f"{1_000 / products:.1f}", f"{gflops * products:.0f}", ranged(share)]
        body.append([f"{case['runs']}", *numbers])
    head = ["runs", "gradient step, ms", "products alone, ms", "products alone, GFLOP/s", "products / gradient step"]
    return rows(head, body)


@table
def costs() -> str:
    """Time of a vector step with adaptations or the proxy `dynamics`, over the time of the schedule alone."""
    (case,) = measured("adaptation_cost")["cases"]
    prefix, body = "lever_cost_", []
    for key, ratio in case["ratios"].items():
        if key.startswith(prefix):
            schedule, _, proxy = key.removeprefix(prefix).partition(":")
            label = f"{schedule}:proxy={proxy}" if proxy else schedule
            body.append([f"`{label}`", ranged(ratio)])
    return rows(["SAC, toy, 10 runs", "time relative to the schedule alone, median [range]"], body)


@table
def physics() -> str:
    """Environment steps of the C engine as ratios, with 512 environments."""
    body = []
    for case in measured("mujoco_physics_512")["cases"]:
        ratios = [case["ratios"][f"mujoco_over_{other}"]["median"] for other in ("raw_batch", "gymnasium")]
        body.append([case["task"], *(f"{ratio:.2f}" for ratio in ratios)])
    return rows(["task", "rate relative to bare `mujoco.batch.Batch`", "rate relative to a Gymnasium loop"], body)


_RATIOS = {"time_of_aes_over_fixed": "time of `aes` / constant", "warp_over_gymnasium": "rate / a Gymnasium loop of 8"}


@table
def gpu() -> str:
    """Rates on one H100."""
    body = []
    for case in measured("h100")["cases"]:
        what = f"{counted(case)} of SAC" if "runs" in case else f"{case['envs']:,} copies on Warp"
        rate, *_ = case["medians"].values()  # of the first contestant
        ratios = "; ".join(f"{_RATIOS[name]}: {ranged(ratio)}" for name, ratio in case["ratios"].items())
        body.append([f"`{case['task']}`, {what}", case.get("unit", "environment steps"), f"{rate:,.0f}", ratios])
    return rows(["one H100", "unit", "per second", "median ratio [range]"], body)


@table
def growth() -> str:
    """Rates and times of studies of 1, 50 and 400 runs."""
    runs = measured("growth")["runs"]
    body = [
        [
            f"{r['carrier'].upper()}, {counted(r)}",
            f"{r['updates_per_second']:,.0f}",
            f"{r['study_seconds']:.0f}",
            f"{r['peak_bytes_of_the_process'] / 2**30:.2f}",
        ]
        for r in runs
    ]
    return rows(["toy task, 20,000 steps", "updates per second, all runs", "study, s", "memory, GiB"], body)


@table
def forecasts() -> str:
    """Dry runs and the studies they forecast."""
    studies = measured("dry_run")["studies"]
    body = [
        [name, f"{s['forecast']:.1f}", f"{s['real']:.1f}", f"{s['forecast_over_real']:.2f}"]
        for name, s in studies.items()
    ]
    return rows(["study", "forecast, s", "measured, s", "ratio"], body)


@table
def compiler() -> str:
    """Curves with and without the safe compiler options."""
    body = []
    for curve in measured("compiler_options")["curves"]:
        change = f"{curve['difference']:+.2f} ± {curve['half_width']:.2f}"
        body.append([curve["study"], f"{curve['first_difference']:.0e}", change, f"{curve['mean_return'][0]:.1f}"])
    return rows(
        [
            "8 runs each",
            "first relative difference",
            "mean return, with minus without the options",
            "mean return without",
        ],
        body,
    )


@table
def compiler_time() -> str:
    """Processor time of a training interval with the safe compiler options, and without any fusion."""
    times = measured("compiler_options")["time_of_a_training_interval"]
    body = []
    for key, words in {"with the option": "with the options", "all fusions off": "without any fusion"}.items():
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*own[key]) for own in times.values()]
        body.append([words, *cells])
    head = "processor time of a training interval, relative to none of the options"
    return rows([head, *(carrier.upper() for carrier in times)], body)


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
    head = ["agent", "toy: tracing", "compiling", "reading the cache", "Hopper, C engine: tracing", "compiling"]
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
        body.append([f"{label}, false in {count:,} updates", *false])
    return rows(["stream, updates apart", *(label for label, _, _ in _AT_EQUAL)], body)


@table
def detectors() -> str:
    """Synthetic jumps at equal false detections: share of all jumps detected, and the median delay."""
    data, body = measured("theory_detection")["data"], []
    for kind, of in data.items():
        for apart in (key for key in of["aes_c"]["own"] if key.isdigit() and kind not in _RECORDED):
            cells = [_detected(of, name, which, int(apart)) for _, name, which in _AT_EQUAL]
            body.append([f"{kind}, {int(apart):,}", *cells])
    return rows(["stream, observations apart", *(label for label, _, _ in _AT_EQUAL)], body)


@table
def detector_settings() -> str:
    """One setting for all streams: share of jumps detected, and share of quiet streams with a false detection."""
    data, body = measured("theory_detection")["data"], []
    for kind, of in data.items():
        cells = []
        for name in _DETECTORS.values():
            jumps, _, _ = _detected(of, name, "common", 1000).partition(",")
            cells.append(f"{jumps}, {of[name]['common']['streams'] / of['streams']:.0%}")
        body.append([_RECORDED.get(kind, kind), *cells])
    return rows(["stream", *_DETECTORS], body)


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
    return rows(["folder", "agent", "steps", "returns, seeds 1 to 5"], body)


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
    return rows(["task, agent", "steps", "return of each seed"], body)


@cache
def stored() -> record.Record:
    """The record of the grid."""
    return record.read()


@cache
def grid() -> list[tables.Setting]:
    """The settings of the grid."""
    return list(tables.settings(stored().runs))


@cache
def compared() -> list[helps.Comparison]:
    """Part H: rivals of AES, by task."""
    return helps.comparisons(stored())


@table
def rivals() -> str:
    """A section with the rivals of AES; nothing without part H."""
    return f"## Head to head\n\n{text}\n" if (text := helps.overview(compared())) else ""


@cache
def confirmed() -> dict[tuple[str, str, str], comparisons.Contrast]:
    """(label, pattern, metric) -> a method minus its alternative on the notebook's environment, after Holm over all."""
    found = measured("own_environment")
    one, constant = found["one"], found["constant"]
    tuned = {choice["method"]: one[choice["chosen"]] for choice in found["choices"]}
    sides = {
        "tuned constant (minus own weight)": (one[constant], one["SAC"]),
        "one gradient step per environment step (minus a quarter of one)": (one[constant], found["quarter"][constant]),
        "newer data `fixed+recent` (minus `fixed`)": (tuned["SAC+fixed+recent"], one[constant]),
        "`fixed+geometric` (minus `fixed`)": (tuned["SAC+fixed+geometric"], one[constant]),
        "`aes` (minus `fixed`)": (tuned["SAC+AES"], one[constant]),
    }
    differences = {
        (label, pattern, metric): np.subtract(ours[pattern][metric], theirs[pattern][metric])
        for label, (ours, theirs) in sides.items()
        for pattern in ("steady", "abrupt")
        for metric in helps.METRICS
    }
    return comparisons.contrasts(differences)


@table
def confirmation() -> str:
    """The recommendations on the notebook's environment."""

    def cell(label: str, pattern: str) -> str:
        return " / ".join(starred(confirmed()[label, pattern, metric]) for metric in helps.METRICS)

    labels = dict.fromkeys(label for label, _, _ in confirmed())
    body = [[label, cell(label, "steady"), cell(label, "abrupt")] for label in labels]
    return tables.markdown(["difference, evaluation / online", "no drift", "abrupt"], body)


@table
def rivals_by_task() -> str:
    """The rivals of AES with intervals, a table per task."""
    return helps.by_task(compared())


@table
def overview() -> str:
    """Outcomes of every task and carrier of the grid."""
    return tables.overview(grid())


@table
def by_metric() -> str:
    """Outcomes in the paper's metrics."""
    return tables.by_metric(stored().runs)


@table
def the_grid() -> str:
    """Differences of every task and carrier of the grid."""
    return "\n".join(map(tables.tables_of, grid()))


@table
def verdict() -> str:
    """The answer in words: outcomes of published and tuned AES, counted over tasks and patterns, by carrier."""
    return tables.verdict(grid())


@table
def aes() -> str:
    """Published AES minus its carrier on the toy task."""
    own = {each.methods[tables.BASELINE]: each.published for each in grid() if each.task == "toy"}
    body = [[c, *(starred(own[c][tables.BASELINE, pattern]) for pattern in PATTERNS)] for c in CARRIERS]
    return rows(["AES minus the agent alone, toy task", "no drift", *PATTERNS[1:]], body)


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
def proxy_detections() -> str:
    """Detections of `aes_c` on HalfCheetah with three proxies."""
    body = []
    for study, of in measured("alarms")["data"].items():
        for name, row in of.items():
            proxy, _, source = name.split()[1].partition("/")
            label = f"`{proxy}`" + ("" if proxy == "dynamics" else {"fresh": ", newest", "update": ", batch"}[source])
            found = f"{sum(row['found'])} of {len(row['found']) * row['changes']}"
            delay = "" if row["median_delay"] is None else f"{row['median_delay']:.0f}"
            body.append(
                [f"`{study.partition('-')[2]}`", label, found, delay, f"{row['false']} in {row['observations']:,}"]
            )
    return rows(["drifting parameters", "proxy", "changes detected", "median delay, updates", "false detections"], body)


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


@table
def protocols() -> str:
    """The published protocols and their deviations; those that differ in the task alone share a row."""
    import envs

    members: dict[tuple[str, ...], list[tuple[str, str]]] = {}  # cells of a row -> its names and tasks
    for name, protocol in envs.PROTOCOLS.items():
        channels = envs.make(protocol.task, **protocol.options).channels
        drift = ", ".join(f"`{c.name}` {number(c.low)} to {number(c.high)}" for c in channels)
        patterns = ", ".join(f"`{pattern}`" for pattern in protocol.patterns)
        cells = (drift, patterns, f"{protocol.period:,}", f"{protocol.steps:,}", protocol.source, protocol.deviations)
        members.setdefault(cells, []).append((f"`{name}`", f"`{protocol.task}`"))
    drifts, sources = [], []
    for (drift, patterns, segment, steps, source, deviations), own in members.items():
        names, tasks = (", ".join(texts) for texts in zip(*own, strict=True))
        drifts.append([names, f"{tasks}: {drift}", patterns, segment, steps])
        sources.append([names, source, deviations])
    first = rows(["name", "drifts", "patterns", "steps of a segment", "steps"], drifts)
    return first + "\n" + rows(["name", "source", "deviations from the source"], sources)


@table
def vector_env() -> str:
    """Rates of ``make_vec`` relative to AsyncVectorEnv."""
    body = []
    for case in measured("vector_env")["cases"]:
        ratio, cpu = case["ratios"]["make_vec_over_async"], case["steps_per_cpu_second"]["ratio"]
        body.append([f"`{case['task']}`", f"{case['medians']['make_vec']:,.0f}", ranged(ratio), f"{cpu:.1f}"])
    header = ["`make_vec`", "steps per second", "rate / `AsyncVectorEnv`, median [range]", "the same per CPU second"]
    return rows(header, body)


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
    return "\n".join(["```text", marked[0], "", *marked[1:], "```", ""])


@table
def policy_reader() -> str:
    """The reader of exported policies."""
    text = (ROOT / "experiments" / "session" / "reader.py").read_text()
    return f"```python\n{text}```\n"


@table
def reached() -> str:
    """Returns of our agents on MuJoCo's robots beside public ones."""
    return tables.reached(stored().runs, stored().curves)


@table
def trained_robots() -> str:
    """Methods on robots that have learned, minus the tuned constant."""
    online = tables.longest(list(tables.settings(stored().runs, "online_return")))
    return tables.robots(tables.longest(grid()), online)


@table
def power() -> str:
    """Detectable differences of the contrasts of AES by task."""
    return tables.power(grid())


@table
def early_tuning() -> str:
    """AES minus a constant, both chosen on the beginning of runs."""
    return early.table(grid(), stored().curves)


@cache
def rates() -> list[times.Rate]:
    """Training times of both records."""
    studies = [json.loads((RESULTS / name / record.STUDIES).read_text()) for name in ("earlier", "grid")]
    return times.rates(studies[0] | studies[1])


def times_of(device: Callable[[times.Rate], bool]) -> dict[str, dict[str, times.Rate]]:
    """Task -> carrier -> its rate on some devices, in the order of the tasks."""
    import envs

    chosen = [rate for rate in rates() if device(rate)]
    by_task = {task: {rate.carrier: rate for rate in chosen if rate.task == task} for task in envs.TASKS}
    return {task: own for task, own in by_task.items() if own}


def on_two_cores(rate: times.Rate) -> bool:
    """Whether a study ran on two cores of a CPU."""
    return rate.device == times.CPU and rate.devices == 2


def times_table(
    head: str, found: Mapping[str, Mapping[str, times.Rate]], steps: Callable[..., int], cell: Callable[..., str]
) -> str:
    """A table of the rates ``found``: tasks as rows, carriers as columns."""
    body = []
    for task, own in found.items():
        first = next(iter(own.values()))
        label = f"`{task}`" if first.preset == "quick" else f"`{task}`, preset `{first.preset}`"
        cells = [cell(own[name.lower()]) if name.lower() in own else "no data" for name in CARRIERS]
        body.append([label, f"{steps(first):,}", *cells])
    return tables.markdown([head, "steps of a run", *CARRIERS], body)


@table
def minutes_cpu() -> str:
    """Minutes of a typical study on two cores."""

    def cell(rate: times.Rate) -> str:
        return "< 1" if rate.typical_minutes < 1 else f"{rate.typical_minutes:.0f}"

    return times_table("minutes on two CPU cores", times_of(on_two_cores), lambda rate: rate.preset_steps, cell)


@table
def minutes_gpu() -> str:
    """Minutes of the largest study of each task and carrier on a GPU."""

    def cell(rate: times.Rate) -> str:
        return f"{rate.seconds / 60:.1f} ({rate.runs} runs, {rate.device.removeprefix('NVIDIA ').partition(' ')[0]})"

    on_gpus = times_of(lambda rate: rate.device != times.CPU)
    return times_table("minutes on one GPU", on_gpus, lambda rate: rate.steps, cell)


@table
def design_hours() -> str:
    """Hours of every part of the stored design."""

    def hours(value: float) -> str:
        return "< 0.1" if 0.0 < value < 0.1 else f"{value:.1f}"

    stored = {cost.part: cost for cost in times.costs(json.loads((RESULTS / "grid" / record.STUDIES).read_text()))}
    parts = {
        f"{name}: {part.summary.partition(';')[0]}": stored[name] for name, part in PARTS.items() if name in stored
    }
    body = [
        [label, f"{cost.studies}", f"{cost.runs:,}", hours(cost.cpu_hours), hours(cost.gpu_hours)]
        for label, cost in (parts | {"all": times.total(list(stored.values()))}).items()
    ]
    return tables.markdown(["part", "studies", "runs", "hours on CPUs", "hours on a GPU"], body)

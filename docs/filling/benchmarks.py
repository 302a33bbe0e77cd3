"""Tables of the benchmarks: rates, costs, compiling, detectors, levels of learning without drift, engines."""

import re
from collections.abc import Mapping

from agents import CARRIERS
from experiments.paper.tables import markdown
from filling.cells import counted, ranged
from filling.records import measured, time_ratio
from filling.registry import table


@table
def rejax() -> str:
    """Updates per second of SAC on the toy task and of PPO on the pendulum, as ratios."""
    cases = measured("updates_rejax")["cases"]
    head = [
        "median [range]",
        *(f"{c['carrier'].upper()}, {c['task']}, {counted(c)}" for c in cases),
    ]

    def line(label, ratios):
        return [label, *(ranged(ratio) if ratio else "" for ratio in ratios)]

    return markdown(
        head,
        [
            line("rate of a constant weight / rejax", [c["ratios"].get("fixed_over_rejax") for c in cases]),
            line("rate of `aes` / rejax", [c["ratios"].get("aes_over_rejax") for c in cases]),
            line("time of `aes` / constant weight", [time_ratio(c, "aes", "fixed") for c in cases]),
            line("time of `aes_r+window` / `aes_r`", [time_ratio(c, "aes_r+window", "aes_r") for c in cases]),
        ],
    )


@table
def learning_step() -> str:
    """A gradient step of vmapped runs of SAC, and its matrix products alone."""
    body = []
    for case in measured("learning_step")["cases"]:
        step, products = (case["medians"][name] for name in ("gradient step", "matrix products alone"))
        share, before = (
            ranged(case["ratios"][f"time of {name} / gradient step"])
            for name in ("matrix products alone", "numbers of JAX")
        )
        gflops = 1e-9 * case["operations"]
        numbers = [f"{1_000 / step:.1f}", f"{1_000 / products:.1f}", f"{gflops * products:.0f}", share, before]
        body.append([f"`{case['robot']}`", *numbers])
    head = ["sizes of", "gradient step, ms", "products, ms", "products, GFLOP/s", "products / step", "before / step"]
    return markdown(head, body)


@table
def costs() -> str:
    """Time of a vector step with adaptations or the proxy `dynamics`, over the time of the schedule alone."""
    (case,) = measured("adaptation_cost")["cases"]
    body = []
    for method in case["medians"]:
        alone = re.split("[+:]", method, maxsplit=1)[0]
        if method != alone:
            body.append([f"`{method}`", ranged(time_ratio(case, method, alone))])
    return markdown(["SAC, toy, 10 runs", "time relative to the schedule alone, median [range]"], body)


@table
def rival_costs() -> str:
    """Time of an environment step of the rivals of AES, over that of SAC with a constant weight."""
    (case,) = measured("rivals")["cases"]
    constant, *rivals = case["medians"]
    body = [[label, ranged(time_ratio(case, label, constant))] for label in rivals]
    return markdown(["SAC, toy, 10 runs", "time of a step relative to `fixed`, median [range]"], body)


@table
def physics() -> str:
    """Environment steps of the C engine as ratios, with 512 environments."""
    body = []
    for case in measured("mujoco_physics_512")["cases"]:
        ratios = [case["ratios"][f"mujoco_over_{other}"]["median"] for other in ("raw_batch", "gymnasium")]
        body.append([case["task"], *(f"{ratio:.2f}" for ratio in ratios)])
    return markdown(["task", "rate relative to bare `mujoco.batch.Batch`", "rate relative to a Gymnasium loop"], body)


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
    return markdown(["one H100", "unit", "per second", "median ratio [range]"], body)


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
    return markdown(["toy task, 20,000 steps", "updates per second, all runs", "study, s", "memory, GiB"], body)


@table
def forecasts() -> str:
    """Dry runs and the studies they forecast."""
    studies = measured("dry_run")["studies"]
    body = [
        [name, f"{s['forecast']:.1f}", f"{s['real']:.1f}", f"{s['forecast_over_real']:.2f}"]
        for name, s in studies.items()
    ]
    return markdown(["study", "forecast, s", "measured, s", "ratio"], body)


@table
def compiler() -> str:
    """Curves with and without the safe compiler options."""
    body = []
    for curve in measured("compiler_options")["curves"]:
        change = f"{curve['difference']:+.2f} ± {curve['half_width']:.2f}"
        body.append([curve["study"], f"{curve['first_difference']:.0e}", change, f"{curve['mean_return'][0]:.1f}"])
    return markdown(
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
    return markdown([head, *(carrier.upper() for carrier in times)], body)


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
        body.setdefault(CARRIERS[case["carrier"]].label, []).extend(cells)
    head = ["agent", "toy: tracing", "compiling", "reading the cache", "Hopper, C engine: tracing", "compiling"]
    return markdown(head, [[name, *cells] for name, cells in body.items()])


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
    return markdown(["environments", *columns.values()], body)


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
    return markdown(["stream, updates apart", *(label for label, _, _ in _AT_EQUAL)], body)


@table
def detectors() -> str:
    """Synthetic jumps at equal false detections: share of all jumps detected, and the median delay."""
    data, body = measured("theory_detection")["data"], []
    for kind, of in data.items():
        for apart in (key for key in of["aes_c"]["own"] if key.isdigit() and kind not in _RECORDED):
            cells = [_detected(of, name, which, int(apart)) for _, name, which in _AT_EQUAL]
            body.append([f"{kind}, {int(apart):,}", *cells])
    return markdown(["stream, observations apart", *(label for label, _, _ in _AT_EQUAL)], body)


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
    return markdown(["stream", *_DETECTORS], body)


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
    return markdown(["task", "samples", "random actions", "zero actions", "PPO, each seed", "published"], body)


@table
def mujoco_learning() -> str:
    """Agents on MuJoCo tasks without drift, and SBX's SAC: the last evaluation of each seed."""
    studies = [(own, own["trained"]) for own in measured("mujoco_learning")["studies"]]
    sbx = measured("sbx_learning")
    body = []
    for own, steps in (*studies, (sbx, sbx["step"][-1])):
        seeds = ", ".join(f"{curve[-1]:,.0f}" for curve in own["return_mean"].values())
        body.append([f"{own['task']}, {own['carrier']}", f"{steps:,}", seeds])
    return markdown(["task, agent", "steps", "return of each seed"], body)


@table
def engines() -> str:
    """MuJoCo Warp compared with the C engine under equal random actions."""
    body = []
    for own in measured("parity/engines")["tasks"]:
        gaps = [f"{own['observation'][steps][1]:.0e}".replace("e-0", "e-").replace("e+0", "e") for steps in ("1", "20")]
        returns = ["{:,.1f} [{:,.1f}, {:,.1f}]".format(*own["returns"][engine]) for engine in ("warp", "mujoco")]
        body.append([f"`{own['task']}`", *gaps, f"{own['departed']:.0%}", *returns])
    head = ["task", "after 1 step", "after 20", "departed by 200", "return, Warp", "return, C engine"]
    return markdown(head, body)


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
    return markdown(
        ["drifting parameters", "proxy", "changes detected", "median delay, updates", "false detections"], body
    )


@table
def vector_env() -> str:
    """Rates of ``make_vec`` relative to AsyncVectorEnv."""
    body = []
    for case in measured("vector_env")["cases"]:
        ratio, cpu = case["ratios"]["make_vec_over_async"], case["steps_per_cpu_second"]["ratio"]
        body.append([f"`{case['task']}`", f"{case['medians']['make_vec']:,.0f}", ranged(ratio), f"{cpu:.1f}"])
    header = ["`make_vec`", "steps per second", "rate / `AsyncVectorEnv`, median [range]", "the same per CPU second"]
    return markdown(header, body)

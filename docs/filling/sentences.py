"""Sentences that contain numbers of the stored records."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator

import polars as pl

from agents import CARRIERS
from experiments.measure.comparisons import BETTER, EQUAL, EQUIVALENT, UNDECIDED, WORSE, contrasts
from experiments.measure.stats import t_interval
from experiments.measure.study import STEADY
from experiments.paper import early, tables
from experiments.paper.judge import VERDICTS
from experiments.paper.learned import learned, needed, published
from experiments.paper.record import methods_of, valid_mean
from experiments.paper.tables import BASELINE, LEVEL, PUBLISHED, RATIO, RECENT, TIMING, TUNED, Setting
from experiments.study.method import BLOCKS
from filling.differences import FAMILIES, Contrast, tested
from filling.durations import on_two_cores
from filling.records import audited, compared, grid, measured, rates, stored, time_ratio
from filling.registry import table, text
from filling.results import confirmed

OBSERVED, HISTORY = "`fixed`, drift observed", "`fixed`, last 4 observations"
LABELS = {"halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d"}


def longest(test: Callable[[Setting], bool] = lambda setting: True) -> list[Setting]:
    """The settings of the grid at their longest horizons that pass a test."""
    return [setting for setting in tables.longest(grid()) if test(setting)]


def outcomes(
    settings: Iterable[Setting], row: str, part: str, *, pinned: bool | None = None, drifting: bool = True
) -> Counter:
    """Number of patterns per outcome, over settings: of those that drift, or of runs without drift."""
    kinds = {"pinned": pinned, "drifting": drifting}
    return Counter(each for setting in settings for each in tables.outcomes(setting, row, part, **kinds))


def of(counts: Counter, outcome: str = BETTER) -> str:
    """`2 of 36`."""
    return f"{counts[outcome]} of {counts.total()}"


def listed(words: Iterable[str]) -> str:
    """Words with commas, and `and` before the last."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _moving(settings: Iterable[Setting], row: str) -> list[Setting]:
    """Those in which published AES moves its weight under a pattern that is compared with a row."""
    return [each for each in settings if outcomes([each], row, "published", pinned=False)]


def _agents(settings: Iterable[Setting]) -> str:
    """The agents of some settings."""
    return listed(dict.fromkeys(each.methods[BASELINE] for each in settings))


def robots() -> list[Setting]:
    """Robots whose agents had learned before the first change."""
    return longest(lambda setting: setting.is_robot)


def robot_names() -> str:
    """Robots that have learned, each with its agents."""
    agents: dict[str, list[str]] = {}
    for each in robots():
        agents.setdefault(LABELS.get(each.task, each.task), []).append(each.methods[BASELINE])
    return listed(f"{name} ({', '.join(own)})" for name, own in agents.items())


@text
def verdict() -> list[str]:
    """The answer: published AES where its weight moves, and tuned AES against a tuned constant."""
    every = longest()
    alone, level = (outcomes(every, row, "published", pinned=False) for row in (BASELINE, LEVEL))
    pinned, tuned = outcomes(every, BASELINE, "published", pinned=True), outcomes(every, TUNED, "tuned", pinned=False)
    moving = _moving(every, BASELINE)
    places = "small tasks and robots" if any(each.is_robot for each in moving) else "small tasks"
    gains = [
        contrast.interval.value / contrast.gain
        for each in every
        for contrast in tables.cells_of(each, TUNED, "tuned", pinned=False, drifting=True).values()
        if contrast.outcome == BETTER
    ]
    size = f", by at most {100 * max(gains):.0f} % of the agent's gain," if gains else ""
    return [
        f"**With the paper's numbers, AES earns less than the agent alone in {of(alone, WORSE)} settings and more in "
        f"{alone[BETTER]}. For {_agents(_moving(every, LEVEL))} a constant with the mean of its weight is equivalent "
        f"in {of(level, EQUIVALENT)}.**",
        f"**With its factor `kappa` tuned, AES earns more than a tuned constant in {of(tuned)} settings{size} and less "
        f"in {tuned[WORSE]}.**",
        f"Counted are settings in which the weight moves: of published AES with {_agents(moving)} on {places}. In "
        f"{pinned.total()} others it stays at a bound, so that AES is a constant.",
    ]


@text
def calm() -> list[str]:
    """Outcomes without drift."""
    alone = outcomes(longest(), BASELINE, "published", pinned=False, drifting=False)
    tuned = outcomes(longest(), TUNED, "tuned", pinned=False, drifting=False)
    own = outcomes(longest(), BASELINE, "tuned", drifting=False)
    return [
        f"Without drift published AES, where its weight moves, is better than the agent alone in {of(alone)} cases and "
        f"worse in {alone[WORSE]}; tuned AES is better than a tuned constant in {of(tuned)} and worse in "
        f"{tuned[WORSE]}; a tuned constant is better than the agent's own weight in {of(own, WORSE)} and worse in "
        f"{own[BETTER]}.",
    ]


@text
def unknown() -> list[str]:
    """The open part of the answer."""
    undecided = of(outcomes(longest(), TUNED, "tuned", pinned=False), UNDECIDED)
    trained = f"only {robot_names()} had learned before the first change" if robots() else "none had learned in time"
    return [f"Not known: {undecided} comparisons of tuned AES are undecided, and of the robots {trained}."]


@text
def on_robots() -> list[str]:
    """The answer on robots whose agents have learned."""
    if not robots():
        return ["No robot can be judged: no stored agent had learned before its robot changed."]
    own = outcomes(robots(), TUNED, "tuned", pinned=False)
    published, pinned = (outcomes(robots(), PUBLISHED, "tuned", pinned=pinned) for pinned in (None, True))
    return [
        f"**Against a tuned constant, tuned AES earns more in {of(own)} settings of trained robots, less in "
        f"{own[WORSE]}, and {own[UNDECIDED]} are undecided.** Published AES earns less in "
        f"{of(published, WORSE)}; its weight is at a bound in {pinned.total()} of them, so that two constants are "
        "compared.",
    ]


@text
def not_learned() -> list[str]:
    """Agents of part G that had not learned when their robots changed."""
    steady = tables.alone_without_drift(stored().runs.filter(pl.col("study").str.starts_with("G-")))
    sentences = []
    for row in learned(steady, "task", "carrier").filter(~pl.col("learned")).iter_rows(named=True):
        task, carrier = row["task"], row["carrier"]
        own = steady.filter(task=task, carrier=carrier)
        change, level = own.select(valid_mean("first_change", "before_change")).row(0)
        sentences.append(
            f"{LABELS.get(task, task)} with {CARRIERS[carrier].label} is left out: before the first change, after "
            f"{change:,.0f} steps, it earned {level:,.0f}, and an agent that has learned earns at least "
            f"{needed(task, carrier, change):,.0f}."
        )
    return sentences


@text
def recoveries() -> list[str]:
    """Recovery of published AES where its weight moves."""
    every = tables.longest(grid("recovery"))
    counts = outcomes(every, BASELINE, "published", pinned=False)
    faster, lower = _places(every, BETTER), _places(longest(), WORSE)
    return [
        f"In recovery time published AES, where its weight moves, is better than the agent alone in {of(counts)} "
        f"settings and worse in {counts[WORSE]} ([other metrics](comparisons.md#the-papers-three-metrics)).",
        f"In {len(faster & lower)} of the better ones, on {_named({task for task, *_ in faster & lower})}, AES earns "
        "less, and a lower level is regained sooner.",
    ]


def _places(settings: Iterable[Setting], outcome: str) -> set[tuple[str, str, str]]:
    """Task, carrier and pattern where moving weights of published AES have an outcome against the agent alone."""
    return {
        (setting.task, setting.carrier, pattern)
        for setting in settings
        for pattern, contrast in tables.cells_of(setting, BASELINE, "published", pinned=False).items()
        if contrast.outcome == outcome
    }


@text
def beside_public() -> list[str]:
    """Share of the public return that SAC earns without drift, with t intervals over seeds."""
    steps, shares = 300_000, []
    for task, name in LABELS.items():
        runs, public = tables.without_drift(stored().runs, task, "sac"), published(task, "sac").filter(steps=steps)
        returns = tables.earned(runs, stored().curves, steps)
        if len(returns):
            share, low, high = t_interval(100 * returns / public["return"].item())
            shares.append(f"{share:.0f} % [{low:.0f}, {high:.0f}] ({name})")
    return [f"After {steps:,} steps without drift SAC earns {listed(shares)} of the public return, over five seeds."]


def _changed(name: str, test: Callable[[Contrast], bool] = lambda row: True, *, drifting: bool = False) -> Counter:
    """Outcomes of the rows of a table of differences that pass a test, in all patterns or in those that drift."""
    family = FAMILIES[name]
    return Counter(
        each.outcome
        for (at, pattern), each in tested(family).items()
        if test(family.rows[at]) and not (drifting and pattern == STEADY)
    )


def _of_toy(row: Contrast) -> bool:
    return row.task == "toy"


def _of_mechanics(row: Contrast) -> bool:
    return row.task != "toy"


def _untimed(row: Contrast) -> bool:
    """Whether resets on the toy task do not coincide with the changes."""
    return row.task == "toy" and "20 %" not in row.label


def _of_pendulum(row: Contrast) -> bool:
    return row.task == "pendulum"


def _steps(*, drifting: bool = False) -> Counter:
    """Outcomes of one gradient step per environment step minus a quarter, on two mechanical tasks."""
    return _changed("steps-small", _of_mechanics, drifting=drifting)


def _recent(test: Callable[[Setting], bool] = lambda setting: True) -> Counter:
    """Outcomes of `fixed+recent` minus the chosen constant under drift, SAC."""
    return Counter(
        contrast.outcome
        for setting in longest(lambda each: each.carrier == "sac" and test(each))
        for contrast in tables.cells_of(setting, RECENT, "tuned", drifting=True).values()
    )


@text
def instead() -> list[str]:
    """Recommendations with their numbers."""
    recent, pendulum = _recent(), _changed("recent", _of_pendulum, drifting=True)
    every = longest()
    own, ratio = (outcomes(every, row, "tuned") for row in (BASELINE, RATIO))
    best = max(outcomes(every, TUNED, "tuned", pinned=False)[BETTER], ratio[BETTER])
    return [
        "- **Compare with a tuned constant weight** ([how](docs/tuning.md)). It is better than the agent's own weight "
        f"in {of(own, WORSE)} settings, worse in {own[BETTER]} and undecided in {own[UNDECIDED]}. Neither AES nor "
        f"`aes_r` is better than it in more than {best} setting{'s' * (best > 1)}.",
        "- **Take one gradient step per environment step.** With SAC this is better than a quarter of one in "
        f"{of(_steps())} settings of two mechanical tasks. It costs four times as many updates, and is the default "
        "except on Isaac tasks.",
        f"- **With SAC under drift, try newer data** (`fixed+recent`): better than a tuned constant in {of(recent)} "
        f"settings, worse in {recent[WORSE]} and undecided in {recent[UNDECIDED]}. On the pendulum it is worse than "
        f"the same constant without it in {of(pendulum, WORSE)}.",
    ]


@text
def without_gain() -> list[str]:
    """Settings in which no comparison can be equivalent."""
    flat = longest(lambda setting: not setting.gain > 0)
    tuned, flat = (outcomes(own, TUNED, "tuned", pinned=False).total() for own in (longest(), flat))
    return [
        f"- In {flat} of the {tuned} comparisons of tuned AES the agent has no clear gain over random actions, so that "
        "no difference can be equivalent."
    ]


@text
def apart() -> list[str]:
    """Tuned AES in part H, whose numbers are chosen on the beginning of runs without drift."""
    own = _rivals()["`aes`"]
    return [
        "- Part H has [rivals of AES](what_helps.md#head-to-head) and is not counted above. Its numbers are chosen on "
        "the first tenth of runs without drift. Tuned AES against a tuned constant under drift there: "
        f"{_decided(own)}.",
    ]


def _at_an_end(tried: pl.DataFrame, chosen: Container[str]) -> Iterator[str]:
    """Names of the numbers of which a chosen method has the smallest or the largest of those tried."""
    weights = dict(tried.group_by("method").agg(valid_mean("mean_entropy_weight")).iter_rows())
    every = methods_of(tried)
    values = {
        "constant": {name: weights[name] for name, method in every.items() if method.follows("fixed")},
        "`kappa`": {name: tables.kappa_of(method) for name, method in every.items() if method.follows("aes")},
    }
    for number, own in values.items():
        if own and any(end(own, key=own.get) in chosen for end in (min, max)):
            yield number


@text
def ends_of_the_values() -> list[str]:
    """Chosen numbers at an end of the values that were tried, and what lies beyond those of SAC."""
    runs = stored().runs
    constants = runs.filter(pl.col("method").str.starts_with("SAC+fixed["))
    ends: dict[str, dict[str, set[str]]] = {"constant": {}, "`kappa`": {}}

    def note(carrier: str, task: str, tried: pl.DataFrame, chosen: Container[str]) -> None:
        for number in _at_an_end(tried, chosen):
            ends[number].setdefault(CARRIERS[carrier].label, set()).add(task)

    for (study, task, carrier), tried in runs.group_by("study", "task", "carrier"):
        if study.endswith(f"-{carrier}-trials"):
            note(carrier, task, tried, runs.filter(study=study.removesuffix("-trials"))["method"].unique())
    for each in longest(lambda setting: bool(setting.tuned) and not setting.tuned_before):
        tried = each.runs.filter(pl.col("mean_entropy_weight") > 0.0)
        note(each.carrier, each.task, tried, (each.constant, each.methods[TUNED]))
    beyond = constants.filter(pl.col("study").str.ends_with("-wider-trials")).sort("seed")
    differences = {}
    for (group, name), wider in beyond.group_by("group", "method", maintain_order=True):
        (end,) = constants.filter(study=group.removesuffix("-trials"))["method"].unique()
        chosen = constants.filter(study=group, method=end).sort("seed")
        differences[group, name] = (wider["mean_return"] - chosen["mean_return"]).to_numpy()
    found = Counter(contrast.outcome for contrast in contrasts(differences).values())
    places = {
        number: listed(f"{agent} ({_named(tasks)})" for agent, tasks in sorted(own.items()))
        for number, own in ends.items()
    }
    return [
        f"- The chosen constant is the smallest or the largest value tried for {places['constant']}.",
        f"  So is the chosen `kappa` for {places['`kappa`']}.",
        f"  Of {found.total()} constants beyond SAC's, tried on {_named(beyond['task'].unique())} alone, "
        f"{found[BETTER] or 'none'} is significantly better on the five seeds that chose, "
        f"{found[WORSE] or 'none'} is worse, and {found[UNDECIDED]} are undecided.",
    ]


def _named(tasks: Iterable[str]) -> str:
    """Tasks in the order of the alphabet, as in code."""
    return listed(f"`{task}`" for task in sorted(tasks))


@text
def claims() -> list[str]:
    """The paper's claims by verdict, as the audit counts them, and those for which the paper has numbers."""
    numbers = Counter(claim["verdict"] for claim in audited()["claims"] if claim["paper"] != "no number")
    counts = ", ".join(f"{numbers[kind]} {kind}" for kind in VERDICTS)
    return [
        audited()["sentence"].partition(" at the scale")[0] + " at the scale of our runs.",
        f"For {numbers.total()} of them the paper has a number: {counts}.",
    ]


@text
def claims_apart() -> list[str]:
    """Sections of the contradicted claims, and the main reason of the undecided ones."""
    of_verdict: dict[str, list[dict]] = {}
    for claim in audited()["claims"]:
        of_verdict.setdefault(claim["verdict"], []).append(claim)
    sections = sorted({claim["section"] for claim in of_verdict["contradicted"]})
    open_ones = of_verdict["undecided"]
    waiting = sum(claim["reason"] == "horizon" for claim in open_ones)
    return [
        f"The contradicted claims are in the sections {listed(sections)}. Of the {len(open_ones)} undecided claims "
        f"{waiting} need agents that have learned before the changes."
    ]


@text
def level_and_timing() -> list[str]:
    """Level and timing of the weight where it moves."""
    own = longest(lambda setting: LEVEL in setting.methods or TIMING in setting.methods)
    moving = _moving(own, LEVEL)
    level, timing = (outcomes(own, row, "published", pinned=False) for row in (LEVEL, TIMING))
    return [
        f"**For {_agents(moving)} on {_named({each.task for each in moving})} the timing of the weight hardly "
        "matters.** Where the weight moves, AES is "
        f"equivalent to a constant of equal mean in {of(level, EQUIVALENT)} settings,",
        f"and to its own weights at other times ({BLOCKS} blocks, permuted) in {of(timing, EQUIVALENT)}. It is better "
        f"than the constant in {level[BETTER]} and than the permuted weights in {timing[BETTER]}.",
    ]


@text
def early_answer() -> list[str]:
    """Outcomes of AES and a constant that are both chosen on the first tenth of runs; equal ones are left out."""
    counts = Counter[str]()
    for setting in early.judged(grid()):
        counts.update(each.outcome for each in early.early(setting, stored().curves, 0.1).contrasts.values())
    del counts[EQUAL]
    return [
        f"**Chosen on the first tenth, AES is better than the constant in {of(counts)} settings and worse in "
        f"{counts[WORSE]}; {counts[UNDECIDED]} are undecided.**",
    ]


@text
def toy_sac() -> list[str]:
    """SAC on the toy task, where AES looks best."""
    own = longest(lambda setting: (setting.task, setting.carrier) == ("toy", "sac"))
    alone, tuned = outcomes(own, BASELINE, "published"), outcomes(own, PUBLISHED, "tuned")
    weak = outcomes(own, BASELINE, "tuned")
    return [
        f"**AES looks best with SAC on the toy task**, where it is better than SAC's own tuning in {of(alone)}.",
        "A tuned constant, compared on the half of the seeds that did not choose it, is better than SAC's own tuning "
        f"in {of(weak, WORSE)}, and better than AES in {of(tuned, WORSE)}.",
    ]


@text
def movements() -> list[str]:
    """Movements of the weight, and recovery, from the audit."""
    judged = {claim["key"]: claim for claim in (*audited()["claims"], *audited()["questions"])}
    rise, level = 100 * judged["I1"]["difference"], judged["I2"]["difference"]
    own, fixed = (_points(judged[key]) for key in ("C1", "AES 4"))
    return [
        f"- **Weight.** After an abrupt change the weight of AES rises by {rise:.1f} % more than without one (I1); "
        f"under drift it is larger by {level:.2f} (I2).",
        "- **Recovery**, SAC on the toy task, in points of training with 95 % intervals: AES minus SAC's own tuning "
        f"{own}, AES minus SAC's constant {fixed}.",
    ]


def _points(claim: dict) -> str:
    """A difference in % of training with its interval."""
    difference, low, high = (100 * value for value in (claim["difference"], *claim["interval"]))
    return f"{difference:+.1f} [{low:.1f}, {high:.1f}]"


@table
def choose() -> str:
    """The recommendations by task and agent, with their evidence."""
    tuned, recent = outcomes(longest(), TUNED, "tuned", pinned=False), _recent()
    own = outcomes(longest(), BASELINE, "tuned")
    toy, untimed, mechanics = (_changed("resets", test) for test in (_of_toy, _untimed, _of_mechanics))
    pendulum = _changed("recent", _of_pendulum, drifting=True)
    lost = f"pendulum: worse than the same constant without it in {of(pendulum, WORSE)}"
    body = [
        [
            "no drift, or unknown",
            "any",
            "`fixed:base=...`, tuned",
            f"better than the agent's own weight in {of(own, WORSE)} settings, worse in {own[BETTER]}, undecided in "
            f"{own[UNDECIDED]}; tuned AES is better than it in {of(tuned)}",
        ],
        [
            "goals or dynamics drift",
            "SAC",
            "`fixed+recent`, compared with `fixed` on your task",
            f"better than a tuned constant in {of(recent)} drifting settings, worse in {recent[WORSE]}, undecided in "
            f"{recent[UNDECIDED]}; {lost}",
        ],
        [
            "fewer gradient steps than environment steps",
            "SAC",
            "one gradient step per environment step",
            f"against a quarter: better in {of(_steps())} settings of two mechanical tasks",
        ],
        [
            "any",
            "PPO",
            "`fixed:base=...`, tuned; no partial resets",
            f"resets, against PPO's default weight: better in {of(toy)} settings of the toy task and worse in "
            f"{toy[WORSE]} (at times that are no changes {of(untimed)} and {untimed[WORSE]}); on three mechanical "
            f"tasks worse in {of(mechanics, WORSE)}",
        ],
    ]
    return tables.markdown(["your task", "agent", "use", "evidence"], body)


def _rivals(*, drifting: bool = True) -> dict[str, dict[str, str]]:
    """Outcomes in evaluation of the rivals of AES, under drift or without: label -> task -> outcome."""
    found: dict[str, dict[str, str]] = {}
    for comparison in compared():
        for rival in comparison.rivals:
            outcome = rival.contrasts["mean_return", drifting].outcome
            found.setdefault(rival.label, {})[comparison.config.task] = outcome
    return found


def _tasks_with(outcomes: dict[str, str], outcome: str) -> str:
    """Tasks with an outcome, as in code; empty without one."""
    tasks = [task for task, own in outcomes.items() if own == outcome]
    return _named(tasks) if tasks else ""


@text
def helps_answer() -> list[str]:
    """The answer by kind of help."""
    small, toy = _recent(lambda setting: not setting.is_robot), _changed("resets", _of_toy, drifting=True)
    robot, pendulum = _recent(lambda setting: setting.is_robot), _changed("recent", _of_pendulum, drifting=True)
    tasks = dict.fromkeys(setting.task for setting in longest(lambda setting: setting.carrier == "sac"))
    gaining = [task for task in tasks if _recent(lambda setting, own=task: setting.task == own)[BETTER]]
    mechanics, untimed = (_changed("resets", test, drifting=True) for test in (_of_mechanics, _untimed))
    return [
        "- **More gradient steps help SAC on mechanical tasks.** One per environment step is better than a quarter of "
        f"one in {of(_steps(drifting=True))} drifting settings.",
        f"- **Newer data helps SAC on {listed(f'`{task}`' for task in gaining)}.** `fixed+recent` is better than a "
        f"tuned constant in {of(small)} drifting settings of four small tasks and {of(robot)} of trained robots, "
        f"worse in {small[WORSE] + robot[WORSE]} and undecided in {small[UNDECIDED] + robot[UNDECIDED]}. On "
        f"`pendulum` it is worse than the same constant without it in {of(pendulum, WORSE)}.",
        "- **Partial resets help PPO on the toy task alone.** Compared with PPO's default weight they are better "
        f"there in {of(toy)} drifting settings and worse in {toy[WORSE]}, at times that are no changes in "
        f"{of(untimed)} and {untimed[WORSE]}; on mechanical tasks they are worse in {of(mechanics, WORSE)}.",
        *_normalised_critic(),
        *_head_to_head(),
    ]


def _normalised_critic() -> list[str]:
    """CrossQ minus SAC in the last tenth of a study without drift, by seed."""
    rows = stored().curves.filter(study="S-hopper-100000")
    late = rows.filter(pl.col("step") > 0.9 * pl.col("step").max())
    ends = late.group_by("method", "seed").agg(pl.col("return_mean").mean()).pivot("method", index="seed")
    value, low, high = t_interval((ends["CrossQ"] - ends["SAC"]).to_numpy())
    every = tables.earned(tables.without_drift(stored().runs, "hopper", "sac"), stored().curves, 100_000)
    lost = _tasks_with(_rivals(drifting=False).get("CrossQ `fixed`", {}), WORSE)
    elsewhere = f" With a tuned constant it earns less than SAC without drift on {lost}." if lost else ""
    return [
        f"- **A normalised critic learned faster on Hopper.** CrossQ earns {value:,.0f} [{low:,.0f}, {high:,.0f}] more "
        f"than SAC's {ends['SAC'].mean():,.0f} there without drift, after 100,000 steps and with five seeds; SAC's "
        f"mean over all of our [runs](by_task.md#returns-of-our-agents) is {every.mean():,.0f}.{elsewhere}",
    ]


def _head_to_head() -> list[str]:
    """The rivals that win and lose under drift, and AES; nothing without part H."""
    rivals = _rivals()
    if not rivals:
        return []
    methods = {label: own for label, own in rivals.items() if label != OBSERVED and " minus " not in label}
    sentences = ["- **Head to head under drift**, in evaluation, against SAC with a tuned constant:"]
    for comparison in compared():
        better, worse = (_with_outcome(methods, comparison.config.task, outcome) for outcome in (BETTER, WORSE))
        sentences.append(f"  - `{comparison.config.task}`: better: {better}; worse: {worse}.")
    if critic := rivals.get("CrossQ `aes` minus CrossQ `fixed`"):
        sentences.append(f"- **With a normalised critic** AES against a tuned constant: {_decided(critic)}.")
    if seen := rivals.get(OBSERVED):
        sentences.append(
            f"- **An agent that observes the drift**, a reference and no bound: {_decided(seen)}. One that sees its "
            f"last four observations: {_decided(rivals[HISTORY])}."
        )
    return sentences


def _with_outcome(rivals: dict[str, dict[str, str]], task: str, outcome: str) -> str:
    """`A and B`: methods with an outcome on a task."""
    labels = [label for label, outcomes in rivals.items() if outcomes.get(task) == outcome]
    names = [f"{name} ({kind})" if kind else name for name, _, kind in (label.partition(", ") for label in labels)]
    return listed(names) if names else "none"


def _decided(outcomes: dict[str, str]) -> str:
    """`better on 1 of 3 tasks, worse on none, undecided on 2`."""
    counts = Counter(outcomes.values())
    return (
        f"better on {counts[BETTER] or 'none'} of {len(outcomes)} tasks, worse on {counts[WORSE] or 'none'}, "
        f"undecided on {counts[UNDECIDED] or 'none'}"
    )


@text
def rival_times() -> list[str]:
    """Time of a step of CrossQ and of the other rivals, over that of SAC with a constant weight."""
    (case,) = measured("rivals")["cases"]
    constant, *rivals = case["medians"]
    medians = {label: time_ratio(case, label, constant)["median"] for label in rivals}
    critic = medians.pop("CrossQ `fixed`")
    return [
        f"A step of CrossQ takes {critic:.1f} times as long as one of SAC with a constant weight, and of the others at "
        f"most {max(medians.values()):.1f} times ([all](performance.md#rivals-of-aes)).",
    ]


@text
def helps_elsewhere() -> list[str]:
    """Which recommendations hold on the notebook's environment."""
    named = {BETTER: "Better than the alternative", WORSE: "Worse", UNDECIDED: "Undecided"}
    found: dict[str, list[str]] = {}
    for (label, pattern, metric), contrast in confirmed().items():
        if (pattern, metric) == ("abrupt", "mean_return"):
            found.setdefault(contrast.outcome, []).append(label.partition(" (")[0])
    return [f"- {named[outcome]}: {listed(found[outcome])}." for outcome in named if outcome in found]


@text
def helps_recent() -> list[str]:
    """Newer data against the constant of equal weight."""
    family, outcomes = FAMILIES["recent"], _changed("recent")
    losing = {family.rows[at].task for (at, _), each in tested(family).items() if each.outcome == WORSE}
    return [
        f"Against the constant of equal weight newer data is better in {of(outcomes)} settings and worse in "
        f"{outcomes[WORSE]}, all of them on {listed(f'`{task}`' for task in sorted(losing))}.",
    ]


@text
def helps_replay() -> list[str]:
    """Whether a short replay does what `fixed+recent` does."""
    rivals = _rivals()
    short, newer = rivals.get("`fixed`, short replay"), rivals.get("`fixed+recent`", {})
    if short is None:
        return ["- The gain of newer data may be that of a smaller replay, which was not compared."]
    return [
        "- Part H: a replay as short as the window of `recent`, against a tuned constant under drift: "
        f"{_decided(short)}. `fixed+recent`: {_decided(newer)}.",
    ]


@text
def helps_resets() -> list[str]:
    """Resets that are not timed to the changes, and resets after detections."""
    apart, detected = _changed("resets", _untimed), _changed("resets-detected")
    return [
        f"Resets on the toy task that do not coincide with the changes are better in {of(apart)} settings and worse in "
        f"{apart[WORSE]}.",
        f"The method `aes_c+refresh` is better than PPO's default constant in {of(detected)} settings and worse in "
        f"{detected[WORSE]}.",
    ]


@text
def helps_robots() -> list[str]:
    """Adaptations on robots of the earlier studies."""
    own = _changed("robot-adaptations")
    return [
        f"Compared with the default constant, adaptations are better in {of(own)} settings and worse in {own[WORSE]}."
    ]


@text
def how_long() -> list[str]:
    """Minutes of two typical studies on two cores."""
    minutes = {rate.task: rate.typical_minutes for rate in rates() if on_two_cores(rate) and rate.carrier == "sac"}
    return [
        "**Choose the size of a study by its training time: on two CPU cores, at preset `quick`, SAC takes "
        f"{minutes['hopper']:.0f} minutes on Hopper and {minutes['isaac_ant']:.0f} on Isaac Ant.**"
    ]


@text
def rates_of_training() -> list[str]:
    """Rates relative to rejax, and the cost of a schedule."""
    cases = measured("updates_rejax")["cases"]
    faster = [case["ratios"]["fixed_over_rejax"]["median"] for case in cases]
    cost = [ratio for case in cases if (ratio := time_ratio(case, "aes", "fixed"))]
    slower = [own["median"] for own in cost if own["min"] > 1.0]
    medians = [100 * (own["median"] - 1.0) for own in cost]
    noise = f"costs no more than the noise on a CPU (medians {min(medians):+.0f} to {max(medians):+.0f} %)"
    on_a_cpu = f"costs up to {max(slower) - 1.0:.0%} on a CPU" if slower else noise
    on_a_gpu = next(
        case["ratios"]["time_of_aes_over_fixed"]["median"] for case in measured("h100")["cases"] if "runs" in case
    )
    return [
        f"On two CPU cores SAC and PPO train {min(faster):.1f} to {max(faster):.1f} times as fast as in "
        "[rejax](https://github.com/keraJLi/rejax), another JAX library of agents.",
        f"A schedule {on_a_cpu}, and {100 * (on_a_gpu - 1.0):.0f} % on an H100.",
    ]


@text
def limit_of_learning() -> list[str]:
    """The share of matrix products in a gradient step."""
    cases = measured("learning_step")["cases"]
    share = [case["ratios"]["time of matrix products alone / gradient step"]["median"] for case in cases]
    return [
        "**Products of small matrices limit SAC on a CPU.** Alone they take "
        f"{100 * min(share):.0f} to {100 * max(share):.0f} % of the time of a gradient step."
    ]


@text
def adaptation_costs() -> list[str]:
    """The cost of more gradient steps."""
    (case,) = measured("adaptation_cost")["cases"]
    longer = time_ratio(case, "fixed+utd", "fixed")
    return [
        "[Adaptations](adaptations.md) with four gradient steps per vector step (`utd`) take "
        f"{longer['median']:.1f} times as long."
    ]


@text
def physics_rates() -> list[str]:
    """The C engine against the bare engine and a Gymnasium loop."""
    ratios = [case["ratios"] for case in measured("mujoco_physics_512")["cases"]]
    bare = min(own["mujoco_over_raw_batch"]["median"] for own in ratios)
    loop = min(own["mujoco_over_gymnasium"]["median"] for own in ratios)
    return [
        f"The jitted scan on MuJoCo's C engine reaches at least {100 * bare:.0f} % of the bare engine's rate, and is "
        f"at least {loop:.1f} times as fast as a Gymnasium loop."
    ]


@text
def growth_of_a_study() -> list[str]:
    """Time and memory of the largest study over those of one run."""
    studies = measured("growth")["runs"]
    most = max(study["runs"] for study in studies)
    single = {study["carrier"]: study for study in studies if study["runs"] == 1}
    large = [(study, single[study["carrier"]]) for study in studies if study["runs"] == most]
    time = [study["study_seconds"] / one["study_seconds"] for study, one in large]
    memory = [study["peak_bytes_of_the_process"] / one["peak_bytes_of_the_process"] for study, one in large]
    compiling = [study["seconds"]["lowering"] + study["seconds"]["compiling"] for study in studies]
    return [
        f"A study of {most} runs takes {min(time):.0f} to {max(time):.0f} times as long as a single run. Memory grows "
        f"by at most {100 * (max(memory) - 1.0):.0f} %.",
        f"Tracing and compiling take {min(compiling):.0f} to {max(compiling):.0f} s of each study.",
    ]

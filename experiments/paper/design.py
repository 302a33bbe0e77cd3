"""The design: the methods of every carrier and task, in parts, from which all tables of the paper and verdicts follow.

Each carrier has its baseline, AES as published, AES with three smaller kappas, four constants, `aes_r`, and the two
controls of the published AES. At the small scale robots, and SQL and MEow on the toy task and the small mechanics, have
the baseline, SAC's constant and published AES, with five seeds. SAC, SQL and MEow take one gradient step per
environment step on the toy task, the small mechanics and MuJoCo; on Isaac they take one per vector step of 64
environments. The authors' code does so with 512.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from aesjax.adaptations import burst, fire, fire_reset, geometric, recent, refresh, reset, utd
from aesjax.registry import Registry, lookup
from aesjax.schedules import aes, aes_c, aes_r, fixed, trend
from agents import CARRIERS
from agents.common import LoopConfig
from experiments.presets import presets_of
from experiments.session.study import Study, TuneOptions
from experiments.study.method import Control, Method
from experiments.study.text import parse_method

Scale = Literal["small", "paper"]
PATTERNS = "steady,abrupt,linear,periodic,mixed,sawtooth"
#: Factors of AES besides the published 1, and constants as multiples of the preset's weight, by carrier.
KAPPAS = {"ppo": (0.003, 0.01, 0.03)}
CONSTANTS = {"ppo": (0.3, 1.0, 3.0, 10.0)}
_KAPPAS, _CONSTANTS = (0.03, 0.1, 0.3), (0.4, 1.0, 4.0, 10.0)
_CONTROLS = ("constant_at_mean", "permuted")
#: The paper's carriers.
PUBLISHED = ("sac", "ppo", "sql", "meow")
#: The paper's families and their tasks, by our names.
TASKS: Mapping[str, tuple[str, ...]] = {
    "toy": ("toy",),
    "mujoco": ("hopper", "halfcheetah", "walker2d", "ant", "humanoid"),
    "isaac": (
        *("isaac_ant", "isaac_humanoid", "isaac_ingenuity"),
        *("isaac_anymal", "isaac_allegro_hand", "isaac_franka_cabinet"),
    ),
}
#: Five values of the one number of a schedule among which parts G and H choose: kappa of AES, the base of others.
_WEIGHTS = {"sac": "0.02:0.5:5", "crossq": "0.02:0.5:5", "ppo": "0,0.0003,0.001,0.003,0.01"}
_FACTORS = {"sac": "0.003:0.3:5", "crossq": "0.003:0.3:5", "ppo": "0.0003:0.03:5"}
_COUPLED = "aes:coupling=1"  # in the paper's ablation learning rates follow the weight
_CLIPS = (("1e-5", "2"), ("1e-4", "1"), ("1e-5", "1"), ("1e-5", "0.5"), ("1e-4", "0.5"))
#: The paper's tables of Appendix B: table -> row -> the method as typed in `--schedules`, in the paper's order.
APPENDIX: dict[str, dict[str, str]] = {
    "ablation": {
        "Fixed lambda (No AES)": "fixed",
        "AES (Default)": _COUPLED,
        "Heuristic linear schedule": "linear",
        "AES w/o coupling": "aes",
        "AES w/o clipping": f"{_COUPLED}:lambda_min=0:lambda_max=inf",
        "AES (TD mean)": f"{_COUPLED}:proxy=td_mean",
        "AES (value loss)": f"{_COUPLED}:proxy=value_loss",
        "AES (critic drift)": f"{_COUPLED}:proxy=critic_drift",
    },
    "quantile": {f"q = {q}": f"aes:q={q}" for q in (0.5, 0.7, 0.8, 0.9, 0.95)},
    "ema": {f"beta = {beta}": f"aes:beta={beta}" for beta in (0.8, 0.9, 0.95, 0.98, 0.99)},
    "clip": {f"[{low}, {high}]": f"aes:lambda_min={low}:lambda_max={high}" for low, high in _CLIPS},
}


class Tuned(NamedTuple):
    """Methods whose numbers are chosen on other seeds and the beginning of runs, before the study of a cell."""

    methods: tuple[Method, ...]
    options: TuneOptions


class Cell(NamedTuple):
    """One study of the design: a carrier on a task."""

    name: str  # of its folder
    study: Study
    tuned: Tuned | None = None  # methods that join those of the study once they are tuned

    @property
    def untuned(self) -> Study:
        """The study with all of its methods, before any number is chosen."""
        methods = dict.fromkeys([*self.study.methods, *(self.tuned.methods if self.tuned else ())])
        return replace(self.study, methods=list(methods))


class Size(NamedTuple):
    """Sizes of the studies of one task; None: the preset's."""

    task: str
    steps: int | None = None
    seeds: str = "1:10"
    evaluations: int | None = 100
    episodes: int | None = None
    patterns: str = PATTERNS
    preset: str = "quick"
    onset: float = 0.0
    changes: str = "even"
    carriers: tuple[str, ...] = PUBLISHED
    channels: str | None = None


class Part(NamedTuple):
    """Some tasks of the design, at the small scale."""

    summary: str
    sizes: tuple[Size, ...]


def _learned(task: str, steps: int, *carriers: str, seeds: str = "1:5") -> Size:
    """A robot that learns for half of the run before it changes, at unknown times or all the time.

    In the wide ranges an agent that was trained without drift loses about half of its gain over random actions; in the
    usual ones a twelfth on Hopper and a fifth on HalfCheetah.
    """
    return Size(
        task, steps, seeds, episodes=2, patterns=_RANDOM, onset=0.5, changes="random", carriers=carriers,
        channels="hard",
    )  # fmt: skip


def _settled(task: str) -> Size:
    """A small task that is learned before it changes, with seeds that no other part has."""
    return Size(task, 40_000, "21:30", patterns=_JUMPS, onset=0.4, changes="random", carriers=_RIVALS)


_RIVALS = ("sac", "crossq")
_JUMPS = "steady,abrupt"
#: Robots of parts G and H; part H has the methods that part G lacks.
_ROBOTS = (("hopper", 150_000), ("halfcheetah", 100_000))
_RANDOM = "steady,abrupt,ou"
_RELEASED = "steady,abrupt,sawtooth,periodic,mixed_release"
_TEXT = PATTERNS.removesuffix(",sawtooth")
_TOY = Size("toy", 100_000)
_SMALL = ("reacher", "cartpole_swingup", "pendulum")
_MECHANICS = tuple(Size(task, 40_000) for task in _SMALL)
PARTS: Registry[Part] = Registry(
    "part",
    A=Part("the toy task of the text", (_TOY,)),
    B=Part(
        "the toy task of the authors' code",
        tuple(
            Size("toy_multigoal_classic", steps, "1:10", 20, None, _RELEASED, "release") for steps in (4_000, 40_000)
        ),
    ),
    C=Part("small mechanics", _MECHANICS),
    D=Part("MuJoCo", tuple(Size(task, 25_600, "1:5", 20, 2, _TEXT) for task in TASKS["mujoco"])),
    E=Part(
        "Isaac; a study of 512,000 steps takes minutes on a GPU, and half an hour or more on two cores",
        tuple(Size(task, steps, "1:5", 20, 2, _TEXT) for task in TASKS["isaac"] for steps in (51_200, 512_000)),
    ),
    F=Part(
        "adaptations on the tasks of A and C, for SAC and PPO",
        tuple(size._replace(carriers=("sac", "ppo")) for size in (_TOY, *_MECHANICS)),
    ),
    G=Part(
        "robots that learn before the drift begins; weights tuned on the first fifth of runs without drift",
        (
            _learned("hopper", 150_000, "sac"),
            _learned("hopper", 512_000, "ppo", seeds="1:10"),
            # After 50,000 steps SAC has what `learned` asks for here, and not yet on the two others.
            _learned("halfcheetah", 100_000, "sac"),
            _learned("halfcheetah", 512_000, "ppo"),
            _learned("walker2d", 150_000, "sac"),
            _learned("walker2d", 512_000, "ppo"),
        ),
    ),
    H=Part(
        "rivals of AES, each with numbers tuned on the first tenth of runs without drift, for SAC and CrossQ",
        (
            *(_settled(task) for task in ("toy", *_SMALL)),
            *(_learned(*robot, *_RIVALS)._replace(patterns=_JUMPS) for robot in _ROBOTS),
        ),
    ),
    S=Part(
        "robots without drift, whose returns are compared with public ones",
        (
            Size("hopper", 100_000, "1:5", 20, 5, "steady", carriers=_RIVALS),
            *(Size(task, 300_000, "1:5", 24, 5, "steady", carriers=("sac",)) for task in TASKS["mujoco"][:3]),
            *(Size(task, 100_000, "1:2", 20, 5, "steady", "paper", carriers=("sac",)) for task in TASKS["mujoco"][:2]),
        ),
    ),
    appendix=Part(
        "ablation, quantile, smoothing and clips on the toy task",
        (Size("toy", 40_000, "1:5", patterns=_TEXT),),
    ),
)


def methods(carrier: str, base: float) -> list[Method]:
    """The methods of one carrier, whose own constant is ``base``; without the controls, which need records."""
    constants = [base * factor for factor in CONSTANTS.get(carrier, _CONSTANTS)]
    constants = [0.0, *constants] if carrier == "ppo" else constants
    rows = [Method(carrier), *(Method(carrier, fixed(float(f"{weight:g}"))) for weight in constants)]
    rows += [Method(carrier, aes()), *(Method(carrier, aes(kappa=kappa)) for kappa in KAPPAS.get(carrier, _KAPPAS))]
    return [*rows, Method(carrier, aes_r())]


def core(carrier: str) -> list[Method]:
    """Published AES and its two opponents where nothing is tuned: the baseline, and SAC's constant."""
    return [Method(carrier), *([Method(carrier, fixed())] if carrier == "sac" else []), Method(carrier, aes())]


def released(carrier: str) -> list[Method]:
    """The methods on the authors' toy task: AES starts at its lower bound, and the baseline is the constant 2.5."""
    constants = [Method(carrier, fixed(weight)) for weight in (2.5, 1.0, 0.3)]
    rules = [Method(carrier, aes(base=1e-4)), *(Method(carrier, aes(base=1e-4, kappa=kappa)) for kappa in _KAPPAS)]
    return [Method(carrier), *constants, *rules]


def helpers(carrier: str) -> list[Method]:
    """Newer data, more gradient steps and partial resets; for PPO resets alone, at three intervals."""
    if carrier == "ppo":
        resets = [Method(carrier, fixed(), reset(every=every, strength=0.5)) for every in (0.17, 0.2, 0.23)]
        return [*resets, Method(carrier, aes_c(), refresh())]
    levers = ([recent()], [utd(updates=4)], [recent(), utd(updates=4)])
    return [*(Method(carrier, fixed(), own) for own in levers), Method(carrier, aes_c(), [recent(), burst()])]


def appendix(carrier: str) -> list[Method]:
    """The rows of the paper's Appendix B."""
    found = [Method(carrier)]
    for rows in APPENDIX.values():
        found += [parse_method(text, carrier) for text in rows.values()]
    return list(dict.fromkeys(found))


def untuned(carrier: str) -> list[Method]:
    """The carrier's own weight, and published AES on the paper's carriers; compared with tuned methods."""
    return [Method(carrier), *([Method(carrier, aes())] if carrier in PUBLISHED else [])]


def tuned(carrier: str) -> Tuned:
    """A constant, AES, and a constant with newer data (PPO: with resets), each with its best number."""
    lever = reset() if carrier == "ppo" else recent()
    rows = (Method(carrier, fixed()), Method(carrier, aes()), Method(carrier, fixed(), lever))
    return _tuned(rows, 0.2)


def rivals(carrier: str) -> Tuned:
    """A constant, AES and its rivals for SAC; a constant and AES for CrossQ."""
    both = (Method(carrier, fixed()), Method(carrier, aes()))
    if carrier == "crossq":
        return _tuned(both, 0.1)
    levers = (recent(), geometric(), fire_reset(every=0.17))  # the last at no change point
    rows = (
        *both,
        *(Method(carrier, schedule()) for schedule in (aes_r, trend)),
        *(Method(carrier, fixed(), lever) for lever in levers),
        Method(carrier, aes_c(), fire()),
    )
    return _tuned(rows, 0.1)


def rivals_on_robots(carrier: str) -> Tuned:
    """`rivals` without the methods of part G, tuned on as large a share as those."""
    known = tuned(carrier).methods if carrier == "sac" else ()
    return _tuned(tuple(row for row in rivals(carrier).methods if row not in known), 0.2)


def _tuned(rows: tuple[Method, ...], share: float) -> Tuned:
    """Methods of one carrier, each with one number that is chosen on a share of runs without drift."""
    carrier = rows[0].carrier.name
    schedules = dict.fromkeys(method.in_force.factory.name for method in rows)
    numbers = tuple(
        f"aes.kappa={_FACTORS[carrier]}" if name == "aes" else f"{name}.base={_WEIGHTS[carrier]}" for name in schedules
    )
    return Tuned(rows, TuneOptions(numbers, shares=f"{share:g}", choosing_patterns="steady", clipped=0.1))


def variants(cell: Cell, choosing: float) -> Iterator[Cell]:
    """Studies of the constant alone, beside the study of the rivals for SAC.

    Agents see the last four observations; they observe the drift, a reference for a history; or their replay
    is as short as the window of `recent`, which separates the age of data from its weight.

    Args:
      choosing: share of runs without drift in which the constant is tuned.
    """
    capacity, share = cell.untuned.config.replay_capacity, recent().filled().given["share"]
    window = min(max(round(share * capacity), 4 * LoopConfig.newest), capacity)
    options: dict[str, dict[str, Any]] = {"history": {"history": 4}, "drift": {"observe": "drift"}}
    for name, own in (options | {"replay": {"replay": window}}).items():
        study = replace(cell.study, methods=[], **own)
        yield Cell(f"{cell.name}-{name}", study, _tuned((Method("sac", fixed()),), choosing))


def alone(carrier: str) -> list[Method]:
    """The carrier's own weight."""
    return [Method(carrier)]


_METHODS = {"G": untuned, "H": untuned, "B": released, "F": helpers, "S": alone, "appendix": appendix}
_TUNED = {"G": tuned, "H": rivals}
#: Parts and carriers that have `core`, with five seeds, at the small scale.
_CORE = [*product("DE", PUBLISHED), *product("AC", ("sql", "meow"))]


def cells(
    part: str,
    carriers: Sequence[str] | None = None,
    scale: Scale = "small",
    tasks: Sequence[str] | None = None,
    given: Mapping[str, Any] = {},
) -> list[Cell]:
    """The studies of a part, one for each task, horizon and carrier.

    Args:
      scale: ``paper`` has the steps, evaluations and networks of the preset `paper`.
      carriers, tasks: some of the part's; None: all.
      given: options of every study instead of the part's.

    Raises:
      UnknownNameError: a part, carrier or task of it that does not exist.
    """
    sizes = {size.task: size for size in PARTS[part].sizes}
    chosen = [lookup("task of the part", sizes, task).task for task in tasks or sizes]
    known = [name for name in carriers or CARRIERS if lookup("carrier", CARRIERS, name)]
    found = []
    for size in (size for size in PARTS[part].sizes if size.task in chosen):
        if scale == "paper":
            name, patterns = size.preset if size.preset == "release" else "paper", size.patterns
            patterns = PATTERNS if part in "DE" else patterns
            size = size._replace(steps=None, evaluations=None, episodes=None, patterns=patterns, preset=name)
        presets = presets_of(size.task, 1_000)
        preset = presets[size.preset]
        steps = given.get("steps") or size.steps or preset.steps
        for carrier in [name for name in known if name in size.carriers]:
            few = scale == "small" and (part, carrier) in _CORE
            own = _TUNED[part](carrier) if part in _TUNED else None
            if part == "H" and size.task in TASKS["mujoco"]:
                rows, own = [] if carrier == "sac" else untuned(carrier), rivals_on_robots(carrier)
            elif few or part in _METHODS:
                rows = core(carrier) if few else _METHODS[part](carrier)
            else:
                # Some published PPO has no bonus, of which there are no multiples.
                rows = methods(carrier, preset.carriers[carrier].base or presets["quick"].carriers[carrier].base)
            study = Study(
                size.task, rows, size.patterns, "1:5" if few else size.seeds, preset=size.preset, steps=steps,
                evaluations=size.evaluations, episodes=size.episodes, onset=size.onset, changes=size.changes,
                channels=size.channels,
            )  # fmt: skip
            larger = f"-{size.preset}" * (scale == "small" and size.preset == "paper")  # networks than those of others
            name = f"{part}-{size.task}-{steps}-{carrier}{larger}"
            cell = Cell(name, replace(study, **given), own)
            found.append(cell)
            if (part, carrier) == ("H", "sac") and own is not None:
                found += variants(cell, float(own.options.shares))
    return list({cell.name: cell for cell in found}.values())  # at given steps the horizons of a task are one


def controls(cell: Cell, folder: Path) -> Cell | None:
    """The controls of the published AES, made of the finished study in ``folder``; None where the part has none."""
    rows = cell.study.methods
    published = [own for own in rows if own == Method(own.carrier, aes()) and Method(own.carrier, aes_r()) in rows]
    if not published:
        return None
    rows = [Method(method.carrier, control=Control(kind, method)) for method in published for kind in _CONTROLS]
    return Cell(f"{cell.name}-controls", replace(cell.study, methods=rows, controls_from=folder))

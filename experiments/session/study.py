"""`Study`: the options of a study, declared once for Python, the shell and TOML files.

Nothing here imports JAX before a study is used, so that `aesjax --help` answers immediately.
"""

import dataclasses
import json
import os
import shlex
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self

import tyro

from experiments.study.process import start_jax

if TYPE_CHECKING:
    from experiments.session.results import Results
    from experiments.session.tuning import Tuning
    from experiments.study.config import StudyConfig


def _typed(kind: Callable[[str], Any], metavar: str, name: str | None = None) -> tuple[Any, ...]:
    """Metadata of an option whose type in Python is wider than the text at the shell."""

    def read(words: list[str]) -> Any:
        return kind(words[0])

    spec = tyro.constructors.PrimitiveConstructorSpec(1, metavar, read, lambda value: True, lambda value: [str(value)])
    return spec, tyro.conf.arg(name=name, help_behavior_hint=_hint)


def _hint(default: str) -> str:
    return "" if "None" in default else f"(default: {default})"


def _number(whole: bool) -> Callable[[str], int | float]:
    """Parser of a number, 100000, 100_000 or 1e5; an integer if ``whole``."""

    def read(text: str) -> int | float:
        try:
            value = int(text) if whole and not set(text) & set(".eE") else float(text)
            if not whole or int(value) == value:
                return int(value) if whole else value
        except (ValueError, OverflowError):
            pass
        raise ValueError(f"it must be a {'whole ' if whole else ''}number; got '{text}'")

    return read


def folder(text: str) -> Path:
    """A path, with ~ for the home folder."""
    return Path(os.path.expanduser(text))


SECONDS = _typed(_number(False), "S")
Text = Annotated[Any, *_typed(str, "NAME")]
Word = Annotated[str | None, *_typed(str, "NAME")]
Names = Annotated[Any, *_typed(str, "NAMES")]
Whole = Annotated[int | None, *_typed(_number(True), "N")]
Number = Annotated[Whole, (1, 2**31 - 1)]  # the largest and smallest, see `aesjax.typed.Bounds`
Folder = Annotated[Any, *_typed(folder, "DIR")]
if TYPE_CHECKING:
    Axes = Mapping[str, Sequence[float]] | Sequence[str]
else:
    Axes = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """How numbers are chosen; see `Study.tune`."""

    numbers: Axes = ()
    """Numbers that are tuned, NAME=V1,V2,... or NAME=LOW:HIGH:COUNT with equal ratios; may be repeated. NAME is that
    of an axis of --sweep, or with the name of a schedule or agent before a point (fixed.base) that of its methods
    only."""
    choosing: Annotated[Any, *_typed(str, "SEEDS")] = "1001:1005"
    """Seeds that choose; none of the seeds that judge."""
    shares: Annotated[Any, *_typed(str, "SHARES")] = "0.1"
    """Shares of the run, comma-separated, each with a choice of its own: 0.1 chooses on the first tenth, 1 on the
    whole run. Trials end at the largest."""
    choosing_patterns: Names = None
    """Patterns of the trials; by default those of the study."""
    metric: str = "return"
    """Metric that chooses, averaged over the patterns: return, final_return, nauc, drop_ratio, recovery or another."""
    clipped: Annotated[float, *_typed(_number(False), "SHARE")] = 1.0
    """Largest share of its updates at a clip with which a setting is chosen, unless all have more; a schedule that is
    mostly at a clip is a constant."""


@dataclasses.dataclass(frozen=True)
class LogOptions:
    """Columns of logs, and facts that logs do not contain; see `experiments.compare`."""

    method: str | None = None  # column of the method; by default method, algo or agent, else from the run's name
    seed: str | None = None  # column of the seed; by default seed, else from the run's name
    pattern: str | None = None  # column of the drift pattern; by default pattern. The pattern steady has no drift
    task: str | None = None  # column of the task; by default task or env_id
    step: str | None = None  # column of environment steps; by default step, global_step, total_timesteps or _step
    returns: str | None = None  # column or TensorBoard tag of the return; by default return, eval/mean_reward, ...
    names: str | None = None  # form of runs' names, such as {task}__{method}__{seed}__{}; by default {method}-{seed}
    changes: Annotated[Any, *_typed(str, "STEPS")] = None  # at which the drift changes, or a column that changes there
    every: float | None = None  # average the returns of this many steps, for runs with different steps
    floor: float | None = None  # return of random actions, for profiles, robust recovery and floor-corrected ratios
    baseline: str | None = None  # method that the others are compared with; by default the first


@dataclasses.dataclass(frozen=True)
class Study:
    """A study: methods, drift patterns and seeds on one task, trained as one compiled program.

    Options are checked by `run`, `forecast` and `config`.

    >>> Study("toy", ["sac", "sac+aes"], patterns="abrupt", seeds=2).command()
    'aesjax run --schedules baseline,aes --patterns abrupt --seeds 1:2'
    """

    task: Text = None
    """Task, toy by default; see `aesjax list tasks`. gymnasium:ID is an environment of Gymnasium, playground:NAME one
    of MuJoCo Playground, bridge:NAME one of an installed Isaac Gym or Isaac Lab, MODULE:NAME a custom task. In Python
    also an `envs.Task`, an environment of these libraries, gymnax or Brax, or a function that makes one."""
    methods: tyro.conf.Suppress[Any] = ("sac", "sac+aes", "sac+aes_r")
    """`Method`s, or texts such as "sac", "sac+aes" and "ppo+aes_c+refresh:threshold=3"; --carriers and --schedules at
    the shell."""
    patterns: Names = None
    """Drift patterns, comma-separated, or all, the default: the paper's five. In Python also a list of names or
    patterns."""
    seeds: Annotated[Any, *_typed(str, "SEEDS")] = "1:5"
    """Training seeds: 1:5 (both ends included), 1,2,7, or a mix. In Python also whole numbers; one number n means 1 to
    n."""
    protocol: Word = None
    """A published drift, see `aesjax list protocols`: its task, channels, patterns, steps and segments where these are
    not given. Another --task is refused."""
    preset: Word = "quick"
    """Sizes, which `aesjax list presets` prints: quick, paper, release, mujoco-gpu; mujoco-warm for --warm-start."""
    steps: Whole = None
    """Environment steps of a run; by default the preset's."""
    num_envs: Number = None
    """Parallel environments of a run; by default the preset's."""
    evaluations: Number = None
    """Evaluations of a run, evenly spaced, besides the one before it; by default the preset's."""
    episodes: Number = None
    """Episodes of an evaluation; by default the preset's."""
    segments: Number = None
    """Segments of a run, of equal length, at whose boundaries the paper's patterns change; by default the preset's."""
    onset: Annotated[float, *_typed(_number(False), "SHARE")] = 0.0
    """Share of the run before the drift begins; segments and patterns divide the rest. Metrics of the drift start
    there."""
    changes: Annotated[str, *_typed(str, "NAME")] = "even"
    """Segments of patterns that jump: even, or random, with lengths drawn from the drift seed of which none is below a
    quarter of the equal length."""
    until: Annotated[float, *_typed(_number(False), "SHARE")] = 1.0
    """Share of the run after which training ends; drift, replay and warm-up are those of the whole run."""
    sweep: Axes = ()
    """Hyper-parameter axis NAME=V1,V2,...; may be repeated. All values train in one program. In Python also a
    mapping."""
    proxy: Text = "td_quantile"
    """Drift proxy of the schedules that use one."""
    source: Word = None
    """Transitions that the proxy reads: update (the update batch) or fresh (the newest); by default each schedule's
    own."""
    drift_seed: Annotated[Whole, (0, 2**32 - 1)] = None
    """One drift sample for all seeds; by default each training seed has its own."""
    engine: Word = None
    """Physics of a MuJoCo or Isaac task: mujoco (C), mjx, warp, or auto (C on a CPU, Warp on CUDA, else MJX)."""
    observation: Word = None
    """Observation of ant and humanoid: v5, or v4 without contact forces in ant and with all rows in humanoid; of
    isaac_allegro_hand: full_state, full or full_no_vel; of Playground: an entry of a dictionary, such as state."""
    variant: Word = None
    """Constants of an Isaac task: gym, those of Isaac Gym, or omni, those of its successor."""
    channels: Names = None
    """Drifting parameters, comma-separated, each optionally with a range (body_mass=0.5:1.5). MuJoCo: body_mass,
    joint_friction (the default both), geom_friction, leg_gain, direction, target_velocity, or hard, the first, second
    and fourth with wide ranges; Isaac: gravity, joint_damping (the default both); Gymnasium: any attribute of the
    environment that is a number, with its range; Playground: body_mass, joint_friction, geom_friction, gravity,
    actuator_gain, each optionally of one part (body_mass.pole_1). In Python also a mapping from names to ranges."""
    observe: Annotated[str | None, *_typed(str, "drift|change")] = None
    """drift: policy and critics also observe the true values of the drifting parameters, each scaled to -1 to 1 over
    its range. change: they observe a flag, 1 for 2 % of the run after a jump of the drift, else 0. References, neither
    methods nor upper bounds."""
    history: Number = 1
    """Policy and critics see the last N observations of the episode and the actions between them."""
    replay: Number = None
    """Transitions in the replay of a run; by default the preset's."""
    timeout: Annotated[float | None, *SECONDS] = None
    """Seconds for a step of a bridged task's simulator; 120 by default."""
    controls_from: Folder = None
    """Folder of the finished study with the records of the controls among --schedules."""
    start: Annotated[Any, *_typed(folder, "DIR", "warm-start")] = None
    """Start with trained agents: the folder of a finished study, with its pattern steady or its only pattern, or of
    exported agents. Seeds are matched if possible. In Python also its `Results`, or the `Policy` of a run's end."""
    layer_norm: bool = False
    """Layer normalisation in every carrier's critic. Weight decay is an axis: --sweep weight_decay=0,1e-2."""
    counterfactual: bool = False
    """Also evaluate every policy under drift values that are not in force: nominal, before the last change, after the
    next change, and both ends of the range (columns return_nominal, return_previous, ...)."""
    block: Annotated[Any, *_typed(str, "FIRST:LAST")] = None
    """Train only these runs of the study, counted from 1 in the order of its tables. `aesjax submit` trains all blocks
    and `aesjax join` joins them into one study."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if given is not field.default:
                value = field.default if given is None else _checked(field, given)
                object.__setattr__(self, field.name, value)

    @property
    def config(self) -> "StudyConfig":
        """The complete configuration, as stored in `config.json`.

        Raises:
          ValueError, UnknownNameError: the study cannot be trained; one sentence with the reason.
        """
        from experiments.study.program import plan_of

        return plan_of(self).config

    def tune(
        self, numbers: Axes, *, out: str | Path, devices: int | None = None, quiet: bool = False, **options: Any
    ) -> "Tuning":
        """Choose numbers of the methods on other seeds, and judge the chosen settings on the study's own seeds.

        Every method that reads a number is tried with all its values on the seeds ``choosing``, each trial for the
        largest of ``shares`` of the run. The study then trains with the best setting for each share. The same call
        continues an interrupted tuning.

        Args:
          numbers: as in ``sweep``: ``{"kappa": [0.1, 1.0]}`` or ``["kappa=0.01:10:7", "fixed.base=0.01:1:5"]``; with
            the name of a schedule or carrier before the point, only methods with it are tuned.
          out: folder of the trials and of the study.
          devices, quiet: as in `run`.
          options: further fields of `TuneOptions`.

        Raises:
          ValueError: a seed would choose and judge, no method reads a number, or the study cannot be trained.
        """
        from experiments.session.tuning import tune

        return tune(self, TuneOptions(numbers, **options), Path(out).expanduser(), devices=devices, quiet=quiet)

    def run(
        self,
        out: str | Path | None = None,
        *,
        devices: int | None = None,
        quiet: bool = False,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> "Results":
        """Train the study, or the rest of an interrupted one.

        Args:
          out: folder of the results. A finished study in it is opened, an interrupted one is continued, a finished one
            with fewer seeds, patterns or methods is extended, and another study raises an error. None: a new temporary
            folder.
          devices: CPU devices, one per core by default; JAX must not have started with another number.
          quiet: show no progress.
          facts: further facts for the manifest, as JSON.

        Raises:
          ValueError: the study cannot be trained, or ``out`` holds something else.
          Interrupted: a signal stopped the training; the same call continues it.
        """
        from experiments.session.results import Results
        from experiments.study import store
        from experiments.study.folder import claim, missing
        from experiments.study.prepare import prepare
        from experiments.study.program import Plan, plan_of
        from experiments.study.train import train

        place = None if out is None else Path(out).expanduser()
        start_jax(devices, place)
        place = place or Path(tempfile.mkdtemp(prefix="aesjax-"))
        plan = plan_of(self)
        added = missing(plan.config, place)
        if added or not (place / store.MANIFEST).exists():
            lacking = Plan(added) if added else plan
            prepared = prepare(lacking)
            claimed = claim(plan.config, place, resume=(place / store.CONFIG).exists(), added=added)
            facts = {"command": self.command_or_none(plan.config, "DIR"), **facts}
            train(lacking, claimed, prepared, facts=facts, quiet=quiet)
        return Results(store.open_results(place), plan)

    def forecast(self, seconds: float = 10.0, folder: str | Path | None = None) -> str:
        """Number of runs, memory and a time estimate from a trial of about ``seconds``; nothing is written.

        Args:
          folder: in which the study has begun; the estimate is that of what is left.
        """
        from experiments.session.forecast import forecast
        from experiments.study.prepare import prepare
        from experiments.study.program import plan_of

        place = None if folder is None else Path(folder).expanduser()
        start_jax(None, place)
        plan = plan_of(self)
        return "\n".join(forecast(plan, prepare(plan), seconds, place))

    def command(self, out: str | Path | None = None, config: "StudyConfig | None" = None) -> str:
        """The command line of the study; ``config`` as in `texts`.

        Raises:
          ValueError: its methods differ between carriers, which only `to_toml` can express, or it uses an object
            without an importable name.
        """
        given: dict[str, Any] = {}
        for name, value in self.texts(config).items():
            given |= _by_carrier(value) if name == "methods" else {name: value}
        return shlex.join(["aesjax", "run", *in_words(given | ({} if out is None else {"out": out}))])

    def command_or_none(self, config: "StudyConfig", out: str | Path | None = None) -> str:
        """The command line of the study; empty if only a file or Python can describe it."""
        try:
            return self.command(out, config)
        except ValueError:
            return ""

    def to_toml(self) -> str:
        """The study as the text of a TOML file, for `Study.from_file` and ``aesjax run --config``.

        Raises:
          ValueError: it uses an object without an importable name.
        """
        # A string or list of strings in JSON is one in TOML.
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in self.texts().items())

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a study from a TOML or JSON file with the options that differ from their defaults.

        Raises:
          ValueError: it cannot be read, or has an unknown option.
        """
        from aesjax.registry import hint, listed
        from experiments.study import store

        path = Path(path).expanduser()
        data = store.read_bytes(path).removeprefix(b"\xef\xbb\xbf")  # a byte-order mark
        try:
            given = store.read_json(path, data) if path.suffix == ".json" else tomllib.loads(data.decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path} cannot be read as TOML: {error}") from None
        known = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(set(given) - known):
            near = f"; did you mean '{_AT_SHELL[name]}'?" if name in _AT_SHELL else hint(name, known)
            raise ValueError(f"{path}: '{name}' is not an option of a study{near} options: {listed(sorted(known))}")
        try:
            return cls(**given)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def texts(self, config: "StudyConfig | None" = None) -> dict[str, Any]:
        """The options that differ from their defaults, in the form of a TOML file.

        Args:
          config: configuration of the study, if it is known.

        Raises:
          ValueError: it uses an object without an importable name.
        """
        import envs
        from experiments.study.config import USUAL, configured, task_of
        from experiments.study.text import name_of, number, seeds_text, text_of

        config = config or configured(self)
        if not isinstance(self.proxy, str) and config.proxy.q != 0.9:
            raise ValueError(
                f"the level q={config.proxy.q} of the study's proxy has no text form; set it in the methods, aes(q=...)"
            )
        made: dict[str, Callable[[Any], Any]] = {
            "task": lambda task: config.task if config.maker is None else name_of("task", config.maker),
            "methods": lambda _: [f"{name_of('carrier', m.carrier)}+{text_of(m)}" for m in config.methods],
            "patterns": lambda _: _joined([name_of("pattern", config.patterns_known[p]) for p in config.patterns]),
            "seeds": lambda _: seeds_text(config.seeds),
            "sweep": lambda _: [f"{name}={','.join(map(number, axis))}" for name, axis in config.sweep.items()],
            "proxy": lambda _: name_of("proxy", config.proxy.factory),
            "channels": _joined,
            "start": _text_of_start,
            "controls_from": str,
            "block": lambda block: block if isinstance(block, str) else ":".join(map(str, block)),
        }
        texts: dict[str, Any] = {}
        usual = USUAL if self.protocol is None else {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            text = isinstance(value, str) and field.name != "methods"  # one method is a list of one
            if value not in (field.default, None) and not text and field.name in made:
                value = made[field.name](value)
            if value not in (field.default, usual.get(field.name), [], None):
                texts[field.name] = value
        if config.source is not None:
            texts["source"] = config.source
        if config.task in envs.TASKS and not isinstance(self.task, str | None):  # an object with options
            plain = task_of(Study(config.task, preset=self.preset)).options
            options = {name: value for name, value in config.options.items() if plain.get(name) != value}
            texts = {n: _joined(v) if isinstance(v, list | tuple) else v for n, v in options.items()} | texts
        return texts


def _checked(field: dataclasses.Field, value: Any) -> Any:
    """Value of a field of `Study`, converted to the annotated type; collections become tuples."""
    from aesjax.typed import several, typed

    if field.name not in _SEVERAL:
        return typed(field.type, value, field.name)
    if field.name == "channels" and value is not None and not isinstance(value, str):
        from envs.physics.channels import texts_of

        return texts_of(value)
    return tuple(value) if several(value) else value  # a generator is read once


def flag(name: str) -> str:
    """Name of an option at the shell, without leading hyphens."""
    return {"start": "warm-start"}.get(name, name.replace("_", "-"))


def in_words(given: Mapping[str, Any]) -> list[str]:
    """Command-line arguments of options by name; an option with a sequence is repeated.

    >>> in_words({"steps": 4000, "report": False, "sweep": ["kappa=0.1,1"]})
    ['--steps', '4000', '--no-report', '--sweep', 'kappa=0.1,1']
    """
    words = []
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{flag(name)}")
        else:
            each = value if isinstance(value, list | tuple) else [value]
            words += [word for item in each for word in (f"--{flag(name)}", str(item))]
    return words


def _by_carrier(texts: Sequence[str]) -> dict[str, str]:
    """Methods as --carriers and --schedules."""
    from experiments.study.text import name_of, parse_method_with_carrier, text_of

    schedules: dict[str, list[str]] = {}
    for method in map(parse_method_with_carrier, texts):
        schedules.setdefault(name_of("carrier", method.carrier), []).append(text_of(method))
    first = next(iter(schedules.values()))
    if any(own != first for own in schedules.values()):
        raise ValueError("methods that differ between carriers need a file: to_toml, and aesjax run --config")
    carriers = {} if list(schedules) == ["sac"] else {"carriers": ",".join(schedules)}
    return {**carriers, "schedules": ",".join(first)}


def _text_of_start(start: Any) -> str:
    if hasattr(start, "run"):
        raise ValueError("a Policy as start has no text; use its folder, start.directory")
    return str(getattr(start, "directory", start))


def _joined(value: str | Iterable[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


_AT_SHELL = {"carriers": "methods", "schedules": "methods", "warm_start": "start", "warm-start": "start"}
_SEVERAL = ("methods", "patterns", "seeds", "sweep", "channels")  # read by `experiments.study.config`

"""`Study`: the options of a study, and everything that can be done with them."""

import dataclasses
import json
import shlex
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aesjax.registry import hint
from experiments.session.results import Results
from experiments.study import store
from experiments.study.build import check
from experiments.study.config import StudyConfig
from experiments.study.declared import OPTIONS, in_words
from experiments.study.devices import start_jax
from experiments.study.folder import check_same, claim
from experiments.study.forecast import forecast, lines_of
from experiments.study.options import StudyOptions
from experiments.study.parser import number, text_of
from experiments.study.plugins import offered
from experiments.study.prepare import prepare
from experiments.study.results import open_results
from experiments.study.train import train


@dataclasses.dataclass(frozen=True)
class Study(StudyOptions):
    """A study: methods, drift patterns and seeds on one task, trained as one compiled program.

    Its fields are those of `experiments.study.options.StudyOptions`, which documents them. Nothing is trained or
    checked before `run`, `forecast` or `config`.

    >>> Study("toy", ["sac", "sac+aes"], patterns="abrupt", seeds=2).command()
    'aesjax run --schedules baseline,aes --patterns abrupt --seeds 1,2'
    """

    @property
    def config(self) -> StudyConfig:
        """The complete configuration, as `config.json` holds it.

        Raises:
          ValueError, UnknownNameError: the study cannot be trained; one sentence that says why.
        """
        given = self.start.directory if isinstance(self.start, Results) else self.start
        config = dataclasses.replace(self, start=given).resolve()
        check(config)
        return config

    def run(self, out: str | Path | None = None, *, devices: int | None = None, quiet: bool = False) -> Results:
        """Train the study, or what of it is not trained yet.

        Args:
          out: folder of the results. A finished study in it is opened, an interrupted one continued, another one
            refused. None: a new temporary folder.
          devices: CPU devices, one per core by default; JAX must not have started with another number.
          quiet: show no progress.

        Raises:
          ValueError: the study cannot be trained, or ``out`` holds something else.
          Interrupted: a signal asked to stop; the study is continued by the same call.
        """
        start_jax(devices, resumed=None if out is None else Path(out))
        config = self.config
        place = Path(tempfile.mkdtemp(prefix="aesjax-")) if out is None else Path(out)
        if (place / store.MANIFEST).exists():
            check_same(place, open_results(place).config, config)
            return Results.open(place)
        prepared = prepare(config)
        study = claim(config, place, resume=(place / store.CONFIG).exists())
        try:
            command = self.command(out="DIR")
        except ValueError:  # only a file or Python can describe it
            command = ""
        train(study, prepared=prepared, command=command, quiet=quiet)
        return Results.open(place)

    def forecast(self, seconds: float = 10.0) -> str:
        """Runs, memory and the time that a trial of about ``seconds`` suggests; nothing is trained or written."""
        start_jax(None)
        config = self.config
        return "\n".join(lines_of(config, forecast(config, prepare(config), seconds)))

    def command(self, out: str | Path | None = None) -> str:
        """The command line of the same study.

        Raises:
          ValueError: its methods differ between carriers, which the command line cannot say; `to_toml` can. Or it uses
            an object that no text names.
        """
        given: dict[str, Any] = {}
        for name, value in self._texts().items():
            given |= _by_carrier(value) if name == "methods" else {name: value}
        return shlex.join(["aesjax", "run", *in_words(given | ({} if out is None else {"out": out}))])

    def to_toml(self) -> str:
        """The study as the text of a TOML file, for `Study.from_file` and ``aesjax run --config``.

        Raises:
          ValueError: it uses an object that no text names.
        """
        # A string or list of strings in JSON is one in TOML.
        lines = [f"{name} = {json.dumps(value)}" for name, value in self._texts().items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_file(cls, path: str | Path) -> "Study":
        """The study in a TOML or JSON file, of the options that differ from their defaults.

        Raises:
          ValueError: it cannot be read, or names something that is no option.
        """
        path = Path(path)
        data = store.read_bytes(path)
        try:
            given = store.json_from(path, data) if path.suffix == ".json" else tomllib.loads(data.decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path} cannot be read as TOML: {error}") from None
        known = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(given, dict):
            raise ValueError(f"{path}: it is no table; options: {', '.join(sorted(known))}")
        for name in sorted(set(given) - known):
            near = f"; did you mean '{_AT_SHELL[name]}'?" if name in _AT_SHELL else hint(name, known)
            raise ValueError(f"{path}: '{name}' is no option of a study{near} options: {', '.join(sorted(known))}")
        for name, value in given.items():
            if misfit := _misfit(name, value):
                raise ValueError(f"{path}: '{name}' must be {misfit}; got {store.shortened(value)}")
        return cls(**given)

    def _texts(self) -> dict[str, Any]:
        """The options that differ from their defaults, as strings and lists of strings."""
        config, texts = self.config, {}
        _check_typable(config)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "task":
                value = config.task
            elif field.name == "methods":
                value = [f"{method.carrier}+{text_of(method)}" for method in config.methods]
            elif field.name in ("patterns", "seeds") and not isinstance(value, str):
                value = ",".join(map(str, getattr(config, field.name)))
            elif field.name == "sweep":
                value = [f"{name}={','.join(map(number, axis))}" for name, axis in config.sweep.items()]
            elif field.name == "proxy":
                value = config.proxy
            elif field.name == "channels" and value is not None and not isinstance(value, str):
                value = ",".join(value)
            elif field.name == "block" and config.block is not None:
                value = f"{config.block[0]}:{config.block[1]}"
            elif isinstance(value, Results | Path):
                value = str(value.directory if isinstance(value, Results) else value)
            if value not in (field.default, [], None):
                texts[field.name] = value
        task = config.build_task()
        if isinstance(self.task, type(task)):  # its options are part of the object
            plain = StudyOptions(config.task).resolve().options
            options = {name: value for name, value in config.options.items() if plain.get(name) != value}
            texts |= {n: ",".join(v) if isinstance(v, list | tuple) else v for n, v in options.items()}
        return texts


_AT_SHELL = {"carriers": "methods", "schedules": "methods", "warm_start": "start", "warm-start": "start"}


def _by_carrier(texts: list[str]) -> dict[str, str]:
    """Methods as --carriers and --schedules."""
    by_carrier: dict[str, list[str]] = {}
    for text in texts:
        carrier, _, schedule = text.partition("+")
        by_carrier.setdefault(carrier, []).append(schedule)
    first = next(iter(by_carrier.values()))
    if any(own != first for own in by_carrier.values()):
        raise ValueError("methods that differ between carriers need a file: to_toml, and aesjax run --config")
    carriers = {} if list(by_carrier) == ["sac"] else {"carriers": ",".join(by_carrier)}
    return {**carriers, "schedules": ",".join(first)}


def _check_typable(config: StudyConfig) -> None:
    """Refuse a study with an object whose name no other process would find."""
    for kind, names in config.definitions.items():
        for name, definition in names.items():
            if ":" not in name and name not in offered(kind):
                place = definition.get("object", "module:name")
                raise ValueError(
                    f"{kind} '{name}' is an object of this process, which no command finds; save it as a module and "
                    f"give its name, '{place}'"
                )


#: Options that may be lists, and of which kind.
_LISTS = {"methods": str, "patterns": str, "channels": str, "sweep": str, "seeds": int}
_NAMED: Mapping[type, str] = {int: "a whole number", float: "a number", bool: "true or false"}


def _misfit(name: str, value: Any) -> str:
    """The kind that an option of a file must have, as text; empty where its value has it."""
    kind = str if name in _LISTS or OPTIONS[name].type is Path else OPTIONS[name].type
    absent = value is None and name in OPTIONS and OPTIONS[name].default is None
    if absent or _is(kind, value):
        return ""
    if name not in _LISTS:
        return _NAMED.get(kind, "text")
    if isinstance(value, list) and all(_is(_LISTS[name], item) for item in value):
        return ""
    if name == "seeds":
        return "" if _is(int, value) else "text, a whole number or a list of them"
    if name == "sweep":
        table = isinstance(value, dict) and all(
            isinstance(axis, list) and all(_is(float, item) for item in axis) for axis in value.values()
        )
        return "" if table else 'a list such as ["kappa=0.1,1"], or a table of lists of numbers'
    return "text or a list of texts"


def _is(kind: type, value: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))

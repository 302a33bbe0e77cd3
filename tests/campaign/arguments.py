"""Argument lists that no command can do anything with: every option with everything that does not fit it."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aesjax.schedules import SCHEDULES, ScheduleHyper


class BadArguments(NamedTuple):
    """An argument list, in which `{case}` is the fault's own folder and `{study}` a finished study."""

    name: str
    argv: tuple[str, ...]
    mentions: tuple[str, ...]  # of which the sentence must name one; empty: whatever it says


BASE: Mapping[str, str] = {
    "--out": "{case}/out",
    "--steps": "400",
    "--schedules": "aes",
    "--patterns": "steady",
    "--seeds": "1:1",
}

_ODD = (
    "",
    " ",
    ",",
    "nope",
    "téll",
    "a\nb",
    "../x",
    "x" * 5000,
    "--",
    "nan",
    "\u202etoy",
    "a b",
    "None,",
    "\udcff",
    "%s{}",
)
_NO_INTEGER = ("", " ", "1.5", "1e3", "nan", "inf", "0x10", "½", "1,2", "None?", "--", "1" + 5000 * "0")
_NO_NUMBER = ("", " ", "nan", "inf", "-inf", "1e400", "1,5", "x", "½")
WORDS: Mapping[str, Sequence[str]] = {
    "--task": (*_ODD, "toy,toy", "all", "TOY", "bridge:", "bridge:nope", "os:path", "os.path:join", ":", "toy:"),
    "--carriers": (*_ODD, "sac,sac", "SAC", "sac:", "sac;ppo", "all,sac"),
    "--patterns": (*_ODD, "steady,steady", "abrupt:", "all,all"),
    "--preset": (*_ODD, "quick,paper", "all", "QUICK"),
    "--proxy": (*_ODD, "td_quantile,td_mean", "all", "update/td_mean"),
    "--source": (*_ODD, "update,fresh", "all"),
    "--study": (*_ODD, "default,default"),
    "--engine": (*_ODD, "mjx", "auto"),
    "--observation": (*_ODD, "v5"),
    "--variant": (*_ODD, "gym"),
    "--channels": ("nope", "body_mass", "goal=", "goal=1:0", "goal=nan:1", "goal=0:1e99", "hard", "=", ":", "x=0:1"),
    "--controls-from": ("{case}/nope", "{study}", "", "{case}/file"),
    "--warm-start": ("{case}/nope", "", "{case}/file", "{case}/broken", "{case}/empty", "{case}"),
}
NUMBERS: Mapping[str, Sequence[str]] = {
    "--steps": (*_NO_INTEGER, "0", "-1", "-400", "1", "401", "8600000000", "4000000000000", "9223372036854775800"),
    "--drift-seed": (*_NO_INTEGER, "-1", "4294967296", "9223372036854775807", "-9223372036854775809"),
    "--devices": (*_NO_INTEGER, "0", "-1", "4096", "4294967296"),
    "--checkpoint-seconds": (*_NO_NUMBER, "-1", "-0.001", "-1e300"),
    "--seeds": (
        *("", " ", ",", "1:", ":1", ":", "5:1", "-1", "1,1", "1:3,2", "1:2:3", "1;2", "1,,2", "1-5", "1.5", "a", "nan"),
        *("0:99999", "0:4294967295", "4294967295:4294967296", "4294967296", "-5:5", "1:1000000", "9" * 5000),
    ),
}
_SWEEPS: Sequence[Sequence[str]] = (
    *([item] for item in ("", "=", "kappa", "kappa=", "=1", "kappa=,", "kappa=1,", "kappa=a", "kappa=1;2", "nope=1")),
    *([f"kappa={value}"] for value in ("nan", "inf", "-1", "1e99", "1e-99", "1,1", "1e400", "--1", "1:2")),
    *([f"lambda_max={value}"] for value in ("1e-50", "-1", "nan")),
    *([f"learning_rate={value}"] for value in ("nan", "inf", "-1", "1e99", "1e-99")),
    *([f"gamma={value}"] for value in ("nan", "1.5", "-0.1", "1e-99")),
    *(["kappa=0.1,1", f"kappa={value}"] for value in ("0.3", "0.1,1")),
    ["window.power=1"],
    ["window.nope=1"],
    ["nope.power=1"],
    ["weight_decay=1e99"],
    ["kappa=" + ",".join(map(str, range(1, 100_000)))],
)
_VALUES = ("nan", "-inf", "1e99", "-1", "-1e-3", "x", "", "1e400")
_ENTRIES = (
    *("aes:", "aes:kappa", "aes:=1", "aes:kappa=1:kappa=2", "aes:nope=1", "aes:proxy=nope", "aes:source=nope", ":aes"),
    *("aes:proxy=", "aes:lambda_max=1e-50", "aes:lambda_min=2:lambda_max=1", "aes:coupling=0.5", "aes:coupling=nan"),
    *("+window", "aes+", "aes+nope", "aes+window+window", "aes+window:power=nan", "aes+window:power=-1", "aes++window"),
    *("aes+window:power=1e99", "aes+window:nope=1", "aes:signal=aes", "aes+window:signal=nope", "os:path", "os:nope"),
    *("permuted:of=aes", "permuted:of=permuted:of=aes", "permuted:of=", "permuted", "permuted:blocks=1:of=aes"),
    *(
        "permuted:blocks=nan:of=aes",
        "permuted:blocks=1e99:of=aes",
        "permuted:nope=2:of=aes",
        "aes,aes",
        "baseline:kappa=1",
    ),
)
_FOLDERS = (
    "{case}/nope",
    "{case}/file",
    "{case}/empty",
    "{case}/broken",
    "{case}/loop",
    "",
    "{case}/\udcff",
    "/dev/null",
)
_OUTS = (
    *(
        "{case}/file",
        "{case}/file/below",
        "{case}",
        "{case}/broken",
        "{case}/loop",
        "",
        "/proc/nope",
        "/dev/null",
        "/dev/full",
    ),
    *("{case}/" + "n" * 300, "{case}/" + "/".join(["n" * 200] * 30), "{study}"),
)
READERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "report": {},
    "replay": {
        "--schedules": (*_ODD, *_ENTRIES[:12], "aes+window"),
        "--methods": (*_ODD, "SAC+AES,nope", "sac"),
        "--patterns": ("nope", ""),
        "--seeds": ("99", "x"),
        "--out": _OUTS,
    },
    "calibrate": {
        "--delta": (*_NO_NUMBER, "0", "1", "-1", "1e-320", "1.0000001", "-0.0"),
        "--source": (*_ODD, "all"),
    },
    "video": {
        "--method": ("nope", "", "\udcff"),
        "--pattern": ("nope", "", "linear"),
        "--seed": (*_NO_INTEGER, "99", "-1"),
        "--change": (*_NO_INTEGER, "0", "-1", "1000000"),
        "--steps": (*_NO_INTEGER, "0", "-1"),
        "--fps": (*_NO_INTEGER, "0", "-1", "51", "1000000000"),
        "--width": (*_NO_INTEGER, "0", "-1", "1", "1281", "4294967296"),
        "--renderer": (*_ODD, "all"),
        "--out": ("{case}/file/below.gif", "{case}/x.exe", "{case}/empty", "/proc/nope.gif", "{case}/broken/x.gif"),
    },
    "export": {"--seeds": ("", "x", "99", "-1", "0:99999", "1,1"), "--out": _OUTS},
}
_BENCH: Mapping[str, Sequence[str]] = {
    "--out": ("{case}/file", "{case}/file/below", "{case}/nope/x.json", "/proc/nope"),
    "--carriers": ("", "nope"),
    "--runs": ("", "0", "-1", "x", "1,,2"),
    "--sizes": ("", "nope"),
    "--rounds": ("0", "-1", "x"),
    "--physics": ("", "nope"),
    "--devices": ("0", "-1", "4096"),
}
REQUIRED: Mapping[str, Mapping[str, str]] = {"replay": {"--schedules": "aes"}, "export": {"--out": "{case}/out"}}


def bad_arguments(seed: int = 0, count: int | None = None) -> list[BadArguments]:
    """All of them, or ``count`` drawn with ``seed``."""
    found = [*_of_run(), *_of_readers(), *_of_others()]
    return found if count is None else random.Random(seed).sample(found, min(count, len(found)))


def _of_run() -> Iterator[BadArguments]:
    yield BadArguments("run without anything", ("run",), ())
    for option, values in {**WORDS, **NUMBERS, "--out": _OUTS}.items():
        for value in values:
            yield _with("run", BASE, option, value)
    for entry in (*_ODD, *_ENTRIES, *(f"{name}:" for name in SCHEDULES)):
        yield _with("run", BASE, "--schedules", entry)
    for name in SCHEDULES["aes"].hyper:
        for value in _VALUES:
            if (name, value) != ("lambda_max", "1e400"):  # that is infinity, and no clip at all
                yield _with("run", BASE, "--schedules", f"aes:{name}={value}", name)
    unread = [name for name in ScheduleHyper._fields if name not in {"own", "q", *SCHEDULES["fixed"].hyper}]
    for items in (*_SWEEPS, *([f"{name}=0.5"] for name in unread)):
        only_read_elsewhere = items[0].partition("=")[0] in unread and len(items) == 1 and items[0].endswith("=0.5")
        base = {**BASE, "--schedules": "fixed"} if only_read_elsewhere else BASE
        words = [word for item in items for word in ("--sweep", item)]
        mentions = ("--sweep", *(item.partition("=")[0] for item in items))
        yield BadArguments(f"run --sweep {' '.join(items)[:80]}", ("run", *_words(base), *words), mentions)
    for flags in (
        ["--warm-replay"],
        ["--resume"],
        ["--stepz", "3"],
        ["extra"],
        ["--report=maybe"],
        ["--resume", "--resume=1"],
    ):
        yield BadArguments(f"run {' '.join(flags)}", ("run", *_words(BASE), *flags), ())


def _of_readers() -> Iterator[BadArguments]:
    for reader, options in READERS.items():
        required = REQUIRED.get(reader, {})
        for folder in _FOLDERS:
            yield BadArguments(
                f"{reader} {folder!r}", (reader, folder, *_words(required)), _named(folder, "config.json")
            )
        for option, values in options.items():
            for value in values:
                yield _with(reader, required, option, value, first=("{study}",))
    yield BadArguments("report of nothing", ("report",), ())
    yield BadArguments("report --out of one", ("report", "{study}", "--out", "{case}/out"), ("--out",))
    yield BadArguments("report of two without --out", ("report", "{study}", "{study}"), ("--out",))
    yield BadArguments("report of one twice", ("report", "{study}", "{study}", "--out", "{case}/out"), ())
    for out in _OUTS:
        yield BadArguments(f"report --out {out[:80]!r}", ("report", "{study}", "{study}", "--out", out), ())


def _of_others() -> Iterator[BadArguments]:
    for argv in ((), ("nope",), ("",), ("--nope",), ("list", "extra"), ("list", "--nope"), ("\udcff",)):
        yield BadArguments(f"aesjax {' '.join(argv)!a}", argv, ())
    for option, values in _BENCH.items():
        for value in values:
            yield _with("bench", {}, option, value)
    for command in ("verify", "seal"):
        for folder in _FOLDERS:
            yield BadArguments(f"{command} {folder!a}", (command, folder), ())


def _with(
    command: str, base: Mapping[str, str], option: str, value: str, *mentions: str, first: Sequence[str] = ()
) -> BadArguments:
    words = _words({**base, option: value})
    told = f"{command} {option} {value[:60]!a}"
    return BadArguments(told, (command, *first, *words), (*_named(value, option), *mentions))


def _words(options: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]  # joined, as a value may begin with a dash


def _named(value: str, option: str) -> tuple[str, ...]:
    """What a sentence about an option may call it: itself, its noun, its value or a part of that."""
    noun = option.removeprefix("--").replace("-", " ").rstrip("s")
    parts = [part for part in re.split(r"[:=,+/{}]", value) if len(part) > 1]
    return (option, noun, noun.replace(" ", "_"), *parts, *((value,) if value.strip() else ()))

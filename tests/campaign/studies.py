"""The studies that faults are thrown at, each as small as it can be, and what they are when nothing disturbs them."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.campaign import processes
from tests.campaign.listing import Listing

CHECKPOINTS = "0.2"  # seconds: many, and most of the time is training all the same
_TOY = ("--patterns", "abrupt", "--seeds", "1:1", "--checkpoint-seconds", CHECKPOINTS, "--devices", "1")
_HOPPER = ("--task", "hopper", "--schedules", "aes", *_TOY)
#: Name -> options of `aesjax run`, without the folder.
STUDIES: Mapping[str, tuple[str, ...]] = {
    "sac": ("--carriers", "sac", "--schedules", "baseline,aes", "--steps", "400", *_TOY),
    "ppo": ("--carriers", "ppo", "--schedules", "aes", "--steps", "800", *_TOY),
    "sql": ("--carriers", "sql", "--schedules", "aes", "--steps", "400", *_TOY),
    "meow": ("--carriers", "meow", "--schedules", "aes", "--steps", "400", *_TOY),
    "hopper-ppo-mujoco": ("--carriers", "ppo", "--engine", "mujoco", "--steps", "320", *_HOPPER),
    "hopper-sac-mujoco": ("--carriers", "sac", "--engine", "mujoco", "--steps", "320", *_HOPPER),
    "hopper-ppo-mjx": ("--carriers", "ppo", "--engine", "mjx", "--steps", "320", *_HOPPER),
    "hopper-sac-mjx": ("--carriers", "sac", "--engine", "mjx", "--steps", "320", *_HOPPER),
    # For the readers: a pattern that stays, whose agents can be exported, and replays that are kept.
    "read": (
        *("--carriers", "sac", "--schedules", "aes", "--steps", "400", "--patterns", "steady", "--seeds", "1:2"),
        *("--checkpoint-seconds", CHECKPOINTS, "--devices", "1", "--keep-replay"),
    ),
}


class Whole(NamedTuple):
    """A study that nothing disturbed. Seconds from the start of its process, all programs compiled before."""

    folder: Path
    results: Listing  # digests of curves and streams
    names: frozenset[str]  # of what lies directly in its folder
    claimed: float  # its folder holds a configuration
    training: float  # it has written its first checkpoint
    trained: float  # it has written its manifest
    ended: float


class Bench:
    """Undisturbed studies, trained when they are first asked for, and the folder where everything happens."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.env = folder, processes.environment(cache)
        self._wholes: dict[str, Whole] = {}
        self._cases = 0

    def case(self) -> Path:
        """A new folder."""
        self._cases += 1
        path = self.folder / f"case-{self._cases:05d}"
        path.mkdir(parents=True)
        return path

    def drop(self, case: Path) -> None:
        """Remove a case that came to no harm."""
        shutil.rmtree(case, ignore_errors=True)

    def whole(self, name: str) -> Whole:
        """The undisturbed study of this name, timed with warm compilations."""
        if name not in self._wholes:
            for place in ("compiled", "whole"):  # the first compiles
                folder = self.folder / place / name
                whole = self._train(name, folder)
            shutil.rmtree(self.folder / "compiled" / name)
            self._wholes[name] = whole
        return self._wholes[name]

    def argv(self, name: str, out: Path, *more: str) -> list[str]:
        """The command of a study."""
        return ["run", "--out", str(out), *STUDIES[name], *more]

    def _train(self, name: str, out: Path) -> Whole:
        started = processes.start(self.argv(name, out), self.env, self.folder / "logs" / name)
        marks = []
        for sign in ("config.json", "checkpoints/*/*/seal.json", "manifest.json"):
            processes.wait_for(started, lambda sign=sign: any(out.glob(sign)))
            marks.append(time.monotonic() - started.began)
        outcome = processes.ended(started)
        if outcome.code != 0:
            raise RuntimeError(f"the undisturbed study '{name}' ended with {outcome.code}: {outcome.err}")
        names = frozenset(path.name for path in out.iterdir())
        return Whole(out, processes.results(out), names, *marks, ended=time.monotonic() - started.began)

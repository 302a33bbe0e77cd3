"""`Study`: the options of a study with everything that can be done with them in Python."""

import dataclasses
import tempfile
from pathlib import Path

from experiments.session.forecast import forecast
from experiments.session.results import Results
from experiments.study import store
from experiments.study.devices import start_jax
from experiments.study.folder import check_same, claim
from experiments.study.options import StudyOptions
from experiments.study.prepare import prepare
from experiments.study.results import open_results
from experiments.study.train import train


@dataclasses.dataclass(frozen=True)
class Study(StudyOptions):
    """A study: methods, drift patterns and seeds on one task, trained as one compiled program.

    Its fields are the options of `experiments.study.options.StudyOptions`. Nothing is trained or checked before `run`,
    `forecast` or `config`.

    >>> Study("toy", ["sac", "sac+aes"], patterns="abrupt", seeds=2).command()
    'aesjax run --schedules baseline,aes --patterns abrupt --seeds 1:2'
    """

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
        place = Path(tempfile.mkdtemp(prefix="aesjax-")) if out is None else Path(out).expanduser()
        if (place / store.MANIFEST).exists():
            check_same(place, open_results(place).config, config)
            return Results.open(place, self)
        prepared = prepare(config)
        study = claim(config, place, resume=(place / store.CONFIG).exists())
        try:
            command = self.command(out="DIR")
        except ValueError:  # only a file or Python can describe it
            command = ""
        train(study, prepared=prepared, command=command, quiet=quiet)
        return Results.open(place, self)

    def forecast(self, seconds: float = 10.0) -> str:
        """Runs, memory and the time that a trial of about ``seconds`` suggests; nothing is trained or written."""
        start_jax(None)
        config = self.config
        return "\n".join(forecast(config, prepare(config), seconds))

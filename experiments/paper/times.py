"""Training times of stored studies: rates of every agent, minutes of a typical study, hours of a design."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.presets import presets_of

#: Runs of a typical study: five seeds, two methods, two drift patterns.
RUNS = 5 * 2 * 2
CPU = "cpu"


class Rate(NamedTuple):
    """The runs of a carrier in one study, and the time they took together."""

    task: str
    carrier: str
    preset: str
    device: str  # "cpu", or a GPU's name
    devices: int  # on a CPU the cores that were used
    runs: int
    steps: int  # environment steps of one run
    seconds: float  # of all runs, with compilation and evaluations

    @property
    def seconds_per_step(self) -> float:
        """Seconds of one run and environment step."""
        return self.seconds / (self.runs * self.steps)

    @property
    def preset_steps(self) -> int:
        """Environment steps of a run in the study's preset."""
        return presets_of(self.task, 1_000)[self.preset].steps

    @property
    def typical_minutes(self) -> float:
        """Minutes of `RUNS` runs of the preset's steps, in proportion to runs and steps."""
        return RUNS * self.preset_steps * self.seconds_per_step / 60


class Cost(NamedTuple):
    """Time of all studies of one part of a design."""

    part: str
    studies: int
    runs: int
    core_hours: float  # of CPU cores
    gpu_hours: float


def rates(studies: Mapping[Any, Any], fields: Sequence[str] = ("task", "carrier", "device", "devices")) -> list[Rate]:
    """For each task, carrier and device the rate in the study with the most runs times steps.

    Studies of several tasks are left out, because their times are not stored by task.

    Args:
      studies: as in a record's `grid.json`, configuration and manifest by name or another key.
      fields: fields of `Rate` of which each combination has one row.
    """
    largest: dict[tuple[Any, ...], Rate] = {}
    for study in studies.values():
        config = study["config"]
        if "steps" not in config:
            continue
        for carrier, part in (study["parts"] or {}).items():
            rate = Rate(
                task=config["task"],
                carrier=carrier,
                preset=str(config.get("preset", "")),
                device=study["device"],
                devices=study["num_devices"],
                runs=part["runs"],
                steps=config["steps"],
                seconds=part["seconds"],
            )
            key = tuple(getattr(rate, field) for field in fields)
            if key not in largest or rate.runs * rate.steps > largest[key].runs * largest[key].steps:
                largest[key] = rate
    return list(largest.values())


def costs(studies: Mapping[str, Any]) -> list[Cost]:
    """Hours of every part, which is the prefix of a study's name: wall-clock time on GPUs, times cores on CPUs."""
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for name, study in studies.items():
        parts.setdefault(name.partition("-")[0], []).append(study)
    rows = []
    for part, own in parts.items():
        runs = sum(share["runs"] for study in own for share in (study["parts"] or {}).values())
        cores = sum(study["wall_seconds"] * study["num_devices"] for study in own if study["device"] == CPU)
        gpu = sum(study["wall_seconds"] for study in own if study["device"] != CPU)
        rows.append(Cost(part, len(own), runs, cores / 3600, gpu / 3600))
    return rows


def total(costs: Sequence[Cost]) -> Cost:
    """Sum of the parts, under the name `all`."""
    return Cost(
        "all",
        sum(cost.studies for cost in costs),
        sum(cost.runs for cost in costs),
        sum(cost.core_hours for cost in costs),
        sum(cost.gpu_hours for cost in costs),
    )

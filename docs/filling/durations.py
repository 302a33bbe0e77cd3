"""Tables of training times and of the hours of the design."""

from collections.abc import Callable, Mapping

from experiments.paper import tables, times
from experiments.paper.design import PARTS
from experiments.paper.evidence import CARRIERS
from filling.records import rates, stored
from filling.registry import table


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

    costs = {cost.part: cost for cost in times.costs(stored().studies)}
    parts = {f"{name}: {part.summary.partition(';')[0]}": costs[name] for name, part in PARTS.items() if name in costs}
    body = [
        [label, f"{cost.studies}", f"{cost.runs:,}", hours(cost.core_hours / 2), hours(cost.gpu_hours)]
        for label, cost in (parts | {"all": times.total(list(costs.values()))}).items()
    ]
    return tables.markdown(["part", "studies", "runs", "hours of two CPU cores", "hours on a GPU"], body)

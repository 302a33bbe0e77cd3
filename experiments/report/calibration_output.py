"""The text of `aesjax calibrate`: a table per method and what its numbers mean."""

from collections.abc import Mapping
from typing import Any

from experiments.report.markdown import escaped

HEAD = ("pattern", "runs", "dominated", "slack", "coverage", "at drift", "at jumps", "at jumps, late", "whole runs")


def row_of(pattern: str, group: Mapping[str, Any]) -> tuple[str, ...]:
    """The printed cells of `HEAD` for one pattern."""
    whole, runs = group["whole_runs_covered"], group["runs"]
    shares = [group[name] for name in ("coverage", "coverage_at_drift", "coverage_at_jumps", "coverage_at_jumps_late")]
    return (
        escaped(pattern),
        str(runs),
        f"{group['dominated']}/{group['bounded_runs']}" if group["bounded_runs"] else "-",
        "-" if group["slack"] is None else f"{group['slack']:.3g}",
        *("-" if share is None else f"{100.0 * share:.1f} %" for share in shares),
        "-" if whole is None else f"{whole}/{runs}",
    )


def verdict_of(found: Mapping[str, Any], delta: float, needed: int) -> str:
    """The run-level result of one method in sentences."""
    text = [f"{found['runs']} runs with {found['seeds']} seeds."]
    if found["calibration_runs"] < needed:
        text.append(
            f"Too few: delta = {delta:g} needs at least {needed} runs besides the one that is judged, and leaving out "
            f"its seed leaves {found['calibration_runs']}, so there is no finite factor and nothing to judge a run by."
        )
    if found["rho"] is not None:
        text.append(f"From all of them rho = {found['rho']:.4g} ranges per update and unit of the proxy.")
    elif found["runs"] < needed:
        text.append("There is no finite rho.")
    else:
        text.append("There is no finite rho: too many runs drift before their proxy is positive.")
    if found["no_signal"]:
        text.append(f"In {found['no_signal']} runs the environment drifted before the first positive proxy.")
    rates = ", ".join(f"{name} {good}/{runs}" for name, (good, runs) in found["elsewhere"].items() if runs)
    if rates:
        text.append(f"Its factor on runs of other schedules, for which nothing is promised: {rates}.")
    return " ".join(text)


def meaning(delta: float, window: int) -> str:
    """What the columns mean, in lines of a text."""
    share = f"{100.0 * (1.0 - delta):g} %"
    return "\n".join(
        [
            "What the numbers mean. Every run is judged by a calibration on the runs of all other seeds.",
            "- Drift is the length of the environment's path, as a share of each channel's range. It is known because",
            "  it is programmed; the drift of the best policy is something else, and no factor between them is known.",
            "- dominated: accumulated drift <= rho times accumulated proxy after every sample of the run. Promised for",
            f"  {share} of fresh runs of the same method, schedule, task and mix of patterns, if runs are independent;",
            "  runs of one seed share what was drawn for it. For a single pattern nothing is promised.",
            "- slack: accumulated bound over accumulated drift at the end, median of the runs that drift. Regret pays",
            "  its root; a proxy that is never silent makes it grow with the length of the run.",
            f"- coverage: share of evaluation intervals whose drift a split conformal bound at {share} keeps. It pools",
            "  intervals of different runs, which are dependent, so it is a measurement and not a guarantee.",
            "- at drift, at jumps: the same, of the intervals in which the environment moves, or jumps; rare drift is",
            f"  lost in the coverage over all. late: the largest bound of {window} intervals from the jump on counts.",
            "- whole runs: runs of which every interval is covered.",
            "A dash where a bound would be infinite: it would hold for every run and say nothing.",
        ]
    )

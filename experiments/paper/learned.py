"""Whether an agent has learned before its task changes: beyond idle policies, and beside public results."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from agents import CARRIERS
from experiments.paper.record import valid_mean

#: Share of seeds in which an agent has to end above every idle policy without drift.
LEARNED = 0.8
#: Share of its gain over random actions by which it has to end above all of them.
BEYOND = 0.1
#: Shares of the public return after as many steps, and of the public return at the end, that it has to have reached
#: before the first change.
SHARE_THEN, SHARE_FINAL = 1 / 2, 1 / 3
#: Mean returns of zero actions without drift, over the episodes of the floor.
ZERO_ACTIONS = {
    **{"toy": 3.75, "toy_multigoal_classic": -23_900.0, "reacher": 1.78, "cartpole_swingup": 0.034},
    **{"pendulum": -1187.0, "hopper": 150.5, "halfcheetah": -0.029, "walker2d": 97.4, "ant": 992.9, "humanoid": 198.2},
    **{"isaac_ant": 902.0, "isaac_humanoid": 89.5, "isaac_ingenuity": 42.6, "isaac_anymal": 9.05},
    **{"isaac_allegro_hand": -294.6, "isaac_franka_cabinet": 840.2},
}
_IDLE = ("untrained", "floor", pl.col("task").replace_strict(ZERO_ACTIONS, default=None, return_dtype=pl.Float64))
_END = pl.col("final_return")
_ABOVE_IDLE = _END - pl.max_horizontal(_IDLE) > BEYOND * (_END - pl.col("floor"))


@cache
def public_returns() -> pl.DataFrame:
    """Published mean returns without drift: task, agent (its label), environment steps, return, source."""
    return pl.read_csv(Path(__file__).parent / "public_returns.csv", schema_overrides={"return": pl.Float64})


def curve(task: str, carrier: str) -> pl.DataFrame:
    """Steps and returns to which a carrier (`sac`) is compared on a task, in the order of steps; empty without any.

    PPO is compared to PPO, and every other carrier to SAC; on Isaac tasks all are compared to MEow, of which final
    returns are published.
    """
    own = published(task, "ppo" if carrier == "ppo" else "sac")
    return own if len(own) else public_returns().filter(task=task).sort("steps")


def published(task: str, carrier: str) -> pl.DataFrame:
    """Steps and public returns of a carrier itself, in the order of steps; empty without any."""
    return public_returns().filter(task=task, agent=CARRIERS[carrier].label).sort("steps")


def needed(task: str, carrier: str, steps: float) -> float | None:
    """Return that a trained agent has reached before the first change, after ``steps``; None without a public one."""
    public = curve(task, carrier)
    if public.is_empty():
        return None
    final = SHARE_FINAL * public["return"][-1]
    if steps < public["steps"][0]:
        return final
    return max(final, SHARE_THEN * float(np.interp(steps, public["steps"], public["return"])))


def steps_needed(task: str, carrier: str) -> float | None:
    """Environment steps of a run that changes half-way, once the public agent stays above `SHARE_FINAL` of its end."""
    public = curve(task, carrier)
    if public.is_empty():
        return None
    steps, returns = np.array([0, *public["steps"]]), np.array([0.0, *public["return"]])
    least = SHARE_FINAL * returns[-1]
    last = np.flatnonzero(returns < least)[-1]
    return 2 * float(np.interp(least, returns[last : last + 2], steps[last : last + 2]))


def learned(steady: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Whether carriers have learned, by ``keys``, from the runs of their baselines without drift.

    One that began untrained ends above its untrained policy, random and zero actions in four seeds of five, and its
    mean return before the first change is at least `needed`.

    Returns:
      ``keys`` and the column ``learned``.
    """
    groups = steady.group_by(*keys, maintain_order=True).agg(
        pl.col("task").first().alias("on"),
        pl.col("carrier").first().alias("by"),
        valid_mean("first_change", "before_change"),
        trained=pl.col("trained").any(),
        above=_ABOVE_IDLE.mean() >= LEARNED,
    )
    rows = []
    for group in groups.iter_rows(named=True):
        least = needed(group["on"], group["by"], group["first_change"])
        enough = least is None or group["before_change"] >= least
        rows.append({key: group[key] for key in keys} | {"learned": group["trained"] or (group["above"] and enough)})
    return pl.DataFrame(rows, {key: steady.schema[key] for key in keys} | {"learned": pl.Boolean})

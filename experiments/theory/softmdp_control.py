"""Part 5.4 of the theory studies: soft Q-learning in a gridworld whose goal jumps, where entropy buys data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import aes, aes_r, fixed, oracle, playback
from aesjax.types import Array, EntropySchedule
from experiments.measure.stats import t_interval
from experiments.theory.control import ControlConfig, Drifting, History, drifting, fresh_quantile, learn
from experiments.theory.findings import Finding, TheoryStudy, claim, paired, show
from experiments.theory.gridworld import gridworld, start_at, visitation
from experiments.theory.softmdp_tracking import block_order

SIZE, DISCOUNT, MU, PHASES, LARGEST = 5, 0.9, 0.02, 5, 20.0
CONFIG = ControlConfig(restart_probability=0.05, updates_per_check=60)
FAMILIES = ("far", "near")  # how far the goal jumps: decides how often the old policy sees the new goal
MEASURES = ("learned", "played")  # regret of softmax(Q / mu), and of the policy that acts; both judged at mu
Make = Callable[[Array, int], EntropySchedule]


def _constant(scale: Array, updates: int) -> EntropySchedule:
    return fixed(scale)


def _aes(scale: Array, updates: int) -> EntropySchedule:
    return aes(fresh_quantile, kappa=scale, lambda_min=1e-3, lambda_max=LARGEST, initial=scale)


def _aes_r(scale: Array, updates: int) -> EntropySchedule:
    return aes_r(fresh_quantile, scale, updates, lambda_max=LARGEST)


def _oracle(scale: Array, updates: int) -> EntropySchedule:
    return oracle(scale, updates, lambda_max=LARGEST)


ARMS: dict[str, tuple[Make, bool]] = {  # schedule, and whether the table is emptied at each change
    "constant": (_constant, False),
    "constant + reset": (_constant, True),
    "aes": (_aes, False),
    "aes_r": (_aes_r, False),
    "oracle": (_oracle, False),
}


def goal_cycle(rng: np.random.Generator, family: str) -> np.ndarray:
    """(PHASES, 2) random goals at least 3 steps from the start; jumps of at least 4 steps, or of exactly 1."""
    cells = np.stack(np.divmod(np.arange(SIZE * SIZE), SIZE), -1)
    cells = cells[cells.sum(1) >= 3]
    goals = [cells[rng.integers(len(cells))]]
    while len(goals) < PHASES:
        step = np.abs(cells - goals[-1]).sum(1)
        allowed = cells[step >= 4] if family == "far" else cells[step == 1]
        goals.append(allowed[rng.integers(len(allowed))])
    return np.stack(goals).astype(np.float64)


@partial(jax.jit, static_argnames="stretches")
def _worlds(goals: Array, stretches: int) -> Drifting:
    """(seeds, PHASES, 2) goals to worlds with a leading axis of seeds."""
    phase = (jnp.arange(stretches) * PHASES // stretches).astype(jnp.int32)
    start = start_at((0, 0))

    def one(goals: Array) -> Drifting:
        mdps = jax.vmap(lambda goal: gridworld(goal, size=SIZE, discount=DISCOUNT, temperature=MU))(goals)
        return drifting(mdps, phase, start, start)

    return jax.vmap(one)(goals)


@jax.jit
def _old_visits(world: Drifting, goals: Array) -> Array:
    """(seeds, PHASES - 1): how often the best policy of the old goal visits the new one."""

    def one(world: Drifting, goals: Array) -> Array:
        old = jax.tree.map(lambda leaf: leaf[:-1], (world.mdps, world.solutions.log_policy))
        return jax.vmap(lambda mdp, policy, goal: visitation(mdp, policy, world.start, goal))(old[0], old[1], goals[1:])

    return jax.vmap(one)(world, goals)


@partial(jax.jit, static_argnames=("make", "updates"))
def _learn(make: Make, world: Drifting, keys: Array, scales: Array, forget: Array, updates: int) -> History:
    """Histories (seeds, scales, ...)."""

    def one(world: Drifting, key: Array, scale: Array) -> History:
        return learn(world, make(scale, updates), jax.random.wrap_key_data(key), CONFIG, forget=forget)

    return jax.vmap(lambda w, key: jax.vmap(lambda scale: one(w, key, scale))(scales))(world, keys)


@jax.jit
def _replay(world: Drifting, keys: Array, weights: Array) -> History:
    """Histories (seeds, runs, ...) under given weights (seeds, runs, T)."""

    def one(world: Drifting, key: Array, series: Array) -> History:
        return learn(world, playback(series), jax.random.wrap_key_data(key), CONFIG)

    by_run = jax.vmap(one, (None, None, 0))
    return jax.vmap(by_run)(world, keys, weights)


def _measures(history: History) -> dict[str, np.ndarray]:
    return {"learned": np.asarray(history.regret), "played": np.asarray(history.played)}


def control(study: TheoryStudy) -> tuple[list[Finding], dict[str, Any]]:
    """All of part 5.4: findings and data."""
    stretches, tuning, count = (10, 2, 3) if study.quick else (100, 8, 6)
    updates = stretches * CONFIG.updates_per_check
    grid = jnp.asarray(np.geomspace(0.03, 10.0, count))
    rng = np.random.default_rng(56)
    data: dict[str, Any] = {"scales": np.asarray(grid), "stretches": stretches}
    for family in FAMILIES:
        goals = jnp.asarray(np.stack([goal_cycle(rng, family) for _ in range(tuning + study.seeds)]))
        worlds = _worlds(goals, stretches)
        # As data: every arm uses the same key, on purpose.
        keys = jax.random.key_data(jax.random.split(jax.random.key(57), tuning + study.seeds))
        rest = jax.tree.map(lambda x: x[tuning:], (worlds, keys))
        row: dict[str, Any] = {"visits": np.asarray(_old_visits(worlds, goals))[tuning:]}
        for name, (make, forget) in ARMS.items():
            done = _learn(make, worlds, keys, grid, jnp.asarray(forget), updates)
            trial = {m: values[:tuning].mean((0, 2)) for m, values in _measures(done).items()}
            at = np.array([trial[m].argmin() for m in MEASURES])  # on seeds that are not used below
            chosen = jax.tree.map(lambda x, at=at: x[tuning:][:, at], done)
            row[name] = _entry(chosen) | {"scale": np.asarray(grid)[at], "grid": trial}
            if name in ("aes_r", "aes"):
                series = np.asarray(chosen.weight)
                level = np.broadcast_to(series.mean(-1, keepdims=True), series.shape)
                runs = np.concatenate([series[..., block_order(updates, 20, seed=58)], level], axis=1)
                both = _replay(*rest, jnp.asarray(runs))
                for suffix, places in (("permuted", slice(0, 2)), ("at its mean", slice(2, 4))):
                    row[f"{name} {suffix}"] = _entry(jax.tree.map(lambda x, p=places: x[:, p], both))
        data[family] = row
    return _findings(data), data


def _entry(history: History) -> dict[str, Any]:
    """Per measure, at the scale tuned for it: regret per stretch (seeds, C); weights of the first seed."""
    found = _measures(history)
    return {
        **{m: found[m][:, i] for i, m in enumerate(MEASURES)},
        "greedy": np.asarray(history.greedy)[:, 0],
        "weight": np.asarray(history.weight)[0],
        "collected": np.asarray(history.collected)[:, 1],
    }


def after_changes(series: np.ndarray) -> np.ndarray:
    """(seeds, C) -> (seeds, PHASES - 1): mean over each phase that follows a change."""
    return series.reshape(len(series), PHASES, -1).mean(-1)[:, 1:]


def thinned(data: dict[str, Any]) -> dict[str, Any]:
    """The data without its long series: what is worth keeping in a file."""

    def short(entry: Any) -> Any:
        if not isinstance(entry, dict):
            return entry
        kept = {k: v for k, v in entry.items() if k in ("scale", "grid")}
        for measure in (*MEASURES, "greedy", "collected"):
            kept[measure] = {"after changes": after_changes(entry[measure]), "curve": entry[measure].mean(0)}
        return kept | {"mean weight, one seed": entry["weight"].mean(-1)}

    return {k: {n: short(e) for n, e in v.items()} if k in FAMILIES else v for k, v in data.items()}


def _findings(data: dict[str, Any]) -> list[Finding]:
    def gap(family: str, measure: str, other: str, name: str = "aes_r"):
        """Mean regret after changes, other minus method: positive is a benefit of the method."""
        x, y = (after_changes(data[family][k][measure]).mean(1) for k in (other, name))
        return paired(x, y)

    def table(rows: list[tuple[str, str]]) -> str:
        return "; ".join(
            f"{m}, {f}, {other} - {name}: {show(gap(f, m, other, name))}"
            for m in MEASURES for f in FAMILIES for other, name in rows
        )  # fmt: skip

    def level(name: str) -> str:
        return ", ".join(f"{f} {m} {data[f][name][m].mean():.3g}" for f in FAMILIES for m in MEASURES)

    visits = "; ".join(f"{f}: median {np.median(data[f]['visits']):.2g}" for f in FAMILIES)
    rivals = ("constant", "aes_r permuted")
    helps = {(f, m): all(gap(f, m, r).low > 0 for r in rivals) for f in FAMILIES for m in MEASURES}
    slopes = {m: _benefit_slope(data, m) for m in MEASURES}
    timing = {(f, m): gap(f, m, "aes_r permuted") for f in FAMILIES for m in MEASURES}
    reset = {(f, m): gap(f, m, "constant", "constant + reset") for f in FAMILIES for m in MEASURES}
    scheduled = ("aes", "aes_r", "oracle")
    blind = {(f, m): gap(f, m, "aes at its mean", "aes") for f in FAMILIES for m in MEASURES}
    return [
        claim(
            "5.4-1",
            "preregistered: aes_r helps (against tuned constant and permuted control) only if the old policy seldom "
            "visits the new goal",
            any(helps["far", m] and not helps["near", m] for m in MEASURES)
            and not any(helps["near", m] for m in MEASURES),
            f"visits {visits}; helps: {[k for k, v in helps.items() if v]}; " + table([(r, "aes_r") for r in rivals]),
        ),
        claim(
            "5.4-2",
            "change by change, the benefit over the tuned constant falls with the visits",
            None if all(s.low < 0 < s.high for s in slopes.values()) else any(s.high < 0 for s in slopes.values()),
            "benefit per factor e of visits: " + "; ".join(f"{m} {show(s)}" for m, s in slopes.items()),
        ),
        claim(
            "5.4-3",
            "timing: aes_r beats its permuted control after far jumps",
            None if all(timing["far", m].low < 0 < timing["far", m].high for m in MEASURES)
            else any(timing["far", m].low > 0 for m in MEASURES),
            table([("aes_r permuted", "aes_r"), ("aes_r at its mean", "aes_r")]),
        ),
        claim(
            "5.4-4",
            "after far jumps, emptying the table is worth more than any schedule of the weight",
            all(reset["far", m].low > gap("far", m, "constant", k).high for m in MEASURES for k in scheduled),
            table([("constant", "constant + reset"), ("constant", "oracle"), ("constant", "aes")]) + "; mean regret: "
            + "; ".join(f"{k} ({level(k)})" for k in ARMS),
        ),
        claim(
            "5.4-5",
            "aes is a constant: its weight held at its mean does as well",
            all(i.low < 0 < i.high for i in blind.values()),
            table([("aes at its mean", "aes"), ("aes permuted", "aes")]),
        ),
    ]  # fmt: skip


def _benefit_slope(data: dict[str, Any], measure: str):
    """Per seed, over the changes of both families: benefit of aes_r regressed on the log of the visits."""
    x, y = [], []
    for family in FAMILIES:
        x.append(np.log(np.maximum(data[family]["visits"], 1e-6)))
        rows = data[family]
        y.append(after_changes(rows["constant"][measure]) - after_changes(rows["aes_r"][measure]))
    x, y = np.concatenate(x, 1), np.concatenate(y, 1)
    centred = x - x.mean(1, keepdims=True)
    return t_interval(np.sum(centred * y, 1) / np.sum(centred**2, 1))

"""Part 5.3 of the theory studies: following a drifting soft MDP whose action values are revealed with noise."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import aes, aes_d, aes_m, aes_prior, aes_r
from aesjax.types import Array
from experiments.measure.stats import Interval, t_interval
from experiments.theory import tracking
from experiments.theory.drifts import drift_weights
from experiments.theory.findings import Finding, TheoryStudy, claim, every, log_log_slope, show, slopes
from experiments.theory.learners import drift_proxy
from experiments.theory.softmdp_tracking import (
    MU,
    STATES,
    WIDE,
    Make,
    block_order,
    constant_arm,
    random_path,
    replay,
    run,
)

SIGMA = 0.3  # noise of the revealed values; the spread of the values of a state is about 1
COUPLING = 100.0  # c
BETWEEN = 5.0 / 12.0  # half-way between the exponents 1/3 and 1/2
PLAIN, FULL = "without entropy", "with entropy"


class Arm(NamedTuple):
    """A family of schedules with the grid of its one scale."""

    make: Make
    scales: np.ndarray


def arms(count: int) -> dict[str, Arm]:
    """Every schedule with a grid of the same number of scales."""
    kappa = np.geomspace(0.003, 3.0, count)
    weight = np.geomspace(2e-3, 1.0, count) / (COUPLING * MU)  # gains 0.002 to 1
    true, seen = drift_proxy, tracking.observed_drift
    return {
        "constant": Arm(constant_arm, weight),
        "aes": Arm(lambda s, n: aes(true, kappa=s, beta=0.0, **WIDE), kappa),
        "aes_prior": Arm(lambda s, n: aes_prior(true, kappa=s, beta=0.0, **WIDE), kappa),
        "aes_d": Arm(lambda s, n: aes_d(true, 0.05 * n, kappa=s, beta=0.0, **WIDE), kappa),
        "aes_m": Arm(lambda s, n: aes_m(true, levels=12, prior=0.1, hold=False, kappa=s, beta=0.0, **WIDE), kappa),
        "aes observed": Arm(lambda s, n: aes(seen, kappa=s, **WIDE), kappa),
        "aes_r observed": Arm(lambda s, n: aes_r(seen, s, n, lambda_max=1e3), weight),
    }


def noisy_evaluation(study: TheoryStudy) -> tuple[list[Finding], dict[str, Any]]:
    """All of part 5.3: findings and data."""
    data = {"exponents": _exponents(study), "arms": _compare(study), "entropy": _entropy_cost(study)}
    return _findings(data), data


def _noise(problems: tracking.Sequence, seed: int) -> Array:
    keys = jax.random.split(jax.random.key(seed), problems.q.shape[0])
    return jax.vmap(lambda q, key: tracking.noisy(q, SIGMA, key))(problems.q, keys)


def _exponents(study: TheoryStudy) -> dict[str, Any]:
    """Best constant gain and its regret, per seed, over T and over the number of switches."""
    times = (64, 128) if study.quick else (512, 1024, 2048, 4096)
    gains = np.geomspace(2e-3, 1.0, 8 if study.quick else 16)
    ones = jnp.ones(len(gains))

    def best(kind: str, count: int, rounds: int, warm: bool) -> tuple[np.ndarray, np.ndarray]:
        problems = random_path(np.random.default_rng(53), study.seeds, drift_weights(kind, count, rounds))
        weight = tracking.gain_weight(jnp.asarray(gains), COUPLING, MU)
        lost, _ = run(constant_arm, problems, _noise(problems, 1), weight, 0.0 * ones, COUPLING * ones, warm=warm)
        return _valley(gains, np.asarray(lost).sum(-1))

    def stack(pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
        return {"gain": np.stack([g for g, _ in pairs]), "regret": np.stack([r for _, r in pairs])}

    out: dict[str, Any] = {"T": times, "switches": (1, 2, 4) if study.quick else (4, 16, 64)}
    for kind, count, warm in (("linear", 3, True), ("abrupt", 5, True), ("linear cold", 3, False)):
        out[kind] = stack([best(kind.split()[0], count, rounds, warm) for rounds in times])
    out["abrupt in switches"] = stack([best("abrupt", s + 1, times[-1], True) for s in out["switches"]])
    return out


def _valley(x: np.ndarray, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimum over the last axis by a parabola in log-log coordinates through the best three points."""
    middle = np.clip(np.argmin(totals, -1), 1, len(x) - 2)
    rows = np.arange(len(totals))
    left, here, right = (np.log(totals[rows, middle + k]) for k in (-1, 0, 1))
    curve = np.maximum(left - 2 * here + right, 1e-12)
    shift = np.clip(0.5 * (left - right) / curve, -1.0, 1.0)
    return np.exp(np.log(x[middle]) + shift * np.log(x[1] / x[0])), np.exp(here - 0.25 * (left - right) * shift)


def _compare(study: TheoryStudy) -> dict[str, Any]:
    """Every arm with and without entropy, its scale tuned on other seeds; permuted controls; references.

    All start at the first optimum: a cold start is one more abrupt change, which the steady kinds must not have.
    """
    rounds, count, tuning = (128, 4, 4) if study.quick else (2048, 10, 10)
    cases = {"linear": 5, "periodic": 2, "abrupt": 5, "mixed": 17}
    order = block_order(rounds, 20, seed=54)
    members = arms(count)  # made once: compiled programs are kept by the identity of a maker
    if study.quick:
        members = {name: members[name] for name in ("constant", "aes", "aes_r observed")}
    extra = jnp.repeat(jnp.asarray([0.0, 1.0]), count)
    out: dict[str, Any] = {}
    for kind, waypoints in cases.items():
        weights = drift_weights(kind, waypoints, rounds)
        problems = random_path(np.random.default_rng(54), tuning + study.seeds, weights)
        seen = _noise(problems, 2)
        rest = jax.tree.map(lambda x: x[tuning:], (problems, seen))
        row: dict[str, Any] = {}
        for name, arm in members.items():
            grid = jnp.tile(jnp.asarray(arm.scales), 2)
            lost, weight = run(arm.make, problems, seen, grid, extra, jnp.full(2 * count, COUPLING), warm=True)
            totals = np.asarray(lost).sum(-1).reshape(-1, 2, count)
            at = totals[:tuning].mean(0).argmin(-1)  # on seeds that are not used below
            edge = np.isin(at, (0, count - 1))
            entry = {"scale": arm.scales[at], "edge": edge, "weight": np.asarray(weight[tuning, at[0], :, 0])}
            for i, suffix in enumerate((PLAIN, FULL)):
                entry[suffix] = totals[tuning:, i, at[i]]
                applied = weight[tuning:, i * count + at[i]]
                shuffled = replay(*rest, applied[:, order], jnp.asarray(float(i)), COUPLING)
                entry[f"permuted, {suffix}"] = np.asarray(shuffled)
            row[name] = entry
        changed = np.any(np.diff(weights, axis=0, prepend=0.0), axis=1)
        references = {
            "lag-1": jnp.full(rounds, tracking.gain_weight(1.0, COUPLING, MU)),
            "restart": tracking.restart(jnp.asarray(changed), COUPLING, MU),
            "frozen": jnp.zeros(rounds),
        }
        for name, series in references.items():
            same = jnp.broadcast_to(series[None, :, None], (study.seeds, rounds, STATES))
            row[name] = {PLAIN: np.asarray(replay(*rest, same, jnp.asarray(0.0), COUPLING))}
        out[kind] = row
    return out


def _entropy_cost(study: TheoryStudy) -> dict[str, Any]:
    """Extra regret per round of adding ``lam * Psi`` at the same step, for several lam (that is, several c)."""
    rounds, gain = 128 if study.quick else 2048, 0.05
    couplings = jnp.asarray([25.0, 50.0, 100.0, 200.0, 400.0, 800.0])
    problems = random_path(np.random.default_rng(55), study.seeds, drift_weights("periodic", 2, rounds))
    weight = tracking.gain_weight(gain, couplings, MU)
    seen = _noise(problems, 3)
    lost = [run(constant_arm, problems, seen, weight, jnp.full(6, e), couplings)[0] for e in (0.0, 1.0)]
    off, on = (np.asarray(x).sum(-1) for x in lost)
    return {"weight": np.asarray(weight), "extra": (on - off) / rounds, "total": off / rounds, "gain": gain}


def _nearer(interval: Interval, low: bool) -> bool | None:
    """Whether the whole interval lies on the side of 1/3 (``low``) or of 1/2; None if it holds the middle."""
    if interval.low < BETWEEN < interval.high:
        return None
    return (interval.value < BETWEEN) == low


def _findings(data: dict[str, Any]) -> list[Finding]:
    e, table, extra = data["exponents"], data["arms"], data["entropy"]
    gentle, abrupt, cold = (log_log_slope(e["T"], e[k]["regret"]) for k in ("linear", "abrupt", "linear cold"))
    gain = log_log_slope(e["T"], e["linear"]["gain"])
    switches = log_log_slope(e["switches"], e["abrupt in switches"]["regret"])
    names = [k for k in table["linear"] if k != "constant" and FULL in table["linear"][k]]

    def ratios(suffix: str, reference: str | None, other: str) -> dict[str, dict[str, Interval]]:
        """Log ratio of total regrets, method over reference; negative: the method is better."""
        return {
            kind: {n: t_interval(np.log(row[n][suffix] / row[reference or n][other])) for n in names}
            for kind, row in table.items()
        }

    tuned, twin = ratios(PLAIN, "constant", PLAIN), ratios(FULL, None, PLAIN)
    timing, paper = ratios(PLAIN, None, f"permuted, {PLAIN}"), ratios(FULL, "constant", PLAIN)
    data["log ratios"] = {
        "tuned constant": tuned,
        "tuned constant, with entropy": paper,
        "twin": twin,
        "permuted": timing,
    }
    steady, jumps = ("linear", "periodic"), ("abrupt", "mixed")
    adaptive = [n for n in names if n.split()[0] in ("aes_d", "aes_m", "aes_r")]

    def listed(rows: dict, kinds, which) -> str:
        return "; ".join(f"{k}, {n}: {show(rows[k][n], 2)}" for k in kinds for n in which)

    def wins(rows: dict, kinds, which) -> list[str]:
        return [f"{k}, {n}" for k in kinds for n in which if rows[k][n].high < 0]

    cost = np.mean(extra["extra"], axis=0)
    clear = np.array([t_interval(column).low > 0 for column in extra["extra"].T])
    power = slopes(extra["weight"][clear], cost[clear, None])[0] if np.sum(clear) > 2 else np.nan
    share = np.array2string(np.mean(extra["extra"] / extra["total"], axis=0), precision=4)
    at = np.array2string(extra["weight"], precision=4)
    only = bool(wins(tuned, ("mixed",), adaptive)) and not wins(tuned, (*steady, "abrupt"), adaptive)
    return [
        claim(
            "5.3-1",
            "linear drift, warm start: the best gain falls as T^(-2/3) and its regret grows as T^(1/3), not T^(1/2)",
            every(_nearer(gentle, True), abs(gain.value + 2 / 3) < 0.12),
            f"regret {show(gentle)}, gain {show(gain)}; from the uniform policy, regret {show(cold)}",
        ),
        claim(
            "5.3-2",
            "abrupt drift: regret of the best gain grows as sqrt(S T)",
            every(_nearer(abrupt, False), _nearer(switches, False)),
            f"in T {show(abrupt)}, in the number of switches {show(switches)}",
        ),
        claim(
            "5.3-3",
            "added entropy costs O(lam^2) per round",
            None if np.isnan(power) else bool(1.5 < power < 2.5),
            f"gain {extra['gain']}: share of the regret {share} at lam {at}; "
            f"fitted power {power:.3g} over the {np.sum(clear)} that are clear of 0",
        ),
        claim(
            "5.3-4",
            "against the tuned constant, steady drift: no schedule wins (each without entropy)",
            not wins(tuned, steady, names),
            f"winners {wins(tuned, steady, names)}; log ratio " + listed(tuned, steady, names),
        ),
        claim(
            "5.3-5",
            "against the tuned constant: aes_d, aes_m, aes_r win under mixed drift (jumps, then quiet) and only there",
            only,
            f"winners {wins(tuned, table, adaptive)}; log ratio " + listed(tuned, jumps, names),
        ),
        claim(
            "5.3-6",
            "against the twin without entropy, each at its best scale: the entropy term never helps",
            not wins(twin, table, names),
            f"winners {wins(twin, table, names)}; log ratio " + listed(twin, table, names),
        ),
        claim(
            "5.3-7",
            "against the permuted control, mixed drift: the timing of aes_d, aes_m and aes_r helps",
            all(timing["mixed"][n].high < 0 for n in adaptive),
            "log ratio " + listed(timing, jumps, names),
        ),
    ]

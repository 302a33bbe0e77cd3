"""What the theory studies' records say once tuning on the reported seeds, grid edges and many cells are accounted for.

Everything is computed from the committed records; nothing is run again. Differences are method minus rival, per paired
seed, so that a win is below zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.measure.stats import Interval, holm, paired_t_p
from experiments.theory.oco_grid import ENTROPIC, EQUAL_STEPS, TWINS, equal_steps, hindsight, theory
from experiments.theory.oco_methods import METHODS

_Cells = dict[str, np.ndarray]  # cell -> (seeds,) differences
_Choose = Callable[[np.ndarray], np.ndarray]  # (groups, seeds, scales) -> (groups, seeds)
PLAIN, FULL = "without entropy", "with entropy"


def leave_one_out(regret: np.ndarray) -> np.ndarray:
    """(groups, seeds, scales) -> (groups, seeds): every seed at the scale with the best mean over the *other* seeds."""
    others = regret.sum(1, keepdims=True) - regret
    return np.take_along_axis(regret, others.argmin(-1)[..., None], axis=-1)[..., 0]


def split_half(regret: np.ndarray) -> np.ndarray:
    """(groups, seeds, scales) -> (groups, seeds): every second seed at the scale that is best for the other half."""
    out = np.empty(regret.shape[:2])
    for one, other in ((0, 1), (1, 0)):
        best = regret[:, other::2].mean(1).argmin(-1)
        out[:, one::2] = np.take_along_axis(regret[:, one::2], best[:, None, None], axis=-1)[..., 0]
    return out


_CHOICES: Mapping[str, _Choose] = {"hindsight": hindsight, "leave-one-out": leave_one_out, "split halves": split_half}


def _grid_claims(grid: Mapping[str, Any], choose: _Choose) -> dict[str, _Cells]:
    """The claims of 5.1 that tune a scale on the seeds they report, with another way to choose it."""
    regret = {name: np.asarray(r) for name, r in grid["regret"].items()}
    tuned = {name: choose(r) for name, r in regret.items()}
    plain = {name: theory(r) for name, r in regret.items()}
    rows = [(i, s) for i, s in enumerate(grid["switches"]) if s]

    def cells(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> _Cells:
        return {f"{n} S={s}": a[i] - b[i] for n, (a, b) in pairs.items() for i, s in rows}

    label = {name: METHODS[name].label for name in regret}
    return {
        "5.1-4a": cells({"constant - AES": (tuned["constant"], tuned["aes"])}),
        "5.1-4c": cells({"AES-M - constant": (plain["aes_m"], tuned["constant"])}),
        "5.1-5a": cells({f"constant, no entropy - {label[n]}": (tuned["constant_plain"], tuned[n]) for n in ENTROPIC}),
        "5.1-5b": cells({f"Ader - {label[n]}": (plain["ader"], tuned[n]) for n in ENTROPIC}),
        "5.1-5c": cells({f"Ader tuned - {label[n]}": (tuned["ader"], tuned[n]) for n in ENTROPIC}),
        "E7": cells({f"no entropy - {label[n]}": (tuned[f"{n}_plain"], tuned[n]) for n in TWINS}),
    }


def _relative_claims(observed: Mapping[str, Any]) -> dict[str, _Cells]:
    def gains(factor: float, values: Sequence[int]) -> _Cells:
        return {
            f"{label} a={a}": np.asarray(row["aes_r"][f"base x{factor:g}, gain {a}"])
            - np.asarray(row["constant"][str(float(factor))])
            for label, row in observed.items() for a in values
        }  # fmt: skip

    return {"5.1-7b": gains(1.0, (2, 4, 16)), "5.1-7c": gains(0.25, (4, 16))}


def _planning_claims(planning: Mapping[str, Any]) -> dict[str, _Cells]:
    last = {case: {n: np.asarray(r[-1]) for n, r in row["regret"].items()} for case, row in planning.items()}
    mine, twin = "best aes, c=1", "best aes, c=1 without entropy"
    return {
        "5.2-5": {f"aes, {case}": np.log(r[mine] / r["best constant, c=1"]) for case, r in last.items()},
        "5.2-6": {f"no entropy, {case}": r[twin] - r[mine] for case, r in last.items()},
    }


def _noisy_claims(arms: Mapping[str, Any]) -> dict[str, _Cells]:
    names = [n for n in arms["linear"] if n != "constant" and FULL in arms["linear"][n]]

    def ratios(suffix: str, other: Callable[[Mapping[str, Any], str], Any]) -> _Cells:
        return {
            f"{kind}, {n}": np.log(np.asarray(row[n][suffix]) / np.asarray(other(row, n)))
            for kind, row in arms.items() for n in names
        }  # fmt: skip

    return {
        "5.3-4, -5": ratios(PLAIN, lambda row, n: row["constant"][PLAIN]),
        "5.3-6": ratios(FULL, lambda row, n: row[n][PLAIN]),
        "5.3-7": ratios(PLAIN, lambda row, n: row[n][f"permuted, {PLAIN}"]),
    }


def _control_claims(control: Mapping[str, Any]) -> dict[str, _Cells]:
    def gaps(method: str, rivals: Sequence[str]) -> _Cells:
        def mean(family: str, name: str, measure: str) -> np.ndarray:
            return np.asarray(control[family][name][measure]["after changes"]).mean(1)

        return {
            f"{m}, {f}, {method} - {rival}": mean(f, method, m) - mean(f, rival, m)
            for m in ("learned", "played") for f in ("far", "near") for rival in rivals
        }  # fmt: skip

    return {
        "5.4-1": gaps("aes_r", ("constant", "aes_r permuted")),
        "5.4-3": gaps("aes_r", ("aes_r permuted", "aes_r at its mean")),
        "5.4-5": gaps("aes", ("aes at its mean", "aes permuted")),
    }


def contrasts(oco: Mapping[str, Any], softmdp: Mapping[str, Any]) -> dict[str, _Cells]:
    """Claim -> cell -> differences, of every claim that is made of several cells; ``data`` of the two records."""
    return {
        **_grid_claims(oco["grid"], hindsight),
        **_relative_claims(oco["observed"]),
        **_planning_claims(softmdp["planning"]),
        **_noisy_claims(softmdp["noisy"]["arms"]),
        **_control_claims(softmdp["control"]),
    }


class Verdict(NamedTuple):
    """How many cells of a claim are clear of zero, one by one and together."""

    cells: int
    wins: int  # below zero at 95 %, each alone
    losses: int  # above
    wins_holm: int  # below zero with a Holm-adjusted p under .05, adjusted over the claim's cells
    losses_holm: int
    lost: tuple[str, ...]  # cells that are clear alone and not together


def verdicts(claims: Mapping[str, _Cells]) -> dict[str, Verdict]:
    """One `Verdict` per claim."""
    out = {}
    for claim, cells in claims.items():
        p = [paired_t_p(x) for x in cells.values()]
        sign = np.sign([x.mean() for x in cells.values()])
        alone, together = np.asarray(p) < 0.05, holm(p) < 0.05
        lost = tuple(name for name, a, b in zip(cells, alone, together, strict=True) if a and not b)
        wins, losses = (tuple(int(np.sum(clear & (sign == s))) for clear in (alone, together)) for s in (-1, 1))
        out[claim] = Verdict(len(cells), wins[0], losses[0], wins[1], losses[1], lost)
    return out


def tuning_checks(grid: Mapping[str, Any]) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    """Wins of each tuned claim of 5.1 under every way to choose the scale, and by how much a mean regret moves.

    The second is the largest relative change of any method's mean regret at S >= 1 against hindsight.
    """
    wins = {name: {c: v.wins for c, v in verdicts(_grid_claims(grid, f)).items()} for name, f in _CHOICES.items()}
    moved = {}
    drifting = np.asarray(grid["switches"]) > 0
    for name, choose in _CHOICES.items():
        change = [
            choose(r)[drifting].mean(1) / hindsight(r)[drifting].mean(1) - 1.0
            for r in map(np.asarray, grid["regret"].values())
        ]
        moved[name] = float(np.max(np.abs(change)))
    return {c: {name: wins[name][c] for name in _CHOICES} for c in wins["hindsight"]}, moved


def turned(grid: Mapping[str, Any]) -> tuple[int, int]:
    """Cells of 5.1's tuned claims whose side (below, above, undecided) depends on how scales were chosen; all cells."""
    sides = []
    for choose in _CHOICES.values():
        cells = [x for claim in _grid_claims(grid, choose).values() for x in claim.values()]
        sides.append([np.sign(x.mean()) * (paired_t_p(x) < 0.05) for x in cells])
    return int(np.sum(np.ptp(sides, axis=0) > 0)), len(sides[0])


def edges(oco: Mapping[str, Any], softmdp: Mapping[str, Any]) -> list[str]:
    """Every tuned scale that lies at an end of its grid, where the best one may lie outside."""
    found = []

    def look(part: str, regret: Mapping[str, Any], groups: Sequence[str]) -> None:
        for name, r in regret.items():
            means = np.asarray(r).mean(1)
            if means.shape[-1] == 1:
                continue
            for group, row in zip(groups, means, strict=True):
                at = int(row.argmin())
                if at in (0, len(row) - 1):
                    flat = " (flat)" if np.ptp(row) < 1e-6 * row.min() else ""
                    found.append(f"{part}, {group}: {METHODS[name].label}, {'low' if at == 0 else 'high'} end{flat}")

    look("5.1", oco["grid"]["regret"], [f"S={s}" for s in oco["grid"]["switches"]])
    look("5.1-6", oco["bursts"]["regret"], list(oco["bursts"]["placement"]))
    for kind, row in softmdp["noisy"]["arms"].items():
        ends = {n: e["edge"] for n, e in row.items() if any(e.get("edge", ()))}
        found += [f"5.3, {kind}: {n} ({', '.join(np.array([PLAIN, FULL])[edge])})" for n, edge in ends.items()]
    scales = np.asarray(softmdp["control"]["scales"])
    for family in ("far", "near"):
        for name, entry in softmdp["control"][family].items():
            if isinstance(entry, dict):
                pairs = zip(("learned", "played"), entry.get("scale", ()), strict=False)
                found += [f"5.4, {family}: {name}, {m}" for m, s in pairs if np.isclose(s, scales[[0, -1]]).any()]
    return found


def _signed(x: Interval) -> str:
    return f"{x.value:+.1f} [{x.low:+.1f}, {x.high:+.1f}]"


def tables(oco: Mapping[str, Any], softmdp: Mapping[str, Any]) -> str:
    """All checks as Markdown."""
    grid = oco["grid"]
    counts = [s for s in grid["switches"] if s]
    text = ["## Equal steps", "", "Regret without the entropy term minus with it, 95 % intervals over 20 paired seeds:"]
    for title, at in (("both at the theory's scale", "theory"), ("both at the scale best with entropy", "best")):
        text += ["", f"| {title} | " + " | ".join(f"S={s}" for s in counts) + " |", "|---" * (len(counts) + 1) + "|"]
        found = equal_steps(grid["switches"], {n: np.asarray(r) for n, r in grid["regret"].items()}, at)
        for name in EQUAL_STEPS:
            text.append(f"| {METHODS[name].label} | " + " | ".join(_signed(found[name, s]) for s in counts) + " |")
    wins, moved = tuning_checks(grid)
    text += ["", "## Tuned on the reported seeds", "", "Cells below zero at 95 %, by how the scale was chosen:", ""]
    text += ["| claim | cells | " + " | ".join(_CHOICES) + " |", "|---" * (len(_CHOICES) + 2) + "|"]
    cells = contrasts(oco, softmdp)
    text += [
        f"| {c} | {len(cells[c])} | " + " | ".join(str(row[n]) for n in _CHOICES) + " |" for c, row in wins.items()
    ]
    largest = ", ".join(f"{name} {100 * moved[name]:.2g} %" for name in _CHOICES if name != "hindsight")
    text += ["", f"Largest change of a method's mean regret at S >= 1: {largest}."]
    text += ["", "## Many cells", "", "| claim | cells | wins, losses alone | after Holm | no longer clear |"]
    text.append("|---" * 5 + "|")
    for claim, v in verdicts(cells).items():
        lost = "; ".join(v.lost) or "none"
        text.append(f"| {claim} | {v.cells} | {v.wins}, {v.losses} | {v.wins_holm}, {v.losses_holm} | {lost} |")
    text += ["", "## Grid edges", "", *(f"- {edge}" for edge in edges(oco, softmdp))]
    return "\n".join(text) + "\n"

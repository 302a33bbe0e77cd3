"""The quantitative sentences of the AES paper, each with the comparison that decides it, and questions of ours.

`experiments.audit.judge` turns a claim and the evidence into a verdict. The methods, the metric and the direction of a
comparison are data; these files contain no result.
"""

from typing import Any

from experiments.audit.appendix import APPENDIX
from experiments.audit.claim import ABRUPT, BY_BASELINE, DROP, RECOVERY, Claim, main_means, main_wins, recovery_means
from experiments.audit.evidence import CARRIERS, of
from experiments.audit.measured import FAMILY_OF, best_constant, methods
from experiments.measure.patterns import STEADY

#: Less is better: the share of return lost, and times of recovery.
_LOSS: dict[str, Any] = {"metric": DROP, "sign": -1}
_TIME: dict[str, Any] = {"metric": RECOVERY, "sign": -1, "patterns": ABRUPT, "weigh": "task"}
#: The methods that our own questions are about: as typed in `--schedules`, their name, what results say of them.
_ASKED = {
    "aes": ("AES", of("aes")),
    "aes_r": ("AES-R", of("aes_r")),
    "aes_r+window": ("AES-R+window", of("aes_r+window")),
    "aes_c+recent+refresh:threshold=3": (
        "AES-C+recent+refresh:threshold=3",
        of("aes_c+recent+refresh", **{"refresh.threshold": 3}),
    ),
}
_HANDS = ("isaac_allegro_hand", "isaac_franka_cabinet")
_REST = tuple(task for task in FAMILY_OF if task not in _HANDS)
_OVERHEAD = "results hold no times of single methods; `aesjax bench` measures a schedule's cost"
_SAME = "the paper, like us, defines it under Abrupt drift only"
_SHARP, _SMOOTH = ("abrupt", "mixed"), ("linear", "periodic")

_ABSTRACT = (
    Claim("A1", "Abstract", "AES reduces the share of return that drift costs", main_means("drop_ratio"), **_LOSS),
    Claim("A2", "Abstract", "AES recovers faster after abrupt changes", recovery_means(), **_TIME),
    Claim("A3", "Abstract, 5.1, C", "AES adds negligible overhead", "no number", untestable=_OVERHEAD),
)
_OVERALL = (
    Claim("B1", "5.3", "AES raises nAUC under drift in general", main_wins("nauc", 1), "most"),
    Claim("B2", "5.3", "AES lowers DropRatio in general", main_wins("drop_ratio", -1), "most", **_LOSS),
    Claim(
        *("B3", "5.3, 5.5", "AES costs nothing without drift", main_means("nauc", (STEADY,)), "never_worse"),
        patterns=(STEADY,),
    ),
)
_RECOVERY = (
    Claim(
        *("C0", "5.4", "AES recovers faster on every task with every carrier", "48 of 48 cells", "every"),
        unit=("task", "carrier"),
        **_TIME,
    ),
    *(
        Claim(
            *(f"C{at}", "5.4", f"Recovery of {carrier}, mean over the 12 tasks", recovery_means(carrier)),
            carriers=(carrier,),
            **_TIME,
        )
        for at, carrier in enumerate(CARRIERS, 1)
    ),
    Claim(
        *("C5", "5.4", "Recovery gains most on AllegroHand and FrankaCabinet"),
        recovery_means(tasks=("AllegroHand", "FrankaCabinet")),
        against=_REST,
        **_TIME,
    ),
)
_SUMMARY = (
    Claim("D1", "5.5", "All four carriers benefit in nAUC", main_means("nauc"), "every", unit=("carrier",)),
    Claim(
        *("D2", "5.5", "All four carriers benefit in DropRatio", main_means("drop_ratio"), "every"),
        unit=("carrier",),
        **_LOSS,
    ),
    Claim("D3", "5.5", "All four carriers benefit in recovery", recovery_means(), "every", unit=("carrier",), **_TIME),
    Claim(
        *("D4", "5.5", "DropRatio falls most under Abrupt and Mixed drift", main_means("drop_ratio", _SHARP)),
        contrast=(_SHARP, _SMOOTH),
        **_LOSS,
    ),
    Claim("D5", "5.5", "So does the time of recovery", "Abrupt only", untestable=_SAME),
)
CLAIMS: tuple[Claim, ...] = (*_ABSTRACT, *_OVERALL, *_RECOVERY, *_SUMMARY, *APPENDIX)


def _questions() -> list[Claim]:
    """Is it better than the baseline, than the best constant in hindsight, than the same values at the wrong times?"""
    made = []
    for typed, (name, method) in _ASKED.items():
        carriers = tuple(carrier for carrier in CARRIERS if "+" not in typed or carrier != "PPO")  # it keeps no data
        opponents = {
            "its baseline": BY_BASELINE,
            "the best constant in hindsight": best_constant,
            "its own values permuted": methods(of(f"permuted:of={typed}")),
        }
        for at, (opponent, side) in enumerate(opponents.items(), 1):
            text = f"Is {name} better than {opponent}?"
            made.append(Claim(f"{name} {at}", "ours", text, "–", "question", methods(method), side, carriers=carriers))
    return made


QUESTIONS: tuple[Claim, ...] = tuple(_questions())

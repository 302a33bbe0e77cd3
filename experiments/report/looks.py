"""How a method looks in every figure: colour and dash, the same in print, on screen and in the dark."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from experiments.measure.study import carrier_of

# After Okabe and Ito: a contrast of 3:1 with white, and no two alike to a deuteranope. Baselines are black.
PALETTE = "#0072B2 #D55E00 #009E73 #CC79A7 #A29636 #1E90FF #8C6D1F #4020D0 #B03060 #5B7F3A".split()
#: The same hues, light enough for a dark page.
PALETTE_DARK = "#4DA6E0 #FF8B3D #3CCBA0 #E7A5C8 #F5BE48 #9AD4F7 #C9A95A #8470FF #E2789F #9DC277".split()
BASELINE = "#222222"
REFERENCE_INK = "#666666"  # of what is no method: the optimum, the drift
#: Lengths of strokes and gaps in line widths; the first is solid. Grey print tells methods apart by them alone.
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 1.5), (7, 2, 1.5, 2), (4, 1.5, 1.5, 1.5, 1.5, 1.5))


#: Methods from which a report folds what is not significant and emphasises few lines.
MANY = 10


class Look(NamedTuple):
    """The look of one line."""

    ink: int  # index into `PALETTE`; -1 is `BASELINE`, -2 `REFERENCE_INK`
    dash: int = 0  # index into `DASHES`
    width: float = 1.6  # points
    strong: bool = True  # whether it has its band and full ink among `MANY` lines

    @property
    def colour(self) -> str:
        """``#rrggbb`` on white."""
        return {-1: BASELINE, -2: REFERENCE_INK}.get(self.ink) or PALETTE[self.ink]


def kind_of(method: str) -> str:
    """A method's label after the carrier: ``+AES[kappa=0.3]``; empty for a baseline."""
    return method[len(carrier_of(method)) :]


def looks(methods: Sequence[str], strong: Collection[str] = ()) -> dict[str, Look]:
    """A look per method: by what follows the carrier, so that AES looks the same on SAC and on PPO.

    Of `MANY` methods and more only baselines and those in ``strong`` are emphasised.

    >>> looks(["SAC", "SAC+AES", "PPO+AES"])["SAC+AES"] == looks(["SAC", "SAC+AES", "PPO+AES"])["PPO+AES"]
    True
    """
    kinds = list(dict.fromkeys(kind_of(m) for m in methods if kind_of(m)))
    inks, strokes = len(PALETTE), len(DASHES) - 1
    # After a full round of colours the strokes move on by one, so that no two of the first forty look the same.
    chosen = {kind: Look(i % inks, 1 + (i + i // inks) % strokes) for i, kind in enumerate(kinds)}
    few = len(methods) < MANY
    return {m: chosen.get(kind_of(m), Look(-1))._replace(strong=few or m in strong or not kind_of(m)) for m in methods}

"""Packs a figure into a PNG of 256 colours, a third of the size, in which the given inks stay exact."""

import io
from collections.abc import Iterable

import numpy as np

MAX_INKS = 11
_TINTS = 20  # steps from nearly white to the full ink; 11 * 20 tints and 36 greys are 256 colours


def pack_png(rendered: io.BytesIO, inks: Iterable[str]) -> bytes:
    """The rendered PNG with a fixed palette; a palette found from the image could lose a rare ink.

    Args:
      rendered: a PNG in full colour, as matplotlib writes it.
      inks: at most 11 colours as ``#rrggbb``.
    """
    from PIL import Image

    table = Image.new("P", (1, 1))
    table.putpalette(_palette(sorted(set(inks))))
    full = Image.open(rendered).convert("RGB")
    index = np.array(full.quantize(palette=table, dither=Image.Dither.NONE))
    index[np.all(np.asarray(full) == 255, axis=-1)] = 0  # the nearest-colour search is coarse; paper stays white
    packed, image = io.BytesIO(), Image.fromarray(index)
    image.putpalette(table.getpalette() or [])
    image.save(packed, format="png", optimize=True)
    return packed.getvalue()


def _palette(inks: list[str]) -> list[int]:
    """Up to 256 colours of three bytes: white and greys, then every ink from a tint to full strength."""
    if len(inks) > MAX_INKS:
        raise ValueError(f"at most {MAX_INKS} inks fit into the palette; got {len(inks)}")
    greys = np.repeat(np.linspace(255, 0, 256 - MAX_INKS * _TINTS), 3).reshape(-1, 3)
    full = [np.array([int(ink[i : i + 2], 16) for i in (1, 3, 5)], np.float64) for ink in inks]
    shares = np.linspace(0.05, 1.0, _TINTS)[:, None]
    tints = [255 * (1 - shares) + shares * ink for ink in full]
    return np.concatenate([greys, *tints]).round().astype(int).ravel().tolist()

"""Packed figures keep their colours."""

import io

import numpy as np
import pytest
from PIL import Image

from experiments.report.looks import BASELINE, PALETTE
from experiments.report.png import pack_png


def test_inks_and_white_survive_exactly_however_rare():
    pixels = np.full((40, 40, 3), 255, np.uint8)
    inks = [BASELINE, *PALETTE]
    for i, ink in enumerate(inks):
        pixels[3 * i, 0] = [int(ink[j : j + 2], 16) for j in (1, 3, 5)]
    raw = io.BytesIO()
    Image.fromarray(pixels).save(raw, format="png")
    packed = np.asarray(Image.open(io.BytesIO(pack_png(raw, inks))).convert("RGB")).astype(int)
    assert np.max(np.abs(packed[:, 1:] - 255)) == 0
    assert np.max(np.abs(packed - pixels)) <= 4


def test_too_many_inks_are_refused():
    with pytest.raises(ValueError, match="at most 11 inks"):
        pack_png(io.BytesIO(), [f"#0000{i:02x}" for i in range(12)])

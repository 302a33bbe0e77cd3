"""The figure of a replay."""

import io

import numpy as np
import pytest
from PIL import Image

from aesjax.measure.patterns import PatternFacts
from aesjax.report.replay_figures import draw_replay


@pytest.mark.parametrize(("panels", "lines"), [(1, 1), (3, 4), (5, 12)])
def test_the_figure_takes_any_number_of_methods_and_schedules(panels, lines):
    steps = np.linspace(0.0, 1000.0, 50)
    curves = {f"schedule {i}": (steps, 0.1 * (i + 1) + steps * 1e-4) for i in range(lines)}
    trained = {"trained": (steps[::5], 0.2 + 0 * steps[::5])}
    png = draw_replay({f"m{i}": trained | curves for i in range(panels)}, "trained", np.array([500.0]), "abrupt", 1e3)
    image = Image.open(io.BytesIO(png))
    assert image.width > 1200
    assert len(image.convert("RGB").getcolors(2**24) or ()) > 10


def test_the_change_points_of_a_made_up_pattern_are_drawn_as_what_it_is():
    line = {"trained": (np.linspace(0.0, 1e3, 9), np.linspace(0.1, 0.2, 9))}

    def draw(pattern, facts=None):
        return draw_replay({"m": line}, "trained", np.array([500.0]), pattern, 1e3, facts)

    assert draw("square", PatternFacts(jumps=True, recovery=True)) == draw("abrupt")
    assert draw("ramp", PatternFacts(jumps=False, recovery=False)) == draw("linear")
    assert len({draw("abrupt"), draw("linear"), draw("steady")}) == 3

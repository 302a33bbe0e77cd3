"""The figure of a replay."""

import io

import numpy as np
import pytest
from PIL import Image

from experiments.measure.patterns import PatternFacts
from experiments.report.draw import draw
from experiments.report.replay_figures import replay_plot


@pytest.mark.parametrize(("panels", "lines"), [(1, 1), (3, 4), (5, 12)])
def test_the_figure_takes_any_number_of_methods_and_schedules(panels, lines):
    steps = np.linspace(0.0, 1000.0, 50)
    curves = {f"schedule {i}": (steps, 0.1 * (i + 1) + steps * 1e-4) for i in range(lines)}
    trained = {"trained": (steps[::5], 0.2 + 0 * steps[::5])}
    shown = {f"m{i}": trained | curves for i in range(panels)}
    plot = replay_plot(shown, "trained", np.array([500.0]), "sac", "abrupt", 1e3)
    assert "m0: trained 0.200 to 0.200, schedule 0 0.100 to 0.200" in plot.alt
    image = Image.open(io.BytesIO(draw(plot).png))
    assert image.width > 1200
    assert len(image.convert("RGB").getcolors(2**24) or ()) > 10


def test_the_change_points_of_a_made_up_pattern_are_drawn_as_what_it_is():
    line = {"trained": (np.linspace(0.0, 1e3, 9), np.linspace(0.1, 0.2, 9))}

    def drawn(pattern, facts=None):
        return draw(replay_plot({"m": line}, "trained", np.array([500.0]), "sac", pattern, 1e3, facts)).png

    assert drawn("square", PatternFacts(jumps=True, recovery=True)) == drawn("abrupt")
    assert drawn("ramp", PatternFacts(jumps=False, recovery=False)) == drawn("linear")
    assert len({drawn("abrupt"), drawn("linear"), drawn("steady")}) == 3

"""Tables on a terminal: side by side where words fit, else one column below another, and nothing is left out."""

import io

import pytest
from rich.console import Console

from experiments.audit.terminal import printed
from experiments.report.cells import NONE, Cell, Table

ROWS = [
    [Cell("SAC"), Cell("0.64", "[0.60, 0.68]", "better"), Cell("0.15", kind="paper"), Cell("nothing [bold] about it")],
    [Cell("PPO"), Cell(NONE), Cell(""), Cell("a_word_that_is_forty_characters_long_xxxx")],
]


def shown(width):
    table = Table("t", "A title", "", ["method", "ours", "paper", "why"], [("toy", ROWS[:1]), ("hopper", ROWS[1:])])
    text = io.StringIO()
    console = Console(file=text, width=width)
    for part in printed([table], console):
        console.print(part)
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 60, 200])
def test_every_cell_is_there_at_every_width(width):
    text = "".join("".join(shown(width)).split())
    for cell in ("A title", "toy", "hopper", "SAC", "0.64[0.60,0.68]", "0.15", "nothing[bold]aboutit", "a_word_"):
        assert "".join(cell.split()) in text, cell


def test_a_wide_terminal_has_columns_and_a_narrow_one_lines():
    assert any("SAC" in line and "0.15" in line for line in shown(200))
    assert shown(60) == [
        "A title",
        "",
        "toy",
        "  SAC",
        "      ours   0.64 [0.60, 0.68]",
        "      paper  0.15",
        "      why    nothing [bold] about it",
        "",
        "hopper",
        "  PPO",
        "      why    a_word_that_is_forty_characters_long_xxxx",
    ]

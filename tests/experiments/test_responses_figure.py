"""The picture of what the committed records say."""

import json
from pathlib import Path

import pytest

from experiments.responses_figure import Figure, draw, main, read

RECORDS = sorted((Path(__file__).resolve().parents[2] / "benchmarks").glob("responses_toy_*.json"))


def test_every_contrast_with_the_best_constant_is_drawn_where_it_is():
    records = [read(path) for path in RECORDS]
    figure = draw(records)
    axes = {axis.get_title(): axis for axis in figure.axes}
    for record in records:
        for contrast in record["contrasts"]["hindsight"]:
            axis = axes[f"{record['carrier']}, {contrast['pattern']}"]
            first = axes[f"{record['carrier']}, {record['contrasts']['hindsight'][0]['pattern']}"]  # the labelled one
            named = [label.get_text() for label in first.get_yticklabels()]
            at = named.index(contrast["first"])
            points = [line.get_xdata()[0] for line in axis.lines if list(line.get_ydata()) == [at]]
            assert points == [contrast["difference"][0]]


def test_a_picture_is_written(tmp_path):
    out = tmp_path / "figure.png"
    assert main(Figure((RECORDS[0],), out)) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"contrasts": {"hindsight": []}})])
def test_other_files_are_refused_in_one_sentence(tmp_path, capsys, content):
    path = tmp_path / "answers.json"
    path.write_text(content)
    assert main(Figure((path,), tmp_path / "figure.png")) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"aesjax: {path} holds no")
    assert said.count("\n") == 1
    assert not (tmp_path / "figure.png").exists()

"""The tables of a report mark and round as they say."""

from experiments.measure import summarise
from experiments.report.cells import Lookup
from experiments.report.tables import build_tables, hindsight_table
from tests.experiments.measure.synthetic import config, make_curves, manifest

SOME = ("SAC", "SAC+AES")
FEW = 100


def test_marks_follow_the_direction_of_the_metric():
    """Of methods that suffer less and less."""
    curves = make_curves(("SAC+AES", "SAC", "SAC+AES-R"), ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.2)
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)
    paired = next(t for t in build_tables(Lookup(frame, ())) if t.key == "paired")
    marks = {title: {str(row[0]): str(row[3])[0] for row in rows} for title, rows in paired.groups}
    wanted = {"SAC+AES": "▼", "SAC+AES-R": "▲"}
    assert marks["toy · floor-corrected nAUC (higher is better) · abrupt"] == wanted
    assert marks["toy · floor-corrected DropRatio (lower is better) · abrupt"] == wanted


def test_channels_that_drift_in_vain_are_marked_wherever_the_drift_of_their_task_is_shown():
    curves = make_curves(SOME, ("steady", "abrupt"), [1, 2], every=5_000)
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)

    def shown(inert):
        return {table.key: table for table in build_tables(Lookup(frame, (), inert))}

    for key in ("main", "weights", "paper"):
        table = shown({"toy": ["joint_damping"]})[key]
        assert [title for title, _ in table.groups] == ["toy · steady", "toy · abrupt ‡"]
        assert "‡ Drifts without changing anything: joint_damping in toy." in table.notes
        other = shown({"another task": ["gravity"]})[key]
        assert not any("‡" in text for text in (*other.notes, *(title for title, _ in other.groups)))


def test_the_best_constant_in_hindsight_stands_beside_the_best_of_the_rest():
    methods = ("SAC", "SAC+fixed", "SAC+AES", "SAC+fixed[base=0.2]", "SAC+AES-R")  # later ones suffer less
    curves = make_curves(methods, ("abrupt",), range(1, 4))
    look = Lookup(summarise(curves, config(), manifest(curves), replicates=FEW), ())
    (_, rows), *more = hindsight_table(look, methods[1::2]).groups
    assert not more
    assert [str(cell) for cell in rows[0]][:3] == ["SAC", "2", "SAC+fixed[base=0.2]"]
    assert str(rows[0][4]) == "SAC+AES-R"
    assert float(rows[0][3].text) < float(rows[0][5].text)
    assert not hindsight_table(look, ["SAC+fixed"]).rows  # one constant is no choice
    assert "hindsight" not in [table.key for table in build_tables(look)]
    assert "hindsight" in [table.key for table in build_tables(look, methods[1::2])]

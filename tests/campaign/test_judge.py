"""The judge and the plans of the campaign: it can fail, and it throws the same faults whenever it is asked."""

import signal
import subprocess
import sys
import time

import pytest

from tests.campaign import disk, flips, interruptions, kills, processes, races, soak
from tests.campaign.arguments import bad_arguments
from tests.campaign.campaign import LONG, SHORT
from tests.campaign.damage import damages
from tests.campaign.flips import Flip
from tests.campaign.judge import (
    Finding,
    Judgement,
    Outcome,
    Verdict,
    changes,
    judged_interruption,
    judged_reading,
    judged_refusal,
    leftovers,
)
from tests.campaign.listing import listing
from tests.campaign.table import failures, table

SENTENCE = "aesjax: --steps must be a positive multiple of 400; got 0, the nearest is 400\n"
TRACE = "Traceback (most recent call last):\n  File 'x', line 1\nValueError: cannot\n"
GOOD_BYE = "aesjax: interrupted; a checkpoint is written. Continue with:\n  aesjax run --out a --resume\n"


def refusal(code=2, err=SENTENCE, before=(), after=(), mentions=("--steps",), **more):
    return judged_refusal(Outcome(code, "", err, **more), dict(before), dict(after), mentions)


def test_a_sentence_with_exit_code_2_is_a_refusal():
    assert refusal().verdict is Verdict.REFUSED
    assert refusal(err="╭─ Parsing error ─╮\n│ invalid │\n╰───╯").verdict is Verdict.REFUSED


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ({"err": TRACE}, Verdict.TRACEBACK),
        ({"err": SENTENCE + TRACE}, Verdict.TRACEBACK),
        ({"err": "Exception ignored in: <callback>\nKeyboardInterrupt\n"}, Verdict.TRACEBACK),
        ({"code": 1}, Verdict.WRONG),
        ({"code": -11}, Verdict.WRONG),
        ({"code": None}, Verdict.HUNG),
        ({"code": 0}, Verdict.SILENT),
        ({"code": 0, "reached_training": True}, Verdict.SILENT),
        ({"err": ""}, Verdict.WRONG),
        ({"err": "aesjax: 'trained'"}, Verdict.WRONG),
        ({"err": "aesjax: cannot concat empty list"}, Verdict.WRONG),
        ({"err": "WARNING: something\n" + SENTENCE}, Verdict.WRONG),
        ({"err": SENTENCE + "and more\n"}, Verdict.WRONG),
        ({"err": "aesjax: --steps " + "very " * 1000}, Verdict.WRONG),
        ({"after": {"out": "folder"}}, Verdict.WRONG),
        ({"before": {"a": "1"}, "after": {"a": "2"}}, Verdict.WRONG),
    ],
)
def test_whatever_else_is_none(seen, verdict):
    assert refusal(**seen).verdict is verdict


def test_a_reader_of_damaged_files_refuses_or_answers_as_before():
    whole = {"report/index.html": "1"}
    assert judged_reading(Outcome(0, "", ""), whole, whole).verdict is Verdict.EQUAL
    assert judged_reading(Outcome(0, "", ""), whole, {"report/index.html": "2"}).verdict is Verdict.SILENT
    assert judged_reading(Outcome(0, "", ""), whole, {}).verdict is Verdict.SILENT
    assert judged_reading(Outcome(2, "", SENTENCE), whole, {}).verdict is Verdict.REFUSED
    assert judged_reading(Outcome(0, "", TRACE), whole, whole).verdict is Verdict.TRACEBACK


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(130, "", GOOD_BYE), Verdict.EQUAL),
        (Outcome(0, "", ""), Verdict.EQUAL),
        (Outcome(130, "", "aesjax: interrupted\n"), Verdict.WRONG),
        (Outcome(130, "", ""), Verdict.WRONG),
        (Outcome(130, "", GOOD_BYE + GOOD_BYE), Verdict.WRONG),
        (Outcome(-2, "", ""), Verdict.WRONG),
        (Outcome(130, "", GOOD_BYE + TRACE), Verdict.TRACEBACK),
        (Outcome(None, "", ""), Verdict.HUNG),
    ],
)
def test_an_interrupted_study_says_how_to_go_on(outcome, verdict):
    assert judged_interruption(outcome, claimed=True).verdict is verdict


def test_before_a_folder_is_claimed_there_is_nothing_to_go_on_with():
    assert judged_interruption(Outcome(130, "", "aesjax: interrupted\n"), claimed=False).verdict is Verdict.EQUAL


def test_what_a_killed_command_leaves_is_seen(tmp_path):
    for name in ("checkpoints/sac/partial-0001/state", ".report-12/index.html", "curves.parquet", "report/page"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / ".config.json.partial").write_text("")
    left = leftovers(listing(tmp_path))
    assert {".config.json.partial", ".report-12", "checkpoints/sac/partial-0001"} <= set(left)
    assert not {"curves.parquet", "report", "report/page", "checkpoints/sac"} & set(left)


def test_every_change_of_a_folder_is_seen(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").symlink_to("nowhere")
    before = listing(tmp_path)
    (tmp_path / "a").write_text("2")
    (tmp_path / "b").unlink()
    (tmp_path / "c").mkdir()
    assert changes(before, listing(tmp_path)) == ["a changed", "b is gone", "c appeared"]


def test_the_table_counts_and_shows_how_to_see_a_failure_again():
    good = Finding("races", "fine", Judgement(Verdict.EQUAL), "x")
    bad = Finding("races", "0.1 s", Judgement(Verdict.TRACEBACK, "KeyError: 'a'"), "aesjax run")
    assert failures([good, bad]) == [bad]
    text = table([good, bad])
    assert text.splitlines()[1].split() == ["races", "2", "0", "1", "1", "0", "0", "0", "0", "0"]
    assert "KeyError: 'a'" in text
    assert "aesjax run" in text


def test_a_flip_done_twice_is_none(tmp_path):
    (tmp_path / "x").write_bytes(b"ab")
    flips.flipped(tmp_path, Flip("x", 1, 0))
    assert (tmp_path / "x").read_bytes() == b"ac"
    flips.flipped(tmp_path, Flip("x", 1, 0))
    assert (tmp_path / "x").read_bytes() == b"ab"


def test_flips_leave_no_file_out_and_aim_at_numbers(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 12, "a1": "3", "b": 4}')
    numbers = flips.numbers_in(tmp_path)
    assert numbers == {"config.json": [9, 10, 29]}
    sizes = {"config.json": 31, "agents/a": 100_000, "empty": 0, "curves.parquet": 1}
    drawn = flips.planned(0, sizes, numbers, 60)
    assert {flip.file for flip in drawn} == set(sizes) - {"empty"}
    assert all(flip.byte < sizes[flip.file] for flip in drawn)
    assert {flip.byte for flip in drawn[1::2]} == {9, 10, 29}


def test_plans_are_the_same_for_the_same_seed_and_cover_every_part():
    assert kills.planned(1, 30, ["sac", "ppo"]) == kills.planned(1, 30, ["sac", "ppo"])
    drawn = kills.planned(0, 12, ["sac", "ppo"])
    assert {(kill.study, kill.phase) for kill in drawn} == {(s, p) for s in ("sac", "ppo") for p in kills.PHASES}
    signals = interruptions.planned(0, 20, 5)
    assert sum(plan.early for plan in signals) == 20
    assert {plan.number for plan in signals} == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    assert any(plan.twice for plan in signals)
    assert [int(20 * plan.share) for plan in signals[:20]] == list(range(20))
    assert {race.resume for race in races.planned(0, 3)} == {True, False}
    sizes = disk.planned(10, 10**6)
    assert (sizes[0], sizes[-1]) == (disk.SMALLEST, 10**6)
    assert sizes == sorted(set(sizes))


def test_a_kill_that_comes_too_late_is_none(tmp_path):
    def started(code):
        process = subprocess.Popen([sys.executable, "-c", code])
        for name in ("out", "err"):
            (tmp_path / name).write_text("")
        return processes.Started(process, tmp_path / "out", tmp_path / "err", time.monotonic())

    assert not kills._kill(started("pass"), 60.0)
    assert kills._kill(started("import time; time.sleep(600)"), 0.1)


def test_memory_that_grows_is_not_flat():
    warm_up = [10**8 * i for i in range(1, 10)]
    assert soak.flat([*warm_up, *[10**9 + i for i in range(50)]]).verdict is Verdict.EQUAL
    assert soak.flat([*warm_up, *[10**9 + 10**7 * i for i in range(50)]]).verdict is Verdict.WRONG
    assert soak.flat([10**9] * 3).verdict is Verdict.WRONG


def test_the_campaign_is_as_large_as_it_says():
    assert len(bad_arguments()) >= 400
    assert bad_arguments(3, 10) == bad_arguments(3, 10)
    for faults in ([bad.name for bad in bad_arguments()], [damage.name for damage in damages()]):
        assert len(set(faults)) > 0.98 * len(faults)
    assert LONG.kills >= 50
    assert LONG.early >= 20
    assert LONG.result_flips + LONG.checkpoint_flips >= 3000
    assert LONG.races >= 20
    assert LONG.disks >= 10
    assert len(LONG.studies) == 8
    assert set(SHORT.studies) <= set(LONG.studies)

"""The online-learning study on games of 256 rounds: its numbers, its findings, its files, its refusals."""

import json

import jax
import numpy as np
import pytest

from experiments.theory import games, oco, oco_figures, oco_grid, oco_methods, oco_parts
from experiments.theory.findings import TheoryStudy, claim, log_log_slope, open_folder, paired, slopes, write

SEEDS, ROUNDS = 3, 256


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return TheoryStudy(tmp_path_factory.mktemp("theory"), seeds=SEEDS, quick=True)


@pytest.fixture(scope="module")
def grid(study):
    """Compiles every method: tests of it are slow."""
    with jax.enable_x64(True):
        return oco_grid.main_grid(study, ROUNDS)


def test_a_sharded_sweep_equals_one_game_at_a_time(study):
    ((group, _),) = oco_grid.switching_groups(study, 4, 40, [3])
    tunings = [oco_methods.tuning(game, 3) for game in group]
    scales = np.array([0.5, 2.0])
    build = oco_methods.METHODS["aes_m"].build
    together, weights = oco_methods.outcomes(build, oco_methods.stack(group), oco_methods.stack(tunings), scales)
    assert together.shape == weights.shape == (SEEDS, 2)  # three games on two devices: one is padding
    for i, (game, t) in enumerate(zip(group, tunings, strict=True)):
        for j, scale in enumerate(scales):
            played = oco.play(build(scale, t, 40), game)
            np.testing.assert_allclose(together[i, j], played.regret.sum(), rtol=1e-9)
            np.testing.assert_allclose(weights[i, j], played.weight.mean(), rtol=1e-9)


@pytest.mark.slow
def test_all_methods_meet_the_same_losses_and_none_beats_the_informed_restart_by_luck(grid):
    data, _ = grid
    regret = {name: oco_grid.hindsight(r) for name, r in data["regret"].items()}
    assert set(regret) == set(oco_methods.METHODS)
    assert all(r.shape == (len(data["switches"]), SEEDS) for r in regret.values())
    # the uniform player pays the gap times the share of wrong arms, up to the noise of the losses
    expected = 0.25 * 0.9 * ROUNDS * (1.0 - 10 * oco_methods.FLOOR)
    np.testing.assert_allclose(regret["frozen"].mean(), expected, rtol=0.25)
    for name in ("constant", "constant_plain", "aes_m", "ader", "restart"):
        assert regret[name][0].mean() < 0.6 * regret["frozen"][0].mean(), name  # no switch: they learn


@pytest.mark.slow
def test_tuning_in_hindsight_never_loses_to_the_theorys(grid):
    for regret in grid[0]["regret"].values():
        assert np.all(oco_grid.hindsight(regret).mean(1) <= oco_grid.theory(regret).mean(1) + 1e-9)


def test_without_drift_the_paper_schedule_and_the_oracle_sit_at_the_smallest_weight():
    game = games.switching(np.random.default_rng(0), 4, 40, 0)
    t = oco_methods.tuning(game, 0)
    for name in ("aes", "oracle", "envelope"):
        weight = oco.play(oco_methods.METHODS[name].build(1.0, t, 40), game).weight
        np.testing.assert_allclose(weight, oco_methods.WEIGHTS[0], rtol=1e-6)


@pytest.mark.slow
def test_findings_carry_intervals_and_the_record_is_complete(grid, study, capsys):
    data, findings = grid
    observed, more = oco_parts.observed(study, ROUNDS)
    names = [f.name for f in (*findings, *more)]
    assert len(set(names)) == len(names) >= 13
    assert all(f.outcome in ("confirmed", "refuted", "undecided") for f in (*findings, *more))
    assert all("[" in f.measured for f in findings if f.name != "5.1-5b")
    drawn = oco_figures.draw({"grid": data, "rates": fake_rates()}, oco_parts.traces(ROUNDS))
    tables = oco_figures.tables({"grid": data})
    write(study, "theory_oco", findings, {"grid": data, "observed": observed}, drawn, 1.0, tables=tables)
    record = json.loads((study.out / "theory_oco.json").read_text())
    assert [f["name"] for f in record["findings"]] == [f.name for f in findings]
    assert np.shape(record["data"]["grid"]["regret"]["aes"]) == (5, SEEDS, len(oco_methods.SCALES))
    text = (study.out / "theory_oco.md").read_text()
    assert "| constant, no entropy |" in text
    assert text.count("**confirmed**") + text.count("**refuted**") + text.count("**undecided**") == len(findings)
    for figure in ("rates", "weights", "grid"):
        assert (study.out / f"theory_oco_{figure}.png").stat().st_size > 20_000
    assert "5.1-3" in capsys.readouterr().out


def fake_rates():
    """Regret that grows like the root of T and of the path, for drawing only."""
    horizons, counts = [64, 256, 1024], [1, 4, 16]
    flat = np.ones(SEEDS)
    return {
        "horizons": horizons,
        "switches": counts,
        "moving": {t: {n: np.sqrt(t) * flat for n in oco_grid.RATE_METHODS} for t in horizons},
        "swept": {n: np.sqrt([[1 + 2 * s] * SEEDS for s in counts]) for n in oco_grid.RATE_METHODS},
    }


def test_slopes_and_claims():
    x = [1.0, 10.0, 100.0]
    y = np.power.outer(x, [0.5, 0.7])
    np.testing.assert_allclose(slopes(x, y), [0.5, 0.7])
    assert log_log_slope(x, y).value == pytest.approx(0.6)
    assert paired(np.array([1.0, 2.0, 3.0]), np.zeros(3)).value == 2.0
    assert [claim("", "", holds, "").outcome for holds in (True, False, None)] == ["confirmed", "refuted", "undecided"]


def test_one_seed_has_no_interval(tmp_path):
    with pytest.raises(SystemExit) as stop:
        open_folder(TheoryStudy(tmp_path / "new", seeds=1))
    assert stop.value.code == 2
    assert not (tmp_path / "new").exists()

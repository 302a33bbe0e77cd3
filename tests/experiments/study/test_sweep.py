"""Stacking, sharding, groups and waves on a program small enough to compute by hand."""

import io
import math

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from aesjax.types import Program
from experiments.study import checkpoint
from experiments.study.driver import Plan, run_sweep
from experiments.study.progress import Progress
from experiments.study.sweep import Waves, compile_program, plan_waves, stack

# A run is a number; its state counts up by it; a chunk is three steps.
COUNTER = Program(
    init=lambda run: jnp.zeros(()),
    chunk=lambda state, run, step: (state + 3 * run, {"entropy_weight": run, "at": step + 0.0}),
    evaluate=lambda state, run, step: {"return_mean": state, "drift": jnp.stack([run, -run])},
)
PLAN = Plan(chunks=4, chunk_steps=3, num_envs=2, checkpoint_seconds=0.0)


def labels(count):
    return [{"task": "count", "method": f"m{i % 2}", "seed": i} for i in range(count)]


def trained(count, waves, **options):
    runs = stack([np.float32(i + 1) for i in range(count)])
    executables = compile_program(COUNTER, group=waves.group)
    return run_sweep(executables, COUNTER, runs, labels(count), waves, PLAN, **options)


@pytest.mark.parametrize(
    ("count", "waves"),
    [(8, Waves(8, 1, 4)), (7, Waves(8, 1, 2)), (5, Waves(2, 3, 1)), (1, Waves(2, 1, 1)), (12, Waves(12, 1, 3))],
)
def test_every_run_is_trained_once_however_it_is_stacked(count, waves):
    rows = trained(count, waves)
    assert rows.height == count * 5
    assert rows["seed"].to_list() == [i for i in range(count) for _ in range(5)]
    assert rows["step"].to_list() == [0, 6, 12, 18, 24] * count
    expected = [3.0 * chunk * (i + 1) for i in range(count) for chunk in range(5)]
    np.testing.assert_array_equal(rows["return_mean"], expected)
    np.testing.assert_array_equal(rows["drift_1"], [-(i + 1.0) for i in range(count) for _ in range(5)])


def test_runs_are_spread_over_all_devices():
    executables = compile_program(COUNTER)
    data = executables.place(stack([np.float32(i) for i in range(4)]))
    assert len(data.sharding.device_set) == len(jax.local_devices()) == 2
    state, _ = executables.chunk(executables.init(data), data, jnp.int32(0))
    assert len(state.sharding.device_set) == 2


def test_waves_are_the_fewest_that_fit_and_groups_divide_them():
    big = Program(lambda run: jnp.zeros((1000,), jnp.float32), COUNTER.chunk, COUNTER.evaluate)
    assert plan_waves(big, np.float32(0), 75, 2, budget=10**9) == Waves(76, 1, 38)
    assert plan_waves(big, np.float32(0), 75, 2, budget=10**9, largest_group=8) == Waves(80, 1, 8)
    small = plan_waves(big, np.float32(0), 75, 2, budget=4000 * 20)
    assert small.width <= 20
    assert small.width % 2 == 0
    assert small.count == math.ceil(75 / small.width)
    with pytest.raises(ValueError, match="one run on each of 2 devices needs"):
        plan_waves(big, np.float32(0), 75, 2, budget=4000)


def test_a_sweep_in_waves_resumes_from_the_middle(tmp_path):
    whole = trained(5, Waves(2, 3, 1))

    class Stop(Exception):
        pass

    def stop(tick):
        if (tick.wave, tick.chunk) == (1, 2):
            raise Stop

    with pytest.raises(Stop):
        trained(5, Waves(2, 3, 1), directory=tmp_path, study="x", on_tick=stop)
    seen = []
    rows = trained(
        5, Waves(2, 3, 1), directory=tmp_path, study="x", resume=True, on_tick=lambda t: seen.append((t.wave, t.chunk))
    )
    assert seen[0] == (1, 2)
    assert rows.equals(whole)


def test_a_foreign_checkpoint_is_refused_by_name(tmp_path):
    checkpoint.save(tmp_path, "mine", 0, 1, {"a": np.ones(2)}, pl.DataFrame({"x": [1]}))
    with pytest.raises(checkpoint.CheckpointError, match="another configuration"):
        checkpoint.load_newest(tmp_path, "yours", {"a": jax.ShapeDtypeStruct((2,), np.float32)})


def test_a_checkpoint_returns_what_was_saved_and_only_two_are_kept(tmp_path):
    for chunk in range(4):
        checkpoint.save(tmp_path, "s", 0, chunk, {"a": np.arange(3) + chunk}, pl.DataFrame({"x": [chunk]}))
    saved = checkpoint.load_newest(tmp_path, "s", {"a": jax.ShapeDtypeStruct((3,), np.int64)})
    assert (saved.wave, saved.chunk, saved.notes) == (0, 3, [])
    np.testing.assert_array_equal(saved.state["a"], [3, 4, 5])
    assert saved.rows["x"].to_list() == [3]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_checkpoint_of_other_wave_widths_is_refused_in_words(tmp_path):
    checkpoint.save(tmp_path, "", 0, 1, np.zeros(4, np.float32), pl.DataFrame({"step": [0]}))
    with pytest.raises(checkpoint.CheckpointError, match="stacks runs otherwise than 2 at a time"):
        trained(4, Waves(2, 2, 1), directory=tmp_path, resume=True)


def test_progress_prints_plain_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    with Progress(PLAN, 4, 1, "counting", stream) as progress:
        trained(4, Waves(4, 1, 2), on_tick=progress.tick)
        progress.note("a note")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "counting: compiling"
    assert lines[-1] == "a note"
    assert "100.0 %" in lines[-2]
    assert "environment steps/s" in lines[-2]
    assert "m0 24.00 (weight 2)" in lines[-2]
    assert "\x1b" not in stream.getvalue()

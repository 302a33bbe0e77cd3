"""Stacking, sharding, groups and batches on a program small enough to compute by hand."""

import io
import math

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from aesjax.types import Program
from experiments.study import checkpoint
from experiments.study.run import Batches, Intervals, compile_program, load, ordered, plan_batches, stack, sweep
from experiments.study.train import Progress

# A run is a number; its state counts up by it; an interval is three steps.
COUNTER = Program(
    init=lambda run: jnp.zeros(()),
    chunk=lambda state, run, step: (state + 3 * run, {"entropy_weight": run, "at": step + 0.0}),
    evaluate=lambda state, run, step: {"return_mean": state, "drift": jnp.stack([run, -run])},
)
PLAN = Intervals(evaluations=4, interval=3, num_envs=2)


def labels(count):
    return [{"task": "count", "method": f"m{i % 2}", "seed": i} for i in range(count)]


def trained(count, batches, directory=None):
    """The evaluations of a sweep, which continues the checkpoint in ``directory``."""
    runs = stack([np.float32(i + 1) for i in range(count)])
    executables = compile_program(COUNTER, group=batches.group)
    saved = None if directory is None else load(executables, COUNTER, runs, batches, directory, "x")
    return sweep(executables, runs, labels(count), batches, PLAN, saved=saved)


@pytest.mark.parametrize(
    ("count", "batches"),
    [(8, Batches(8, 1, 4)), (7, Batches(8, 1, 2)), (5, Batches(2, 3, 1)), (1, Batches(2, 1, 1))],
)
def test_every_run_is_trained_once_however_it_is_stacked(count, batches):
    rows = ordered([now.rows for now in trained(count, batches)], labels(count))
    assert rows["seed"].to_list() == [i for i in range(count) for _ in range(5)]
    assert rows["step"].to_list() == [0, 6, 12, 18, 24] * count
    expected = [3.0 * number * (i + 1) for i in range(count) for number in range(5)]
    np.testing.assert_array_equal(rows["return_mean"], expected)
    np.testing.assert_array_equal(rows["drift_1"], [-(i + 1.0) for i in range(count) for _ in range(5)])


def test_runs_are_spread_over_all_devices():
    executables = compile_program(COUNTER)
    data = executables.place(stack([np.float32(i) for i in range(4)]))
    assert len(data.sharding.device_set) == len(jax.local_devices()) == 2
    state, _ = executables.chunk(executables.init(data), data, jnp.int32(0))
    assert len(state.sharding.device_set) == 2


def test_batches_are_the_fewest_that_fit_and_groups_divide_them():
    big = Program(lambda run: jnp.zeros((1000,), jnp.float32), COUNTER.chunk, COUNTER.evaluate)
    assert plan_batches(big, np.float32(0), 75, 2, budget=10**9) == Batches(76, 1, 38)
    assert plan_batches(big, np.float32(0), 75, 2, budget=10**9, largest_group=8) == Batches(80, 1, 8)
    assert plan_batches(big, np.float32(0), 50, 2, budget=10**9, largest_group=8) == Batches(50, 1, 5)  # none is empty
    assert plan_batches(big, np.float32(0), 3, 2, budget=10**9, largest_group=8) == Batches(4, 1, 2)
    small = plan_batches(big, np.float32(0), 75, 2, budget=4000 * 20)
    assert small.width <= 20
    assert small.width % 2 == 0
    assert small.count == math.ceil(75 / small.width)
    with pytest.raises(ValueError, match="one run on each of 2 devices needs"):
        plan_batches(big, np.float32(0), 75, 2, budget=4000)


def test_a_sweep_in_batches_resumes_from_the_middle_and_from_no_other_shape(tmp_path):
    batches = Batches(2, 3, 1)
    frames = []
    for now in trained(5, batches):
        frames.append(now.rows)
        if (now.batch, now.number) == (1, 2):
            now.save(tmp_path, "x", pl.concat(frames, how="diagonal"), devices=2, seconds=12.5)
    rest = list(trained(5, batches, tmp_path))
    assert (rest[0].batch, rest[0].number, rest[-1].last) == (1, 3, True)
    saved = checkpoint.load_newest(tmp_path, "x", jax.ShapeDtypeStruct((2,), np.float32))
    assert saved.seconds == 12.5
    resumed = ordered([saved.rows, *(now.rows for now in rest)], labels(5))
    assert resumed.equals(ordered(frames, labels(5)))
    with pytest.raises(checkpoint.CheckpointError, match="does not have batches of 4 runs"):
        trained(5, Batches(4, 2, 1), tmp_path)


def test_progress_prints_plain_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = Progress(PLAN, 4, 1, "counting", stream)
    for now in trained(4, Batches(4, 1, 2)):
        progress.tick(now)
    progress.note("a note")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "counting: compiling"
    assert lines[-1] == "a note"
    assert "100.0 %" in lines[-2]
    assert "environment steps/s" in lines[-2]
    assert "m0 24.00 (weight 2)" in lines[-2]
    assert "\x1b" not in stream.getvalue()

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.adopt import adopt_pattern, adopt_task
from envs.drift import DriftData, change_steps, draw, truth
from envs.patterns import PATTERNS, Pattern, pattern_index
from envs.timeline import CHANGES, Timeline
from envs.world import World
from experiments.study.text import parse_names

# The bounds of the MuJoCo tasks, and a planar channel between them so that the slices are tested too.
SCALARS = (envs.Channel("body_mass", 0.7, 1.3, 1.0), envs.Channel("joint_friction", 0.5, 1.5, 1.0))
MIXTURE = (SCALARS[0], envs.Channel("goal", -0.5, 0.5, 0.0, size=2, kind="planar"), SCALARS[1])


def fake_task(channels, name="fake"):
    return envs.Task(name, "mujoco", None, None, channels, lambda params, values: values, "no physics")


BODY = fake_task(SCALARS)
MIXED_BAG = fake_task(MIXTURE, "fake mixture")
#: Scalars, a plane, both; registered tasks drift through channels of these kinds (`test_envs_contract`).
RELEASE_TOY = envs.make("toy_multigoal_classic", goal_shift=0.5)._replace(name="release toy")
TASKS = {"toy": envs.make("toy"), "scalars": BODY, "scalars and plane": MIXED_BAG, "release toy": RELEASE_TOY}
EVERY = ("toy", "scalars and plane")
LOW, HIGH = np.array([0.7, 0.5]), np.array([1.3, 1.5])
MID, AMP = (LOW + HIGH) / 2, (HIGH - LOW) / 2
TOTAL = 200
TIMELINE = Timeline(TOTAL)
POINTS = [40, 80, 120, 160]
RANDOM = ("ou", "walk")
ROUGH = (*RANDOM, "noisy_sine")  # continuous, and as steep as a random path


@functools.cache
def program(name):
    """Everything about one task under one pattern and seed, both traced: one compilation per task."""
    task = next(task for task in TASKS.values() if task.name == name)

    def at(index, seed, step):
        return truth(task.channels, index, draw(task, seed), step, TIMELINE)

    return jax.jit(lambda index, seed: jax.vmap(lambda step: at(index, seed, step))(jnp.arange(TOTAL + 1)))


def path(task, pattern, seed=3):
    """DriftTruth at every step, leading axis ``TOTAL``."""
    drift = program(task.name)(pattern_index(pattern), seed)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:TOTAL], drift)


@functools.cache
def levels(name, segments=5, seeds=500):
    """Levels of many seeds, (seeds, segments + 1, D)."""
    task = next(task for task in TASKS.values() if task.name == name)
    return np.asarray(jax.jit(jax.vmap(lambda seed: draw(task, seed, segments).levels))(jnp.arange(seeds)))


ON_EVERY_KIND = pytest.mark.parametrize("task", [TASKS[name] for name in EVERY], ids=EVERY)


@pytest.mark.parametrize("pattern", PATTERNS)
@ON_EVERY_KIND
def test_a_pattern_stays_in_bounds_and_reports_its_changes(task, pattern):
    """Jumps happen at change points only, and only where declared; the end of the run is the left limit."""
    drift, total = path(task, pattern), sum(channel.size for channel in task.channels)
    assert (drift.values.shape, drift.values.dtype, drift.change.dtype) == ((TOTAL, total), np.float32, np.float32)
    assert np.isfinite(drift.values).all()
    start = 0
    for channel in task.channels:
        own = drift.values[:, start : start + channel.size]
        start += channel.size
        if channel.kind == "scalar":
            assert channel.low - 1e-6 <= own.min() <= own.max() <= channel.high + 1e-6
        else:  # a shift may leave the disc of one radius only by the gradual part of `mixed`
            assert np.linalg.norm(own, axis=1).max() <= 1.5 * channel.high + 1e-5
    spans = np.concatenate([np.full(c.size, c.high - c.low) for c in task.channels])
    assert drift.change[0] == 0.0
    scaled = np.linalg.norm(np.diff(drift.values, axis=0) / spans, axis=1)
    np.testing.assert_allclose(drift.change[1:], scaled, atol=1e-6)

    expected = POINTS if PATTERNS[pattern].jumps else []
    np.testing.assert_array_equal(np.flatnonzero(drift.is_change_point), expected)
    # A cycle of 40 steps moves a scalar by at most pi/40 of its range; three coordinates and a plane add up.
    assert pattern in ROUGH or np.delete(drift.change, expected).max() <= 2.0 * np.pi / 40
    # The first ramp of a planar sawtooth begins at nominal, and ends a radius from it.
    still = pattern == "sawtooth" and all(channel.kind == "planar" for channel in task.channels)
    assert (drift.change[expected[still:]] > 0.0).all()

    whole = program(task.name)(pattern_index(pattern), 3)
    assert not whole.is_change_point[TOTAL]
    assert pattern in ROUGH or whole.change[TOTAL] <= 2.0 * np.pi / 40


@ON_EVERY_KIND
def test_realisation_depends_on_the_seed_and_the_name_only(task):
    one, again, other = draw(task, 7), draw(task, 7), draw(task, 8)
    renamed = draw(task._replace(name="renamed"), 7)
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert (one.levels[1:] != other.levels[1:]).all()
    assert (one.levels[1:] != renamed.levels[1:]).all()


def test_adding_a_channel_leaves_the_draws_of_the_others_alone():
    more = draw(MIXED_BAG._replace(name=BODY.name), 5)
    np.testing.assert_array_equal(draw(BODY, 5).levels[:, 1], more.levels[:, 3])


def test_abrupt_relocations_are_exactly_one_radius_long_and_stay_inside_the_disc():
    points = levels("toy", 10, 2000)
    np.testing.assert_array_equal(points[:, 0], 0.0)
    np.testing.assert_allclose(np.linalg.norm(np.diff(points, axis=1), axis=2), 0.5, atol=1e-6)
    assert np.linalg.norm(points, axis=2).max() <= 0.5 + 1e-6


def test_abrupt_scalars_are_uniform_between_their_bounds():
    drawn = levels("fake")[:, 1:5].reshape(-1, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), MID, atol=0.02)
    np.testing.assert_allclose(drawn.std(axis=0), 2 * AMP / np.sqrt(12), rtol=0.05)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.08
    np.testing.assert_array_equal(path(BODY, "abrupt").values[::40], draw(BODY, 3).levels[:5])


def test_linear_on_the_toy_covers_half_a_unit_per_segment_in_a_straight_line():
    drift, points = path(TASKS["toy"], "linear"), np.asarray(draw(TASKS["toy"], 3).levels)
    np.testing.assert_allclose(drift.values[::40], points[:5], atol=1e-6)
    np.testing.assert_allclose(drift.change[1:], 0.5 / 40, rtol=1e-4)
    np.testing.assert_allclose(drift.values[60], (points[1] + points[2]) / 2, atol=1e-6)


def test_linear_scalars_rise_in_even_segments_and_fall_in_odd_ones():
    drift = path(BODY, "linear").values
    rise = np.concatenate([np.arange(40), 40 - np.arange(40)] * 3)[:TOTAL, None] / 40
    np.testing.assert_allclose(drift, LOW + (HIGH - LOW) * rise, atol=1e-6)


def test_periodic_makes_one_cycle_per_segment_of_the_stated_amplitude():
    angle = 2 * np.pi * np.arange(TOTAL) / 40
    circle = 0.25 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    np.testing.assert_allclose(path(TASKS["toy"], "periodic").values, circle, atol=1e-6)
    np.testing.assert_allclose(np.ptp(path(TASKS["toy"], "periodic").values, axis=0), 0.5, atol=1e-6)
    np.testing.assert_allclose(path(BODY, "periodic").values, MID + AMP * np.sin(angle)[:, None], atol=1e-6)


def test_mixed_scalars_are_the_abrupt_levels_plus_ramp_and_cycle_clipped():
    tau = np.arange(40)[:, None] / 40
    sine = np.sin(2 * np.pi * tau)
    # Two ramps share 0 -> amp; cycles of amp / 2 about where the ramp has paused.
    gradual = [0 * tau, tau / 2, 0.5 + sine / 2, 0.5 + tau / 2, 1 + sine / 2]
    expected = np.clip(path(BODY, "abrupt").values + AMP * np.concatenate(gradual), LOW, HIGH)
    np.testing.assert_allclose(path(BODY, "mixed").values, expected, atol=1e-6)
    assert (expected == HIGH).any(), "the clip was not exercised"


def test_mixed_on_the_toy_is_the_abrupt_points_plus_a_continuous_ramp_and_circle():
    task = TASKS["toy"]
    gradual = path(task, "mixed").values - path(task, "abrupt").values
    direction = np.asarray(draw(task, 3).directions)
    np.testing.assert_allclose(np.linalg.norm(direction), 1.0, atol=1e-6)
    np.testing.assert_array_equal(gradual[:40], 0.0)
    np.testing.assert_allclose(gradual[60], 0.0625 * direction, atol=1e-6)
    np.testing.assert_allclose(gradual[80], 0.125 * direction, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(gradual[80:120], axis=1), 0.125, atol=1e-6)  # circle about 0
    np.testing.assert_allclose(gradual[100], -0.125 * direction, atol=1e-6)
    np.testing.assert_allclose(gradual[160], 0.25 * direction, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(gradual[160:] - 0.125 * direction, axis=1), 0.125, atol=1e-6)
    assert np.linalg.norm(np.diff(gradual, axis=0), axis=1).max() < 0.125 * 2 * np.pi / 40 + 1e-6
    assert np.linalg.norm(gradual, axis=1).max() <= 0.25 + 1e-6


def release_value(pattern, low, high, progress):
    """A factor under `linear` (here `sawtooth`) or `mixed` of the authors' MuJoCo wrapper, in exact arithmetic."""
    jumps, local = divmod(5 * progress, 1)
    if jumps == 0:
        return 1.0
    share = local if pattern == "sawtooth" else Fraction(int(jumps % 2 == 0), 2) + local / 2
    return low + (high - low) * float(share)


def release_shift(pattern, progress):
    """The shift of the goals under the same two patterns in the authors' toy environment."""
    jumps, local = divmod(5 * progress, 1)
    if jumps == 0:
        return (0.0, 0.0)
    if pattern == "sawtooth":
        return (0.5 * float(local), 0.0)
    return (0.25 if jumps % 2 == 0 else -0.25, 0.25 * float(local))


@pytest.mark.parametrize("pattern", ["sawtooth", "mixed_release"])
def test_patterns_of_the_release_are_those_of_its_code(pattern):
    steps = [Fraction(step, TOTAL) for step in range(TOTAL)]
    scalars = [[release_value(pattern, *bounds, u) for bounds in zip(LOW, HIGH, strict=True)] for u in steps]
    np.testing.assert_allclose(path(BODY, pattern).values, scalars, atol=1e-6)
    toy = path(RELEASE_TOY, pattern).values
    np.testing.assert_allclose(toy, [release_shift(pattern, u) for u in steps], atol=1e-6)


def test_all_means_the_patterns_of_the_text():
    names = ("steady", "abrupt", "linear", "periodic", "mixed")
    assert tuple(parse_names("pattern", "--patterns", "all")) == names
    assert tuple(parse_names("pattern", "--patterns", "steady,sawtooth")) == ("steady", "sawtooth")


def first(share):
    """Time of the first change, in segments, from a drawn value as a share of its bound."""
    return 0.5 + 0.4 * share


def shift(channel, leg):
    """From nominal to half the bound at a random time of the first segment, and back in the fourth."""
    time = leg.segment + leg.phase
    late = (leg.segment > 0) | (time >= first(leg.end[0] / channel.high))
    return jnp.zeros(channel.size).at[0].set(jnp.where(late & (time < 3.5), channel.high / 2.0, 0.0))


SHIFT = Pattern(
    shift, jumps=True, holds=True, changes=lambda sample, segments: jnp.stack([first(sample.levels[1, 0]), 3.5])
)


def test_a_pattern_states_where_it_changes_and_without_that_nothing_is_assumed():
    task = TASKS["toy"]
    task = task._replace(channels=(task.channels[0]._replace(low=-1.0, high=1.0),))
    silent = SHIFT._replace(changes=None)
    world = World(task, 1000, patterns={"shift": SHIFT, "silent": silent})
    path, elsewhere = jax.jit(jax.vmap(world.truth, (None, 0))), jax.jit(world.elsewhere)
    times = set()
    for seed in range(8):
        drift = world.drift("shift", seed)
        drift_at = path(drift, jnp.arange(1001))
        start, end = np.flatnonzero(drift_at.change)
        np.testing.assert_array_equal(np.flatnonzero(drift_at.is_change_point), [start, end])
        stated = change_steps(task.channels, SHIFT, drift.realisation, world.timeline)
        np.testing.assert_array_equal(stated, [start, end])
        for step, name, expected in ((start - 1, "next", 0.5), (start, "previous", 0.0), (end - 1, "next", 0.0)):
            assert elsewhere(drift, jnp.int32(step))[name][0] == expected
        times.add(start)
    assert len(times) > 4
    quiet = world.drift("silent", 0)
    assert not path(quiet, jnp.arange(1001)).is_change_point.any()
    assert change_steps(task.channels, silent, quiet.realisation, world.timeline).size == 0


@pytest.mark.parametrize(("total", "segments"), [(40, 4), (2_460, 5), (100_000, 10), (1_000_000, 5)])
def test_the_clock_is_exact_and_right_continuous_at_every_change_point(total, segments):
    length, timeline = total // segments, Timeline(total, segments)
    points = np.arange(1, segments) * length
    np.testing.assert_array_equal(timeline.bounds(None, jumps=True), [0, *points, total])
    at = jax.jit(jax.vmap(lambda step: timeline.at(step, None, jumps=True)))
    segment, phase = at(points)
    np.testing.assert_array_equal(segment, np.arange(1, segments))
    np.testing.assert_array_equal(phase, 0.0)
    segment, phase = at(points - 1)
    np.testing.assert_array_equal(segment, np.arange(segments - 1))
    np.testing.assert_allclose(phase, (length - 1) / length, rtol=1e-6)
    assert (np.asarray(phase) < 1.0).all()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"total": 101}, "multiple of segments"),
        ({"total": 0}, "multiple of segments"),
        ({"segments": 0}, "multiple of segments"),
        ({"onset": 1.0}, "onset must be a share of the run.*; got 1"),
        ({"onset": -0.1}, "onset must be a share of the run.*; got -0.1"),
        ({"onset": float("nan")}, "onset must be a share of the run.*; got nan"),
        ({"onset": 0.98}, "leaves a step for each of 5 segments; got 0.98"),
        ({"changes": "sudden"}, "changes must be one of even, random; got 'sudden'"),
    ],
)
def test_a_run_that_does_not_divide_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        Timeline(**{"total": 200, **settings})


@functools.cache
def later(onset, changes, total=1000):
    """Truth at every step, drift sample and stated changes of every pattern, by pattern and seed."""
    world = World(MIXED_BAG, total, onset=onset, changes=changes)

    def facts(index, seed):
        sample = draw(MIXED_BAG, seed)
        now = jax.vmap(world.truth, (None, 0))(DriftData(index, sample), jnp.arange(total + 1))
        stated = {n: change_steps(MIXTURE, entry, sample, world.timeline) for n, entry in PATTERNS.items()}
        return now, sample, stated

    run = jax.jit(facts)
    return lambda pattern, seed=3: jax.tree.map(np.asarray, run(pattern_index(pattern), seed))


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("onset", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_begins_at_the_onset_and_keeps_its_promises(pattern, onset, changes):
    """Nominal before; then in range, jumps at stated steps only, no segment below a quarter of an equal one."""
    now, sample, stated = later(onset, changes)(pattern)
    entry, start, stated = PATTERNS[pattern], round(1000 * onset), stated[pattern]
    np.testing.assert_array_equal(now.values[:start], np.tile(sample.levels[0], (start, 1)))
    columns = [channel for channel in MIXTURE for _ in range(channel.size)]
    for channel, values in zip(columns, now.values.T, strict=True):
        slack = 0.5 * channel.high if channel.kind == "planar" else 1e-6
        assert channel.low - slack <= values.min() <= values.max() <= channel.high + slack
    begin = [step for step in stated[:1] if onset and step > 0]
    away = ("linear", "periodic", "redrawn", "noisy_sine")  # the others begin at nominal
    assert bool(begin) == bool(onset and pattern in away)
    inside = stated[1:] if onset else stated
    jumps = [*begin, *(inside if entry.jumps else [])]
    np.testing.assert_array_equal(np.flatnonzero(now.is_change_point), jumps)
    length, drawn = (1000 - start) / 5, changes == "random" and entry.jumps
    if entry.changes is not None:
        lengths = np.diff([start, *inside, 1000])
        assert lengths.min() >= (length / 4 if drawn else length)
        assert (lengths.std() > 0) == drawn
    if pattern not in ROUGH:  # three coordinates move at once
        assert np.delete(now.change, jumps).max() <= (4 if drawn else 1) * 2.0 * np.pi / length + 1e-6
    early, *_ = later(0.0, changes)(pattern)  # the same drift, slower
    if drawn:  # whole steps
        return
    np.testing.assert_allclose(now.values[start + (1000 - start) // 2], early.values[500], atol=1e-5)


@pytest.mark.parametrize(("total", "onset"), [(100, 0.0), (2_000, 0.4), (2**31 - 8, 0.9)])
def test_random_changes_are_uniform_beyond_the_shortest_segment_and_never_below_it(total, onset):
    timeline = Timeline(total, 5, onset, "random")
    drawn = jax.vmap(lambda seed: timeline.bounds(draw(BODY, seed).times, jumps=True))
    lengths = np.diff(np.asarray(drawn(jnp.arange(2_000)), np.int64), axis=1)
    assert lengths.min() >= timeline.length / 20
    assert (lengths.sum(1) == timeline.length).all()
    np.testing.assert_allclose(lengths.mean(0) / timeline.length, 0.2, atol=0.01)
    assert len(np.unique(lengths[:, 0])) > min(1_000, total / 4)


def test_random_paths_are_those_of_their_definition():
    """Of `ou` the spread is 0.2 of the range and the correlation 1 / e after 0.1; a walk has one range per run."""
    task = fake_task((envs.Channel("wind", -1.0, 1.0, 0.0),), "fake wind")
    world = World(task, 100_000, onset=0.5)
    steps = jnp.array([50_000, 51_000, 80_000, 85_000, 90_000, 99_999, 80_001])

    def values(index, seed):
        return world.path(DriftData(index, draw(task, seed)), steps)[0][:, 0]

    drawn = jax.jit(jax.vmap(values, (None, 0)))
    processes, walks = (np.asarray(drawn(pattern_index(name), jnp.arange(2_000))) for name in RANDOM)
    for paths in (processes, walks):
        np.testing.assert_array_equal(paths[:, 0], 0.0)
        assert 0.0 < np.abs(paths[:, 2] - paths[:, 6]).max() < 0.01  # continuous
    late = processes[:, 2:6]
    np.testing.assert_allclose(late.std(), 0.2 * 2.0, rtol=0.05)
    assert abs(late.mean()) < 0.05 * 0.4
    correlation = [np.corrcoef(late[:, i], late[:, i + 1])[0, 1] for i in (0, 1)]
    np.testing.assert_allclose(np.mean(correlation), np.exp(-1.0), rtol=0.05)
    early = 0.4 * np.sqrt(1.0 - np.exp(-2 * 0.02 / 0.1))
    np.testing.assert_allclose(processes[:, 1].std(), early, rtol=0.05)
    np.testing.assert_allclose(walks[:, 1].std(), 2.0 * np.sqrt(0.02), rtol=0.05)
    np.testing.assert_allclose(walks[:, 5].std(), 2.0 / np.sqrt(12.0), rtol=0.05)  # uniform after the reflections


def test_published_patterns_are_those_of_their_sources():
    """Friction of Slippery Ant is log-uniform, from the first segment on; a sine has noise of 0.05 of the range."""
    task = fake_task((envs.Channel("friction", 0.02, 2.0, 1.0),), "fake floor")
    world, seeds = World(task, 1_000, 10), jnp.arange(2_000)
    steps = jnp.array([0, 99, 100, 999, 4, 50, 25])

    def values(index, seed):
        return world.path(DriftData(index, draw(task, seed, 10)), steps)[0][:, 0]

    drawn = jax.jit(jax.vmap(values, (None, 0)))
    friction, sine = (np.asarray(drawn(pattern_index(name), seeds)) for name in ("redrawn", "noisy_sine"))
    np.testing.assert_array_equal(friction[:, 0], friction[:, 1])
    share = (np.log10(friction[:, [0, 2, 3]]) - np.log10(0.02)) / 2.0
    np.testing.assert_allclose(share.mean(0), 0.5, atol=0.03)
    np.testing.assert_allclose(share.std(0), 12**-0.5, rtol=0.05)
    assert np.abs(np.corrcoef(share.T) - np.eye(3)).max() < 0.08
    cycle = 1.01 + 0.99 * np.sin(2.0 * np.pi * np.array([0.0, 0.04, 0.5]))
    np.testing.assert_allclose(sine[:, [0, 4, 5]].mean(0), cycle, atol=0.01)
    np.testing.assert_allclose(sine[:, [0, 4, 5]].std(0), [0.0, 0.05 * 1.98, 0.05 * 1.98], rtol=0.05, atol=1e-6)
    assert sine[:, 6].max() == np.float32(2.0)  # cut at the bounds


def test_every_pattern_would_be_adopted_and_has_a_summary_and_so_is_a_function():
    def still(channel, leg):
        """Stays."""
        return jnp.full((channel.size,), channel.high, jnp.float32)

    for name, pattern in PATTERNS.items():
        assert adopt_pattern(name, pattern) is pattern
        assert pattern.summary
    assert adopt_pattern("mine", still) == Pattern(still, jumps=False)


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (3, "must be a Pattern or a function; got int"),
        (lambda channel, leg: jnp.float32(0), r"must return \(1,\) float32 for a scalar channel; got \(\)"),
        (lambda channel, leg: jnp.zeros(1), r"must return \(2,\) float32 for a planar channel; got \(1,\)"),
        (lambda channel, leg: leg.nothing, "does not work on a scalar channel: .*nothing"),
    ],
)
def test_a_plugin_that_is_no_pattern_is_refused(plugin, text):
    with pytest.raises(ValueError, match=text):
        adopt_pattern("mine", plugin)


def test_a_task_is_one_or_builds_one(monkeypatch):
    toy = envs.make("toy")
    assert adopt_task("mine", toy) is toy
    with pytest.raises(ValueError, match="must be a Task or a function that builds one; got str"):
        adopt_task("mine", "toy")
    for entry in (toy, lambda: toy, "envs.toy.multigoal:TASK", adopt_task("mine", lambda: toy)):
        monkeypatch.setitem(envs.TASKS, "mine", entry)
        assert envs.make("mine") is toy
    monkeypatch.setitem(envs.TASKS, "wrong", adopt_task("wrong", lambda: 3))
    with pytest.raises(ValueError, match="task 'wrong': its builder returned int, not a Task"):
        envs.make("wrong")

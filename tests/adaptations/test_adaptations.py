"""The contract of every registered adaptation, and what each of them does at an alarm, in the calm and by the clock."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import schedules
from aesjax.adaptations import (
    ADAPTATIONS,
    LEVERS,
    NEUTRAL,
    AdaptationData,
    Now,
    Supply,
    as_adaptation,
    assemble,
    build,
    recent,
    refresh,
    rules,
    signal_of,
    window,
)
from aesjax.registry import UnknownNameError
from aesjax.schedules import SCHEDULES, Choice
from aesjax.types import Levers, Signals
from tests import programs
from tests.quick import quick

NAMES = tuple(ADAPTATIONS)
SUPPLY = Supply(stored=400, arriving=4, capacity=500, floor=20)
RUN = {"base": 0.05, "updates": 200.0}
LENGTH = 120
AES_R, ORACLE = (Choice("aes_r"),), (Choice("oracle"),)
CALM, AFTER = slice(20, 60), slice(64, 120)  # the drift comes at update 60


def stream(length=LENGTH, change=60):
    """Signals of one run: residuals around one level, four times that after the change, and the true drift."""
    rng = np.random.default_rng(0)
    level = np.where(np.arange(length) < change, 1.0, 4.0)[:, None]
    drift = (np.arange(length) == change) * 0.8
    fresh = level * rng.uniform(0.9, 1.1, (length, 8))
    return Signals(fresh_td_error=jnp.float32(fresh), true_drift=jnp.float32(drift))


def data_of(names, on=None, signals=AES_R, **given):
    """All ``names`` in the program, those in ``on`` switched on; options as "name__option"."""
    options = {n: {o: given.get(f"{n}__{o}", v) for o, v in ADAPTATIONS[n].options.items()} for n in names}
    on = {name: float(on is None or name in on) for name in names}
    return AdaptationData(programs.data_of(signals, **RUN), on, options, RUN["updates"])


def player(names, signals=AES_R, consume=False, **when):
    """A function from a run's adaptations to its levers and ratio after every update, leading axis T.

    Args:
      consume: a refresh that is due is done at once.
    """

    def whole(run):
        adaptation = build(names, signals, run, SUPPLY)

        def step(state, now):
            if consume and state.levers.refresh is not None:
                due = [k for k, v in state.levers._asdict().items() if k.startswith("refresh") and v is not None]
                state = state._replace(levers=state.levers._replace(**dict.fromkeys(due, jnp.zeros(()))))
            state = adaptation.update(now, state)
            return state, (state.levers, state.ratio)

        return jax.lax.scan(step, adaptation.init(), stream(**when))[1]

    return whole


def play(names, run, signals=AES_R, consume=False, **when):
    return quick(player(names, signals, consume, **when))(jax.tree.map(jnp.asarray, run))


@pytest.fixture(scope="module")
def alone():
    """Every adaptation by itself, and none, from one program of them all; the true drift drives them."""
    often = {"reset__every": 0.2, "redo__cycle": 50.0}
    runs = [data_of(NAMES, on, ORACLE, **often) for on in (*((name,) for name in NAMES), ())]
    stacked = jax.tree.map(lambda *x: jnp.array(x), *runs)
    levers, ratio = jax.device_get(quick(jax.vmap(player(NAMES, ORACLE, consume=True)))(stacked))
    return {name: (Levers(*(x[i] for x in levers)), ratio[i]) for i, name in enumerate((*NAMES, "none"))}


@pytest.mark.parametrize("name", NAMES)
def test_an_adaptation_keeps_its_contract(name, alone):
    spec = ADAPTATIONS[name]
    assert (spec.name, spec.lever in LEVERS) == (name, True)
    assert "\n" not in spec.summary
    assert set(spec.ranges) <= set(spec.options)
    assert spec(**spec.options) == (spec, spec.options)
    adaptation = build([name], AES_R, data_of([name]), SUPPLY)
    first = adaptation.init()
    turned = {"refresh", "refresh_actor"} if spec.lever == "refresh" else {spec.lever}
    turned |= {"refresh_units"} if spec.units else set()
    assert {lever for lever, value in first.levers._asdict().items() if value is not None} == turned
    for lever in turned:
        assert getattr(first.levers, lever) == getattr(NEUTRAL, lever)
    after = jax.eval_shape(adaptation.update, jax.tree.map(lambda x: x[0], stream()), first)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), first)
    assert {leaf.dtype for leaf in jax.tree.leaves(after)} <= {jnp.dtype("float32"), jnp.dtype("int32")}
    levers, _ = alone[name]
    assert all(np.all(np.isfinite(x) | (x == np.inf)) for x in jax.tree.leaves(levers))
    together = np.concatenate([np.ravel(getattr(levers, lever) != getattr(NEUTRAL, lever)) for lever in turned])
    assert np.any(together), "it never turned its lever"


@pytest.mark.parametrize("name", [n for n in NAMES if ADAPTATIONS[n].uses_signal])
def test_what_the_signal_turns_stands_still_in_the_calm(name, alone):
    levers, ratio = alone[name]
    assert np.all(ratio[CALM] == 1.0)
    assert ratio[AFTER].max() > 1.5
    for lever, value in levers._asdict().items():
        assert np.all(value[CALM] == getattr(NEUTRAL, lever)), lever


def test_a_run_without_adaptations_in_a_program_with_them_all_is_left_alone(alone):
    for lever, value in alone["none"][0]._asdict().items():
        assert np.all(value == getattr(NEUTRAL, lever)), lever


@pytest.mark.parametrize("schedule", [name for name, spec in SCHEDULES.items() if spec.relative])
def test_the_ratio_is_that_of_the_schedule_itself(schedule):
    when = {"length": 700, "change": 500}  # a detector of changes wants to have seen some calm
    choice = Choice(schedule)
    _, ratio = play(["rate"], data_of(["rate"], signals=[choice]), [choice], **when)
    entropy = schedules.build([choice], programs.data_of([choice], **RUN))
    _, weight = jax.lax.scan(lambda s, x: (s2 := entropy.update(x, s), s2.weight), entropy.init(), stream(**when))
    np.testing.assert_allclose(ratio, weight / 0.05, rtol=1e-6)
    assert np.ptp(ratio) > 0.2


def test_the_window_is_the_stored_transitions_over_a_power_of_the_ratio():
    levers, ratio = play(["window"], data_of(["window"]))
    stored = np.minimum(400 + 4 * np.arange(1, LENGTH + 1), 500)
    drifting = ratio > 1.01
    np.testing.assert_allclose(levers.window[drifting], np.maximum(stored / ratio**2, 20)[drifting], rtol=1e-5)
    assert np.all(np.isinf(levers.window[ratio == 1.0]))
    steep, _ = play(["window"], data_of(["window"], window__power=9.0))
    assert np.min(steep.window) == SUPPLY.floor


def test_an_alarm_rings_once_per_change_and_a_due_refresh_waits_until_it_is_done(alone):
    rung = alone["refresh"][0].refresh
    at = int(np.argmax(alone["refresh"][1] > 1.5))
    np.testing.assert_array_equal(np.flatnonzero(rung), [at])
    due, _ = play(["refresh"], data_of(["refresh"], signals=ORACLE, refresh__actor=0.5), ORACLE)
    np.testing.assert_array_equal(due.refresh, np.where(np.arange(LENGTH) >= at, 0.5, 0.0).astype(np.float32))
    np.testing.assert_array_equal(due.refresh_actor, due.refresh * 0.5)


def test_a_second_crossing_within_the_rest_is_the_same_change():
    rings = []
    for gap in (10, 60):
        memory, count = rules.quiet(), 0
        for t in range(100):
            ratio = jnp.float32(2.0 if t in (5, 5 + gap) else 1.0)
            now = Now(ratio, jnp.int32(t + 1), jnp.float32(1000.0), jnp.float32(0), SUPPLY)
            rang, memory = rules.at_alarm(now, memory, 1.5, 0.05)
            count += int(rang)
        rings.append(count)
    assert rings == [1, 2]


def test_forgetting_draws_from_what_arrived_since_the_alarm(alone):
    levers, ratio = alone["forget"]
    at = int(np.argmax(ratio > 1.5))
    assert np.all(np.isinf(levers.window[:at]))
    np.testing.assert_array_equal(levers.window[at : at + 4], [20, 24, 28, 32])


def test_baselines_follow_the_clock_alone():
    none = ()
    recent, _ = play(["recent"], data_of(["recent"], recent__share=0.3), none)
    np.testing.assert_allclose(recent.window, 150.0)
    ere, _ = play(["ere"], data_of(["ere"], ere__cycle=10.0, ere__eta=0.99), none)
    np.testing.assert_allclose(ere.window[98:100], [np.maximum(500 * 0.99**900, 20), np.inf])
    np.testing.assert_allclose(ere.window[100], 500 * 0.99**100, rtol=1e-4)
    redo, _ = play(["redo"], data_of(["redo"], redo__cycle=50.0), none, consume=True)
    assert np.flatnonzero(redo.refresh_units).tolist() == [49, 99]
    assert np.all(redo.refresh == 0.0)
    reset, ratio = play(["reset"], data_of(["reset"], reset__every=0.2), none, consume=True)
    assert np.flatnonzero(reset.refresh).tolist() == [39, 79, 119]
    assert np.all(ratio == 1.0)


def test_more_gradient_steps_within_their_span_only(alone):
    levers, ratio = alone["burst"]
    at = int(np.argmax(ratio > 1.5))
    within = (np.arange(LENGTH) >= at) & (np.arange(LENGTH) < at + 20)  # a tenth of 200 planned updates
    np.testing.assert_array_equal(levers.updates, np.where(within, 4.0, 1.0))
    assert np.all(alone["utd"][0].updates == 4.0)
    periodic, _ = play(["utd"], data_of(["utd"], utd__updates=2.5, utd__every=0.2, utd__span=0.05), ())
    within = np.arange(1, LENGTH + 1) % 40 < 10
    np.testing.assert_array_equal(periodic.updates, np.where(within, 2.5, 1.0))


def test_adaptations_that_turn_one_lever_agree():
    names = ["window", "recent", "rate"]
    together, ratio = play(names, data_of(names, recent__share=0.3))
    single, _ = play(["window"], data_of(["window"]))
    np.testing.assert_allclose(together.window, np.minimum(single.window, 150.0), rtol=1e-6)
    np.testing.assert_allclose(together.rate, ratio, rtol=1e-6)


KNOBS = {
    "power": 0.5, "threshold": 1.05, "rest": 0.6, "strength": 0.25, "actor": 0.5, "share": 0.4, "eta": 0.9999,
    "cycle": 7.0, "every": 0.07, "dormant": 0.3, "updates": 2.0, "span": 0.03,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_turning_an_option_moves_the_lever(name):
    spec = ADAPTATIONS[name]
    assert set(spec.options) <= set(KNOBS)
    ratios = jnp.float32(np.where(np.arange(LENGTH) % 24 == 20, 2.0, np.where(np.arange(LENGTH) % 12 == 10, 1.2, 1.0)))

    def levers(options):
        def step(carry, ratio):
            count, memory = carry
            now = Now(ratio, count + 1, jnp.float32(60), jnp.float32(500), SUPPLY)
            turned, memory = spec.adjust(now, memory, **options)
            return (count + 1, memory), jnp.stack(jax.tree.leaves(turned))

        return jax.lax.scan(step, (jnp.int32(0), spec.start()), ratios)[1]

    short = {"cycle": 60.0, "span": 0.1}  # shorter than what is played
    usual = dict(spec.options) | {option: value for option, value in short.items() if option in spec.options}
    turned = [usual, *(usual | {o: KNOBS[o]} for o in spec.options)]
    plain, *others = quick(jax.vmap(levers))(jax.tree.map(lambda *x: jnp.float32(jnp.array(x)), *turned))
    for option, other in zip(spec.options, others, strict=True):
        assert np.any(other != plain), option


def test_names_and_values_that_are_wrong_are_refused_with_what_is_allowed():
    with pytest.raises(UnknownNameError, match="unknown adaptation 'windw'; did you mean 'window'"):
        build(["windw"], AES_R, data_of([]), SUPPLY)
    with pytest.raises(ValueError, match=r"option 'strength' of adaptation 'refresh' must be in \[0, 1\]; got 2"):
        refresh(strength=2.0)
    with pytest.raises(
        ValueError, match="option 'power' of adaptation 'window' must be finite and at least 0; got nan"
    ):
        window(power=np.nan)
    with pytest.raises(TypeError, match="unknown option of adaptation 'recent' 'shore'; did you mean 'share'"):
        recent(shore=0.1)
    assert (signal_of("aes_r"), signal_of("fixed"), signal_of("aes", "oracle")) == ("aes_r", "aes_r", "oracle")
    with pytest.raises(
        ValueError, match="schedule 'aes' has no ratio that could turn levers; signals: aes_r, aes_c, oracle"
    ):
        signal_of("fixed", "aes")


def test_a_rule_and_its_decorator_become_a_factory():
    @as_adaptation(lever="rate", ranges={"least": (0.0, 1.0)})
    def calmer(now, memory, *, least=0.5):
        """Slower where it drifts."""
        return Levers(rate=jnp.maximum(least, 1 / now.ratio)), memory

    assert (calmer.name, calmer.summary, dict(calmer.options)) == ("calmer", "Slower where it drifts.", {"least": 0.5})
    assert calmer(least=1.0).given == {"least": 1.0}
    with pytest.raises(ValueError, match=r"option 'least' of adaptation 'calmer' must be in \[0, 1\]; got 2"):
        calmer(least=2.0)
    with pytest.raises(ValueError, match="adaptation 'calmer' adjusts 'pace'; levers: window, refresh, rate, updates"):
        as_adaptation(lever="pace")(calmer.adjust)
    with pytest.raises(ValueError, match="parameter 'depth' of its factory has no default"):
        as_adaptation(lever="rate")(lambda now, memory, *, depth: None)


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(assemble).failed == 0

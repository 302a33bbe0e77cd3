"""The contract of every registered adaptation, and what each of them does at an alarm, in the calm and by the clock."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.adaptations import (
    ADAPTATIONS,
    CONTROLS,
    LEVERS,
    NEUTRAL,
    ONCE,
    Adaptation,
    Now,
    Played,
    Supply,
    as_adaptation,
    check_adaptation,
    driver_of,
    ere,
    fire_reset,
    geometric,
    rate,
    recent,
    refresh,
    reset,
    rules,
    together,
    utd,
    window,
)
from aesjax.schedules import SCHEDULES, aes, aes_r, fixed, oracle, td_mean, td_quantile, trend
from aesjax.types import Levers, Signals
from tests.quick import quick

NAMES = tuple(ADAPTATIONS)
SUPPLY = Supply(stored=400, arriving=4, capacity=500, floor=20)
RUN = {"base": 0.05, "updates": 200.0}
LENGTH = 120
AES_R = aes_r()
CALM, AFTER = slice(20, 60), slice(64, 120)  # the drift comes at update 60


def stream(length=LENGTH, change=60):
    """Signals of one run: residuals around one level, four times that after the change, and the true drift."""
    rng = np.random.default_rng(0)
    level = np.where(np.arange(length) < change, 1.0, 4.0)[:, None]
    drift = (np.arange(length) == change) * 0.8
    fresh = level * rng.uniform(0.9, 1.1, (length, 8))
    return Signals(fresh_td_error=jnp.float32(fresh), true_drift=jnp.float32(drift))


def joined(adaptations, driver):
    """`together` of these with complete options; ``driver`` is None where fixed intervals drive them."""
    signals = [] if driver is None else [driver.filled(RUN)]
    return together([each.filled() for each in adaptations], signals, 0, RUN["updates"], SUPPLY)


def played(adaptations, driver, consume=False, **when):
    """Levers and ratio after every update, leading axis T.

    Args:
      consume: a refresh that is due is done immediately.
    """
    adaptation = joined(adaptations, driver)

    def step(state, now):
        if consume:
            due = [k for k, v in state.levers._asdict().items() if k in ONCE and v is not None]
            state = state._replace(levers=state.levers._replace(**dict.fromkeys(due, jnp.zeros(()))))
        state = adaptation.update(now, state)
        return state, (state.levers, state.ratio)

    return jax.lax.scan(step, adaptation.init(), stream(**when))[1]


def play(*adaptations, driver=AES_R, **when):
    return quick(lambda *own: played(*own, **when))(adaptations, driver)


@pytest.fixture(scope="module")
def alone():
    """Every adaptation by itself, and none, from one program of them all; the true drift drives them."""
    often = {"reset": {"every": 0.2}, "fire_reset": {"every": 0.25}}
    runs = [
        [Adaptation(each, often.get(name, {}), float(name == on)) for name, each in ADAPTATIONS.items()]
        for on in (*NAMES, "none")
    ]
    stacked = jax.tree.map(lambda *x: jnp.array(x), *runs)
    levers, ratio = jax.device_get(quick(jax.vmap(lambda own: played(own, oracle(), consume=True)))(stacked))
    return {name: (Levers(*(x[i] for x in levers)), ratio[i]) for i, name in enumerate((*NAMES, "none"))}


@pytest.mark.parametrize("name", NAMES)
def test_an_adaptation_keeps_its_contract(name):
    spec = ADAPTATIONS[name]
    assert (spec.name, spec.lever in LEVERS) == (name, True)
    assert "\n" not in spec.summary
    assert set(spec.ranges) <= set(spec.options)
    assert spec(**spec.options) == spec().filled()
    adaptation = joined([spec()], AES_R)
    first = adaptation.init()
    turned = {"refresh", "refresh_actor"} if spec.lever == "refresh" else {spec.lever}
    assert {lever for lever, value in first.levers._asdict().items() if value is not None} == turned
    for lever in turned:
        assert getattr(first.levers, lever) == getattr(NEUTRAL, lever)
    check_adaptation(spec)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda now, memory, *, share=0.5: (Levers(window=share * now.stored), memory), "and sets window"),
        (lambda now, memory, *, rate=-1.0: (Levers(rate=rate), memory), "'rate' must be finite and at least 0; got -1"),
        (lambda now, memory: (Levers(rate=1.0), memory), "it never acts in 2000 updates"),
        (lambda now, memory: (Levers(rate=now.ratio), jnp.ones(2)), "does not work: .* carry"),
        (lambda now, memory: (Levers(rate=1.0 / len(now.missing)), memory), r"\(test_adaptations.py, line \d+\)"),
    ],
)
def test_an_adaptation_that_breaks_its_contract_is_named_in_a_sentence(rule, text):
    with pytest.raises(ValueError, match=text) as error:
        check_adaptation(as_adaptation(lever="rate", name="mine", start=lambda: 0)(rule))
    assert str(error.value).startswith("adaptation 'mine'")


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
    _, ratio = play(rate(), driver=SCHEDULES[schedule](), **when)
    entropy = SCHEDULES[schedule]().filled(RUN)
    _, weight = jax.lax.scan(lambda s, x: (s2 := entropy.update(x, s), s2.weight), entropy.init(), stream(**when))
    np.testing.assert_allclose(ratio, weight / 0.05, rtol=1e-6)
    assert np.ptp(ratio) > 0.2


def test_the_window_is_the_stored_transitions_over_a_power_of_the_ratio():
    levers, ratio = play(window())
    stored = np.minimum(400 + 4 * np.arange(1, LENGTH + 1), 500)
    drifting = ratio > 1.01
    np.testing.assert_allclose(levers.window[drifting], np.maximum(stored / ratio**2, 20)[drifting], rtol=1e-5)
    assert np.all(np.isinf(levers.window[ratio == 1.0]))
    steep, _ = play(window(power=9.0))
    assert np.min(steep.window) == SUPPLY.floor


def test_an_alarm_rings_once_per_change_and_a_due_refresh_waits_until_it_is_done(alone):
    rung = alone["refresh"][0].refresh
    at = int(np.argmax(alone["refresh"][1] > 1.5))
    np.testing.assert_array_equal(np.flatnonzero(rung), [at])
    due, _ = play(refresh(actor=0.5), driver=oracle())
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


def test_the_first_change_of_the_longest_run_rings():
    now = Now(jnp.float32(2.0), jnp.int32(10**9), jnp.float32(2**31 - 1), jnp.float32(0), SUPPLY)
    rang, memory = rules.at_alarm(now, rules.quiet(), 1.5, 1.0)
    assert rang
    calm = now._replace(ratio=jnp.float32(1.0))
    assert rules.at_alarm(calm, rules.quiet(), 1.5, 1.0)[1].since > 0  # no overflow
    assert memory.since == 0


def test_forgetting_draws_from_what_arrived_since_the_alarm(alone):
    levers, ratio = alone["forget"]
    at = int(np.argmax(ratio > 1.5))
    assert np.all(np.isinf(levers.window[:at]))
    np.testing.assert_array_equal(levers.window[at : at + 4], [20, 24, 28, 32])


def test_baselines_follow_the_clock_alone():
    levers, _ = play(recent(share=0.3), driver=None)
    np.testing.assert_allclose(levers.window, 150.0)
    levers, _ = play(ere(cycle=10.0, eta=0.99), driver=None)
    np.testing.assert_allclose(levers.window[98:100], [np.maximum(500 * 0.99**900, 20), np.inf])
    np.testing.assert_allclose(levers.window[100], 500 * 0.99**100, rtol=1e-4)
    levers, _ = play(geometric(share=0.3), driver=None)
    np.testing.assert_allclose(levers.recency, 75.0)  # half of `recent`
    np.testing.assert_allclose(play(geometric(share=0.001), driver=None)[0].recency, SUPPLY.floor / np.e, rtol=1e-6)
    levers, _ = play(fire_reset(every=0.25, strength=0.7), driver=None, consume=True)
    np.testing.assert_array_equal(np.flatnonzero(levers.isometry), [49, 99])
    np.testing.assert_allclose(levers.isometry[49::50], 0.7)
    levers, ratio = play(reset(every=0.2), driver=None, consume=True)
    assert np.flatnonzero(levers.refresh).tolist() == [39, 79, 119]
    assert np.all(ratio == 1.0)


def test_a_played_record_has_all_of_its_refreshes_once():
    record = Played(1, 4, jnp.ones(3), Levers(isometry=jnp.array([0.5, 0.0, 1.0])))
    adaptation = together([], [], 0, 12, SUPPLY, record)

    def step(state, now):
        state = adaptation.update(now, state)
        return state._replace(levers=state.levers._replace(isometry=jnp.zeros(()))), state.levers.isometry

    _, due = jax.lax.scan(step, adaptation.init(), Signals(true_drift=jnp.zeros(12)))
    np.testing.assert_array_equal(due, np.eye(12)[0] * 0.5 + np.eye(12)[8])


def test_the_mean_of_a_record_is_that_of_the_updates_in_which_the_replay_was_weighed():
    record = Played(1, 1, np.ones(4), Levers(recency=np.array([np.inf, 0.2, 0.4, 0.3]), window=np.full(4, np.inf)))
    held = CONTROLS["constant_at_mean"].change(record, jax.random.key(0), 1).levers
    np.testing.assert_allclose(held.recency, 0.3, rtol=1e-6)
    assert np.all(np.isinf(held.window))


def test_more_gradient_steps_within_their_span_only(alone):
    levers, ratio = alone["burst"]
    at = int(np.argmax(ratio > 1.5))
    within = (np.arange(LENGTH) >= at) & (np.arange(LENGTH) < at + 20)  # a tenth of 200 planned updates
    np.testing.assert_array_equal(levers.updates, np.where(within, 4.0, 1.0))
    assert np.all(alone["utd"][0].updates == 4.0)
    periodic, _ = play(utd(updates=2.5, every=0.2, span=0.05), driver=None)
    within = np.arange(1, LENGTH + 1) % 40 < 10
    np.testing.assert_array_equal(periodic.updates, np.where(within, 2.5, 1.0))


def test_adaptations_that_turn_one_lever_agree():
    levers, ratio = play(window(), recent(share=0.3), rate())
    single, _ = play(window())
    np.testing.assert_allclose(levers.window, np.minimum(single.window, 150.0), rtol=1e-6)
    np.testing.assert_allclose(levers.rate, ratio, rtol=1e-6)


KNOBS = {
    "power": 0.5, "threshold": 1.05, "rest": 0.6, "strength": 0.25, "actor": 0.5, "share": 0.4, "eta": 0.9999,
    "cycle": 7.0, "every": 0.07, "updates": 2.0, "span": 0.03,
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
            turned, memory = spec.make(now, memory, **options)
            return (count + 1, memory), jnp.stack(jax.tree.leaves(turned))

        return jax.lax.scan(step, (jnp.int32(0), spec.start()), ratios)[1]

    short = {"cycle": 60.0, "span": 0.1}  # shorter than what is played
    usual = dict(spec.options) | {option: value for option, value in short.items() if option in spec.options}
    turned = [usual, *(usual | {o: KNOBS[o]} for o in spec.options)]
    plain, *others = quick(jax.vmap(levers))(jax.tree.map(lambda *x: jnp.float32(jnp.array(x)), *turned))
    for option, other in zip(spec.options, others, strict=True):
        assert np.any(other != plain), option


def test_names_and_values_that_are_wrong_are_refused_with_what_is_allowed():
    with pytest.raises(ValueError, match=r"option 'strength' of adaptation 'refresh' must be in \[0, 1\]; got 2"):
        refresh(strength=2.0)
    with pytest.raises(
        ValueError, match="option 'power' of adaptation 'window' must be finite and at least 0; got nan"
    ):
        window(power=np.nan)
    with pytest.raises(TypeError, match="unknown option of adaptation 'recent' 'shore'; did you mean 'share'"):
        recent(shore=0.1)


@pytest.mark.parametrize(
    ("schedule", "given", "driver"),
    [
        (aes_r(gain=0.3), None, aes_r(gain=0.3)),
        (fixed(0.2), None, aes_r(base=0.2)),
        (aes(td_mean(), kappa=0.3, lambda_max=2.0), None, aes_r(td_mean(), lambda_max=2.0)),
        (aes(base=0.2, lambda_max=2.0), oracle(base=0.3), oracle(base=0.3, lambda_max=2.0)),
        (aes(td_mean()), aes_r(td_quantile(0.5)), aes_r(td_quantile(0.5))),
        (trend(margin=-0.5, r_max=2.0), None, aes_r(r_max=2.0)),  # another margin
    ],
)
def test_the_driver_is_the_given_schedule_or_a_relative_one_with_the_options_of_the_runs_own(schedule, given, driver):
    ours = driver_of(schedule, [recent(), rate()], given)
    assert ours.filled(RUN) == driver.filled(RUN)
    assert driver_of(schedule, [recent()]) is None


@pytest.mark.parametrize(
    ("adaptation", "given", "text"),
    [
        (rate(), aes(), "schedule 'aes' has no ratio that could drive adaptations; signals: aes_r, aes_c, oracle"),
        (recent(), aes_r(), r"signal 'aes_r' drives adaptations, and 'fixed\+recent' has none that reads one"),
    ],
)
def test_a_driver_that_cannot_act_is_refused(adaptation, given, text):
    with pytest.raises(ValueError, match=text):
        driver_of(fixed(), [adaptation], given)


def test_a_rule_and_its_decorator_become_a_factory():
    @as_adaptation(lever="rate", ranges={"least": (0.0, 1.0)})
    def calmer(now, memory, *, least=0.5):
        """Slower where it drifts."""
        return Levers(rate=jnp.maximum(least, 1 / now.ratio)), memory

    assert (calmer.name, calmer.summary, dict(calmer.options)) == ("calmer", "Slower where it drifts", {"least": 0.5})
    assert calmer(least=1.0).given == {"least": 1.0}
    with pytest.raises(ValueError, match=r"option 'least' of adaptation 'calmer' must be in \[0, 1\]; got 2"):
        calmer(least=2.0)
    with pytest.raises(
        ValueError, match="adjusts one of window, recency, refresh, isometry, rate, updates; got 'pace'"
    ):
        as_adaptation(lever="pace")
    with pytest.raises(ValueError, match="parameter 'depth' of its factory needs a number as default"):
        as_adaptation(lever="rate")(lambda now, memory, *, depth: None)

"""The contract of every registered schedule, of `switch`, and of the options they share."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aesjax.adaptations import CONTROLS, Played, refresh, reset
from aesjax.registry import UnknownNameError
from aesjax.schedules import (
    PROXIES,
    SCHEDULES,
    aes,
    aes_d,
    aes_m,
    aes_r,
    auto,
    check_schedule,
    fixed,
    overridden,
    required_signals,
    switch,
    td_mean,
    td_quantile,
    together,
)
from aesjax.types import Signals
from tests.programs import RUN, built, chosen
from tests.quick import quick

NAMES = tuple(SCHEDULES)
BOUNDED = ("linear", "aes", "aes_prior", "aes_d", "aes_m")


def stream(length=40, seed=0, size=8):
    """One run's signals: calm, a change that raises every residual, calm again."""
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(length) // max(length // 4, 1) == 2, 2.0, 0.05)[:, None]
    td, fresh = (rng.standard_normal((length, size)) * level for _ in range(2))
    drift = np.zeros(length)
    drift[length // 2] = 0.3
    log_prob, reward = rng.standard_normal((length, size)), level * rng.uniform(0.5, 1.5, (length, size))
    values = (
        td, np.mean(td**2, 1), np.abs(td[:, 0]), log_prob, fresh, np.abs(fresh[:, 0]), np.mean(fresh**2, 1), drift,
        reward, np.mean(reward, 1),
    )  # fmt: skip
    return Signals(*(jnp.asarray(x, jnp.float32) for x in values))


def run(schedule, signals):
    """Final state and all weights, (T,)."""

    def step(state, now):
        state = schedule.update(now, state)
        return state, state.weight

    return jax.lax.scan(step, schedule.init(), signals, length=None if jax.tree.leaves(signals) else 40)


def only(signals, fields):
    return Signals(**{field: getattr(signals, field) for field in fields})


def at(signals, t):
    return jax.tree.map(lambda x: x[t], signals)


# --- every schedule -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def all_kinds():
    """Every schedule in one program whose kind is data, on good signals and on some that are not finite."""
    program = quick(jax.vmap(lambda i, signals: run(built(NAMES, index=i, proxy="td_mean"), signals), (0, None)))
    good = stream()
    bad = jax.tree.map(lambda x: x.at[7].set(jnp.nan), good)
    return good, bad, *(program(jnp.arange(len(NAMES)), signals) for signals in (good, bad))


@pytest.mark.parametrize("name", NAMES)
def test_schedule_keeps_its_contract(all_kinds, name):
    good, bad, (states, weights), after_bad = all_kinds
    first, row = built(name).init(), NAMES.index(name)
    check_schedule(SCHEDULES[name])
    assert (first.weight.dtype, first.count.dtype, int(first.count)) == (jnp.float32, jnp.int32, 0)
    assert int(states.count[row]) == 40
    assert np.all(np.isfinite(weights[row]) & (weights[row] > 0))
    assert all(np.all(np.isfinite(leaf[row])) for leaf in jax.tree.leaves(states.logs))
    if name in BOUNDED:
        low, high = (SCHEDULES[name].signature.defaults[bound] for bound in ("lambda_min", "lambda_max"))
        assert np.all((weights[row] >= low) & (weights[row] <= high))
        assert float(states.logs.weight_raw[row]) != 0

    # Alone, with nothing but what it says that it reads: the same numbers, also after signals that are not finite.
    schedule, fields = built(name, proxy="td_mean"), required_signals(chosen(name, "td_mean"))
    alone = quick(lambda signals: run(schedule, only(signals, fields)))
    for signals, (several, rows) in ((good, (states, weights)), (bad, after_bad)):
        state, own = alone(signals)
        assert all(leaf.dtype in (jnp.float32, jnp.int32) and not leaf.weak_type for leaf in jax.tree.leaves(state))
        np.testing.assert_allclose(rows[row], own, rtol=1e-5)
        assert several.count[row] == state.count
        chex.assert_trees_all_close(at(several.logs, row), state.logs, rtol=1e-4, atol=1e-6)


def test_double_precision_changes_no_type_and_no_weight(all_kinds):
    signals, _, (_, want), _ = all_kinds
    signals = jax.tree.map(np.asarray, signals)
    with jax.enable_x64(True):
        state, weights = quick(jax.vmap(lambda i: run(built(NAMES, index=i, proxy="td_mean"), signals)))(
            np.arange(len(NAMES), dtype=np.int32)
        )
        assert all(leaf.dtype in (np.float32, np.int32) for leaf in jax.tree.leaves((state.weight, state.logs)))
    np.testing.assert_allclose(weights, want, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in NAMES if required_signals(chosen(n))])
def test_absent_signal_is_named_when_traced(name):
    schedule = built(name)
    for field in required_signals(chosen(name)):
        absent = at(stream(2), 0)._replace(**{field: None})
        with pytest.raises(ValueError, match=rf"needs Signals\.{field} of shape"):
            jax.eval_shape(schedule.update, absent, schedule.init())


@pytest.mark.parametrize("proxy", list(PROXIES))
@pytest.mark.parametrize("source", ["update", "fresh"])
def test_required_signals_are_exactly_what_all_schedules_read(proxy, source):
    schedule, fields = built(NAMES, proxy=proxy, source=source), required_signals(chosen(NAMES, proxy, source))
    now = at(stream(2), 0)
    jax.eval_shape(schedule.update, only(now, fields), schedule.init())
    for field in fields:
        with pytest.raises(ValueError, match=field):
            jax.eval_shape(schedule.update, only(now, set(fields) - {field}), schedule.init())


@pytest.mark.parametrize("name", [n for n, spec in SCHEDULES.items() if n not in ("fixed", "oracle", "aes_r_auto")])
def test_non_finite_signal_keeps_the_whole_state(name):
    schedule = built(name, proxy="td_mean")
    update = jax.jit(schedule.update)
    state = schedule.init()
    for t in range(3):
        state = update(at(stream(4), t), state)
    for bad in (np.nan, np.inf):
        broken = jax.tree.map(lambda x, bad=bad: x * jnp.float32(bad), at(stream(4), 3))
        after = update(broken, state)
        if name == "aes_r":  # its windows forget, so a raised weight falls: without a valid proxy there is no excess
            assert np.all(after.inner.bank.value <= state.inner.bank.value)
            assert RUN["base"] <= after.weight <= state.weight
            raised = {"weight_raw": state.logs.weight_raw, "at_max": state.logs.at_max}
            logs, inner = after.logs._replace(**raised), after.inner._replace(bank=state.inner.bank)
            after = after._replace(weight=state.weight, logs=logs, inner=inner)
        chex.assert_trees_all_equal(after, state)
    assert update(at(stream(4), 3), state).count == 4


LONG = 10**9  # updates


@pytest.fixture(scope="module")
def late():
    """Leaves of every schedule's state a billion updates late, 16,000 updates later, and that in double precision."""
    before = jax.tree.map(lambda x: 1.0 + 0.1 * x, stream(1000))
    after = jax.tree.map(lambda x: 3.0 * x, before)._replace(true_drift=jnp.zeros(1000))

    def ran(states, signals, repeats):
        schedules = {name: built(name, proxy="value_loss", updates=float(LONG)) for name in NAMES}

        def step(states, now):
            return {name: schedules[name].update(now, state) for name, state in states.items()}, None

        first = {name: schedule.init() for name, schedule in schedules.items()} if states is None else states
        many = lambda states, _: (jax.lax.scan(step, states, signals)[0], None)  # noqa: E731
        return jax.lax.scan(many, first, length=repeats)[0]

    def later(leaf):
        leaf = np.asarray(leaf)
        return np.where(leaf == 1000, LONG, leaf).astype(leaf.dtype) if leaf.dtype == np.int32 else leaf

    first = jax.tree.map(later, quick(ran, static_argnums=2)(None, before, 1))
    single = quick(ran, static_argnums=2)(first, after, 16)
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jnp, "float32", jnp.float64)
        wide = lambda x: np.asarray(x, np.float64 if np.asarray(x).dtype == np.float32 else None)  # noqa: E731
        double = quick(ran, static_argnums=2)(*jax.tree.map(wide, (first, after)), 16)
    return first, single, double


@pytest.mark.parametrize("name", NAMES)
def test_a_billion_updates_late_every_memory_moves_as_in_double_precision(late, name):
    """A float32 sum ignores steps below half of its last digit, and a float32 factor cannot be ``1 - 1 / 2e7``."""
    first, single, double = (states[name] for states in late)
    assert int(first.count) == LONG
    old, new, want = (jax.tree_util.tree_leaves_with_path(state) for state in (first, single, double))
    for (path, x), (_, y), (_, z) in zip(old, new, want, strict=True):
        assert z.dtype in (np.float64, np.int32)
        if not (where := jax.tree_util.keystr(path)).endswith(".lost"):
            x, y, z = (np.asarray(leaf, np.float64) for leaf in (x, y, z))
            np.testing.assert_allclose(y - x, z - x, rtol=0.02, atol=1e-6 * np.abs(z).max(), err_msg=where)


KNOBS = {
    "base": 0.3, "lambda_min": 0.5, "lambda_max": 0.25, "q": 0.2, "beta": 0.5, "kappa": 0.6, "slope": 0.4, "prior": 3.0,
    "window": 0.4, "threshold": 4.0, "gain": 0.7, "r_max": 1.3, "margin": 0.9, "e_max": 0.4, "auto_learning_rate": 0.1,
    "auto_initial": 0.5, "target_entropy": -3.0, "oracle_gain": 3.0, "oracle_memory": 0.3, "updates": 30_000.0,
    "cost": 0.6, "action_size": 3.0,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_option_moves_the_weight_and_is_data(name):
    """One program, traced once, in which each option is turned in its turn."""
    traced = []
    signals, options = stream(1200), SCHEDULES[name].options  # long enough for the warm-up of aes_c's second level
    slight = jnp.where((jnp.arange(1200) >= 300) & (jnp.arange(1200) < 600), 2.0, 1.0)[:, None]  # below every cap
    signals = signals._replace(fresh_td_error=slight * signals.fresh_td_error)
    plain = {"updates": 8.0, "window": 0.9, "prior": 0.5, "lambda_max": 4.0, "q": 0.9}
    plain = {option: {**SCHEDULES[name].signature.defaults, **RUN, **plain}[option] for option in options}
    turned = [plain, *({**plain, option: KNOBS[option]} for option in options)]
    stacked = jax.tree.map(lambda *xs: jnp.asarray(xs, jnp.float32), *turned)

    def weights(numbers):
        traced.append(name)
        schedule = built(name, **numbers)
        return schedule.init().weight, run(schedule, signals)[1]

    first, after = jax.jit(jax.vmap(weights))(stacked)
    rows = np.concatenate([np.asarray(first)[:, None], after], axis=1)
    still = [option for option, row in zip(options, rows[1:], strict=True) if np.max(np.abs(row - rows[0])) <= 1e-7]
    assert (still, traced) == ([], [name])


# --- single schedules -----------------------------------------------------------------------------------------------


def test_too_much_entropy_lowers_the_auto_tuned_weight_and_too_little_raises_it():
    schedule = auto(target_entropy=-2.0)
    assert schedule.init().weight == 1.0
    high, low = (schedule.update(Signals(log_prob=jnp.full(4, x)), schedule.init()).weight for x in (-1.0, 5.0))
    assert high < 1.0 < low
    np.testing.assert_allclose([high, low], np.exp([-1e-3, 1e-3]), rtol=1e-6)  # Adam's first step is its rate


def test_auto_is_adam_on_the_temperature_loss():
    log_prob, target, adam = stream().log_prob, -0.7, optax.adam(3e-2, eps=1e-8)
    log_alpha = jnp.zeros(())
    opt, want = adam.init(log_alpha), []

    @jax.jit
    def step(log_alpha, opt, logp):
        gradient = jax.grad(lambda a: -jnp.exp(a) * jnp.mean(logp + target))(log_alpha)
        change, opt = adam.update(gradient, opt)
        return optax.apply_updates(log_alpha, change), opt

    for logp in log_prob:
        log_alpha, opt = step(log_alpha, opt, logp)
        want.append(float(jnp.exp(log_alpha)))
    _, weights = run(auto(target, auto_learning_rate=3e-2), Signals(log_prob=log_prob))
    np.testing.assert_allclose(weights, want, rtol=1e-5)


def test_permuted_control_has_the_recorded_weights_at_other_times():
    recorded = jnp.linspace(0.1, 1.0, 43)
    record = Played(1, 1, np.asarray(recorded))
    weights = CONTROLS["permuted"].change(record, jax.random.key(3), 10).weight
    np.testing.assert_array_equal(np.sort(weights), recorded)
    assert np.mean(weights != recorded) > 0.5
    assert np.sum(np.diff(weights) < 0) < 10  # inside a block the order is kept


def test_an_overridden_schedule_repeats_the_record_and_then_holds_it():
    schedule = overridden(fixed(0.5), jnp.array([0.1, 0.2, 0.3]), jnp.int32(1), jnp.int32(1))
    weights = np.r_[schedule.init().weight, run(schedule, Signals(true_drift=jnp.zeros(4)))[1]]
    np.testing.assert_allclose(weights, [0.1, 0.2, 0.3, 0.3, 0.3])
    mean = CONTROLS["constant_at_mean"].change(Played(1, 1, np.array([0.1, 0.2, 0.6])), jax.random.key(0), 1)
    np.testing.assert_allclose(mean.weight, 0.3, rtol=1e-6)


def test_a_given_bound_may_not_cross_that_of_the_agent():
    facts = {"base": 0.01, "lambda_min": 1e-4, "lambda_max": 0.1}
    with pytest.raises(ValueError, match=r"'lambda_min' of schedule 'aes' must not exceed lambda_max \(0.1\); got 0.2"):
        aes(lambda_min=0.2).filled(facts)


# --- switch and build -----------------------------------------------------------------------------------------------


def test_switch_takes_plain_schedules_and_refuses_a_wrong_index():
    assert switch((fixed(0.1), fixed(0.5)), 1).init().weight == 0.5
    with pytest.raises(ValueError, match=r"index must lie in \[0, 1\]; got 2"):
        switch((fixed(0.1), fixed(0.5)), 2)
    with pytest.raises(ValueError, match="at least one schedule"):
        switch((), 0)


def test_proxies_are_read_at_the_level_of_the_schedule_in_force_and_plain_functions_as_they_are():
    signals = Signals(td_error=jnp.array([1.0, 2.0, 3.0]), fresh_td_error=jnp.array([4.0, 5.0, 6.0]))
    own = [
        fixed(0.1).filled({}, td_quantile(0.5)),
        aes(td_quantile(1.0)).filled(RUN),
        aes(lambda signals: 7.0 * signals.td_error[0]).filled(RUN),
    ]
    for index, (proxy, level) in enumerate([(0.0, 2.0), (3.0, 3.0), (7.0, 2.8)]):
        schedule = together(own, index, [td_quantile(source="fresh")])
        measured = schedule.measure(signals).measured
        np.testing.assert_allclose(schedule.update(signals, schedule.init()).logs.proxy, proxy)
        np.testing.assert_allclose([*measured.values()], [level, level + 3.0], rtol=1e-6)
        assert set(measured) == {"td_quantile/update", "td_quantile/fresh"}


@pytest.mark.parametrize(
    ("one", "others"),
    [
        (td_quantile(0.5), [td_quantile(0.6), td_quantile(0.5, "fresh"), td_mean(0.5), 0.5]),
        (aes(td_quantile(0.5), kappa=0.3), [aes(kappa=0.3), aes(td_mean(0.5), kappa=0.3)]),
        (aes(kappa=0.3, beta=0.5), [aes(kappa=0.3), aes(kappa=0.4, beta=0.5), aes_d(kappa=0.3, beta=0.5), fixed(0.3)]),
        (aes_m(levels=3), [aes_m(levels=4), aes_m()]),
        (aes_r(base=auto(-1.0)), [aes_r(base=auto(-2.0)), aes_r(base=jnp.float32(1.0)), aes_r()]),
        (refresh(strength=0.1, actor=0.5), [refresh(strength=0.1), refresh(strength=0.2, actor=0.5), reset()]),
    ],
)
def test_proxies_schedules_and_adaptations_are_compared_by_value(one, others):
    for again in (jax.tree.map(lambda x: x, one), jax.tree.map(jnp.float32, one)):
        assert (again, hash(again)) == (one, hash(one))
    assert all(other != one and one != other for other in others)


def test_unknown_names_say_what_was_meant():
    with pytest.raises(UnknownNameError, match="unknown schedule 'aes-r'; did you mean 'aes_r'"):
        SCHEDULES["aes-r"]

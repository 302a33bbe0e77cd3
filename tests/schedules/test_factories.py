"""Schedules and proxies as factories: options from a signature, what is said of one that cannot work, and pytrees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import EntropySchedule, Signals, aes, aes_r, as_proxy, as_schedule, auto, fixed, td_mean, td_quantile
from aesjax.schedules import SCHEDULES, aes_m, check_schedule
from aesjax.schedules.rule import read_signal, start

SIGNALS = Signals(td_error=jnp.arange(8.0), fresh_td_error=jnp.arange(8.0), log_prob=jnp.ones(8))


def after_one(schedule):
    return schedule.update(SIGNALS, schedule.init()).weight


@as_schedule(label="TINY", needs=["log_prob"], ranges={"gain": (0.0, 10.0)})
def tiny(proxy, *, base, updates, gain=2.0, name="unused", flag=True):
    """The docstring."""
    assert (name, flag) == ("unused", True)

    def update(signals, state):
        log_prob = jnp.mean(read_signal("tiny", signals, "log_prob"))
        weight = base + gain * proxy(signals) / updates + 0.0 * log_prob
        return state._replace(weight=weight, count=state.count + 1)

    return EntropySchedule(lambda: start(base), update)


def test_a_signature_and_its_decorator_become_a_factory():
    assert (tiny.label, tiny.summary, tiny.needs, tiny.uses_proxy) == ("TINY", "The docstring", {"log_prob"}, True)
    assert tiny.options == ("base", "updates", "gain", "q")
    assert (tiny.signature.required, tiny.signature.defaults) == (("base", "updates"), {"gain": 2.0})
    assert tiny.signature.others == {"proxy", "name", "flag"}
    bare = as_schedule(tiny.make, name="pkg.mod:bare")
    assert (bare.name, bare.label, bare.needs) == ("pkg.mod:bare", "bare", frozenset())
    assert as_schedule(bare) is bare
    with pytest.raises(ValueError, match="schedule 'rising' is relative and has no parameter 'base'"):
        check_schedule(as_schedule(lambda proxy, *, first=0.1: None, name="rising", relative=True))


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_registered_schedule_is_called_as_its_function_is(name):
    factory = SCHEDULES[name]
    own = {option: 1.5 for option in factory.signature.required}
    proxy = (td_mean(source="fresh"),) if factory.uses_proxy else ()
    ours, direct = factory(*proxy, *own.values()), factory.make(*proxy, **own)
    assert ours.factory is factory
    assert dict(ours.options) == own
    assert ours.init().weight == direct.init().weight
    assert factory.options[: len(own)] == tuple(own)


def test_a_schedule_is_a_pytree_of_its_numbers():
    """An argument of a compiled function, mapped over an option, and differentiable in it: one trace for all."""
    traced = []

    def weight(schedule):
        traced.append(schedule)
        return after_one(schedule)

    kappas, compiled = jnp.array([0.1, 0.3, 0.5]), jax.jit(weight)
    by_hand = [after_one(aes(td_quantile(0.5), kappa=kappa)) for kappa in kappas]
    ours = [compiled(aes(td_quantile(0.5), kappa=kappa)) for kappa in kappas]
    np.testing.assert_allclose(ours, by_hand, rtol=1e-6)
    assert len(traced) == 1
    np.testing.assert_allclose(jax.vmap(lambda kappa: after_one(aes(kappa=kappa, q=0.5)))(kappas), by_hand, rtol=1e-6)
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *(aes(td_quantile(q), kappa=0.3) for q in (0.1, 0.5)))
    np.testing.assert_allclose(jax.vmap(after_one)(stacked)[1], by_hand[1], rtol=1e-6)
    slope = jax.grad(weight)(aes(td_quantile(0.5), kappa=0.3)).options["kappa"]
    np.testing.assert_allclose(slope, by_hand[1] / 0.3, rtol=1e-5)


def test_structure_is_no_leaf_and_a_schedule_within_another_is_a_subtree():
    short, long = aes_m(levels=3), aes_m(levels=4)
    assert jax.tree.structure(short) != jax.tree.structure(long)
    assert jax.tree.leaves(aes_m(levels=3, prior=2.0)) == [2.0]
    tuned = aes_r(td_quantile(0.9), auto(-1.0), 100.0, gain=1.0)
    assert sorted(jax.tree.leaves(tuned)) == [-1.0, 0.9, 1.0, 100.0]
    assert jax.jit(after_one)(tuned) == after_one(tuned)
    own = aes(lambda signals: jnp.max(signals.td_error), kappa=0.1)
    assert jax.tree.leaves(own) == [0.1]
    assert jax.jit(after_one)(own) == after_one(own)


@pytest.mark.parametrize(("source", "reads"), [(None, (1.0, 2.0)), ("update", (1.0, 1.0)), ("fresh", (2.0, 2.0))])
def test_a_proxy_without_a_source_reads_where_its_schedule_does(source, reads):
    signals = Signals(td_error=jnp.ones(4), fresh_td_error=2 * jnp.ones(4))
    made = (aes(td_quantile(source=source)), aes_r(td_quantile(source=source), 0.1, 100.0))
    assert tuple(schedule.update(signals, schedule.init()).logs.proxy for schedule in made) == reads


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: aes(kapa=0.3), TypeError, "unknown option of schedule 'aes' 'kapa'; did you mean 'kappa'?"),
        (lambda: tiny(depth=1), TypeError, "unknown option of schedule 'tiny' 'depth'; registered: base, flag, gain"),
        (lambda: fixed(0.2, base=0.3), TypeError, "schedule 'fixed' takes each of base once"),
        (lambda: fixed(0.2, 0.3), TypeError, "schedule 'fixed' takes each of base once"),
        (lambda: aes(0.3), TypeError, "takes a proxy first; got 0.3"),
        (lambda: aes(td_mean(), q=0.5), TypeError, r"got both 'q' and a proxy; write td_quantile\(q=...\)"),
        (lambda: tiny().init(), ValueError, r"schedule 'tiny' needs a value of base and updates: tiny\(base=..."),
        (lambda: td_quantile(1.5), ValueError, r"option 'q' of proxy 'td_quantile' must be in \[0, 1\]; got 1.5"),
        (lambda: tiny(gain=-1.0), ValueError, r"option 'gain' of schedule 'tiny' must be in \[0, 10\]; got -1"),
    ],
)
def test_a_wrong_call_is_refused_where_it_is_made(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("q", 1.5, r"in \[0, 1\]"),
        ("beta", 1.0, r"in \[0, 1\)"),
        ("kappa", 0.0, "positive and finite"),
        ("base", np.nan, "finite and at least 0"),
        ("updates", np.inf, "finite and at least 1"),
        ("window", 20.0, "a share of the updates"),
        ("lambda_max", 0.0, "positive"),
        ("lambda_min", 2.0, "not exceed lambda_max"),
    ],
)
def test_an_option_outside_its_range_is_named_with_its_value(option, value, allowed):
    given = {"lambda_max": 1.0, option: value}
    with pytest.raises(ValueError, match=f"option '{option}' of .* must .*{allowed}.*; got {value:g}"):
        SCHEDULES["aes_d"](**given)


def test_ends_of_a_range_are_allowed_and_traced_values_are_not_read():
    assert tiny(gain=10.0).options == {"gain": 10.0}
    assert jax.jit(lambda gain: tiny(gain=gain).options["gain"])(-1.0).shape == ()


def test_numbers_of_a_run_fill_what_was_not_given():
    run = {"base": 0.1, "updates": 10.0, "action_size": 2.0, "gain": 3.0}
    assert tiny().filled(run).given == {"base": 0.1, "updates": 10.0, "gain": 3.0}
    assert tiny(gain=1.0, base=0.3).filled(run).given == {"base": 0.3, "updates": 10.0, "gain": 1.0}
    assert tiny(base=0.3, updates=2.0, flag=True).filled().given["flag"] is True
    clipped = as_schedule(lambda *, lambda_min, lambda_max=2.0: None, name="clipped")
    assert clipped().filled().given == {"lambda_min": 1e-4, "lambda_max": 2.0}  # the paper's, unless it has its own
    assert clipped(lambda_min=0.0).filled({"lambda_max": 0.1}).given == {"lambda_min": 0.0, "lambda_max": 0.1}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: as_schedule(3, name="bad"), "schedule 'bad' must be a factory function; got int"),
        (lambda: as_schedule(lambda depth: None), "parameter 'depth' of its factory needs a number as default"),
        (lambda: as_schedule(ranges={"gane": (0, 1)})(fixed.make), "a range of 'gane', but has no such option"),
        (lambda: as_proxy(lambda depth: None), "parameter 'depth' of its factory needs a number as default"),
    ],
)
def test_what_cannot_be_registered_is_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def broken(init=start, update=lambda signals, state: state):
    return lambda: EntropySchedule(lambda: init(0.1), update)


def raw(proxy):
    """The proxy as a weight, whatever its value."""
    return EntropySchedule(lambda: start(0.1), lambda signals, state: state._replace(weight=proxy(signals)))


CALLS = []


def counting():
    """A weight that grows with every trace, outside the state."""
    CALLS.append(None)
    return EntropySchedule(lambda: start(0.1), lambda signals, state: state._replace(weight=1.0 * len(CALLS)))


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (lambda: 0.3, "its factory returned float, not an EntropySchedule"),
        (broken(update=lambda signals, state: state._replace(count=0.5 * state.count)), r"does not work: .*int32"),
        (broken(init=lambda w: start(jnp.ones(3))), "must return a ScheduleState with a scalar weight"),
        (broken(update=lambda signals, state: jnp.mean(signals.log_prob)), "it declares that it reads no signal"),
        (lambda: fixed.make(-0.5), "its weight after update 1, of errors of size 1, is -0.5"),
        (lambda: fixed.make(jnp.inf), "after update 1, .* is inf"),
        (broken(update=lambda signals, state: state if state.weight else 0), r"jnp\.where .*\(test_factories\.py"),
        (raw, "of errors of size nan, is nan"),
        (counting, "two equal runs have different weights"),
        (broken(init=lambda w: start(-w), update=lambda signals, state: start(0.1)), "its first weight must be finite"),
    ],
)
def test_a_schedule_that_could_not_run_is_found_before_training(plugin, text):
    factory = as_schedule(plugin, name="mine")
    with pytest.raises(ValueError, match=text) as error:
        check_schedule(factory)
    assert len(str(error.value).splitlines()) == 1


def test_a_proxy_may_take_source_and_level():
    @as_proxy(fields={"update": "td_error"})
    def largest(q, scale=2.0):
        """Some proxy."""
        return lambda signals: q * scale * jnp.max(signals.td_error)

    assert (largest.label, largest.summary, dict(largest.fields)) == ("largest", "Some proxy", {"update": "td_error"})
    assert float(largest(0.5, "update")(Signals(td_error=jnp.array([1.0, 3.0])))) == 3.0
    with pytest.raises(ValueError, match="has no source 'fresh'; sources: update"):
        largest(source="fresh")

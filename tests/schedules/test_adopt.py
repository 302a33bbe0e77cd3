"""Schedules and proxies of strangers: what their factories may look like, and what is said where one cannot work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import EntropySchedule, Signals, aes, declare, schedules, td_quantile
from aesjax.registry import Registry
from aesjax.schedules import SCHEDULES, ScheduleHyper, adopt_proxy, adopt_schedule, build
from aesjax.schedules.rule import read_signal, start


@pytest.fixture
def register(monkeypatch):
    """Adds schedules for the length of a test."""
    monkeypatch.setattr(SCHEDULES, "_entries", dict(SCHEDULES._entries))

    def add(name, plugin):
        SCHEDULES.add(name, adopt_schedule(name, plugin))
        return SCHEDULES[name]

    return add


@declare(label="TINY", needs=["log_prob"], ranges={"gain": (0.0, 10.0)}, summary="said otherwise")
def tiny(proxy, *, base, updates, gain=2.0, name="unused", flag=True):
    """The docstring."""
    assert (name, flag) == ("unused", True)

    def init():
        return start(base)

    def update(signals, state):
        log_prob = jnp.mean(read_signal("tiny", signals, "log_prob", 1))
        weight = base + gain * proxy(signals) / updates + 0.0 * log_prob
        return state._replace(weight=weight, count=state.count + 1)

    return EntropySchedule(init, update)


def test_a_signature_and_its_declaration_become_an_entry(register):
    spec = register("pkg.mod:tiny", tiny)
    assert (spec.label, spec.summary, spec.needs) == ("TINY", "said otherwise", {"log_prob"})
    assert spec.uses_proxy
    assert spec.hyper == ("base", "updates", "q", "gain")
    assert spec.own == {"gain": 2.0}
    bare = adopt_schedule("pkg.mod:aes", aes)
    assert bare.label == "aes"
    assert bare.summary.startswith("The paper's rule") or bare.summary
    assert bare.needs == frozenset()


def test_an_adopted_schedule_gives_the_numbers_of_the_factory_itself(register):
    register("mine", aes)
    hyper = ScheduleHyper(own={"kappa": 0.3, "beta": 0.5, "initial": 0.1})
    signals = Signals(td_error=jnp.arange(8.0))
    ours, direct = build("mine", hyper), aes(td_quantile(), kappa=0.3, beta=0.5, initial=0.1)
    for _ in range(2):
        states = [s.update(signals, s.init()) for s in (ours, direct)]
    np.testing.assert_array_equal(states[0].weight, states[1].weight)


def test_options_are_traced_so_that_a_sweep_is_one_program(register):
    register("mine", tiny)
    traced = []

    def weight(gain):
        traced.append(1)
        schedule = build(["fixed", "mine"], ScheduleHyper(base=0.1, updates=10.0, own={"gain": gain}), jnp.int32(1))
        signals = Signals(td_error=jnp.ones(4), log_prob=jnp.ones(4))
        return schedule.update(signals, schedule.init()).weight

    gains = jnp.array([0.0, 1.0, 5.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(weight))(gains), [0.1, 0.2, 0.6], rtol=1e-6)
    assert len(traced) == 1


def test_every_run_carries_the_options_of_all_schedules_and_reads_its_own(register):
    register("one", lambda *, gain=1.0: aes(td_quantile(), kappa=gain))
    register("two", lambda *, gain=2.0, other=3.0: aes(td_quantile(), kappa=gain * other))
    assert schedules.own_defaults(["fixed", "aes"]) is None
    assert schedules.own_defaults(["one", "two", "aes"], first="one") == {"gain": 1.0, "other": 3.0}
    assert schedules.own_defaults(["one", "two"], first="two") == {"gain": 2.0, "other": 3.0}


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (3, "schedule 'bad' must be a function that builds one; got int"),
        (lambda depth: None, "parameter 'depth' of its factory has no default"),
        (declare(ranges={"gane": (0, 1)})(lambda gain=1.0: None), "declares a range of 'gane', which is no option"),
        (lambda base, /: None, "parameter 'base' cannot be given by name"),
        (declare(label="AES-R")(lambda: None), "its label 'AES-R' is that of 'aes_r'"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(plugin, text):
    with pytest.raises(ValueError, match=text):
        adopt_schedule("bad", plugin)


def broken(init=start, update=lambda signals, state: state):
    return lambda: EntropySchedule(lambda: init(0.1), update)


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (lambda: 0.3, "its factory returned float, not an EntropySchedule"),
        (broken(update=lambda signals, state: state._replace(weight=state.weight[None])), r"state\.weight is .* after"),
        (broken(update=lambda signals, state: state._replace(count=0.5 * state.count)), r"state\.count is .*int32"),
        (broken(update=lambda signals, state: state._replace(inner={"more": state.weight})), "absent"),
        (broken(init=lambda w: start(jnp.ones(3))), "its weight must be a scalar"),
        (broken(update=lambda signals, state: state.weight), "must return a ScheduleState"),
        (
            broken(update=lambda signals, state: state._replace(weight=jnp.mean(signals.log_prob))),
            "it declares that it reads no signal",
        ),
        (lambda proxy, *, gain=1.0: EntropySchedule(lambda: start(gain), None), "does not work"),
        (lambda: schedules.fixed(-0.5), "its weight after update 1, of errors between 1 and 10, is -0.5"),
        (
            broken(update=lambda signals, state: state._replace(weight=jnp.inf * state.weight)),
            "after update 1, .* is inf",
        ),
        (
            broken(update=lambda signals, state: state if state.weight > 1 else start(1.0)),
            r"jnp\.where .*\(test_adopt\.py",
        ),
    ],
)
def test_a_schedule_that_could_not_run_is_found_before_training(register, plugin, text):
    register("mine", plugin)
    with pytest.raises(ValueError, match=text) as error:
        schedules.verify("mine", ScheduleHyper(own=schedules.own_defaults(["mine"])))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("value", "allowed"), [(-1.0, r"in \[0, 10\]"), (float("nan"), r"in \[0, 10\]")])
def test_an_option_outside_its_range_is_named(register, value, allowed):
    register("mine", tiny)
    with pytest.raises(ValueError, match=f"option 'gain' of schedule 'mine' must be {allowed}; got"):
        schedules.check_own("mine", {"gain": value})
    schedules.check_own("mine", {"gain": 10.0})
    jax.jit(lambda gain: schedules.check_own("mine", {"gain": gain}))(value)  # not looked at


def test_a_proxy_may_take_source_and_level(monkeypatch):
    @declare(label="largest", fields={"update": "td_error"})
    def largest(q, scale=2.0):
        """Some proxy."""
        return lambda signals: q * scale * jnp.max(signals.td_error)

    spec = adopt_proxy("pkg:largest", largest)
    assert (spec.label, spec.summary, dict(spec.fields)) == ("largest", "Some proxy.", {"update": "td_error"})
    assert float(spec.build(0.5, "update")(Signals(td_error=jnp.array([1.0, 3.0])))) == 3.0
    with pytest.raises(ValueError, match="has no source 'fresh'; sources: update"):
        spec.build(0.5, "fresh")
    with pytest.raises(ValueError, match="parameter 'depth' of its factory has no default"):
        adopt_proxy("bad", lambda depth: None)


def test_a_registry_grows_but_nothing_in_it_is_replaced():
    fruit = Registry("fruit", apple=1)
    fruit.add("pear", 2)
    assert list(fruit) == ["apple", "pear"]
    with pytest.raises(ValueError, match="fruit 'apple' is registered already"):
        fruit.add("apple", 3)

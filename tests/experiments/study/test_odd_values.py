"""Odd values of every field: the study of an accepted value is read back equal, any other value gets one sentence."""

import dataclasses
import inspect
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import aes, fixed
from agents import CARRIERS, make_train
from experiments import Method, Study
from experiments.study.config import config_from_json, configured

ODD = (
    *(None, True, False, 0, -1, 5, 1.5, 1e5, math.nan, math.inf, 2**40, 10**30, "", "x", "no", "false", "5", "1:2"),
    *(b"toy", [], {}, [None], [5], ["x"], ["a", 5], {"x": 1}, {"a": None}, {"a": [1.0]}, {1, 2}, object(), len),
    *(np.arange(1, 4), np.float32(0.1), np.int64(4), np.bool_(True), np.array(5), Path("x"), "~/x", "a\ud800"),
)
SMALL = {"methods": "sac", "patterns": "abrupt", "seeds": 1}
#: What a message calls a field whose value has a name of its own.
NAMES = {"methods": ("method", "carrier"), "start": ("start", "toy"), "num_envs": ("num_envs", "environments")}
NAMES |= {"signal": ("schedule",), "hyper": ("hyper", "float of carrier")}
NAMES |= {name: (name, "gradient steps") for name in ("epochs", "minibatches")}


def sentence(make, name):
    """The one sentence with which a value is refused, None where it is accepted."""
    try:
        made = make()
    except (ValueError, TypeError, KeyError) as error:
        text = str(error)
        assert "\n" not in text
        words = NAMES.get(name, (name, name.removesuffix("s")))
        assert any(word in text.replace("-", "_").lower() for word in words), text
        return text
    if isinstance(made, Study):
        config = configured(made)
        assert config_from_json(json.loads(json.dumps(config.to_json()))) == config
    return None


def study(**given):
    made = Study(**{**SMALL, **given})
    configured(made)
    return made


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Study)])
def test_an_odd_value_of_a_study_is_right_or_a_sentence(name):
    accepted = [value for value in ODD if sentence(lambda value=value: study(**{name: value}), name) is None]
    assert accepted[0] is None  # the default
    assert study(**{name: None}) == Study(**{key: value for key, value in SMALL.items() if key != name})


def test_a_rollout_that_shrinks_to_one_row_is_refused_before_a_folder_exists(tmp_path):
    out = tmp_path / "study"
    made = Study("toy", ["ppo"], patterns="steady", seeds=1, steps=5045, evaluations=5, num_envs=1)
    with pytest.raises(ValueError, match=r"rollout=1 .* minibatches=1"):
        made.run(out=out, quiet=True)
    assert not out.exists()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Method)])
def test_an_odd_value_of_a_method_is_right_or_a_sentence(name):
    default = Method("sac")
    for value in ODD:
        given = {"carrier": "sac", "schedule": "aes", name: value}
        make = lambda given=given: study(methods=[Method(**given)])  # noqa: E731
        if sentence(make, "methods" if name == "carrier" else name) is None:
            [method] = make().methods
            empty = value is None or isinstance(value, list)
            assert getattr(method, name) == (getattr(default, name) if empty else value)
    if name != "carrier":
        assert Method("sac", **{name: None}) == default


@pytest.mark.parametrize("name", [*inspect.signature(make_train).parameters][:-1])
def test_an_odd_argument_of_make_train_is_right_or_a_sentence(name):
    accepted = []
    for value in ODD:
        given = {"task": "toy", "steps": 800, "evaluations": 4, name: value}
        if sentence(lambda given=given: make_train(**given), name) is None:
            accepted.append(value)
    if (default := inspect.signature(make_train).parameters[name].default) is not inspect.Parameter.empty:
        assert accepted.pop(0) is None  # the default
        assert sentence(lambda: make_train("toy", **{"steps": 800, "evaluations": 4, name: default}), name) is None
    numbers = [value for value in accepted if not isinstance(value, list)]  # an empty one: no adaptations
    assert all(value >= 0 and not isinstance(value, bool | np.bool_) for value in numbers)
    assert name in ("base", "onset") or all(value == int(value) for value in numbers)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_odd_setting_of_a_carrier_is_right_or_a_sentence(carrier):
    spec = CARRIERS[carrier]
    for name in (*(field.name for field in dataclasses.fields(spec.config)), *spec.hyper._fields):
        for value in ODD:
            given = {"steps": 800, "evaluations": 4, name: value}
            if sentence(lambda given=given: make_train("toy", carrier, **given), name) is not None:
                continue
            if name in spec.hyper._fields:
                assert 0.0 <= value < math.inf
            else:
                stored = getattr(spec.config(**{name: value}), name)
                assert type(stored).__module__ == "builtins"
                assert stored is value or np.array_equal(np.float32(stored), np.float32(value))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"layer_norm": "false"}, "layer_norm must be true or false; got 'false'"),
        ({"channels": [5]}, "channel 5 must be NAME=LOW:HIGH"),
        ({"channels": {"gain": 1}}, "channel .gain. must be NAME=LOW:HIGH"),
        ({"episodes": 10**30}, "episodes must be a whole number, at least 1 and at most 2,147,483,647"),
        ({"seeds": b"toy"}, "seeds must be a whole number; got b'toy'"),
        ({"sweep": [None]}, "sweep must be text; got None"),
        ({"start": 5}, "start must be a folder, or its Results or Policy; got 5"),
        ({"block": 5}, "--block must look like 1:40"),
        ({"patterns": [None]}, "pattern must be a name or an object; got None"),
    ],
)
def test_what_was_accepted_silently_is_refused(given, says):
    with pytest.raises(ValueError, match=says):
        study(**given)


def test_none_adds_no_adaptation_and_no_word_is_a_flag():
    with pytest.raises(ValueError, match="adaptation must be a name or an object; got None"):
        Method("sac", adaptations=[None])
    with pytest.raises(ValueError, match="coupling must be true or false; got 'no'"):
        Method("sac", coupling="no")
    for value in ("0.3", True, None):
        with pytest.raises(ValueError, match=f"option 'kappa' of schedule 'aes' takes a number; got {value!r}"):
            aes(kappa=value)
    with pytest.raises(ValueError, match="label must be text; got 5"):
        Method("sac", label=5)


@pytest.mark.parametrize("number", [np.float32(0.01), jnp.float32(0.01), np.array(0.01, np.float32)])
def test_numbers_of_single_precision_print_as_typed(number):
    assert study(methods=[Method("sac", aes(kappa=number))]).texts()["methods"] == ["sac+aes:kappa=0.01"]
    axis = np.array([number], np.float32)
    assert study(methods="sac+aes", sweep={"kappa": axis}).texts()["sweep"] == ["kappa=0.01"]


def test_whole_numbers_may_be_floats_and_arrays():
    config = configured(study(steps=8e2, seeds=np.arange(1, 4), evaluations=np.float64(4.0)))
    assert (config.steps, config.seeds, config.evaluations) == (800, (1, 2, 3), 4)
    assert all(type(number) is int for number in (config.steps, *config.seeds, config.evaluations))


@pytest.mark.slow
def test_a_schedule_is_trained_by_name_or_number():
    train = make_train("toy", "sac", steps=800, evaluations=4, episodes=2, hidden=[8, 8])
    weights = jax.vmap(train, (None, 0))(jax.random.key(1), jnp.array([0.1, 0.2]))[1]["entropy_weight"][:, 1]
    np.testing.assert_allclose(weights, [0.1, 0.2])
    np.testing.assert_array_equal(train(1, 0.2)[1]["return_mean"], train(1, fixed(0.2))[1]["return_mean"])
    assert jax.tree.structure(jax.eval_shape(lambda: train(1, "aes"))) == jax.tree.structure(
        jax.eval_shape(lambda: train(1, aes))
    )
    for seed in (2**32, -1, 1.5, 10**30):
        with pytest.raises(ValueError, match="seed must be a whole number from 0 to 4294967295 or one PRNG key"):
            train(seed)

"""Methods of a study: objects and the strings that stand for them, names in tables, and the studies of the paper."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import envs
from aesjax import adaptations, aes, aes_m, aes_r, auto, td_mean, td_quantile
from aesjax.adaptations import AdaptationData, recent, refresh, window
from aesjax.types import Signals
from agents import CARRIERS
from experiments.study.arms import arms_of
from experiments.study.build import build_part, check, set_up, small_windows
from experiments.study.config import config_from_json
from experiments.study.method import Control, Method, replace_fields
from experiments.study.named import STUDIES
from experiments.study.options import StudyOptions
from experiments.study.parser import parse_method, parse_method_with_carrier, text_of
from tests.experiments.configs import config_of

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def names(config, carrier):
    return [arm.name for arm in arms_of(config, carrier)]


def study_config(name):
    return config_of(**{k: v for k, v in STUDIES[name]._asdict().items() if k != "summary"})


def recorded():
    """Carrier and string of every method that a recorded study has."""
    for file in sorted(RESULTS.glob("*/config.json")):
        stored = json.loads(file.read_text())
        for carrier in stored["carriers"]:
            listed = stored["schedules"] if isinstance(stored["schedules"], list) else stored["schedules"][carrier]
            yield from ((carrier, text) for text in listed)


def test_every_recorded_method_is_written_as_it_was_typed_and_means_the_same_in_normal_form():
    """Tables name controls by it, and checkpoints know their study by it."""
    pairs = sorted(set(recorded()))
    assert len(pairs) > 150
    assert {"1e-4" in text for _, text in pairs} == {"+recent+refresh" in text for _, text in pairs} == {True, False}
    for carrier, text in pairs:
        method = parse_method(text, carrier)
        assert text_of(method) == text
        plain = replace_fields(method, typed=None)
        assert plain == method
        assert parse_method(text_of(plain), carrier) == method
        assert text_of(parse_method(text_of(plain), carrier)) == text_of(plain)


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("sac", Method("sac")),
        ("ppo+fixed:base=0.02", Method("ppo", "fixed", options={"base": 0.02})),
        (
            "sac+aes:proxy=td_mean:source=fresh:lambda_max=inf:coupling=1",
            Method("sac", aes(td_mean(source="fresh"), lambda_max=math.inf), coupling=True),
        ),
        ("sac+aes:proxy=td_quantile:q=0.5", Method("sac", aes(q=0.5))),
        ("sac+aes_r:label=mine", Method("sac", aes_r, label="mine")),
        ("sac+recent", Method("sac", adaptations=recent)),
        (
            "sac+fixed:base=1e+0:signal=oracle+refresh:strength=5e-1:actor=0+window",
            Method("sac", "fixed", [window, refresh(strength=0.5, actor=0)], signal="oracle", options={"base": 1}),
        ),
        (
            "ppo+permuted:blocks=40:of=aes+rate",
            Method("ppo", "fixed", control=Control("permuted", Method("ppo", "aes", "rate"), 40)),
        ),
    ],
)
def test_a_string_stands_for_an_object(text, method):
    parsed = parse_method_with_carrier(text)
    assert parsed == method
    assert hash(parsed) == hash(method)
    assert parse_method(text_of(method), method.carrier) == method


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("sca",), "unknown carrier 'sca'; did you mean 'sac'"),
        (("sac", aes_r(base=auto(-1.0))), "option 'base' of schedule 'aes_r' takes a number"),
        (("sac", aes(kappa=1e-45)), "number that single precision can hold"),
        (("sac", "aes", [window, "window"]), "adaptation 'window' is given twice"),
        (("sac", aes_m(levels=3)), "'levels' of schedule 'aes_m' is part of its structure"),
    ],
)
def test_an_object_that_is_no_method_is_refused(given, says):
    with pytest.raises((ValueError, KeyError), match=says):
        Method(*given)
    with pytest.raises(ValueError, match="a label is text without any of"):
        Method("sac", "aes", label="a+b")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"methods": []}, "a study needs at least one method"),
        ({"methods": [aes]}, r"a method is a Method or a string such as 'sac\+aes'; got ScheduleFactory"),
        ({"methods": ["sac", Method("sac")]}, "the methods name something twice"),
        ({"source": "replay"}, "source must be one of update, fresh"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"seeds": [1.5]}, "seeds must look like 1:5"),
        ({"steps": "800"}, "--steps must be a whole number; got '800'"),
        ({"sweep": {"kappa": 0.1}}, "--sweep takes NAME=VALUE"),
    ],
)
def test_options_that_make_no_study_are_refused(given, says):
    with pytest.raises(ValueError, match=says):
        StudyOptions(**given).resolve()


def test_a_study_takes_objects_and_the_strings_that_stand_for_them():
    typed = StudyOptions(
        task="hopper", preset="mujoco-quick", engine="mujoco", patterns="steady,abrupt", seeds="1:3",
        methods=["sac", "ppo+aes:kappa=0.3", "sac+aes_r+recent:share=0.1"],
        sweep=["gain=1,2"], channels="body_mass,leg_gain",
    )  # fmt: skip
    objects = StudyOptions(
        task=envs.make("hopper", engine="mujoco", channels=("body_mass", "leg_gain")), preset="mujoco-quick",
        methods=(Method("sac"), Method("ppo", aes(kappa=0.3)), Method("sac", aes_r(), recent(share=0.1))),
        patterns=["steady", "abrupt"], seeds=range(1, 4), sweep={"gain": (1, 2.0)}, proxy=td_quantile,
    )  # fmt: skip
    stored = typed.resolve().to_json()
    assert objects.resolve().to_json() == stored
    assert stored["schedules"] == {"sac": ["baseline", "aes_r+recent:share=0.1"], "ppo": ["aes:kappa=0.3"]}
    assert config_from_json(stored).to_json() == stored
    numbers = StudyOptions(methods="sac", seeds=np.int64(2), steps=np.int64(800), patterns=envs.PATTERNS["abrupt"])
    assert numbers.resolve().to_json() == config_of(seeds=2, steps=800, patterns="abrupt").to_json()
    assert StudyOptions(methods="sac", seeds=2).resolve().to_json() == config_of(seeds=[1, 2], patterns="all").to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aess", "unknown schedule 'aess'; did you mean 'aes'"),
        ("aes:proxy=td_meen", "unknown proxy 'td_meen'; did you mean 'td_mean'"),
        ("aes:source=replay", "source must be one of update, fresh; got 'replay'"),
        ("aes:gain=3", "schedule 'aes' has no option 'gain'; allowed: .*kappa"),
        ("baseline:base=3", "schedule 'baseline' has no option 'base'; allowed: none"),
        ("aes:kappa=big", "option 'kappa' of schedule 'aes' takes a number; got 'big'"),
        ("aes:kappa", r"an option of a schedule is NAME=VALUE.* got 'kappa'"),
        ("aes:kappa=1:kappa=2", "each given once; got 'kappa=2'"),
        ("aes:coupling=2", "option 'coupling' is 0 or 1"),
        ("aes+windw", "unknown adaptation 'windw'; did you mean 'window'"),
        ("aes+window:size=3", "adaptation 'window' has no option 'size'; allowed: power"),
        ("aes+window:power=-1", "option 'power' of adaptation 'window' must be finite and at least 0; got -1"),
        ("aes+refresh:strength=2", r"option 'strength' of adaptation 'refresh' must be in \[0, 1\]; got 2"),
        ("aes+window+window", "adaptation 'window' is given twice"),
        ("aes:signal=oracle", "signal 'oracle' drives adaptations, and 'aes' has none that reads one"),
        ("aes:signal=oracle+reset", "and 'aes\\+reset' has none that reads one"),
        ("aes:signal=auto+window", "schedule 'auto' has no ratio .*; signals: aes_r, aes_c, oracle"),
        ("fixed:kappa=1+window", "schedule 'fixed' has no option 'kappa'; allowed: .*gain"),
    ],
)
def test_a_wrong_string_is_refused_with_what_is_allowed(text, message):
    with pytest.raises((ValueError, KeyError), match=message):
        parse_method(text, "sac")


def test_methods_are_named_by_their_adaptations_and_swept_like_schedules():
    config = config_of(
        schedules="baseline+window,fixed:gain=4+window,aes_r+window+rate:power=0.5,fixed:signal=oracle+window,oracle+forget",
        sweep=("window.power=1,2",),
    )
    assert names(config, "sac") == [
        "SAC+window[window.power=1]",
        "SAC+window",
        "SAC+fixed+window[gain=4,window.power=1]",
        "SAC+fixed+window[gain=4]",
        "SAC+AES-R+window+rate[rate.power=0.5,window.power=1]",
        "SAC+AES-R+window+rate[rate.power=0.5]",
        "SAC+fixed+window[window.power=1,signal=oracle]",
        "SAC+fixed+window[signal=oracle]",
        "SAC+oracle+forget",
    ]
    drivers = {m.rule: m.signal.schedule for m in arms_of(config, "sac")}
    assert drivers["auto+window"] == drivers["aes_r+window+rate"] == "aes_r"
    assert drivers["oracle+forget"] == "oracle"
    check(config)
    assert config_from_json(config.to_json()).methods == config.methods


def test_methods_are_named_by_what_differs_from_the_preset():
    config = config_of(schedules="baseline,aes,aes:kappa=1,aes:kappa=0.3,aes:proxy=td_mean:coupling=1,fixed")
    assert names(config, "sac") == [
        "SAC",
        "SAC+AES",
        "SAC+AES[kappa=0.3]",
        "SAC+AES[coupling=1,proxy=td_mean]",
        "SAC+fixed",
    ]


def test_a_baseline_that_is_fixed_is_not_trained_twice():
    config = config_of("sac,ppo", "baseline,fixed,aes")
    assert names(config, "sac") == ["SAC", "SAC+fixed", "SAC+AES"]
    assert names(config, "ppo") == ["PPO", "PPO+AES"]


def test_an_axis_multiplies_what_a_method_leaves_open():
    config = config_of(schedules="aes,aes:kappa=2", sweep=("kappa=0.5,1", "beta=0.9"))
    assert names(config, "sac") == [
        "SAC+AES[kappa=0.5,beta=0.9]",
        "SAC+AES[beta=0.9]",
        "SAC+AES[kappa=2,beta=0.9]",
    ]


@pytest.mark.parametrize(
    ("carrier", "schedule", "message"),
    [
        ("sql", "auto", "schedule 'auto' cannot be used with carrier 'sql': .*no density"),
        ("sql", "aes_r_auto", "schedule 'aes_r_auto' cannot be used with carrier 'sql'"),
        ("ppo", "aes_r+window", "adaptation 'window' cannot be used with carrier 'ppo': it keeps no replay"),
        ("ppo", "fixed+utd", "adaptation 'utd' cannot be used with carrier 'ppo': it takes its gradient steps after"),
        ("ppo", "fixed:proxy=critic_drift+rate", "proxy 'critic_drift' cannot be used with carrier 'ppo'"),
        ("ppo", "aes:proxy=critic_drift:source=fresh", "proxy 'critic_drift' cannot be used with carrier 'ppo'"),
    ],
)
def test_a_schedule_that_a_carrier_cannot_feed_is_refused_with_the_reason(carrier, schedule, message):
    with pytest.raises(ValueError, match=message):
        check(config_of(carrier, schedule))


def test_carriers_with_other_numbers_of_environments_share_horizon_and_drift():
    config = config_of("sac,ppo", "baseline,aes", patterns="abrupt")
    assert (config.vector_steps("sac"), config.vector_steps("ppo")) == (5000, 2500)
    assert (config.chunk("sac"), config.chunk("ppo")) == (50, 25)
    assert config.settings["ppo"]["config"]["rollout"] == 25  # what fits between two evaluations
    assert config_of("ppo", preset="paper").settings["ppo"]["config"]["rollout"] == 125
    parts = [build_part(config, carrier) for carrier in ("sac", "ppo")]
    assert parts[0].setup.updates == 5000 - 50
    assert parts[1].setup.updates == 2500 // 25 * 40
    for a, b in zip(*(part.runs.drift.realisation for part in parts), strict=True):
        assert (a == b).all()


def test_a_share_of_recent_below_the_smallest_window_is_named_with_the_share_that_acts():
    methods = "fixed+recent:share=0.05,fixed+recent:share=0.6,aes_r+recent:share=0.05,fixed+recent,fixed"
    config = config_of("sac,ppo", methods)
    assert small_windows(config) == [
        "recent: share 0.05 of 1000 transitions is 512 (51 %), its smallest window",
        "recent: share 0.25 of 1000 transitions is 512 (51 %), its smallest window",
    ]
    supply = set_up(config, "sac").supply
    run = AdaptationData(None, {"recent": 1.0}, {"recent": {"share": 0.05}}, 4950.0)
    built = adaptations.build(["recent"], [], run, supply)
    assert built.update(Signals(), built.init()._replace(count=jnp.int32(2000))).levers.window == 512
    assert not small_windows(config_of("sac", methods, steps=400_000))


def test_what_a_study_measures_and_normalises_stands_in_its_configuration_only_if_it_does():
    plain, full = config_of("sac,ppo"), config_of("sac,ppo", layer_norm=True, plasticity=True, counterfactual=True)
    assert not {"plasticity", "counterfactual", "controls"} & set(plain.to_json())
    assert all(own["config"]["layer_norm"] for own in full.settings.values())
    assert config_from_json(full.to_json()).plasticity
    assert config_from_json(full.to_json()).counterfactual
    assert names(config_of(sweep=("weight_decay=0,0.01",)), "sac")[:2] == ["SAC", "SAC[weight_decay=0.01]"]
    with pytest.raises(ValueError, match=r"weight_decay must lie in \[0, 1\]; got 3"):
        check(config_of(sweep=("weight_decay=3",)))


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_can_be_trained_as_it_is(name):
    config = study_config(name)
    check(config)
    for carrier in config.carriers:
        assert arms_of(config, carrier)[0].name == CARRIERS[carrier].label

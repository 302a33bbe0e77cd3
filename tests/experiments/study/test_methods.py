"""Methods of a study: objects and the texts that stand for them, names in tables, and the studies of the paper."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import envs
from aesjax import aes, aes_m, aes_r, auto, fixed, oracle, td_mean, td_quantile
from aesjax.adaptations import recent, refresh, window
from experiments.session.study import Study
from experiments.study.codec import decode, encode
from experiments.study.config import config_from_json, configured
from experiments.study.method import Control, Method
from experiments.study.program import Plan, rows_of
from experiments.study.text import parse_method, parse_method_with_carrier, text_of
from tests.experiments.configs import config_of

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def names(config, carrier="sac"):
    return [row.name for row in rows_of(config) if row.carrier == carrier]


def test_every_recorded_study_and_method_is_read_back_as_it_was_written():
    """Readers know a study by its stored configuration, and tables name controls by the text of their method."""
    methods = []
    records = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*/grid.json"))]
    for stored in (study["config"] for studies in records for study in studies.values()):
        config = config_from_json(stored)
        assert config.to_json() == stored
        methods += config.methods
    assert len(set(methods)) > 100
    for method in set(methods):
        text = text_of(method)
        assert parse_method(text, method.carrier) == method
        assert text_of(parse_method(text, method.carrier)) == text


@pytest.mark.parametrize(
    ("text", "method", "normal"),
    [
        ("sac", Method("sac"), "baseline"),
        ("sac+recent", Method("sac", adaptations=recent), "baseline+recent"),
        ("ppo+fixed:base=0.02", Method("ppo", fixed(base=0.02)), "fixed:base=0.02"),
        (
            "sac+aes:proxy=td_mean:source=fresh:lambda_max=inf:coupling=1",
            Method("sac", aes(td_mean(source="fresh"), lambda_max=math.inf), coupling=True),
            "aes:proxy=td_mean:source=fresh:lambda_max=inf:coupling=1",
        ),
        ("sac+aes:proxy=td_quantile:q=0.5", Method("sac", aes(q=0.5)), "aes:proxy=td_quantile:q=0.5"),
        (
            "sac+aes:source=fresh:q=0.5",
            Method("sac", aes(td_quantile(0.5, "fresh"))),
            "aes:proxy=td_quantile:source=fresh:q=0.5",
        ),
        (
            "sac+baseline:proxy=td_mean:gain=3+window",
            Method("sac", None, window, aes_r(td_mean(), gain=3)),
            "baseline:proxy=td_mean:gain=3+window",
        ),
        ("ppo+fixed:q=0.5+rate", Method("ppo", "fixed", "rate", aes_r(q=0.5)), "fixed:proxy=td_quantile:q=0.5+rate"),
        ("sac+aes_r:label=mine", Method("sac", aes_r, label="mine"), "aes_r:label=mine"),
        ("sac+fixed:gain=4+window", Method("sac", "fixed", window, signal=aes_r(gain=4)), "fixed:gain=4+window"),
        (
            "sac+fixed:base=1e+0:signal=oracle+refresh:strength=5e-1:actor=0+window",
            Method("sac", fixed(base=1), [window, refresh(strength=0.5, actor=0)], signal=oracle),
            "fixed:signal=oracle:base=1+window+refresh:strength=0.5:actor=0",
        ),
        (
            "ppo+permuted:blocks=40:of=aes+rate",
            Method("ppo", control=Control("permuted", Method("ppo", "aes", "rate"), 40)),
            "permuted:blocks=40:of=aes+rate",
        ),
    ],
)
def test_a_text_stands_for_an_object(text, method, normal):
    parsed = parse_method_with_carrier(text)
    assert parsed == method
    assert hash(parsed) == hash(method)
    assert text_of(method) == normal
    assert parse_method(normal, method.carrier) == method
    assert decode(Method, json.loads(json.dumps(encode(method)))) == method


def test_a_method_keeps_the_proxy_of_its_schedule():
    schedule = aes(td_quantile(0.5, "fresh"), kappa=0.3)
    assert Method("sac", schedule).schedule == schedule
    with pytest.raises(ValueError, match="must not name a proxy, because it reads that of aes"):
        Method("sac", schedule, window, signal=aes_r(td_mean()))


@pytest.mark.parametrize(
    "method",
    [Method("sac", aes_r(gain=2), window, signal=aes_r(gain=4)), Method("sac", hyper={"learning_rate": 1e-4})],
)
def test_a_method_that_no_text_describes_has_none(method):
    with pytest.raises(ValueError, match="use Python"):
        text_of(method)
    config = configured(Study("toy", method))
    assert Plan(config).shares
    assert config_from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Method("sca"), "unknown carrier 'sca'; did you mean 'sac'"),
        (lambda: Method("sac", aes_r(base=auto(-1.0))), "option 'base' of schedule 'aes_r' takes a number"),
        (lambda: Method("sac", aes(kappa=1e-45)), "number that single precision can hold"),
        (lambda: Method("sac", "aes", [window, "window"]), "adaptation 'window' is given twice"),
        (lambda: Method("sac", aes_m(levels=3)), "'levels' of schedule 'aes_m' is static"),
        (lambda: Method("sac", "aes", label="a+b"), "a label must not contain"),
        (lambda: Method("sac", hyper={"gama": 0.9}), "unknown float of carrier 'sac' 'gama'; did you mean 'gamma'"),
        (lambda: Method("sac", coupling=2), "coupling must be true or false; got 2"),
        (lambda: Method("sac", "aes:kappa=0.3"), r"a name with options; write aes\(kappa=0.3\)"),
        (lambda: aes(kappa=None), "option 'kappa' of schedule 'aes' .*got None"),
        (lambda: Control("nope", Method("sac")), "unknown control 'nope'"),
        (lambda: Control("permuted", Method("sac"), 2.5), "'blocks' of control 'permuted' is a whole number"),
        (lambda: Method("sac", "aes", control=Control("permuted", Method("sac"))), "takes only a carrier"),
        (lambda: Method("sac", control=Control("permuted", Method("ppo"))), "record of its own carrier, 'sac'"),
        (lambda: Study(layer_norm="no"), "layer_norm must be true or false; got 'no'"),
        (lambda: Study(methods=[aes]), r"a method must be a Method or a text such as 'sac\+aes'; got ScheduleFactory"),
        (lambda: Study(methods=["sac", Method("sac")]), "duplicate method"),
        (lambda: Study(seeds=[1.5]), "each of seeds must be a whole number; got 1.5"),
        (lambda: Study(steps="800"), "steps must be a whole number; got '800'"),
        (lambda: Study(observe="goal"), "observe must be 'drift' or 'change'; got 'goal'"),
        (lambda: Study(block="5:2"), "--block must look like 1:40"),
        (lambda: Study(envs.make("toy")._replace(inert=("goal_offset",))), "another task is called 'toy'"),
        (lambda: Study(patterns=envs.PATTERNS["abrupt"]._replace(holds=False)), "another pattern is called 'abrupt'"),
    ],
)
def test_objects_that_make_no_study_are_refused(make, says):
    with pytest.raises((ValueError, KeyError), match=says):
        configured(make())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aess", "unknown schedule 'aess'; did you mean 'aes'"),
        ("aes:proxy=td_meen", "unknown proxy 'td_meen'; did you mean 'td_mean'"),
        ("aes:gain=3", "schedule 'aes' has no option 'gain'; allowed: .*kappa"),
        ("baseline:base=3", "schedule 'baseline' has no option 'base'; allowed: none"),
        ("aes:kappa=big", "option 'kappa' of schedule 'aes' takes a number; got 'big'"),
        ("aes:kappa", r"an option of a schedule must be NAME=VALUE.* got 'kappa'"),
        ("aes:coupling=2", "coupling must be true or false; got 2"),
        ("aes+windw", "unknown adaptation 'windw'; did you mean 'window'"),
        ("aes+window:size=3", "adaptation 'window' has no option 'size'; allowed: power"),
        ("aes+window:power=-1", "option 'power' of adaptation 'window' must be finite and at least 0; got -1"),
        ("aes:signal=oracle", "signal 'oracle' drives adaptations, and 'aes' has none that reads one"),
        ("aes:signal=auto+window", "schedule 'auto' has no ratio .*; signals: aes_r, aes_c, oracle"),
        ("fixed:kappa=1+window", "schedule 'fixed' has no option 'kappa'; allowed: .*gain"),
    ],
)
def test_a_wrong_text_is_refused_with_the_allowed_values(text, message):
    with pytest.raises((ValueError, KeyError), match=message):
        parse_method(text, "sac")


def test_objects_and_texts_describe_equal_studies():
    typed = Study(
        task="hopper", preset="mujoco-quick", engine="mujoco", patterns="steady,abrupt", seeds="1:3",
        methods=["sac", "ppo+aes:kappa=0.3", "sac+aes_r+recent:share=0.1"],
        sweep=["gain=1,2"], channels="body_mass,leg_gain",
    )  # fmt: skip
    objects = Study(
        task=envs.make("hopper", engine="mujoco", channels=("body_mass", "leg_gain")), preset="mujoco-quick",
        methods=(Method("sac"), Method("ppo", aes(kappa=0.3)), Method("sac", aes_r(), recent(share=0.1))),
        patterns=["steady", envs.PATTERNS["abrupt"]], seeds=range(1, 4), sweep={"gain": (1, 2.0)}, proxy=td_quantile,
    )  # fmt: skip
    config, stored = configured(objects), configured(typed).to_json()
    assert config.to_json() == stored
    assert [method["carrier"]["name"] for method in stored["methods"]] == ["sac", "sac", "ppo"]
    assert stored["methods"][2]["schedule"]["given"] == {"kappa": 0.3}
    assert json.loads(json.dumps(stored)) == stored
    assert config_from_json(stored).methods == config.methods
    assert objects.texts()["methods"] == ["sac+baseline", "sac+aes_r+recent:share=0.1", "ppo+aes:kappa=0.3"]
    numbers = Study(methods="sac", seeds=np.int64(2), steps=np.int64(800), patterns=envs.PATTERNS["abrupt"])
    assert configured(numbers).to_json() == config_of(seeds=2, steps=800, patterns="abrupt").to_json()
    assert config_of(seeds=2).to_json() == config_of(seeds=[1, 2]).to_json()


def test_methods_are_named_by_their_adaptations_and_by_every_number_that_is_not_the_default():
    config = config_of(
        schedules="baseline+window,fixed:gain=4+window,aes_r+window+rate:power=0.5,fixed:signal=oracle+window,oracle+forget",
        sweep=("window.power=1,2",),
    )
    assert names(config) == [
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
    drivers = {row.rule: row.method.driver.factory.name for row in rows_of(config)}
    assert drivers["auto+window"] == drivers["aes_r+window+rate"] == "aes_r"
    assert drivers["oracle+forget"] == "oracle"
    assert Plan(config).shares
    assert config_from_json(config.to_json()) == config
    plain = config_of(schedules="baseline,aes,aes:kappa=1,aes:kappa=0.3,aes:proxy=td_mean:coupling=1,fixed")
    assert names(plain) == ["SAC", "SAC+AES", "SAC+AES[kappa=0.3]", "SAC+AES[coupling=1,proxy=td_mean]", "SAC+fixed"]


def test_a_baseline_that_is_fixed_is_not_trained_twice():
    config = config_of("sac,ppo", "baseline,fixed,aes", patterns="abrupt")
    assert names(config, "sac") == ["SAC", "SAC+fixed", "SAC+AES"]
    assert names(config, "ppo") == ["PPO", "PPO+AES"]
    assert Plan(config).notes == [
        "without the pattern steady there will be no nAUC and no DropRatio; add it to --patterns",
        "PPO+fixed is equal to PPO and trains once, under that name",
    ]


def test_an_axis_multiplies_the_methods_that_leave_it_open_and_no_others():
    config = config_of(schedules="baseline,aes,aes:kappa=2", sweep=("kappa=0.5,1", "beta=0.9"))
    assert names(config)[1:] == [
        "SAC+AES[kappa=0.5,beta=0.9]",
        "SAC+AES[beta=0.9]",
        "SAC+AES[kappa=2,beta=0.9]",
    ]
    assert names(config_of(sweep=("weight_decay=0,0.01",))) == ["SAC", "SAC[weight_decay=0.01]"]
    for sweep, message in (
        ("weight_decay=3", r"weight_decay must lie in \[0, 1\]; got 3"),
        ("kapa=3", "--sweep varies 'kapa', which nothing in the study reads"),
    ):
        with pytest.raises(ValueError, match=message):
            assert Plan(config_of(sweep=(sweep,))).shares


@pytest.mark.parametrize(
    ("carrier", "schedule", "message"),
    [
        ("sql", "auto", "schedule 'auto' cannot be used with carrier 'sql': .*no density"),
        ("sql", "aes_r_auto", "schedule 'aes_r_auto' cannot be used with carrier 'sql'"),
        ("ppo", "aes_r+window", "adaptation 'window' cannot be used with carrier 'ppo': it has no replay"),
        ("ppo", "fixed+utd", "adaptation 'utd' cannot be used with carrier 'ppo': 'epochs' and 'minibatches' set"),
        ("ppo", "fixed:proxy=critic_drift+rate", "proxy 'critic_drift' cannot be used with carrier 'ppo'"),
        ("ppo", "aes:proxy=critic_drift:source=fresh", "proxy 'critic_drift' cannot be used with carrier 'ppo'"),
        ("sql", "fixed:base=0", "carrier 'sql' needs an entropy weight above 0, .*exp.Q / weight.; got base=0"),
    ],
)
def test_a_schedule_that_a_carrier_cannot_feed_is_refused_with_the_reason(carrier, schedule, message):
    with pytest.raises(ValueError, match=message):
        assert Plan(config_of(carrier, schedule)).shares


def test_discrete_soft_q_learning_has_a_log_probability():
    assert Plan(config_of("sql", "auto,aes_r_auto", task="grid")).shares


def test_carriers_with_other_numbers_of_environments_share_horizon_and_drift():
    config = config_of("sac,ppo", "baseline,aes", patterns="abrupt", steps=20_000)
    assert (config.vector_steps("sac"), config.vector_steps("ppo")) == (20_000, 2500)
    assert (config.interval("sac"), config.interval("ppo")) == (200, 25)
    assert config.settings["ppo"].config["rollout"] == 25  # what fits between two evaluations
    assert config_of("ppo", preset="paper").settings["ppo"].config["rollout"] == 125
    sac, ppo = (Plan(config).share(carrier) for carrier in ("sac", "ppo"))
    assert (sac.learner.updates, ppo.learner.updates) == (20_000 - 200, 2500 // 25 * 40)
    for a, b in zip(*(share.learner.world.drift("abrupt", 1).realisation for share in (sac, ppo)), strict=True):
        assert (a == b).all()


def test_a_share_of_recent_below_the_smallest_window_is_named_with_the_share_that_acts():
    methods = "fixed+recent:share=0.05,fixed+recent:share=0.6,aes_r+recent:share=0.05,fixed+recent,fixed"
    config = config_of("sac", methods, steps=20_000)
    assert Plan(config).small_windows == [
        "recent: share 0.05 of 1000 transitions is 512 (51 %), its smallest window",
        "recent: share 0.25 of 1000 transitions is 512 (51 %), its smallest window",
    ]
    assert not Plan(config_of("sac", methods, steps=400_000)).small_windows

"""What a study compares: the grammar of `--schedules`, the names in tables, and the studies of the paper."""

import math

import pytest

from agents import CARRIERS
from experiments.study.build import build_part, check
from experiments.study.config import config_from_json, make_config
from experiments.study.entries import parse_entry
from experiments.study.methods import methods_of
from experiments.study.named import STUDIES


def config_of(carriers="sac", schedules="baseline,aes", **options):
    defaults = {"task": "toy", "patterns": "steady", "seeds": "1"}
    return make_config(carriers=carriers, schedules=schedules, **(defaults | options))


def names(config, carrier):
    return [method.name for method in methods_of(config, carrier)]


def study_config(name):
    study = STUDIES[name]
    options = {k: v for k, v in study._asdict().items() if k != "summary"}
    return make_config(task="toy", **options)


def test_an_entry_carries_its_own_proxy_source_and_numbers():
    entry = parse_entry("aes:proxy=td_mean:source=fresh:lambda_max=inf:coupling=1")
    assert (entry.schedule, entry.proxy, entry.source) == ("aes", "td_mean", "fresh")
    assert dict(entry.values) == {"lambda_max": math.inf, "coupling": 1.0}


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
        ("aes+windw", "unknown response 'windw'; did you mean 'window'"),
        ("aes+window:size=3", "response 'window' has no option 'size'; allowed: power"),
        ("aes+window:power=-1", "option 'power' of response 'window' must be finite and at least 0; got -1"),
        ("aes+refresh:strength=2", r"option 'strength' of response 'refresh' must be in \[0, 1\]; got 2"),
        ("aes+window+window", "response 'window' is given twice"),
        ("aes:signal=oracle", "option 'signal' says what drives responses, and 'aes:signal=oracle' has none"),
        ("aes:signal=oracle+reset", "has none that reads a signal"),
        ("aes:signal=auto+window", "schedule 'auto' has no ratio .*; signals: aes_r, aes_c, oracle"),
        ("fixed:kappa=1+window", "schedule 'fixed' has no option 'kappa'; allowed: .*gain"),
    ],
)
def test_a_wrong_entry_is_refused_with_what_is_allowed(text, message):
    with pytest.raises((ValueError, KeyError), match=message):
        parse_entry(text)


def test_an_entry_carries_its_responses_and_what_drives_them():
    entry = parse_entry("fixed:base=1e+0:signal=oracle+refresh:strength=5e-1:actor=0+window")
    assert (entry.schedule, entry.signal, entry.responses) == ("fixed", "oracle", ("window", "refresh"))
    assert dict(entry.values) == {"base": 1.0, "refresh.strength": 0.5, "refresh.actor": 0.0}


def test_methods_are_named_by_their_responses_and_swept_like_schedules():
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
    drivers = {m.rule: m.signal.schedule for m in methods_of(config, "sac")}
    assert drivers["auto+window"] == drivers["aes_r+window+rate"] == "aes_r"
    assert drivers["oracle+forget"] == "oracle"
    check(config)
    assert config_from_json(config.to_json()).schedules == config.schedules


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


def test_an_axis_multiplies_what_an_entry_leaves_open():
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
        ("ppo", "aes_r+window", "response 'window' cannot be used with carrier 'ppo': it keeps no replay"),
        ("ppo", "fixed:proxy=critic_drift+rate", "proxy 'critic_drift' cannot be used with carrier 'ppo'"),
        ("ppo", "aes:proxy=critic_drift:source=fresh", "proxy 'critic_drift' cannot be used with carrier 'ppo'"),
    ],
)
def test_a_schedule_that_a_carrier_cannot_feed_is_refused_with_the_reason(carrier, schedule, message):
    with pytest.raises(ValueError, match=message):
        check(config_of(carrier, schedule))


def test_carriers_with_other_numbers_of_environments_share_horizon_and_drift():
    config = config_of("sac,ppo", patterns="abrupt")
    assert (config.vector_steps("sac"), config.vector_steps("ppo")) == (5000, 2500)
    assert (config.chunk("sac"), config.chunk("ppo")) == (50, 25)
    assert config.settings["ppo"]["config"]["rollout"] == 25  # what fits between two evaluations
    assert config_of("ppo", preset="paper").settings["ppo"]["config"]["rollout"] == 125
    parts = [build_part(config, carrier) for carrier in ("sac", "ppo")]
    assert parts[0].updates == 5000 - 50
    assert parts[1].updates == 2500 // 25 * 40
    for a, b in zip(*(part.runs.drift.realisation for part in parts), strict=True):
        assert (a == b).all()


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
        assert methods_of(config, carrier)[0].name == CARRIERS[carrier].label

"""Finding what lives outside the repository: by module:name, by entry point, and again from a configuration."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

import envs
from aesjax.adaptations import RESPONSES
from aesjax.registry import UnknownNameError
from aesjax.schedules import PROXIES, SCHEDULES
from agents import CARRIERS
from experiments.cli import main
from experiments.study import plugins
from experiments.study.build import check
from experiments.study.config import config_from_json, make_config
from experiments.study.entries import parse_entry
from experiments.study.methods import methods_of
from tests.refusals import refused

MODULE = '''
import jax.numpy as jnp
from aesjax import EntropySchedule, declare, schedules
from aesjax.schedules.rule import start
from aesjax.adaptations import RESPONSES
from agents import CARRIERS
from envs import make
from envs.patterns import Pattern

@declare(label="HALF")
def half(*, base, share=0.5):
    """A share of the base."""
    return EntropySchedule(lambda: start(share * base), lambda signals, state: state._replace(count=state.count + 1))

@declare(needs=["log_prob"])
def picky(*, gain=1.0):
    return schedules.fixed(gain)

def named_like_a_setting(*, gamma=0.5):
    return schedules.fixed(gamma)

def td_max():
    return lambda signals: jnp.max(jnp.abs(signals.td_error))

def hold(channel, leg):
    """Holds."""
    return jnp.full((channel.size,), channel.nominal, jnp.float32)

HOLD = Pattern(hold, jumps=True, holds=True)
CARRIER = CARRIERS["sac"]._replace(label="SAK", weight=0.07)

SLOW = RESPONSES["rate"]._replace(summary="slow")
BRAKE = SLOW._replace(lever="brake")

def line():
    return make("toy")._replace(name="line", description="the toy by another name")
'''


@pytest.fixture
def outside(tmp_path, monkeypatch, request, registries):
    """A module called ``elsewhere_N`` in the current directory."""
    monkeypatch.chdir(tmp_path)
    name = "elsewhere_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def study(**words):
    given = {
        "task": "toy",
        "carriers": "sac",
        "schedules": "baseline",
        "patterns": "steady",
        "seeds": "1",
        "steps": 400,
    }
    return make_config(**(given | words))


def offer(folder, module, version="1.2"):
    """What an installer leaves of a package that offers the module's objects."""
    info = folder / f"theirs-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: theirs\nVersion: {version}\n")
    lines = [
        f"[aesjax.schedules]\nhalf = {module}:half\nlost = {module}:lost\n",
        f"[aesjax.tasks]\nline = {module}:line\n",
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    return info


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [("schedule", "half"), ("proxy", "td_max"), ("pattern", "HOLD"), ("pattern", "hold"), ("carrier", "CARRIER"),
     ("task", "line"), ("response", "SLOW")],
)  # fmt: skip
def test_every_kind_is_found_by_module_and_attribute(outside, kind, attribute):
    name = f"{outside}:{attribute}"
    entry = plugins.find(kind, name)
    assert plugins.KINDS[kind].registered[name] is entry
    digest = hashlib.sha256(Path(f"{outside}.py").read_bytes()).hexdigest()
    assert plugins.origin_of(kind, name) == plugins.Origin(name, None, None, digest)
    assert plugins.find(kind, name) is entry  # once


def test_a_colon_in_an_entry_separates_names_from_options(outside):
    entry = parse_entry(f"{outside}:half:share=0.25:coupling=1")
    assert (entry.schedule, entry.values) == (f"{outside}:half", (("share", 0.25), ("coupling", 1.0)))
    assert parse_entry(f"aes:proxy={outside}:td_max:kappa=2").proxy == f"{outside}:td_max"
    with pytest.raises(ValueError, match="an option of a schedule is NAME=VALUE"):
        parse_entry("aes:kappa")


def test_a_response_from_elsewhere_has_options_and_stands_in_the_configuration(outside):
    entry = parse_entry(f"aes_r+window+{outside}:SLOW:power=0.5")
    assert entry.responses == ("window", f"{outside}:SLOW")
    both = f"aes_r+{outside}:SLOW:power=0.5,aes_r+{outside}:SLOW"
    config = study(schedules=both, sweep=(f"{outside}:SLOW.power=0.5,2",))
    assert config.plugins["response"][f"{outside}:SLOW"]["object"] == f"{outside}:SLOW"
    assert methods_of(config, "sac")[0].name == f"SAC+AES-R+{outside}:SLOW[{outside}:SLOW.power=0.5]"
    check(config)
    for attribute, says in (("BRAKE", "turns 'brake'; levers: window, refresh, rate"), ("HOLD", "must be a Resp")):
        with pytest.raises(ValueError, match=says):
            parse_entry(f"aes_r+{outside}:{attribute}")


def test_the_response_that_the_documentation_shows_works(outside):
    text = (Path(__file__).parents[3] / "docs" / "responses.md").read_text()
    name, body = re.search(r"```python\n# (\S+)\n(.*?)```", text, flags=re.DOTALL).groups()
    Path(name).write_text(body)
    typed = re.search(r"aes_r\+halving:SLOWER\S*", text).group()
    assert methods_of(study(schedules=typed), "sac")[0].values == (("halving:SLOWER.factor", 0.3),)
    sys.modules.pop("halving")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("{m}:halff", "did you mean 'half'?"),
        ("{m}:", "unknown attribute of"),
        ("{m}x:half", "there is no module"),
        ("{m}:CARRIER.labl", "did you mean"),
        ("{m}:half:shar=1", "has no option 'shar'; allowed: base, coupling, proxy, share, source"),
        ("{m}:half:share=much", "takes a number; got 'much'"),
        ("{m}:HOLD", "schedule '{m}:HOLD'"),
        ("{m}.py:half", "type '{m}:half', without .py"),
        ("{m}:JNP", "SLOW, half, hold, line, named_like_a_setting, picky, td_max"),  # neither jnp nor declare
        ("half", "one of your own is typed as module:name"),
    ],
)
def test_what_is_not_there_is_said_in_one_sentence(outside, name, text):
    with pytest.raises((ValueError, KeyError)) as error:
        study(schedules=name.format(m=outside))
    assert text.format(m=outside) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_two_methods_of_one_name_are_refused(outside, tmp_path):
    (tmp_path / f"{outside}_too.py").write_text(MODULE)
    with pytest.raises(ValueError, match=f"'{outside}:half' and '{outside}_too:half' are both called 'SAC\\+HALF' in"):
        check(study(schedules=f"{outside}:half,{outside}_too:half"))


def test_a_file_edited_since_the_study_began_is_no_resume(outside, tmp_path, capsys):
    words = ["--schedules", f"{outside}:half", "--patterns", "steady", "--seeds", "1", "--steps", "400", "--no-report"]
    config = study(schedules=f"{outside}:half")
    told = config.plugins["schedule"][f"{outside}:half"]
    folder = tmp_path / "out"
    folder.mkdir()
    stored = config.to_json()
    stored["plugins"] = {"schedule": {f"{outside}:half": told | {"sha256": "00" * 32}}}
    (folder / "config.json").write_text(json.dumps(stored))
    for typed in (words, ["--no-report"]):
        said = refused(capsys, "run", *typed, "--out", folder, "--resume")
        assert f"--resume: the file of schedule '{outside}:half' was edited since the study began" in said
    assert config_from_json(stored).schedules == (f"{outside}:half",)  # what is finished can be read all the same


def test_a_module_that_cannot_be_imported_is_not_our_traceback(outside, tmp_path, capsys):
    (tmp_path / "broken_module.py").write_text("def f(:\n")
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    for name, text in (("broken_module:f", "SyntaxError"), ("needs_more:f", "no module 'no_such_library'")):
        assert text in refused(capsys, "run", "--schedules", name, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_needs_are_checked_against_the_carrier_and_names_against_its_settings(outside):
    with pytest.raises(ValueError, match="cannot be used with carrier 'sql': it reads log_prob"):
        check(study(carriers="sql", schedules=f"{outside}:picky"))
    with pytest.raises(ValueError, match=r"option 'gamma' of schedule .* has the name of a setting of carrier 'sac'"):
        check(study(schedules=f"{outside}:named_like_a_setting"))


def test_a_configuration_says_where_things_came_from_and_finds_them_again(outside, monkeypatch):
    words = {"schedules": f"aes,{outside}:half", "patterns": f"steady,{outside}:HOLD", "carriers": f"{outside}:CARRIER"}
    config = study(**words, proxy=f"{outside}:td_max")
    assert set(config.plugins) == {"schedule", "pattern", "carrier", "proxy"}
    assert config.settings[f"{outside}:CARRIER"]["base"] == 0.07
    text = json.dumps(config.to_json())
    for registry in (SCHEDULES, RESPONSES, PROXIES, CARRIERS):
        registry._entries.pop(f"{outside}:half", None)
    envs.PATTERNS.pop(f"{outside}:HOLD")
    assert config_from_json(json.loads(text)).fingerprint() == config.fingerprint()
    assert f"{outside}:half" in SCHEDULES
    assert f"{outside}:HOLD" in envs.PATTERNS


def test_a_lost_plug_in_is_named_with_its_origin(outside):
    data = study().to_json()
    origin = {"object": "gone.away:f", "package": "gone", "version": "3.1"}
    with pytest.raises(ValueError, match=r"schedule 'f', which came from gone\.away:f of gone 3\.1 and"):
        config_from_json(data | {"plugins": {"schedule": {"f": origin}}})


def test_installed_packages_offer_names(outside, tmp_path, capsys):
    info = offer(tmp_path, outside)
    assert set(plugins.offered("schedule")) == {"half", "lost"}
    config = study(task="line", schedules="half")
    assert config.plugins["schedule"]["half"] == {"object": f"{outside}:half", "package": "theirs", "version": "1.2"}
    assert [method.name for method in methods_of(config, "sac")] == ["SAC+HALF"]
    with pytest.raises(UnknownNameError, match="did you mean 'half'"):
        plugins.find("schedule", "halve")
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert f"half        A share of the base. [{outside}:half of theirs 1.2]" in said
    assert "lost        (schedule 'lost' cannot be used: unknown attribute" in said
    assert f"line                   the toy by another name [{outside}:line of theirs 1.2]" in said
    # The package no longer offers the name, but the object is still where it was.
    SCHEDULES._entries.pop("half")
    (info / "entry_points.txt").write_text("")
    config_from_json(config.to_json())
    assert "half" in SCHEDULES

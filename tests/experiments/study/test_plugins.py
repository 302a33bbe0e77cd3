"""Finding what lives outside the repository: by module:name, by entry point, and again from a configuration."""

import hashlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import envs
from aesjax import EntropySchedule, as_schedule, fixed
from aesjax.adaptations import ADAPTATIONS
from aesjax.registry import UnknownNameError
from aesjax.schedules import PROXIES, SCHEDULES
from aesjax.schedules.rule import start
from agents import CARRIERS
from experiments.cli import main
from experiments.study import plugins
from experiments.study.arms import arms_of
from experiments.study.build import check
from experiments.study.config import config_from_json
from experiments.study.method import Method
from experiments.study.options import StudyOptions
from experiments.study.parser import parse_method
from experiments.study.train import _physics
from tests.experiments.configs import config_of
from tests.refusals import refused

MODULE = '''
import jax.numpy as jnp
from aesjax import EntropySchedule, as_schedule, fixed
from aesjax.adaptations import as_adaptation
from aesjax.schedules.rule import start
from aesjax.types import Levers
from agents import CARRIERS
from envs import make
from envs.patterns import Pattern

@as_schedule(label="HALF")
def half(*, base, share=0.5):
    """A share of the base."""
    return EntropySchedule(lambda: start(share * base), lambda signals, state: state._replace(count=state.count + 1))

@as_schedule(needs=["log_prob"])
def picky(*, gain=1.0):
    return fixed(gain)

def named_like_a_setting(*, gamma=0.5):
    return fixed(gamma)

def td_max():
    return lambda signals: jnp.max(jnp.abs(signals.td_error))

def hold(channel, leg):
    """Holds."""
    return jnp.full((channel.size,), channel.nominal, jnp.float32)

HOLD = Pattern(hold, jumps=True, holds=True)
CARRIER = CARRIERS["sac"]._replace(label="SAK", weight=0.07)

@as_adaptation(lever="rate")
def slow(now, memory, *, power=1.0):
    """Slow."""
    return Levers(rate=now.ratio**-power), memory

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
    return config_of(**({"steps": 400} | words))


def offer(folder, module, version="1.2"):
    """Metadata of an installed package that provides the module's objects."""
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
     ("task", "line"), ("adaptation", "slow")],
)  # fmt: skip
def test_every_kind_is_found_by_module_and_attribute(outside, kind, attribute):
    name = f"{outside}:{attribute}"
    entry = plugins.find(kind, name)
    assert plugins.KINDS[kind].registered[name] is entry
    digest = hashlib.sha256(Path(f"{outside}.py").read_bytes()).hexdigest()
    assert plugins.origin_of(kind, name) == plugins.Origin(name, None, None, digest)
    assert plugins.find(kind, name) is entry  # once


def test_a_colon_in_a_method_separates_names_from_options(outside):
    method = parse_method(f"{outside}:half:share=0.25:coupling=1", "sac")
    assert (method.schedule, method.values) == (f"{outside}:half", (("share", 0.25), ("coupling", 1.0)))
    assert parse_method(f"aes:proxy={outside}:td_max:kappa=2", "sac").proxy == f"{outside}:td_max"


def test_an_adaptation_from_elsewhere_has_options_and_stands_in_the_configuration(outside):
    name = f"{outside}:slow"
    assert parse_method(f"aes_r+window+{name}:power=0.5", "sac").adaptations == ("window", name)
    config = study(schedules=f"aes_r+{name}:power=0.5,aes_r+{name}", sweep=(f"{name}.power=0.5,2",))
    assert config.plugins["adaptation"][name]["object"] == name
    assert arms_of(config, "sac")[0].name == f"SAC+AES-R+{name}[{name}.power=0.5]"
    check(config)
    with pytest.raises(ValueError, match="must be of type AdaptationFactory; got Pattern"):
        parse_method(f"aes_r+{outside}:HOLD", "sac")


def test_the_adaptation_that_the_documentation_shows_works(outside):
    text = (Path(__file__).parents[3] / "docs" / "adaptations.md").read_text()
    name, body = re.search(r"```python\n# (\S+)\n(.*?)```", text, flags=re.DOTALL).groups()
    Path(name).write_text(body)
    shown = re.search(r"aes_r\+halving:slower\S*", text).group()
    assert arms_of(study(schedules=shown), "sac")[0].values == (("halving:slower.factor", 0.3),)
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
        ("{m}:JNP", "half, hold, line, named_like_a_setting, picky, slow, td_max"),  # neither jnp nor fixed
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
    origin = config.plugins["schedule"][f"{outside}:half"]
    folder = tmp_path / "out"
    folder.mkdir()
    stored = config.to_json()
    stored["plugins"] = {"schedule": {f"{outside}:half": origin | {"sha256": "00" * 32}}}
    (folder / "config.json").write_text(json.dumps(stored))
    for typed in (words, ["--no-report"]):
        said = refused(capsys, "run", *typed, "--out", folder, "--resume")
        assert f"--resume: the file of schedule '{outside}:half' was edited since the study began" in said
    assert config_from_json(stored).methods == config.methods  # what is finished can be read all the same


def test_a_module_that_cannot_be_imported_is_not_our_traceback(outside, tmp_path, capsys):
    (tmp_path / "broken_module.py").write_text("def f(:\n")
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    for name, text in (("broken_module:f", "SyntaxError"), ("needs_more:f", "no module 'no_such_library'")):
        assert text in refused(capsys, "run", "--schedules", name, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()


FAULTY = """
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
from envs.core import Channel, EnvSpec, Task

class State(NamedTuple):
    x: jax.Array
    time: jax.Array

class Point:
    spec = EnvSpec(1, 1, 20)

    def __init__(self, reward, observed):
        self.reward, self.observed = reward, observed

    def reset(self, key, params):
        x = jax.random.uniform(key)
        return self.observed(x), State(x, jnp.int32(0))

    def step(self, key, state, action, params):
        x, time = state.x + 0.1 * action[0], state.time + 1
        return self.observed(x), State(x, time), self.reward(x), jnp.zeros((), bool), time >= 20, {}

def point(reward=lambda x: -x**2, observed=lambda x: x[None]):
    channel = Channel("offset", -1.0, 1.0, 0.0)
    return Task("point", "mine", Point(reward, observed), 0.0, (channel,), lambda p, v: v[0], True, "a point")

def raising(x):
    raise RuntimeError("no such joint")

def leaving(*_):
    sys.exit("gone")

raises, exits = point(raising), point(leaving)
shape, wide = point(lambda x: x[None]), point(observed=lambda x: jnp.stack([x, x]))
infinite, nan = point(observed=lambda x: x[None] / 0.0), point(lambda x: jnp.where(x > 1.0, jnp.nan, 0.0))
def far(channel, leg): return jnp.full((channel.size,), 3.0 * channel.high, jnp.float32)
def lost(channel, leg): return jnp.full((channel.size,), jnp.nan, jnp.float32)
def vector(): return lambda signals: jnp.abs(signals.td_error)
def negative(): return lambda signals: -jnp.mean(jnp.abs(signals.td_error))
def missing(): return lambda signals: jnp.nan
"""


@pytest.mark.parametrize(
    ("option", "name", "text"),
    [
        ("--task", "raises", "does not work: RuntimeError: no such joint"),
        ("--task", "exits", "does not work: SystemExit: gone"),
        ("--task", "leaving", "cannot be built: SystemExit: gone"),
        ("--task", "shape", "must have shape ()"),
        ("--task", "wide", "must have shape (1,)"),
        ("--task", "infinite", "its first observation must be finite"),
        ("--task", "nan", "the random policy's return on '{m}:nan' is not finite"),
        ("--patterns", "far", "'goal_offset' must stay between -0.5 and 0.5; got 1.5 to 1.5"),
        ("--patterns", "lost", "got nan to nan"),
        ("--patterns", "leaving", "does not work on a scalar channel: SystemExit: gone"),
        ("--proxy", "vector", "as a weight': state.weight"),
        ("--proxy", "negative", "after update 1, of errors between 1 and 10, is -1"),
        ("--proxy", "missing", "is nan"),
        ("--proxy", "leaving", "gone"),
        ("--schedules", "leaving", "gone"),
    ],
)
def test_faulty_tasks_patterns_and_proxies_are_refused_before_the_folder_is_made(
    tmp_path, monkeypatch, capsys, registries, option, name, text
):
    monkeypatch.chdir(tmp_path)
    module = f"faulty_{option[2:]}_{name}"
    (tmp_path / f"{module}.py").write_text(FAULTY)
    words = ["--patterns", "steady", "--schedules", "aes", "--seeds", "1", "--steps", "400", option, f"{module}:{name}"]
    said = refused(capsys, "run", "--out", tmp_path / "out", *words)
    assert text.format(m=module) in said
    assert f"{module}:{name}" in said
    assert not (tmp_path / "out").exists()


def test_a_module_that_ends_python_is_refused(tmp_path, monkeypatch, capsys, registries):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ends_python.py").write_text("raise SystemExit(0)")
    said = refused(capsys, "run", "--out", tmp_path / "out", "--task", "ends_python:task")
    assert "importing 'ends_python' failed with SystemExit" in said


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
    for registry in (SCHEDULES, ADAPTATIONS, PROXIES, CARRIERS):
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
    assert [arm.name for arm in arms_of(config, "sac")] == ["SAC+HALF"]
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


def of_a_cell(share=0.5, summary="Half."):
    """A schedule as a notebook cell defines it: of a module without a file."""
    body = f'''
def own(*, base, share={share}):
    """{summary}"""
    return EntropySchedule(lambda: start(share * base), lambda signals, state: state._replace(count=state.count + 1))
'''
    cell = {"__name__": "__main__", "EntropySchedule": EntropySchedule, "start": start}
    exec(body, cell)
    return cell["own"]


def test_an_object_is_registered_under_its_own_name_once(registries):
    """One that is defined again, as by a cell that was run again, takes the place of the first."""
    own = of_a_cell()
    method = Method("sac", as_schedule(own, label="OWN"))
    assert (method.schedule, SCHEDULES["own"].label) == ("own", "OWN")
    assert Method("sac", SCHEDULES["own"]) == method
    assert plugins.name_of("schedule", own) == plugins.name_of("schedule", own) == "own"
    origin = plugins.origin_of("schedule", "own")
    assert (origin.object, origin.sentence) == (None, "a script or notebook")
    task = envs.make("toy")._replace(name="mine")
    assert plugins.origin_of("task", plugins.name_of("task", task)).object is None  # not the module of its class
    again = of_a_cell(0.25)
    assert plugins.name_of("schedule", again) == "own"
    assert SCHEDULES["own"].make is again
    with pytest.raises(ValueError, match="another schedule is called 'fixed'; give yours another name"):
        plugins.name_of("schedule", as_schedule(own, name="fixed"))
    with pytest.raises(ValueError, match="needs a name that can be typed"):
        plugins.name_of("schedule", lambda: fixed.make(0.1))
    with pytest.raises(ValueError, match="its label 'AES-R' is that of 'aes_r'; declare another"):
        plugins.name_of("schedule", as_schedule(own, name="other", label="AES-R"))


def half_of_this_module(*, base):
    return fixed.make(0.5 * base)


def test_an_object_of_a_module_is_found_again_where_it_lives(registries):
    name = plugins.name_of("schedule", half_of_this_module)
    assert plugins.origin_of("schedule", name).object == f"{__name__}:{name}"
    stored = StudyOptions(methods=Method("sac", half_of_this_module), steps=400).resolve().to_json()
    del SCHEDULES[name]
    assert config_from_json(stored).to_json() == stored
    assert SCHEDULES[name].make is half_of_this_module


def test_an_object_that_no_module_holds_must_be_defined_again_as_it_was(registries, monkeypatch):
    sources = {}
    monkeypatch.setattr(plugins, "_source", lambda made: sources[made])

    def define(share):
        own = of_a_cell(share)
        sources[own] = f"half, {share}"
        return own

    stored = StudyOptions(methods=Method("sac", define(0.5)), steps=400).resolve().to_json()
    origin = stored["plugins"]["schedule"]["own"]
    assert (origin["object"], origin["source"]) == (None, "half, 0.5")
    plugins.name_of("schedule", define(0.25))
    with pytest.raises(ValueError, match="schedule 'own' as it was before it was edited; name the new one otherwise"):
        config_from_json(stored)
    plugins.name_of("schedule", define(0.5))
    assert config_from_json(stored).to_json() == stored
    plugins._ORIGINS.clear()
    with pytest.raises(ValueError, match="which a script or notebook defined; run the study there again, or save its"):
        config_from_json(stored)


def test_a_manifest_describes_the_engine_of_our_physics_tasks_and_nothing_of_a_strangers_environment():
    assert _physics(envs.make("hopper", engine="mujoco").env) == {"physics": {"engine": "mujoco"}}
    assert _physics(SimpleNamespace(about=object())) == {}

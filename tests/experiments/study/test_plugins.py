"""Objects from outside the repository: by module:name, by entry point, from a notebook cell; reading imports none."""

import json
import linecache
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import envs
from aesjax import EntropySchedule, as_schedule, fixed
from aesjax.registry import UnknownNameError
from aesjax.schedules import SCHEDULES
from aesjax.schedules.rule import start
from experiments.cli import main
from experiments.session import Study
from experiments.study import plugins
from experiments.study.arms import arms_of
from experiments.study.build import check
from experiments.study.config import config_from_json
from experiments.study.driver import Interrupted
from experiments.study.method import Method
from experiments.study.parser import parse_method
from experiments.study.progress import Progress
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

@as_schedule(relative=True)
def relative(*, base):
    return fixed(base)

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


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [("schedule", "half"), ("proxy", "td_max"), ("pattern", "HOLD"), ("pattern", "hold"), ("carrier", "CARRIER"),
     ("task", "line"), ("adaptation", "slow")],
)  # fmt: skip
def test_every_kind_is_found_by_module_and_attribute(outside, kind, attribute):
    name = f"{outside}:{attribute}"
    entry = plugins.find(kind, name)
    assert plugins.KINDS[kind].registered[name] is entry
    assert not plugins.is_ours(kind, name)
    assert plugins.find(kind, name) is entry  # once


def test_a_colon_in_a_method_separates_names_from_options(outside):
    method = parse_method(f"{outside}:half:share=0.25:coupling=1", "sac")
    assert (method.schedule, method.values) == (f"{outside}:half", (("share", 0.25), ("coupling", 1.0)))
    assert parse_method(f"aes:proxy={outside}:td_max:kappa=2", "sac").proxy == f"{outside}:td_max"


def test_an_adaptation_from_elsewhere_has_options_and_stands_in_the_configuration(outside):
    name = f"{outside}:slow"
    assert parse_method(f"aes_r+window+{name}:power=0.5", "sac").adaptations == ("window", name)
    config = study(schedules=f"aes_r+{name}:power=0.5,aes_r+{name}", sweep=(f"{name}.power=0.5,2",))
    assert config.definitions["adaptation"][name]["object"] == name
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
        ("{m}:JNP", "did you mean 'jnp'?"),
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


def test_installed_packages_offer_names(outside, tmp_path, capsys):
    offer(tmp_path, outside)
    assert set(plugins.offered("schedule")) == {"half", "lost"}
    config = study(task="line", schedules="half")
    assert config.definitions["schedule"]["half"]["object"] == f"{outside}:half"
    assert [arm.name for arm in arms_of(config, "sac")] == ["SAC+HALF"]
    with pytest.raises(UnknownNameError, match="did you mean 'half'"):
        plugins.find("schedule", "halve")
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert f"half        A share of the base. [{outside}:half]" in said
    assert "lost        (schedule 'lost' cannot be used: unknown attribute" in said
    assert f"line                   the toy by another name [{outside}:line]" in said


CELL = """
def pulse(*, base, share=0.5):
    return EntropySchedule(lambda: start(share * base), lambda signals, state: state._replace(count=state.count + 1))
"""


def run_cell(text=CELL):
    """The function of a notebook's cell, whose source Python keeps."""
    name = f"ipykernel/{abs(hash(text))}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    cell = {"__name__": "__main__", "EntropySchedule": EntropySchedule, "start": start}
    exec(compile(text, name, "exec"), cell)
    return cell["pulse"]


def of_cell(text=CELL):
    return Study("toy", Method("sac", run_cell(text)), patterns="steady", seeds=1, steps=1600, evaluations=4)


def test_a_study_of_a_cell_that_was_stopped_is_resumed_by_the_same_cell_to_equal_bytes(
    tmp_path, registries, monkeypatch
):
    of_cell().run(tmp_path / "undisturbed", quiet=True)
    with monkeypatch.context() as patch:
        tick = Progress.tick

        def interrupted(self, now):
            tick(self, now)
            if now.chunk == 2:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(Progress, "tick", interrupted)
        with pytest.raises(Interrupted):
            of_cell().run(tmp_path / "stopped", quiet=True)
    for edited in (CELL.replace("0.5", "0.25"), CELL.replace("+ 1", "+ 2")):
        with pytest.raises(ValueError, match="schedule 'pulse' is not the one that the study was trained with"):
            of_cell(edited).run(tmp_path / "stopped", quiet=True)
    of_cell().run(tmp_path / "stopped", quiet=True)
    for name in ("curves.parquet", "streams.parquet"):
        assert len({(tmp_path / out / name).read_bytes() for out in ("undisturbed", "stopped")}) == 1
    with pytest.raises(ValueError, match="is not the one"):  # also of a finished study
        of_cell(CELL.replace("0.5", "0.25")).run(tmp_path / "stopped", quiet=True)


def test_the_source_of_a_cell_is_recorded_and_another_process_is_sent_there(registries):
    stored = of_cell().config.to_json()
    assert "def pulse(*, base, share=0.5):" in stored["definitions"]["schedule"]["pulse"]["source"]
    assert config_from_json(stored).to_json() == stored
    del SCHEDULES["pulse"]
    with pytest.raises(ValueError, match=r"it uses schedule 'pulse', .* run the script or notebook that defined it"):
        config_from_json(stored)


def test_a_cell_that_is_run_again_replaces_its_object(registries):
    own = run_cell()
    method = Method("sac", as_schedule(own, label="OWN"))
    assert (method.schedule, SCHEDULES["pulse"].label) == ("pulse", "OWN")
    assert Method("sac", SCHEDULES["pulse"]) == method
    again = run_cell(CELL.replace("0.5", "0.25"))
    assert plugins.name_of("schedule", again) == "pulse"
    assert SCHEDULES["pulse"].make is again
    with pytest.raises(ValueError, match="another schedule is called 'fixed'; give yours another name"):
        plugins.name_of("schedule", as_schedule(own, name="fixed"))
    with pytest.raises(ValueError, match="needs a name that can be typed"):
        plugins.name_of("schedule", lambda: fixed.make(0.1))
    with pytest.raises(ValueError, match="its label 'AES-R' is that of 'aes_r'; declare another"):
        plugins.name_of("schedule", as_schedule(own, name="other", label="AES-R"))
    assert plugins.name_of("task", envs.make("toy")._replace(name="mine")) == "mine"


@pytest.mark.parametrize(
    "words",
    [
        {"schedules": "{m}:half"},
        {"schedules": "aes_r+{m}:slow"},
        {"schedules": "aes:proxy={m}:td_max"},
        {"schedules": "fixed:signal={m}:relative+window"},
        {"proxy": "{m}:td_max"},
        {"patterns": "steady,{m}:HOLD"},
        {"carriers": "{m}:CARRIER"},
        {"task": "{m}:line"},
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_reading_a_configuration_imports_nothing_until_a_person_has(outside, words, listed):
    config = study(**{name: text.format(m=outside) for name, text in words.items()})
    stored = json.loads(json.dumps(config.to_json()))
    assert config_from_json(stored).to_json() == stored
    module = sys.modules.pop(outside)
    for kind in plugins.KINDS.values():
        for name in [name for name in kind.registered if name.startswith(outside)]:
            del kind.registered[name]
    with pytest.raises(ValueError, match=f"reading a study imports nothing: .* import {outside} in Python first"):
        config_from_json(stored if listed else {n: v for n, v in stored.items() if n != "definitions"})
    assert outside not in sys.modules
    sys.modules[outside] = module
    assert config_from_json(stored).fingerprint() == config.fingerprint()


def test_a_module_that_was_edited_is_refused_when_read_and_when_resumed(outside, tmp_path, capsys):
    words = ["--schedules", f"{outside}:half", "--patterns", "steady", "--seeds", "1", "--steps", "400", "--no-report"]
    stored = study(schedules=f"{outside}:half", seeds="1", patterns="steady").to_json()
    stored["definitions"]["schedule"][f"{outside}:half"]["sha256"] = "00" * 32
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(stored))
    for typed in (words, ["--no-report"]):
        said = refused(capsys, "run", *typed, "--out", folder, "--resume")
        assert f"schedule '{outside}:half' is not the one that the study was trained with" in said


def test_a_manifest_describes_the_engine_of_our_physics_tasks_and_nothing_of_a_strangers_environment():
    assert _physics(envs.make("hopper", engine="mujoco").env) == {"physics": {"engine": "mujoco"}}
    assert _physics(SimpleNamespace(about=object())) == {}

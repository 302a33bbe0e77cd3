"""Objects from outside the repository: by module:name, by entry point, from a notebook cell; reading imports none."""

import json
import linecache
import os
import re
import signal
import sys
import traceback
from pathlib import Path

import pytest

from aesjax import EntropySchedule, aes_r
from aesjax.registry import UnknownNameError
from aesjax.schedules.rule import start
from experiments.cli import main
from experiments.session.study import Study
from experiments.study import method as plugins
from experiments.study.config import check_unchanged, config_from_json, configured
from experiments.study.folder import begun
from experiments.study.method import Method
from experiments.study.program import Plan, rows_of
from experiments.study.sources import definitions
from experiments.study.text import parse_method, text_of
from experiments.study.train import Interrupted, Progress
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

def plain(proxy, *, base, decay=0.9):
    return EntropySchedule(lambda: start(base), lambda signals, state: state._replace(count=state.count + 1))

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


def names(config):
    return [row.name for row in rows_of(config)]


#: Options of a study that name an object from outside, and the row of its tables that shows it.
OBJECTS = [
    ({"schedules": "{m}:half:share=0.25"}, "SAC+HALF[share=0.25]"),
    ({"schedules": "{m}:plain:proxy=td_mean:coupling=1"}, "SAC+plain[coupling=1,proxy=td_mean]"),
    ({"schedules": "aes_r+{m}:slow:power=0.5"}, "SAC+AES-R+slow[slow.power=0.5]"),
    ({"schedules": "aes:proxy={m}:td_max:kappa=2"}, "SAC+AES[kappa=2,proxy=td_max]"),
    ({"schedules": "fixed:signal={m}:relative+window"}, "SAC+fixed+window[signal=relative]"),
    ({"schedules": "aes", "proxy": "{m}:td_max"}, "SAC+AES"),
    ({"patterns": "steady,{m}:HOLD"}, "SAC"),
    ({"patterns": "steady,{m}:hold"}, "SAC"),
    ({"carriers": "{m}:CARRIER"}, "SAK"),
    ({"task": "{m}:line"}, "SAC"),
]


@pytest.mark.parametrize(("words", "row"), OBJECTS)
def test_a_configuration_holds_the_source_of_every_object_and_reading_it_imports_nothing(outside, words, row, tmp_path):
    registered = [dict(kind.registered) for kind in plugins.KINDS.values()]
    config = study(**{name: text.format(m=outside) for name, text in words.items()})
    assert Plan(config).shares
    assert names(config) == [row]
    assert [dict(kind.registered) for kind in plugins.KINDS.values()] == registered
    [method] = config.methods
    assert parse_method(text_of(method), method.carrier) == method
    named = [plugins.name_of("pattern", config.patterns_known[name]) for name in config.patterns]
    named += [text_of(method), plugins.name_of("carrier", method.carrier)]
    named += [plugins.name_of("proxy", config.proxy.factory), config.task]
    assert ("line" if "task" in words else f"{outside}:") in " ".join(named)
    stored = json.loads(json.dumps(config.to_json()))
    assert len(config.objects) == 1
    assert ("'SAK'" if "carriers" in words else "def ") in json.dumps(stored)
    sys.modules.pop(outside)
    read = config_from_json(stored)
    assert (read.to_json(), names(read)) == (stored, [row])
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"custom objects, which are not stored: .*; give its complete"):
        begun(tmp_path)
    assert outside not in sys.modules


ON_POLICY = """
from agents import CARRIERS
from agents.ppo import Ppo

class Mine(Ppo):
    pass

CARRIER = CARRIERS["ppo"]._replace(label="PPO2", make=Mine)
"""


@pytest.mark.slow
def test_an_on_policy_carrier_without_a_preset_trains_in_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ppo2.py").write_text(ON_POLICY)
    study = Study("toy", ["ppo2:CARRIER"], patterns="steady", seeds=1, steps=1600, evaluations=2, episodes=1)
    results = study.run("runs/ppo2", quiet=True)
    assert results.curves["return_mean"].is_finite().all()
    [settings] = configured(study).settings.values()
    assert (settings.num_envs, settings.config["rollout"]) == (8, 100)
    sys.modules.pop("ppo2")


BROKEN = """
from aesjax import EntropySchedule
from aesjax.schedules.rule import start
from envs import make

def rule(*, base):
    def update(signals, state):
        return state._replace(weight=state.weight / len(signals.missing))  # the rule's mistake
    return EntropySchedule(lambda: start(base), update)

def task():
    return make("toy", missing=1 / 0)  # the builder's mistake

class Env:
    def __getattr__(self, name):
        return getattr(make("toy").env, name)
    def step(self, *args):
        return args.missing  # the step's mistake

def stepping():
    return make("toy")._replace(name="stepping", env=Env())
"""


@pytest.mark.parametrize(
    ("words", "who"),
    [(["--schedules", "{m}:rule"], "rule"), (["--task", "{m}:task"], "builder"), (["--task", "{m}:stepping"], "step")],
)
def test_the_line_of_an_error_in_custom_code_is_in_the_traceback(tmp_path, monkeypatch, capsys, words, who):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AESJAX_TRACEBACK", "1")
    name = f"mistaken_{who}"
    Path(f"{name}.py").write_text(BROKEN)
    [line] = [at for at, text in enumerate(BROKEN.splitlines(), 1) if f"the {who}'s mistake" in text]
    place = f'{name}.py", line {line}'
    words = [word.format(m=name) for word in words]
    assert main(["run", *words, "--steps", "400", "--seeds", "1", "--out", "out"]) == 2
    assert place in capsys.readouterr().err
    task, method = (words[1], "sac") if who != "rule" else ("toy", Method("sac", words[1]))
    study = Study(task, [method], seeds=1, steps=400)
    with pytest.raises(ValueError, match=r"cannot be built|does not work") as error:
        study.run("python", quiet=True)
    assert place in "".join(traceback.format_exception(error.value))
    sys.modules.pop(name)


def test_the_adaptation_that_the_documentation_shows_works_and_can_be_swept(outside):
    text = (Path(__file__).parents[3] / "docs" / "adaptations.md").read_text()
    name, body = re.search(r"```python\n# (\S+)\n(.*?)```", text, flags=re.DOTALL).groups()
    Path(name).write_text(body)
    shown = re.search(r"aes_r\+halving:slower\S*", text).group()
    assert rows_of(study(schedules=shown))[0].method.values == {"slower.factor": 0.3}
    config = study(schedules="aes_r+halving:slower", sweep=("slower.factor=0.3,0.5",))
    assert names(config)[0] == "SAC+AES-R+slower[slower.factor=0.3]"
    sys.modules.pop("halving")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("{m}:halff", "did you mean 'half'?"),
        ("{m}:", "unknown attribute of"),
        ("{m}x:half", "No module named"),
        ("{m}:CARRIER.labl", "did you mean"),
        ("{m}:half:shar=1", "has no option 'shar'; allowed: base, coupling, proxy, share, source"),
        ("{m}:half:share=much", "takes a number; got 'much'"),
        ("{m}:HOLD", "schedule '{m}:HOLD'"),
        ("aes_r+{m}:HOLD", "must be of type Adaptation; got Pattern"),
        ("{m}.py:half", "type '{m}:half', without .py"),
        ("half", "a custom one is given as module:name"),
        ("{m}:half,{m}_too:half", "are both called 'SAC+HALF' in tables"),
        ("{m}:picky", "cannot be used with carrier 'sql': it reads log_prob"),
        ("{m}_ends:task", "cannot be used: SystemExit"),
        ("{m}_broken:f", "SyntaxError"),
        ("{m}_needs:f", "No module named 'no_such_library'"),
    ],
)
def test_objects_that_cannot_be_used_are_refused_in_one_sentence(outside, tmp_path, name, text):
    texts = {"too": MODULE, "ends": "raise SystemExit(0)", "broken": "def f(:\n", "needs": "import no_such_library\n"}
    for part, content in texts.items():
        (tmp_path / f"{outside}_{part}.py").write_text(content)
    with pytest.raises((ValueError, KeyError)) as error:
        assert Plan(study(carriers="sql" if "picky" in name else "sac", schedules=name.format(m=outside))).shares
    assert text.format(m=outside) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


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
    return Task("point", "mine", Point(reward, observed), 0.0, (channel,), lambda p, v: v[0], "a point")

def raising(x):
    raise RuntimeError("no such joint")

def leaving(*_):
    sys.exit("gone")

raises, shape = point(raising), point(lambda x: x[None])
wide, nan = point(observed=lambda x: jnp.stack([x, x])), point(lambda x: jnp.where(x > 1.0, jnp.nan, 0.0))
def far(channel, leg): return jnp.full((channel.size,), 3.0 * channel.high, jnp.float32)
def vector(): return lambda signals: jnp.abs(signals.td_error)
def negative(): return lambda signals: -jnp.mean(jnp.abs(signals.td_error))
"""


@pytest.mark.parametrize(
    ("option", "name", "text"),
    [
        ("--task", "raises", "does not work: RuntimeError: no such joint"),
        ("--task", "shape", "must have shape ()"),
        ("--task", "wide", "must have shape (1,)"),
        ("--task", "nan", "the random policy's return on 'point' is not finite"),
        ("--patterns", "far", "'goal_offset' must stay between -0.5 and 0.5; got 1.5 to 1.5"),
        ("--patterns", "leaving", "does not work on a scalar channel: SystemExit: gone"),
        ("--proxy", "vector", "its value must be a scalar; got shape (8,)"),
        ("--proxy", "negative", "its value after update 1, of errors of size 1, is -1"),
    ],
)
def test_faulty_objects_are_refused_before_the_folder_is_made(
    tmp_path, monkeypatch, capsys, registries, option, name, text
):
    monkeypatch.chdir(tmp_path)
    module = f"faulty_{option[2:]}_{name}"
    (tmp_path / f"{module}.py").write_text(FAULTY)
    words = ["--patterns", "steady", "--schedules", "aes", "--seeds", "1", "--steps", "400", option, f"{module}:{name}"]
    said = refused(capsys, "run", "--out", tmp_path / "out", *words)
    assert text.format(m=module) in said
    assert (name if option != "--task" else "point") in said
    assert not (tmp_path / "out").exists()


def test_installed_packages_offer_names(outside, tmp_path, capsys):
    info = tmp_path / "theirs-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n")
    points = (
        f"[aesjax.schedules]\nhalf = {outside}:half\nlost = {outside}:lost\n[aesjax.tasks]\nline = {outside}:line\n"
    )
    (info / "entry_points.txt").write_text(points)
    sys.path.insert(0, str(tmp_path))
    assert set(plugins.offered("schedule")) == {"half", "lost"}
    config = study(task="line", schedules="half")
    assert names(config) == ["SAC+HALF"]
    assert text_of(config.methods[0]) == "half"
    with pytest.raises(UnknownNameError, match="did you mean 'half'"):
        plugins.find("schedule", "halve")
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert f"half        A share of the base [{outside}:half]" in said
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
    return Study(
        "toy", Method("sac", run_cell(text)), patterns="steady", seeds=1, steps=1600, evaluations=4, episodes=2
    )


@pytest.mark.slow
def test_a_study_of_a_cell_that_was_stopped_is_resumed_by_the_same_cell_to_equal_bytes(tmp_path, monkeypatch):
    of_cell().run(tmp_path / "undisturbed", quiet=True)
    with monkeypatch.context() as patch:
        tick = Progress.tick

        def interrupted(self, now):
            tick(self, now)
            if now.number == 2:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(Progress, "tick", interrupted)
        with pytest.raises(Interrupted):
            of_cell().run(tmp_path / "stopped", quiet=True)
    for edited in (CELL.replace("0.5", "0.25"), CELL.replace("+ 1", "+ 2")):
        with pytest.raises(ValueError, match="'pulse' differs from the object that the study was trained with"):
            of_cell(edited).run(tmp_path / "stopped", quiet=True)
    results = of_cell().run(tmp_path / "stopped", quiet=True)
    for name in ("curves.parquet", "streams.parquet"):
        assert len({(tmp_path / out / name).read_bytes() for out in ("undisturbed", "stopped")}) == 1
    assert results.policy("SAC+pulse", "steady", 1).evaluate(episodes=2).shape == (2,)
    assert results.replay(Method("sac", run_cell()))["replayed"].to_list() == ["SAC+pulse"]
    with pytest.raises(ValueError, match="differs from the object"):  # also of a finished study
        of_cell(CELL.replace("0.5", "0.25")).run(tmp_path / "stopped", quiet=True)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def scaled(self, value):
        return self.factor * value + super().__sizeof__()  # `super` makes the function a closure


def test_a_method_of_an_object_is_defined_by_the_numbers_of_the_object_too():
    first, same, other = (definitions("scale", Scaled(factor).scaled) for factor in (1.0, 1.0, 2.0))
    assert first == same
    assert first != other


def test_an_object_of_a_cell_is_part_of_the_configuration_and_of_no_command():
    stored = configured(of_cell()).to_json()
    (source,) = stored["methods"][0]["schedule"]["sources"].values()
    assert "def pulse(*, base, share=0.5):" in source
    assert config_from_json(stored).carriers == ("sac",)
    with pytest.raises(ValueError, match="schedule 'pulse' is defined only in this process"):
        of_cell().command()
    assert Method("sac", plugins.find("schedule", aes_r)) == Method("sac", "aes_r")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [{"schedules": "{m}:half"}, {"carriers": "{m}:CARRIER", "task": "{m}:line"}, {"patterns": "steady,{m}:HOLD"}],
)
def test_a_study_of_a_module_is_resumed_unless_the_module_was_edited(outside, tmp_path, capsys, words):
    typed = {"patterns": "steady", "schedules": "fixed"} | {
        name: text.format(m=outside) for name, text in words.items()
    }
    argv = [word for name, value in typed.items() for word in (f"--{name}", value)]
    argv += "--seeds 1 --steps 400 --evaluations 4 --episodes 1 --no-report --out out".split()
    assert main(["run", *argv]) == 0
    capsys.readouterr()
    config = tmp_path / "out" / "config.json"
    stored = config.read_text()
    for name in ("manifest.json", "curves.parquet"):
        (tmp_path / "out" / name).unlink()
    config.write_text(stored.replace("def ", "def  ").replace("0.07", "0.08"))
    assert "differs from the object that the study was trained with" in refused(capsys, "run", *argv, "--resume")
    assert "custom objects, which are not stored" in refused(capsys, "run", *argv[-3:], "--resume")
    config.write_text(stored)
    assert main(["run", *argv, "--resume"]) == 0
    assert "HOLD" not in words.get("patterns", "") or main(["report", "out"]) == 0


RESTS_ON = """
import gymnasium
import jax.numpy as jnp
import numpy as np
import optax
import {helpers} as helpers
from {helpers} import far
from aesjax import EntropySchedule, as_schedule
from aesjax.adaptations import as_adaptation
from aesjax.schedules.rule import start
from aesjax.types import Levers
from agents import CARRIERS
from envs.patterns import Pattern

GAIN, TEXT, LIMITS, COUNT = 0.5, "a", dict(low=np.array([-1.0, 1.0]), high=(3.0, [4])), 0

def near(x):
    return GAIN * x

class Base(gymnasium.Env):
    def pull(self, x):
        return 0.125 * x

class Line(Base):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), dict(text=TEXT)

    def step(self, action):
        global COUNT
        COUNT += 1
        from {helpers} import late

        return np.zeros(1, np.float32), near(far(late(helpers.SHIFT))) + LIMITS["high"][0], False, False, {{}}

def task():
    return gymnasium.wrappers.TimeLimit(Line(), 10)

def schedule(*, base):
    return EntropySchedule(lambda: start(near(base)), lambda signals, state: state)

def proxy():
    return lambda signals: near(jnp.mean(jnp.abs(signals.td_error)))

@as_adaptation(lever="rate")
def adaptation(now, memory, *, power=1.0):
    return Levers(rate=now.ratio ** near(-power)), memory

pattern = Pattern(lambda channel, leg: near(leg.start), jumps=True, holds=True)

class Sac(CARRIERS["sac"].make):
    def act(self, state, obs, key):
        return near(super().act(state, obs, key))

carrier = CARRIERS["sac"]._replace(label="SAX", make=Sac, optimiser=optax.scale_by_rms(decay=0.9))

def other():
    return "unrelated"
"""
HELPERS = """
SHIFT = 2.0
def far(x): return 0.1 * x
def late(x): return 0.2 * x
def other(): return "unrelated"
"""
KINDS = {
    "task": {"task": "{m}:task"},
    "schedule": {"schedules": "{m}:schedule"},
    "proxy": {"schedules": "aes:proxy={m}:proxy"},
    "study's proxy": {"schedules": "aes", "proxy": "{m}:proxy"},
    "adaptation": {"schedules": "aes_r+{m}:adaptation"},
    "pattern": {"patterns": "{m}:pattern"},
    "carrier": {"carriers": "{m}:carrier"},
}
EDITS = [
    ("task", "class Line(Base):", "class Line(Base):  # edited", "Line"),
    ("task", "0.125 * x", "0.0625 * x", "Base"),
    ("task", "return GAIN * x", "return 2.0 * GAIN * x", "near"),
    ("task", "return 0.1 * x", "return 0.15 * x", "far"),
    ("task", "return 0.2 * x", "return 0.25 * x", "late"),
    ("task", "SHIFT = 2.0", "SHIFT = 2.25", "SHIFT"),
    ("task", '"a", dict', '"ab", dict', "TEXT"),
    ("task", "[-1.0, 1.0]", "[-1.0, 1.25]", "LIMITS"),
    ("task", "[4]", "[4, 5]", "LIMITS"),
    ("task", "Line(), 10", "Line(), 100", "task"),
    ("carrier", "decay=0.9", "decay=0.95", "sax"),
    ("task", '"unrelated"', '"not related"', None),
    ("task", "\nGAIN", "\n# a comment elsewhere\nGAIN", None),
    ("task", "(3.0, [4])), 0", "(3.0, [4])), 10", None),
    *((kind, "GAIN, TEXT, LIMITS, COUNT = 0.5", "GAIN, TEXT, LIMITS, COUNT = 0.75", "GAIN") for kind in KINDS),
]


@pytest.mark.parametrize(("kind", "before", "after", "name"), EDITS)
def test_an_edit_of_a_definition_that_an_object_rests_on_is_named(
    tmp_path, monkeypatch, registries, request, kind, before, after, name
):
    monkeypatch.chdir(tmp_path)
    module = f"rests_{EDITS.index((kind, before, after, name))}"

    def configuration(edit):
        for file, text in ((module, RESTS_ON.format(helpers=f"{module}_helpers")), (f"{module}_helpers", HELPERS)):
            (tmp_path / f"{file}.py").write_text(edit(text))
            sys.modules.pop(file, None)
        return study(**{option: text.format(m=module) for option, text in KINDS[kind].items()}).to_json()

    stored = configuration(lambda text: text)
    assert configuration(lambda text: text) == stored
    edited = configuration(lambda text: text.replace(before, after))
    if name is None:
        assert edited == stored
        check_unchanged(stored, edited)
    else:
        with pytest.raises(ValueError, match=f"differs from the object .* in (.*:)?{name}; restore"):
            check_unchanged(stored, edited)

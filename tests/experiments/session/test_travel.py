"""Objects travel to other processes, by pickle and by cloudpickle (joblib, Ray, submitit), and are equal there."""

import multiprocessing
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import cloudpickle
import numpy as np
import pytest

import envs
from aesjax import SCHEDULES, aes, aes_r, as_schedule, fixed, fresh_residuals, td_mean
from aesjax.adaptations import ADAPTATIONS, recent, refresh
from aesjax.schedules import PROXIES
from agents import CARRIERS
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from experiments import Method, Study
from experiments.study.method import name_of, source_of

LIBRARIES = (pickle, cloudpickle)


@as_schedule(label="CALM", ranges={"decay": (0.0, 1.0)})
def calm(*, base, decay=0.9):
    return fixed(base).pair


def plain(*, base):
    return fixed(base).pair


STUDY = Study("toy", ["sac", Method("sac", aes(kappa=0.3))], patterns="abrupt", seeds=1, steps=800, evaluations=4)
OBJECTS = {
    "schedule": SCHEDULES["aes_r"],
    "adaptation": ADAPTATIONS["refresh"](),
    "proxy": PROXIES["td_quantile"](0.8),
    "carrier": CARRIERS["sac"],
    "pattern": envs.PATTERNS["mixed"],
    "task in JAX": envs.make("toy"),
    "task in MuJoCo": envs.make("hopper"),
    "task of Isaac": envs.make("isaac_ant"),
    "task of Gymnasium": envs.make("gymnasium:Pendulum-v1", channels={"g": (5.0, 15.0)}),
    "schedule with options": aes(kappa=0.3, proxy=PROXIES["td_mean"]()),
    "schedule of one's own": calm(decay=0.5),
    "schedule of a function": as_schedule(plain)(base=0.2),
    "ring": fresh_residuals(size=8),
    "Method": Method("sac", calm, [refresh(strength=0.5), recent], aes_r(td_mean()), hyper={"gamma": 0.9}),
    "Study": STUDY,
    "Drifting": envs.Drifting(envs.make("toy"), "abrupt", total_steps=1000),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_objects_are_equal_after_a_journey(name, library):
    assert library.loads(library.dumps(OBJECTS[name])) == OBJECTS[name]


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_comes_back_is_registered_and_trains_the_same_study(library):
    for kind, thing in {
        "carrier": CARRIERS["ppo"],
        "schedule": SCHEDULES["aes"],
        "pattern": envs.PATTERNS["abrupt"],
    }.items():
        back = library.loads(library.dumps(thing))
        assert name_of(kind, back) == name_of(kind, thing)
        assert source_of(kind, back) is None
    method = library.loads(library.dumps(OBJECTS["Method"]))
    assert Study("toy", method).config.to_json() == Study("toy", OBJECTS["Method"]).config.to_json()


@pytest.mark.parametrize(
    ("kind", "library", "task"),
    [
        (DriftingEnv, pickle, "hopper"),
        (DriftingVectorEnv, cloudpickle, "toy"),
        (DriftingVectorEnv, pickle, "hopper"),
    ],
)
def test_environments_go_on_the_same_elsewhere(kind, library, task):
    env = kind(task, "abrupt", drift_steps=1000)
    env.reset(seed=3)
    actions = [env.action_space.sample() for _ in range(4)]
    env.step(actions[0])
    other = library.loads(library.dumps(env))
    assert other == env
    for action in actions[1:]:
        for one, two in zip(env.step(action), other.step(action), strict=True):
            np.testing.assert_equal(one, two)
    np.testing.assert_equal(env.reset(), other.reset())
    env.step(actions[0])
    assert other != env


def test_a_task_that_was_changed_stays_changed():
    changed = envs.make("gymnasium:Pendulum-v1")._replace(description="other")
    assert pickle.loads(pickle.dumps(changed)).description == "other"


SCRIPT = """
import multiprocessing, pickle, sys, cloudpickle
from aesjax import as_schedule, fixed
@as_schedule
def calm(*, base, decay=0.9):
    return fixed(base).pair
assert pickle.loads(pickle.dumps(calm(decay=0.5))) == calm(decay=0.5)
assert cloudpickle.loads(cloudpickle.dumps(calm(decay=0.5))) == calm(decay=0.5)
open(sys.argv[1], "wb").write(cloudpickle.dumps(calm(decay=0.5)))
"""


def test_a_schedule_of_a_script_travels(tmp_path):
    path = tmp_path / "calm.pickle"
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, timeout=300)
    assert repr(cloudpickle.loads(path.read_bytes())) == "calm(decay=0.5)"


@pytest.mark.slow
def test_a_study_trains_in_a_spawned_pool():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        results = pool.submit(STUDY.run, quiet=True).result(timeout=600)
    assert results.curves.height == 10
    assert results.policy("SAC", "abrupt", 1)(np.zeros(2)).shape == (2,)


def _refusals(pipe):
    for run in (STUDY.run, lambda: DriftingEnv("toy", "abrupt", drift_steps=1000)):
        try:
            pipe.send(run())
        except ValueError as error:
            pipe.send(str(error))


def test_in_a_forked_process_a_study_and_an_environment_say_why_they_cannot_run():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of every fork
        process = context.Process(target=_refusals, args=(theirs,))
        process.start()
    theirs.close()
    said = [ours.poll(60) and ours.recv() for _ in range(2)]
    process.kill()
    process.join()
    assert all("JAX had started before this process was forked" in str(text) for text in said)
    assert all("get_context('spawn')" in str(text) for text in said)

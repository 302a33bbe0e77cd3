"""Programs lower for CUDA on a machine without an accelerator, and contain no host callbacks."""

import re

import jax
import jax.numpy as jnp
import pytest

from experiments.study.program import Plan, runs_of
from experiments.study.run import compile_program
from tests.experiments.configs import config_of

SLOW = pytest.mark.slow
EVERYTHING = "baseline,aes,aes_r+window+refresh:strength=0.5+rate"
#: Task, carrier, schedules: every carrier once.
STUDIES = [
    ("toy", "sac", EVERYTHING),
    ("pendulum", "ppo", "baseline,aes"),
    pytest.param("toy_multigoal_classic", "sql", "baseline,aes", marks=SLOW),
    pytest.param("reacher", "meow", "baseline,aes", marks=SLOW),
]


def traced(task, carrier, schedules, **options):
    """The three executables of two runs, traced: name -> what can be lowered."""
    share = Plan(config_of(carrier, schedules, task=task, patterns="abrupt", **options)).share(carrier)
    runs, executables = runs_of(share, {}), compile_program(share.program(), jax.devices()[:1])
    rest = (jax.eval_shape(executables.init, runs), runs, jnp.int32(0))
    return {
        "init": executables.init.trace(runs),
        "chunk": executables.chunk.trace(*rest),
        "evaluate": executables.evaluate.trace(*rest),
    }


def lowered(stage, platform):
    return stage.lower(lowering_platforms=(platform,)).as_text()


def calls_its_host(text):
    """Whether a program calls back into Python, or waits for data that a host sends."""
    targets = re.findall(r"custom_call @(\w+)|\"stablehlo\.(infeed|outfeed|send|recv)\"", text)
    return any("callback" in target or transfer for target, transfer in targets)


@pytest.mark.parametrize(("task", "carrier", "schedules"), STUDIES)
def test_every_program_lowers_for_cuda_without_its_host(task, carrier, schedules):
    for name, stage in traced(task, carrier, schedules).items():
        text = lowered(stage, "cuda")
        assert "stablehlo" in text, name
        assert not calls_its_host(text), name


@pytest.mark.slow
def test_a_program_on_warp_lowers_for_cuda_without_its_host():
    pytest.importorskip("warp", reason="an extra, which `make test-all` installs")
    for name, stage in traced("hopper", "ppo", "aes", engine="warp").items():
        assert not calls_its_host(lowered(stage, "cuda")), name


def test_a_program_on_the_c_engine_calls_its_host():
    """The tests above can therefore fail."""
    stages = traced("hopper", "ppo", "aes", engine="mujoco")
    for name in ("init", "chunk"):
        assert calls_its_host(lowered(stages[name], "cpu")), name
    with pytest.raises(ValueError, match="lowering platform"):
        lowered(stages["init"], "cuda")

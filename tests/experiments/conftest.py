"""One compiled sweep, shared by the tests that look at different things in it."""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import pytest

from experiments.study.program import Plan, runs_of
from experiments.study.run import compile_program
from tests.experiments.configs import config_of

INTERVAL = 132  # 32 vector steps of warm-up and 100 updates; also the first change point


def small_config(**options):
    """The quick preset with a horizon of five training intervals of `INTERVAL`."""
    config = config_of(**({"schedules": "baseline,aes,aes_r", "patterns": "all", "seeds": 5, "num_envs": 4} | options))
    return dataclasses.replace(config, steps=5 * INTERVAL * 4, evaluations=5, replay_capacity=400, warmup=128)


@pytest.fixture(scope="session")
def sweep():
    """The quick sweep with two values of kappa, two intervals long; tracing a part of it a second time is an error."""
    compiled = Counter()

    def listen(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled[str(kwargs.get("fun_name"))] += 1

    config = small_config(patterns="steady,abrupt,mixed", seeds="1:2", sweep=("kappa=0.3,1",))
    share = Plan(config).share("sac")
    program, runs = share.program(), runs_of(share, {})
    once = {name: chex.assert_max_traces(function, n=1) for name, function in program._asdict().items()}
    executables = compile_program(program._replace(**once))
    count = len(share.labels)
    pad = -count % len(executables.devices)
    data = executables.place(jax.tree.map(lambda x: x[list(range(count)) + [0] * pad], runs))
    state = executables.init(data)
    jax.block_until_ready(state)
    jax.monitoring.register_event_duration_secs_listener(listen)
    states, metrics, evaluations = (
        [jax.device_get(state)],
        [],
        [jax.device_get(executables.evaluate(state, data, jnp.int32(0)))],
    )
    for number in range(2):
        state, logs = executables.chunk(state, data, jnp.int32(number * INTERVAL))
        evaluations.append(jax.device_get(executables.evaluate(state, data, jnp.int32((number + 1) * INTERVAL))))
        states.append(jax.device_get(state))
        metrics.append(jax.device_get(logs))
    jax.monitoring.unregister_event_duration_listener(listen)
    return SimpleNamespace(
        config=config,
        share=share,
        runs=runs,
        labels=share.labels,
        states=states,
        metrics=metrics,
        evaluations=evaluations,
        compiled=compiled,
    )

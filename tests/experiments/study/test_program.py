"""Properties of a compiled program: one executable, independent runs, and drift that begins on time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.session.study import Study
from experiments.study.config import configured
from experiments.study.program import Plan, runs_of
from experiments.study.run import compile_program, take
from tests.experiments.conftest import small_config


def rows(sweep, **wanted):
    """Indices of the runs with these labels."""
    return [i for i, label in enumerate(sweep.labels) if all(label[k] == v for k, v in wanted.items())]


def one(tree, index):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree)


def largest_difference(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.max(np.abs(x.astype(np.float64) - y.astype(np.float64)), initial=0.0)) for x, y in pairs)


@pytest.mark.slow
def test_the_sweep_is_one_executable_for_training_and_one_for_evaluation(sweep):
    assert len(sweep.labels) == 4 * 3 * 2  # baseline, two kappas of aes, aes_r; three patterns; two seeds
    assert sum(count for name, count in sweep.compiled.items() if "chunk" in name or "evaluate" in name) <= 2
    assert sum(sweep.compiled.values()) <= 4  # and at most trivial host conversions beside them


def test_two_seeds_differ_and_methods_of_one_seed_start_equal(sweep):
    first, second = rows(sweep, method="SAC", pattern="steady")[:2]
    start = sweep.states[0]
    assert largest_difference(one(start.agent.actor, first), one(start.agent.actor, second)) > 1e-2
    other = rows(sweep, method="SAC+AES-R", pattern="mixed", seed=1)[0]
    assert largest_difference(one(start.agent, first), one(start.agent, other)) == 0.0
    assert largest_difference(one(sweep.states[1].agent.actor, first), one(sweep.states[1].agent.actor, second)) > 1e-2


@pytest.mark.parametrize("pattern", ["abrupt", "mixed"])
def test_a_drifting_run_is_the_steady_one_bit_for_bit_until_its_first_drift(sweep, pattern):
    for method in ("SAC", "SAC+AES", "SAC+AES-R"):
        steady = rows(sweep, method=method, pattern="steady", seed=1)[0]
        drifting = rows(sweep, method=method, pattern=pattern, seed=1)[0]
        before = [one(sweep.states[1], index) for index in (steady, drifting)]
        assert largest_difference(*before) == 0.0
        after = [one(sweep.states[2].agent, index) for index in (steady, drifting)]
        assert largest_difference(*after) > 1e-4


def test_an_evaluation_at_a_change_point_sees_the_new_environment(sweep):
    steady, abrupt = (rows(sweep, method="SAC", pattern=p, seed=2)[0] for p in ("steady", "abrupt"))
    at_change = sweep.evaluations[1]
    np.testing.assert_allclose(at_change["drift_value"][abrupt], 1.0, atol=1e-5)
    assert at_change["drift_value"][steady] == 0.0
    assert at_change["return_mean"][steady] != at_change["return_mean"][abrupt]
    np.testing.assert_array_equal(
        sweep.evaluations[0]["return_mean"][steady], sweep.evaluations[0]["return_mean"][abrupt]
    )


def test_a_run_alone_is_the_run_inside_the_program(sweep):
    index = rows(sweep, method="SAC+AES-R", pattern="abrupt", seed=2)[0]
    config = small_config(schedules="aes_r", patterns="abrupt", seeds="2")
    share = Plan(config).share("sac")
    executables = compile_program(share.program(), jax.devices()[:1])
    data = executables.place(take(runs_of(share, {}), [0]))
    state, _ = executables.chunk(executables.init(data), data, jnp.int32(0))
    inside, alone = one(sweep.states[1], index), one(jax.device_get(state), 0)
    assert largest_difference(inside.agent, alone.agent) < 1e-4
    np.testing.assert_allclose(inside.schedule.weight, alone.schedule.weight, rtol=1e-4)
    np.testing.assert_allclose(inside.replay.rows, alone.replay.rows, atol=1e-3)


def test_the_logs_say_what_each_schedule_did(sweep):
    last = sweep.metrics[-1]
    aes = rows(sweep, method="SAC+AES")
    np.testing.assert_array_less(0.0, last["proxy"][aes])
    np.testing.assert_allclose(last["entropy_weight"][aes], np.clip(last["weight_raw"][aes], 1e-4, 1.0), rtol=1e-6)
    scaled = rows(sweep, method="SAC+AES[kappa=0.3]")
    ratio = sweep.metrics[0]["weight_raw"][scaled] / sweep.metrics[0]["weight_raw"][aes]
    np.testing.assert_allclose(ratio, 0.3, rtol=0.5)  # not exact: the weight changes the residuals it is made of
    auto = rows(sweep, method="SAC")
    assert np.all(last["at_max"][auto] == 0.0)
    assert np.all(last["diverged_at"] == -1)
    assert np.all(np.isfinite(last["train_return"]))


@pytest.mark.parametrize("num_envs", [96, 256])
def test_any_number_of_environments_fits_the_newest_transitions_that_fresh_proxies_read(num_envs):
    config = configured(Study("toy", "sac+aes_r", num_envs=num_envs, steps=200 * num_envs))
    share = Plan(config).shares["sac"]
    jax.eval_shape(share.program().init, jax.tree.map(lambda leaf: leaf[0], runs_of(share, {})))
    assert config.envs_of("sac") == num_envs
    assert config.warmup % num_envs == 0

"""The single-file script: it learns, its gradient step is that of `agents.sac`, and wrong options are refused."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import envs
from agents import sac
from agents.common.carrier import Transition
from experiments import single_file_sac as script

SHORT = 2000  # environment steps


@cache
def train(seeds=2, **options):
    """Each call compiles for some seconds, so the tests share their runs."""
    run = jax.jit(jax.vmap(lambda seed: script.train(script.Options(**options), seed)))
    return [np.asarray(x) for x in run(jnp.arange(1, seeds + 1))]


@pytest.mark.slow
@pytest.mark.learning
def test_it_reaches_ninety_per_cent_of_the_optimum_on_the_steady_task():
    returns, _, drift = train(seeds=3, pattern="steady")
    best = np.asarray(envs.optimal_return("toy")(drift))
    assert returns.shape == (3, script.EVALUATIONS)
    assert np.all(returns[:, 0] < 0.7 * best)
    assert np.all(returns[:, -1] >= 0.9 * best)


@pytest.mark.slow
@pytest.mark.learning
def test_the_weight_of_aes_r_answers_a_change_of_the_task():
    steady, abrupt = (train(seeds=3, pattern=pattern)[1] for pattern in ("steady", "abrupt"))
    change = steady.shape[1] // 5
    # Equal runs up to the change, but for rounding, which differs between two programs and grows while they learn.
    np.testing.assert_allclose(abrupt[:, : change // 2], steady[:, : change // 2], rtol=0.02)
    np.testing.assert_allclose(abrupt[:, :change], steady[:, :change], rtol=0.1)
    after = slice(change, change + change // 5)
    assert np.all(abrupt[:, after].max(1) > 1.3 * steady[:, after].max(1))


def test_its_gradient_steps_and_initial_networks_are_those_of_the_carrier():
    sizes, rng = (script.OBS, script.ACTIONS), np.random.default_rng(0)
    carrier = sac.make(*sizes, sac.SacConfig((script.HIDDEN, script.HIDDEN), script.BATCH))
    hyper = sac.SacHyper(1e-3, 1e-3, script.GAMMA, script.TAU)
    state, keys = carrier.init(jax.random.key(1)), jax.random.split(jax.random.key(2), 3)
    actor = script.ACTOR.init(keys[0], jnp.zeros((1, script.OBS)))
    critic = jax.vmap(script.CRITIC.init, (0, None))(keys[1:], jnp.zeros((1, sum(sizes))))
    agent = script.Agent(actor, critic, critic, script.ADAM.init(actor), script.ADAM.init(critic))
    for own, theirs in zip(jax.tree.leaves(agent[:3]), jax.tree.leaves(state[:3]), strict=True):
        assert own.shape == theirs.shape
        if own.size > 50:  # draws of one law, uniform between the same bounds
            np.testing.assert_allclose(np.abs(own).max(), np.abs(theirs).max(), rtol=0.1)
    agent = jax.tree.unflatten(jax.tree.structure(agent), jax.tree.leaves(state))
    learn, update = jax.jit(script.learn), jax.jit(carrier.update)
    for step, key in enumerate(jax.random.split(jax.random.key(3), 6)):
        obs, action, reward, next_obs = (
            rng.standard_normal((script.BATCH, *shape)).astype(np.float32) for shape in [(2,), (2,), (), (2,)]
        )
        batch = Transition(obs, np.tanh(action), reward, (reward > 1.0).astype(np.float32), next_obs)
        weight = jnp.float32(0.05 + 0.1 * step)
        agent, signals = learn(agent, batch, weight, jax.random.clone(key))
        state, reported, _ = update(state, batch, key, jnp.int32(step), entropy_weight=weight, hyper=hyper)
        for own, theirs in zip(jax.tree.leaves(agent[:3]), jax.tree.leaves(state[:3]), strict=True):
            np.testing.assert_allclose(own, theirs, rtol=0, atol=1e-6)
        for name in ("td_error", "log_prob"):
            np.testing.assert_allclose(getattr(signals, name), getattr(reported, name), rtol=0, atol=1e-4)


def test_the_weight_is_that_of_the_schedule_with_a_lag_of_one():
    _, auto, _ = train(schedule="auto", steps=SHORT)
    warmup = script.FRESH // script.NUM_ENVS
    np.testing.assert_array_equal(auto[:, : warmup + 1], 1.0)  # the first update runs under the initial weight
    assert np.all(auto[:, warmup + 1] != 1.0)


def test_a_short_run_ends_in_a_picture_and_one_line(tmp_path, capsys):
    out = tmp_path / "plot.png"
    assert script.main(["--steps", str(SHORT), "--seeds", "2", "--schedule", "oracle", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("final return ")
    assert "of at most 4" in said
    assert said.endswith(f"plot: {out}\n")
    with Image.open(out) as image:
        assert image.format == "PNG"
        assert min(image.size) >= 400
        assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 10  # not a blank page
    kept = out.read_bytes()
    assert script.main(["--steps", str(SHORT), "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"--out {out} exists or has no folder; choose another file\n"
    assert out.read_bytes() == kept


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--pattern", "abrubt"], "unknown pattern 'abrubt'; did you mean 'abrupt'? registered: "),
        (["--schedule", "aes-r"], "unknown schedule 'aes-r'; did you mean 'aes_r'? registered: "),
        (["--weight", "-1"], "option 'base' of schedule 'aes_r' must be finite and at least 0; got -1"),
        (["--steps", "1001"], "--seeds must be positive and --steps a positive multiple of 200"),
        (["--seeds", "0"], "--seeds must be positive and --steps a positive multiple of 200"),
    ],
)
def test_wrong_options_are_one_sentence_before_anything_is_trained(words, text, tmp_path, capsys):
    out = tmp_path / "plot.png"
    assert script.main(["--out", str(out), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(text)
    assert error.count("\n") == 1
    assert not out.exists()

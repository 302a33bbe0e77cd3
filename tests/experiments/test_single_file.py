"""The single-file script: it learns, its gradient step is that of `agents.sac`, and wrong options are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import envs
from aesjax import SCHEDULES, EntropySchedule, as_schedule
from aesjax.schedules.rule import start
from agents import sac
from agents.common.carrier import Transition
from experiments import single_file_sac as script
from tests.quick import quick

SHORT = 2000  # environment steps


@pytest.mark.slow
@pytest.mark.learning
def test_it_learns_the_task_until_it_changes_and_the_weight_of_aes_r_responds_to_the_change():
    options = script.Options()
    train = jax.jit(jax.vmap(lambda seed: script.train(options, seed)))
    returns, weights, _ = (np.asarray(x) for x in train(jnp.arange(1, 3)))
    assert returns.shape == (2, script.EVALUATIONS)
    env = envs.Drifting(script.TASK, options.pattern, options.steps, num_envs=script.NUM_ENVS)
    best = float(envs.optimal_return("toy")(env.truth_at(0).values[None])[0])
    assert np.all(returns[:, 0] < 0.7 * best)
    assert np.all(returns[:, script.EVALUATIONS // 5 - 2] >= 0.9 * best)  # the next one is at the change
    change = weights.shape[1] // 5
    before, after = weights[:, change * 4 // 5 : change + 1], weights[:, change : change + change // 5]
    assert np.all(before < 1.15 * options.weight)
    assert np.all(after.max(1) > 1.3 * before.max(1))


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
    learn, update = quick(script.learn), quick(carrier.update)
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


@as_schedule(needs=["true_drift"])
def counting(base):
    """A weight that shows the number of updates before it and the drift in the last of them."""

    def update(signals, state):
        count = state.count + 1
        return state._replace(weight=base + 1e-3 * count + signals.true_drift, count=count)

    return EntropySchedule(lambda: start(base), update)


def test_a_short_run_ends_in_a_picture_and_its_weight_follows_the_signals_one_step_later(
    tmp_path, capsys, monkeypatch, registries
):
    SCHEDULES["counting"] = counting
    out, plot, drawn = tmp_path / "plot.png", script.plot, []
    monkeypatch.setattr(script, "plot", lambda *arguments: drawn.append(arguments) or plot(*arguments))
    assert script.main(["--steps", str(SHORT), "--seeds", "2", "--schedule", "counting", "--out", str(out)]) == 0
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

    [(_, curves, changes)] = drawn
    weights = np.asarray(curves["entropy weight"])
    updates = np.maximum(np.arange(weights.shape[1]) - script.FRESH // script.NUM_ENVS, 0)  # none in the warm-up
    drift = weights - (script.Options().weight + 1e-3 * updates)
    assert len(changes) == 4
    for each in drift:
        np.testing.assert_array_equal(np.flatnonzero(each > 1e-4), np.asarray(changes) // script.NUM_ENVS + 1)
    assert np.abs(np.delete(drift, np.asarray(changes) // script.NUM_ENVS + 1, axis=1)).max() < 1e-4


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

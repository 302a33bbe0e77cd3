"""The single-file scripts: their gradient steps are those of `agents`, they learn, and wrong options are refused."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import envs
from aesjax import SCHEDULES, EntropySchedule, as_schedule
from aesjax.schedules import required_signals
from aesjax.schedules.rule import start
from agents import ppo, sac
from agents.common import masks
from agents.common.carrier import Rollout, Transition
from experiments import single_file_ppo, single_file_sac, sweep
from tests.programs import RUN, chosen
from tests.quick import quick

SCRIPTS = {"sac": single_file_sac, "ppo": single_file_ppo}
#: Few steps of each script, with as many gradient steps as a schedule needs to move.
SHORT = {
    "sac": ["--steps", "800", "--evaluations", "4", "--episodes", "2", "--hidden", "16"],
    "ppo": "--steps 800 --evaluations 4 --episodes 2 --hidden 16 --rollout 25 --epochs 2".split(),
}
both = pytest.mark.parametrize("name", SCRIPTS)


def equal_trees(own, theirs, atol):
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def test_the_gradient_step_of_sac_is_that_of_the_carrier():
    config, rng = single_file_sac.Config(), np.random.default_rng(0)
    sizes = (2, 2)
    carrier = sac.Sac(*sizes, sac.SacConfig(config.hidden, config.batch))
    hyper = sac.SacHyper(config.actor_learning_rate, config.critic_learning_rate, config.gamma, config.tau)
    state = carrier.init(jax.random.key(1))
    networks = []
    for at, outputs in enumerate((4, 1)):
        layers = single_file_sac.init_network(jax.random.key(at), (sizes[0] * (1 + at), *config.hidden, outputs))
        theirs = jax.tree.leaves(state[0]) if at == 0 else [x[0] for x in jax.tree.leaves(state[1])]
        for own, other in zip(jax.tree.leaves(layers), theirs, strict=True):
            assert own.shape == other.shape
            if own.size > 50:  # draws of one law, uniform between the same bounds
                np.testing.assert_allclose(np.abs(own).max(), np.abs(other).max(), rtol=0.1)
        networks.append(jax.tree.structure(layers))
    actor, critic, target = (
        jax.tree.unflatten(networks[at], jax.tree.leaves(part)) for at, part in zip((0, 1, 1), state[:3], strict=True)
    )
    adam = single_file_sac.optax.adam(1.0)
    agent = single_file_sac.Agent(actor, critic, target, adam.init(actor), adam.init(critic))
    learn, update = quick(lambda *x: single_file_sac.learn(config, *x)), quick(carrier.update)
    for step, key in enumerate(jax.random.split(jax.random.key(3), 6)):
        obs, action, reward, next_obs = (
            rng.standard_normal((config.batch, *shape)).astype(np.float32) for shape in [(2,), (2,), (), (2,)]
        )
        batch = Transition(obs, np.tanh(action), reward, (reward > 1.0).astype(np.float32), next_obs)
        weight = jnp.float32(0.05 + 0.1 * step)
        agent, signals = learn(agent, batch, weight, jax.random.clone(key))
        state, reported, _ = update(state, batch, key, jnp.int32(step), entropy_weight=weight, hyper=hyper)
        equal_trees(agent[:3], state[:3], 1e-6)
        equal_trees(signals[:1], reported[:1], 1e-4)
        np.testing.assert_allclose(signals.log_prob, reported.log_prob, rtol=0, atol=1e-4)


def test_the_update_of_ppo_is_that_of_the_carrier():
    """Statistics of observations and rewards, advantages, and an epoch of minibatches."""
    config, rng = single_file_ppo.Config(rollout=32, num_envs=4), np.random.default_rng(0)
    t, n, s, a = config.rollout, config.num_envs, 3, 2
    carrier = ppo.Ppo(s, a, ppo.PpoConfig(t, config.epochs, config.minibatches, config.hidden, value_clip=False))
    hyper = ppo.PpoHyper(*(getattr(config, name) for name in ppo.PpoHyper._fields[:6]))
    state = carrier.init(jax.random.key(1), n)
    keys = jax.random.split(jax.random.key(2))
    params = {
        "log_std": jnp.zeros(a),
        "policy": single_file_ppo.init_network(keys[0], (s, *config.hidden, a), 0.01),
        "value": single_file_ppo.init_network(keys[1], (s, *config.hidden, 1), 1.0),
    }
    for own, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(state.params), strict=True):
        assert own.shape == theirs.shape
        np.testing.assert_allclose(jnp.linalg.norm(own), jnp.linalg.norm(theirs), rtol=1e-4)  # orthogonal, of one gain
    params = jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(state.params))
    adam = single_file_ppo.optimizer(config).init(params)
    agent = single_file_ppo.Agent(params, adam, tuple(state.obs_moments), tuple(state.return_moments), jnp.zeros(n))

    obs, action, next_obs = (3.0 * rng.standard_normal((t, n, size)).astype(np.float32) for size in (s, a, s))
    reward = 5.0 * rng.standard_normal((t, n)).astype(np.float32)
    terminated, truncated = (rng.uniform(size=(2, t, n)) < 0.1).astype(np.float32)
    truncated = truncated * (1.0 - terminated)
    rows = []
    for at in range(t):
        agent = agent._replace(obs_stats=single_file_ppo.merged(agent.obs_stats, obs[at]))
        state, seen = carrier.observe(state, obs[at])
        equal_trees(single_file_ppo.normalised(agent.obs_stats, obs[at]), seen, 1e-5)
        done = np.maximum(terminated[at], truncated[at])
        agent, own = single_file_ppo.scaled(config, agent, reward[at], done)
        state, scaled = carrier.scale_reward(state, reward[at], done, hyper)
        equal_trees(own, scaled, 1e-5)
        following = carrier.view(state, next_obs[at])
        rows.append(Rollout(seen, action[at], scaled, terminated[at], truncated[at], following))
    rollout = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    own, td_error = quick(lambda x: single_file_ppo.prepare(config, agent.params, x))(
        single_file_ppo.Rollout(*rollout[:6])
    )
    state, theirs, residuals = carrier.prepare(state, rollout, hyper)
    equal_trees(td_error, residuals, 1e-4)
    for field in own._fields:
        equal_trees(getattr(own, field), getattr(theirs, field), 1e-4)

    learn, update = quick(lambda *x: single_file_ppo.learn(config, *x)), quick(carrier.update)
    for step, places in enumerate(rng.permutation(t * n).reshape(config.minibatches, -1)):
        weight = jnp.float32(0.01 + 0.1 * step)
        batch = jax.tree.map(lambda x, places=places: x[places], (own, theirs))
        agent, signals = learn(agent, batch[0], weight)
        state, reported, _ = update(state, batch[1], entropy_weight=weight, hyper=hyper)
        equal_trees(agent.params, state.params, 1e-5)
        equal_trees((signals.log_prob, signals.reward), (reported.log_prob, reported.reward), 1e-4)


def test_the_statistics_of_ppo_are_those_of_the_carrier_after_16_million_rows():
    rows = 3.0 + np.random.default_rng(0).standard_normal((4096, 1, 2)).astype(np.float32)
    start = masks.empty((2,))._replace(count=jnp.float32(2**24 - 100), mean=jnp.full(2, 2.0))
    many = quick(
        lambda state, rows: jax.lax.scan(lambda s, row: (single_file_ppo.merged(s, row), None), state, rows)[0]
    )
    theirs = quick(lambda state, rows: jax.lax.scan(lambda s, row: (masks.merge(s, row), None), state, rows)[0])
    own, theirs = many(tuple(start), rows), theirs(start, rows)
    assert own[0] == theirs.count == 2**24
    np.testing.assert_allclose(
        own[1:3] - np.array([2.0, 1.0])[:, None], theirs[1:3] - np.array([2.0, 1.0])[:, None], rtol=0.01
    )
    assert np.all(own[1] > 2.0)


def test_a_minibatch_of_one_row_is_refused_by_ppo(tmp_path, capsys):
    out = tmp_path / "plot.png"
    assert single_file_ppo.main(["--out", str(out), "--rollout", "4", "--minibatches", "32"]) == 2
    assert "into parts of at least 2; got 32" in capsys.readouterr().err
    for option in ("rollout", "minibatches"):
        assert single_file_ppo.main(["--out", str(out), f"--{option}", "0"]) == 2
        assert capsys.readouterr().err == f"{option} must be at least 1; got 0\n"
    assert not out.exists()


@both
def test_no_program_calls_lapack_which_can_wait_for_itself_on_two_cores(name):
    script = SCRIPTS[name]
    seeds = jax.ShapeDtypeStruct((4,), jnp.int32)
    program = jax.jit(jax.vmap(script.make_train(script.Config(schedule="aes_r")))).lower(seeds)
    assert "lapack" not in program.as_text()


@pytest.mark.slow
@both
def test_a_short_sweep_ends_in_a_picture_and_a_table_of_curves(name, tmp_path, capsys):
    script, out = SCRIPTS[name], tmp_path / "plot.png"
    words = [*SHORT[name], "--seeds", "2", "--kappas", "0.01", "0.02", "--out", str(out)]
    assert script.main(words) == 0
    assert "aes(kappa=0.02): return " in capsys.readouterr().out
    with Image.open(out) as image:
        assert image.format == "PNG"
        assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 10  # not a blank page
    with (tmp_path / "plot.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["kappa"], row["seed"], row["step"]) for row in rows] == [
        (kappa, seed, step) for kappa in ("0.01", "0.02") for seed in "12" for step in ("200", "400", "600", "800")
    ]
    weights = np.array([float(row["entropy_weight"]) for row in rows]).reshape(2, 2, 4)
    assert np.all(weights[1, :, 2:] > weights[0, :, 2:])
    assert np.isfinite([float(row["evaluation_return"]) for row in rows]).all()

    kept = out.read_bytes()
    out.with_suffix(".csv").unlink()
    assert script.main(words) == 2
    assert "choose another file" in capsys.readouterr().err
    assert out.read_bytes() == kept


@pytest.mark.slow
@both
def test_it_trains_on_mujoco(name, tmp_path):
    out = tmp_path / "plot.png"
    assert SCRIPTS[name].main(["--task", "hopper", *SHORT[name], "--seeds", "2", "--out", str(out)]) == 0
    assert out.with_suffix(".csv").exists()


#: A schedule for every set of signals and of numbers of the run that a registered one reads.
READING = {(*required_signals(chosen(name)), *sorted(RUN.keys() & SCHEDULES[name].options)): name for name in SCHEDULES}


@both
@pytest.mark.parametrize("schedule", READING.values())
def test_every_registered_schedule_finds_its_signals(name, schedule):
    script = SCRIPTS[name]
    train = script.make_train(script.Config(schedule=schedule))
    curves = jax.eval_shape(train, 0)
    assert {values.shape for values in curves.values()} == {(script.Config().evaluations,)}


@as_schedule(needs=["true_drift"])
def counting(base):
    """A weight that shows the number of updates before it and the drift in the last of them."""

    def update(signals, state):
        count = state.count + 1
        return state._replace(weight=base + 1e-3 * count + signals.true_drift, count=count)

    return EntropySchedule(lambda: start(base), update)


def test_the_weight_follows_the_signals_one_step_later(registries):
    SCHEDULES["counting"] = counting
    script, steps = single_file_sac, 2000
    total = steps // script.Config.num_envs
    config = script.Config(schedule="counting", steps=steps, evaluations=total, episodes=1, seeds=2)
    weights = script.sweep(config)["entropy_weight"][0]
    env = envs.Drifting(envs.make("toy"), config.pattern, steps, num_envs=config.num_envs)
    changes = np.flatnonzero(jax.vmap(lambda step: env.truth_at(step).is_change_point)(jnp.arange(total)))
    assert len(changes) == 4
    updates = np.maximum(np.arange(total) - script.NEWEST // config.num_envs, 0)  # none in the warm-up
    drift = weights - (config.base + 1e-3 * updates)
    for each in drift:
        np.testing.assert_array_equal(np.flatnonzero(each > 1e-4), changes + 1)
    assert np.abs(np.delete(drift, changes + 1, axis=1)).max() < 1e-4


@pytest.mark.slow
@pytest.mark.learning
@both
def test_it_learns_the_task_until_it_changes_and_the_weight_of_aes_r_responds_to_the_change(name):
    script = SCRIPTS[name]
    config = script.Config(schedule="aes_r", seeds=1)
    returns, weights = (script.sweep(config)[curve][0] for curve in ("evaluation_return", "entropy_weight"))
    env = envs.Drifting(envs.make("toy"), config.pattern, config.steps, num_envs=config.num_envs)
    best = float(envs.optimal_return("toy")(env.truth_at(0).values[None])[0])
    change = config.evaluations // 5  # that evaluation is the first after the change
    assert np.all(returns[:, 0] < 0.8 * best)
    assert np.all(returns[:, change - 2] >= 0.9 * best)
    calm = weights[:, change // 2 : change - 1]  # it has learned the task
    assert np.all(calm < 1.5 * config.base)
    assert np.all(weights[:, change : change + 4].max(1) > 1.3 * calm.max(1))


@both
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--task tooy", "unknown task 'tooy'; did you mean 'toy'?"),
        ("--task grid", "task grid has discrete actions"),
        ("--pattern abrubt", "unknown pattern 'abrubt'; did you mean 'abrupt'?"),
        ("--schedule aes-r", "unknown schedule 'aes-r'; did you mean 'aes_r'?"),
        ("--schedule aes_r --kappas 0.1 0.2", "schedule 'aes_r' has no kappa"),
        ("--kappas 1 -1", "option 'kappa' of schedule 'aes' must be positive and finite; got -1"),
        ("--lambda-min 2", "option 'lambda_min' of schedule 'aes' must not exceed lambda_max"),
        ("--steps 1001", "steps must be a multiple of "),
        ("--evaluations 0", "evaluations must be at least 1; got 0"),
        ("--num-envs 0", "num_envs must be at least 1; got 0"),
        ("--episodes 0", "episodes must be at least 1; got 0"),
        ("--seeds -1", "seeds must be at least 1; got -1"),
    ],
)
def test_wrong_options_are_one_sentence_before_anything_is_trained(name, words, text, tmp_path, capsys):
    out = tmp_path / "plot.png"
    assert SCRIPTS[name].main(["--out", str(out), *words.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith(text)
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_the_sweep_prints_a_row_per_kappa_and_the_weight_grows_with_it(capsys):
    sweep.main(kappas=(0.03, 0.3), seeds=2, steps=800, evaluations=4)
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["kappa", "return", "+-", "weight"]
    assert [float(row[0]) for row in rows] == [0.03, 0.3]
    assert float(rows[0][3]) < float(rows[1][3])

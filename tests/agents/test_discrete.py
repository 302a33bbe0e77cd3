"""SAC, PPO and SQL with discrete actions: formulas against PyTorch, refusals, and learning on the task `grid`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from aesjax import Signals, auto
from agents import CARRIERS, make_train, ppo, sac, sql
from agents.common.networks import Categorical
from agents.discrete import DiscretePpo, DiscreteSac, DiscreteSql
from agents.train import learner_of
from envs.core import random_actions
from envs.toy.grid import optimal_return
from envs.world import World
from tests.agents.small import A, B, S, make_batch
from tests.programs import floats
from tests.quick import quick

WEIGHT, GAMMA, SCALE = 0.3, 0.9, 5.0


def batch_of(terminated=0.0):
    """Transitions (B,) with random one-hot actions."""
    choices = np.random.default_rng(1).integers(0, A, B)
    return make_batch(terminated=terminated)._replace(action=jax.nn.one_hot(choices, A))


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch derives the losses again")


def of_torch(torch, params):
    """Layers (weight, bias) of an MLP's parameters, with gradients."""
    layers = [layer for _, layer in sorted(params["params"].items())]
    tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.float64).requires_grad_()  # noqa: E731
    return [(tensor(layer["kernel"]), tensor(layer["bias"])) for layer in layers]


def forward(torch, layers, x):
    for kernel, bias in layers[:-1]:
        x = torch.relu(x @ kernel + bias)
    return x @ layers[-1][0] + layers[-1][1]


def critics(torch, params):
    """Both critics of stacked parameters."""
    (stacked,) = params["params"].values()
    return [of_torch(torch, {"params": jax.tree.map(lambda x, i=i: x[i], stacked)}) for i in range(2)]


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["open", "terminated"])
def stepped(request):
    """A discrete SAC whose target is not its online network, a batch, and its update."""
    carrier = DiscreteSac(S, A, sac.SacConfig(hidden=(8,), batch_size=B))
    state = quick(carrier.init)(jax.random.key(1))
    state = state._replace(target=jax.tree.map(lambda x: 0.7 * x, state.critic))
    hyper, batch = floats(sac.SacHyper(gamma=GAMMA)), batch_of(request.param)
    call = {"entropy_weight": jnp.float32(WEIGHT), "hyper": hyper}
    out = quick(carrier.update)(state, batch, jax.random.key(2), jnp.int32(0), **call)
    return carrier, state, batch, out


def test_the_losses_of_discrete_sac_are_those_of_a_derivation_in_pytorch(torch, stepped):
    carrier, state, batch, out = stepped
    obs, later = (torch.tensor(np.asarray(x), dtype=torch.float64) for x in (batch.obs, batch.next_obs))
    reward, ended = (torch.tensor(np.asarray(x), dtype=torch.float64) for x in (batch.reward, batch.terminated))
    chosen = torch.tensor(np.asarray(batch.action)).argmax(-1)
    actor, online = of_torch(torch, state.actor), critics(torch, state.critic)

    def value(layers, rows):
        policy = torch.distributions.Categorical(logits=forward(torch, actor, rows))
        least = torch.minimum(*(forward(torch, each, rows) for each in layers))
        return (policy.probs * (least - WEIGHT * policy.probs.log())).sum(-1), policy

    target = (reward + GAMMA * (1 - ended) * value(critics(torch, state.target), later)[0]).detach()
    errors = [target - forward(torch, each, obs).gather(1, chosen[:, None])[:, 0] for each in online]
    loss = (torch.stack(errors) ** 2).mean(-1).sum()
    np.testing.assert_allclose(out.metrics["critic_loss"], loss.item(), rtol=1e-5)
    np.testing.assert_allclose(out.signals.td_error, torch.cat(errors).detach(), atol=1e-5)

    updated, policy = value(critics(torch, out.state.critic), obs)
    policy_loss = -updated.mean()
    np.testing.assert_allclose(out.metrics["actor_loss"], policy_loss.item(), rtol=1e-5)
    policy_loss.backward()
    slope = quick(jax.grad(carrier.actor_loss))(state.actor, out.state.critic, batch.obs, None, jnp.float32(WEIGHT))
    for layer, (kernel, bias) in zip(sorted(slope["params"].items()), actor, strict=True):
        np.testing.assert_allclose(layer[1]["kernel"], kernel.grad, atol=1e-5)
        np.testing.assert_allclose(layer[1]["bias"], bias.grad, atol=1e-5)
    entropy = quick(carrier.entropy)(state, batch.obs, jax.random.key(0))
    np.testing.assert_allclose(entropy, policy.entropy().mean().item(), rtol=1e-5)


def test_the_tuning_reads_the_exact_entropy_and_aims_at_half_of_the_largest(stepped):
    carrier, _, batch, out = stepped
    entropy = quick(carrier.entropy)(out.state, batch.obs, jax.random.key(0))
    np.testing.assert_allclose(-np.mean(out.signals.log_prob), entropy, rtol=1e-5)
    world = World(envs.make("grid"), 2_000)
    learner = learner_of(
        CARRIERS["sac"], world, {}, None, num_envs=1, evaluations=4, replay=500, warmup=500, episodes=1
    )
    aim = learner.facts["target_entropy"]
    assert aim == pytest.approx(0.5 * math.log(5))
    schedule = auto(target_entropy=aim)
    weights = [
        schedule.update(Signals(log_prob=-jnp.full(8, entropy)), schedule.init()).weight
        for entropy in (0.4 * math.log(5), 0.6 * math.log(5))
    ]
    assert weights[0] > 1.0 > weights[1]


def test_soft_q_learning_has_the_exact_value_and_policy():
    carrier = DiscreteSql(S, A, sql.SqlConfig(hidden=(8,), batch_size=B))
    state, batch = quick(carrier.init)(jax.random.key(1)), batch_of()
    state = state._replace(target=jax.tree.map(lambda x: 0.7 * x, state.critic))
    call = {"entropy_weight": jnp.float32(WEIGHT), "hyper": floats(sql.SqlHyper(gamma=GAMMA, reward_scale=SCALE))}
    error = quick(carrier.td_error)(state, batch, jax.random.key(0), **call).reshape(2, B)
    later, now = carrier.all_values(state.target, batch.next_obs), carrier.all_values(state.critic, batch.obs)
    least = np.asarray(later, np.float64).min(0) / SCALE
    value = WEIGHT * np.log(np.exp(least / WEIGHT).sum(-1))
    picked = np.take_along_axis(np.asarray(now), np.argmax(batch.action, -1)[None, :, None], 2)[..., 0] / SCALE
    np.testing.assert_allclose(error, np.asarray(batch.reward) + GAMMA * value - picked, atol=1e-5)
    q = quick(carrier.q_value)(state, batch.obs, batch.action, **call)
    np.testing.assert_allclose(q, picked, atol=1e-5)

    out = quick(carrier.update)(state, batch, jax.random.key(0), jnp.int32(0), **call)
    new = out.state
    entropy = quick(carrier.entropy)(new, batch.obs, jax.random.key(0))
    np.testing.assert_allclose(-np.mean(out.signals.log_prob), entropy, rtol=1e-5)  # so that its weight can be tuned
    least = np.asarray(carrier.all_values(new.critic, batch.obs), np.float64).min(0) / SCALE
    probability = np.exp(least / WEIGHT) / np.exp(least / WEIGHT).sum(-1, keepdims=True)
    np.testing.assert_allclose(jax.nn.softmax(carrier.policy(new, batch.obs).logits), probability, atol=1e-5)


def test_the_categorical_policy_is_that_of_pytorch(torch):
    logits = np.random.default_rng(0).normal(size=(B, A)).astype(np.float32)
    ours, theirs = Categorical(jnp.asarray(logits)), torch.distributions.Categorical(logits=torch.tensor(logits))
    action = batch_of().action
    chosen = torch.tensor(np.asarray(action)).argmax(-1)
    np.testing.assert_allclose(ours.log_prob(action), theirs.log_prob(chosen), atol=1e-6)
    weight = (np.arange(B) % 2).astype(np.float32)
    np.testing.assert_allclose(ours.entropy(), theirs.entropy().mean(), atol=1e-6)
    np.testing.assert_allclose(ours.entropy(jnp.asarray(weight)), theirs.entropy()[1::2].mean(), atol=1e-6)
    draws = jax.vmap(ours.sample)(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(jnp.mean(draws, 0), theirs.probs, atol=0.05)
    np.testing.assert_array_equal(jnp.argmax(ours.mode(), -1), theirs.probs.argmax(-1))


def test_ppo_has_no_width_and_its_bonus_is_the_mean_entropy():
    carrier = DiscretePpo(S, A, ppo.PpoConfig(rollout=8, minibatches=1, hidden=(8,)))
    state = quick(carrier.init, static_argnums=1)(jax.random.key(0), 1)
    assert set(state.params["params"]) == {"policy", "value"}
    policy, value = carrier.apply(state.params, batch_of().obs)
    assert value.shape == (B,)
    np.testing.assert_allclose(policy.entropy(), math.log(A), rtol=1e-3)  # the gain of its last layer is 0.01


def test_random_actions_are_one_hot_and_uniform():
    actions = np.asarray(random_actions(envs.make("grid").env.spec, jax.random.key(0), 5_000))
    assert set(np.unique(actions)) == {0.0, 1.0}
    assert np.all(actions.sum(-1) == 1)
    np.testing.assert_allclose(actions.mean(0), 0.2, atol=0.02)


def test_a_carrier_of_continuous_actions_refuses_in_a_sentence():
    with pytest.raises(ValueError, match="MEow takes no discrete actions, as of task 'grid'; SAC, PPO, SQL") as error:
        make_train("grid", "meow", steps=8_000)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "ppo", "sql"])
def test_learns_the_optimum_of_the_grid(name):
    sizes: dict[str, Any] = {"rollout": 50, "minibatches": 4} if name == "ppo" else {"batch_size": 64, "tau": 0.01}
    sizes |= {"critic_learning_rate": 1e-3} if name == "sql" else {}
    train = make_train(
        "grid", name, steps=8_000, evaluations=4, episodes=50, hidden=(64, 64), learning_rate=1e-3, gamma=0.97,
        **sizes,
    )  # fmt: skip
    _, curves = jax.jit(train)(3, None if name == "ppo" else 0.05)
    assert curves["return_mean"][-1] > 0.9 * optimal_return(jnp.array([[0.0, 0.0, 0.1]]))[0]

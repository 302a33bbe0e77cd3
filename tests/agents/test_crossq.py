"""CrossQ: one update against a derivation of its equations in PyTorch, and what it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.crossq import CrossQ, CrossQConfig, CrossQHyper
from tests.agents.small import A, B, S, make_batch
from tests.experiments.configs import config_of
from tests.programs import floats
from tests.quick import quick

WEIGHT, GAMMA, AFTER = 0.3, 0.9, 3
R_MAX, D_MAX, EPSILON, MOMENTUM, BETA1 = 3.0, 5.0, 1e-3, 0.99, 0.5  # published
CARRIER = CrossQ(S, A, CrossQConfig(hidden=(8, 6), batch_size=B, policy_delay=1))
HYPER = floats(CrossQHyper(gamma=GAMMA, renorm_after=AFTER))
UPDATE = quick(CARRIER.update)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch derives the update again")


def updated(state, index):
    given = {"entropy_weight": jnp.float32(WEIGHT), "hyper": HYPER}
    return UPDATE(state, make_batch(index), jax.random.key(index), jnp.int32(0), **given)


class Net:
    """A network of our parameters in float64, by the equations of Ioffe 2017 and Bhatt et al. 2024."""

    def __init__(self, torch, params, stats):
        self.torch, self.stats, self.new = torch, stats, {}
        tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)  # noqa: E731
        self.params = jax.tree.map(tensor, params)

    def norm(self, index, x, batch, corrected):
        name = f"BatchRenorm_{index}"
        own = self.params[name]
        mean, var = (self.torch.tensor(np.asarray(self.stats[name][part])).double() for part in ("mean", "var"))
        sigma = (var + EPSILON).sqrt()
        if not batch:
            return own["scale"] * (x - mean) / sigma + own["bias"]
        mean_b, var_b = x.mean(0), x.var(0, unbiased=False)
        sigma_b = (var_b + EPSILON).sqrt()
        r = (sigma_b / sigma).clamp(1 / R_MAX, R_MAX).detach() if corrected else 1.0
        d = ((mean_b - mean) / sigma).clamp(-D_MAX, D_MAX).detach() if corrected else 0.0
        kept = lambda old, new: (MOMENTUM * old + (1 - MOMENTUM) * new).detach()  # noqa: E731
        self.new[name] = {"mean": kept(mean, mean_b), "var": kept(var, var_b)}
        return own["scale"] * ((x - mean_b) / sigma_b * r + d) + own["bias"]

    def __call__(self, x, batch=False, corrected=False):
        layers = sum(name.startswith("Dense") for name in self.params)
        for index in range(layers):
            x = self.norm(index, x, batch, corrected)
            x = x @ self.params[f"Dense_{index}"]["kernel"] + self.params[f"Dense_{index}"]["bias"]
            x = self.torch.relu(x) if index + 1 < layers else x
        return x

    def sample(self, obs, noise, **how):
        mean, rho = self(obs, **how).chunk(2, -1)
        log_std = -5 + 3.5 * (self.torch.tanh(rho) + 1)
        u = mean + log_std.exp() * noise
        normal = self.torch.distributions.Normal(mean, log_std.exp()).log_prob(u)
        squash = 2 * (np.log(2) - u - self.torch.nn.functional.softplus(-2 * u))
        return self.torch.tanh(u), (normal - squash).sum(-1)


def nets_of(torch, state):
    """The actor and both critics."""
    critic, stats = (state.critic[part]["VmapMLP_0"] for part in ("params", "batch_stats"))
    nets = [Net(torch, *(state.actor[part] for part in ("params", "batch_stats")))]
    return nets + [Net(torch, *(jax.tree.map(lambda x, i=i: x[i], tree) for tree in (critic, stats))) for i in range(2)]


def close(ours, theirs, atol=1e-5):
    for path, leaf in jax.tree_util.tree_leaves_with_path(ours):
        other = theirs
        for part in path:
            other = other[part.key]
        np.testing.assert_allclose(leaf, other.detach().numpy(), atol=atol, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("before", [1, AFTER + 1], ids=["normalisation", "renormalisation"])
def test_an_update_is_that_of_a_derivation_in_pytorch(torch, before):
    state = CARRIER.init(jax.random.key(1))
    for index in range(before):
        state = updated(state, index).state
    out, batch = updated(state, 100), make_batch(100)
    noise = torch.tensor(np.asarray(jax.random.normal(jax.random.key(100), (3, B, A)))).double()
    obs, action, reward, ended, later = (torch.tensor(np.asarray(x)).double() for x in batch)
    actor, *online = nets_of(torch, state)
    how = {"batch": True, "corrected": before >= AFTER}

    next_action, next_log_prob = actor.sample(later, noise[0])
    pairs = torch.cat([torch.cat([obs, action], -1), torch.cat([later, next_action.detach()], -1)])
    q, next_q = torch.stack([net(pairs, **how).squeeze(-1) for net in online]).chunk(2, -1)
    target = (reward + GAMMA * (1 - ended) * (next_q.min(0).values - WEIGHT * next_log_prob)).detach()
    loss = ((target - q) ** 2).mean(-1).sum()
    loss.backward()
    np.testing.assert_allclose(out.metrics["critic_loss"], loss.item(), rtol=1e-5)
    np.testing.assert_allclose(out.signals.td_error, (target - q).detach().flatten(), atol=1e-5)
    for i, net in enumerate(online):
        first, now = (each.critic_opt.mu["params"]["VmapMLP_0"] for each in (state, out.state))
        slope = jax.tree.map(lambda new, old, i=i: (new[i] - BETA1 * old[i]) / (1 - BETA1), now, first)
        close(slope, jax.tree.map(lambda p: p.grad, net.params))
        close(jax.tree.map(lambda x, i=i: x[i], out.state.critic["batch_stats"]["VmapMLP_0"]), net.new)

    _, *online = nets_of(torch, out.state)
    fresh, log_prob = actor.sample(obs, noise[2], **how)
    least = torch.stack([net(torch.cat([obs, fresh], -1)).squeeze(-1) for net in online]).min(0).values
    for parameter in jax.tree.leaves(actor.params):
        parameter.grad = None
    actor_loss = (WEIGHT * log_prob - least).mean()
    actor_loss.backward()
    np.testing.assert_allclose(out.metrics["actor_loss"], actor_loss.item(), atol=1e-5)
    first, now = (each.actor_opt.mu["params"] for each in (state, out.state))
    close(jax.tree.map(lambda new, old: (new - BETA1 * old) / (1 - BETA1), now, first),
          jax.tree.map(lambda p: p.grad, actor.params))  # fmt: skip
    close(out.state.actor["batch_stats"], actor.new)


def test_the_actor_makes_one_step_when_it_is_due():
    carrier = CrossQ(S, A, CrossQConfig(hidden=(8, 6), batch_size=B))
    given = {"entropy_weight": jnp.float32(WEIGHT), "hyper": HYPER}
    state, update = carrier.init(jax.random.key(1)), quick(carrier.update)
    for at, steps in ((3, 1), (4, 0)):
        after = update(state, make_batch(), jax.random.key(0), jnp.int32(at), **given).state
        assert (int(after.actor_opt.count), int(after.critic_opt.count), int(after.updates)) == (steps, 1, 1)


def test_a_study_gives_it_the_base_of_sac():
    config = config_of(task="hopper", carriers="sac,crossq", schedules="fixed", preset="mujoco-paper", engine="mujoco")
    ours, theirs = config.settings["crossq"], config.settings["sac"]
    assert ours.base == theirs.base

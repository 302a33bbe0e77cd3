"""PPO with a drift-aware entropy weight in one file, to copy into your own project and change.

Usage: python experiments/single_file_ppo.py --pattern abrupt --schedule aes --kappas 0.01 0.03 --seeds 5

Contents: options, networks, one gradient step, evaluation, one run, the sweep and its files. Numbered comments mark the
five places where an entropy schedule replaces a constant entropy coefficient.
"""

import csv
import itertools
import sys
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import tyro
from matplotlib.figure import Figure

import envs
from aesjax import SCHEDULES, Signals, aes, jit  # 1


@dataclass(frozen=True)
class Config:
    """PPO on a drifting task. Each seed has its own drift, which all schedules and kappas share."""

    task: str = "toy"  # in JAX (toy, pendulum, reacher, ...) or MuJoCo (hopper, halfcheetah, ...): `aesjax list`
    pattern: str = "abrupt"  # drift: steady, abrupt, linear, periodic or mixed
    schedule: str = "aes"  # of the entropy weight: aes, aes_r, aes_c, auto, fixed, ... (`aesjax list`)
    kappa: float = 1.0  # of aes: factor of the square root of the mean drift proxy
    kappas: tuple[float, ...] = ()  # several values of kappa, trained together; empty: kappa alone
    beta: float = 0.95  # of aes: decay of the moving average of the proxy
    q: float = 0.9  # the proxy is the q-quantile of the absolute TD errors of a rollout
    lambda_min: float = 1e-4  # smallest entropy weight, reward per nat
    lambda_max: float = 0.1  # largest entropy weight, reward per nat
    base: float = 0.01  # the weight of fixed, the base of aes_r, the first weight of aes; reward per nat
    learning_rate: float = 1e-3
    gamma: float = 0.97  # discount
    gae_lambda: float = 0.95
    clip: float = 0.2  # of the probability ratio
    value_coef: float = 0.5  # weight of the value loss
    max_norm: float = 0.5  # of the gradient
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    num_envs: int = 8  # parallel environments
    rollout: int = 125  # steps of every environment between updates
    epochs: int = 10  # passes over a rollout
    minibatches: int = 4  # gradient steps of an epoch
    seeds: int = 5
    steps: int = 100_000  # environment steps per run, over all parallel environments
    evaluations: int = 50
    episodes: int = 10  # of an evaluation
    out: Path = Path("single_file_ppo.png")  # the plot; the curves have the same name with .csv

    @property
    def methods(self):
        """Values of kappa that are trained together, by their names in tables."""
        if "kappa" not in SCHEDULES[self.schedule].options:
            return {self.schedule: self.kappa}
        return {f"{self.schedule}(kappa={kappa:g})": kappa for kappa in self.kappas or (self.kappa,)}


Rollout = namedtuple("Rollout", "obs action reward terminated truncated next_obs")  # (T, N, ...); next_obs: no reset
Rows = namedtuple("Rows", "obs action log_prob advantage target reward")  # (T * N, ...) or those of a minibatch
Agent = namedtuple("Agent", "params adam obs_stats return_stats discounted")  # discounted: running returns (N,)
Run = namedtuple("Run", "obs env agent schedule")  # the carry of the scan


def entropy_schedule(config, kappa, updates, actions):
    """The schedule of a run: `aes`, or another schedule by name."""
    options = {"kappa": kappa, "beta": config.beta, "q": config.q, "base": config.base}
    options |= {"lambda_min": config.lambda_min, "lambda_max": config.lambda_max}
    if config.schedule == "aes":
        return aes(**options)
    factory = SCHEDULES[config.schedule]
    options |= {"updates": updates, "target_entropy": -float(actions), "action_size": actions}
    return factory(**{name: options[name] for name in factory.options if name in options})


def orthogonal(key, inputs, outputs):
    """A random matrix (inputs, outputs) of orthonormal columns, or rows where there are fewer.

    By Gram-Schmidt, twice for float32: LAPACK's QR, which `jax.nn.initializers.orthogonal` calls, waits for threads
    that wait for it, for ever, where two of them run at once on a CPU of two cores.
    """
    normal = jr.normal(key, (max(inputs, outputs), min(inputs, outputs)))

    def next_column(at, basis):
        column = normal[:, at]
        for _ in range(2):
            column = column - basis @ (basis.T @ column)
        return basis.at[:, at].set(column / jnp.linalg.norm(column))

    basis = jax.lax.fori_loop(0, normal.shape[1], next_column, jnp.zeros_like(normal))
    return basis if inputs >= outputs else basis.T


def init_network(key, sizes, gain):
    """Orthogonal weights, of gain sqrt(2) between the layers and ``gain`` at the end; zero biases."""
    layers = []
    for at, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        kernel = (gain if at == len(sizes) - 2 else 2**0.5) * orthogonal(jr.fold_in(key, at), inputs, outputs)
        layers.append({"bias": jnp.zeros(outputs), "kernel": kernel})
    return layers


def network(layers, x):
    """Outputs (B, O) for inputs (B, I), with tanh between the layers."""
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["kernel"] + layer["bias"][None])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"][None]


def log_prob_of(params, obs, action):
    """Log-densities (B,) of the Gaussian policy, before its samples are clipped to [-1, 1]."""
    noise = (action - network(params["policy"], obs)) / jnp.exp(params["log_std"])[None]
    return -jnp.sum(0.5 * noise**2 + 0.5 * jnp.log(2.0 * jnp.pi) + params["log_std"][None], axis=-1)


def merged(stats, values):
    """Count (at most 2^24), mean, variance and their rounding errors after another batch (Chan et al. 1979)."""
    count, mean, var, lost = stats
    size, delta = values.shape[0], jnp.mean(values, axis=0) - mean
    step = jnp.stack([delta, jnp.var(values, axis=0) - var + delta**2 * count / (count + size)])
    before, step = jnp.stack([mean, var]), step * size / (count + size) - lost
    after = before + step
    return jnp.minimum(count + size, 2.0**24), *after, (after - before) - step  # Kahan: late steps are below rounding


def normalised(stats, obs):
    """Observations (B, S) in standard deviations from their mean, within +-10."""
    _, mean, var, _ = stats
    return jnp.clip((obs - mean[None]) / jnp.sqrt(var + 1e-8)[None], -10.0, 10.0)


def scaled(config, agent, reward, done):
    """Updated agent, and rewards (N,) in standard deviations of the discounted return, within +-10."""
    discounted = config.gamma * agent.discounted + reward
    stats = merged(agent.return_stats, discounted)
    agent = agent._replace(return_stats=stats, discounted=discounted * (1.0 - done))
    return agent, jnp.clip(reward / jnp.sqrt(stats[2] + 1e-8), -10.0, 10.0)


def prepare(config, params, rollout):
    """Rows (T * N,) with generalised advantages, and the TD errors (T * N,) of a rollout."""
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)
    value, next_value = (network(params["value"], obs)[:, 0] for obs in (rows.obs, rows.next_obs))
    td_error = rows.reward + config.gamma * (1.0 - rows.terminated) * next_value - value
    going_on = 1.0 - jnp.maximum(rollout.terminated, rollout.truncated)  # (T, N)

    def backwards(later, now):
        td_error, going_on = now
        advantage = td_error + config.gamma * config.gae_lambda * going_on * later
        return advantage, advantage

    inputs = (td_error.reshape(going_on.shape), going_on)
    advantage = jax.lax.scan(backwards, jnp.zeros(going_on.shape[1]), inputs, reverse=True)[1].ravel()
    log_prob = log_prob_of(params, rows.obs, rows.action)
    reward = rows.reward / (jnp.std(advantage, ddof=1) + 1e-8)  # the scale of the entropy bonus
    return Rows(rows.obs, rows.action, log_prob, advantage, advantage + value, reward), td_error


def optimizer(config):
    """Adam after clipping the gradient's norm."""
    return optax.chain(optax.clip_by_global_norm(config.max_norm), optax.adam(config.learning_rate, eps=1e-5))


def learn(config, agent, rows, weight):
    """One gradient step on a minibatch; the agent, and the schedule's signals."""
    advantage = (rows.advantage - jnp.mean(rows.advantage)) / (jnp.std(rows.advantage, ddof=1) + 1e-8)

    def loss(params):
        ratio = jnp.exp(log_prob_of(params, rows.obs, rows.action) - rows.log_prob)
        clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
        actor_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        value_loss = jnp.mean((network(params["value"], rows.obs)[:, 0] - rows.target) ** 2)
        entropy = jnp.sum(0.5 + 0.5 * jnp.log(2.0 * jnp.pi) + params["log_std"])
        return actor_loss + config.value_coef * value_loss - weight * entropy, entropy  # the weight enters here

    grads, entropy = jax.grad(loss, has_aux=True)(agent.params)
    change, adam = optimizer(config).update(grads, agent.adam)
    agent = agent._replace(params=optax.apply_updates(agent.params, change), adam=adam)
    return agent, Signals(log_prob=-entropy[None], reward=rows.reward)


def evaluate(config, agent, env, clock, key):
    """Mean return () of the deterministic policy under the drift at vector step ``clock``."""
    key, task_params = jr.fold_in(key, clock), env.params_at(clock)

    def going_on(carry):
        _, _, alive, _, time = carry
        return (time < env.world.time_limit) & jnp.any(alive > 0.0)

    def step(carry):
        obs, state, alive, total, time = carry
        action = jnp.clip(network(agent.params["policy"], normalised(agent.obs_stats, obs)), -1.0, 1.0)
        obs, state, reward, terminated, *_ = env.world.step(jr.fold_in(key, time), state, action, task_params)
        return obs, state, alive * (1.0 - terminated), total + alive * reward, time + 1

    obs, state = env.world.reset(jr.fold_in(key, env.world.time_limit), config.episodes, task_params)
    start = (obs, state, jnp.ones(config.episodes), jnp.zeros(config.episodes), jnp.int32(0))
    return jnp.mean(jax.lax.while_loop(going_on, step, start)[3])


def check(config):
    """Raise UnknownNameError or ValueError, one sentence, for invalid options."""
    for name in ("steps", "num_envs", "rollout", "epochs", "minibatches", "seeds", "evaluations", "episodes"):
        if (count := getattr(config, name)) < 1:
            raise ValueError(f"{name} must be at least 1; got {count}")
    size = config.num_envs * config.rollout
    if size % config.minibatches or size == config.minibatches:  # one row has no standard deviation
        limits = f"divide the {size} transitions of a rollout into parts of at least 2"
        raise ValueError(f"minibatches must {limits}; got {config.minibatches}")
    if config.steps % (size * config.evaluations):
        unit = f"{size} transitions of a rollout x {config.evaluations} evaluations"
        raise ValueError(f"steps must be a multiple of {unit}; got {config.steps}")
    if config.kappas and "kappa" not in SCHEDULES[config.schedule].options:
        raise ValueError(f"schedule '{config.schedule}' has no kappa, so kappas must be empty; got {config.kappas}")


def make_train(config):
    """``train(seed, kappa)``: the curves (evaluations,) of one run, as a pure function to `jit` and `vmap`."""
    check(config)
    task = envs.make(config.task)
    n, observations, actions = config.num_envs, task.env.spec.obs_size, task.env.spec.action_size
    if task.env.spec.discrete:
        raise ValueError(f"task {config.task} has discrete actions, of which this file has no policy; use aesjax run")
    size, per_rollout = n * config.rollout, config.epochs * config.minibatches
    rollouts = config.steps // size
    for kappa in config.methods.values():
        entropy_schedule(config, kappa, rollouts * per_rollout, actions)  # raises for invalid values
    envs.Drifting(task, config.pattern, config.steps, num_envs=n)  # raises for invalid values

    def train(seed, kappa=config.kappa):
        env = envs.Drifting(task, config.pattern, config.steps, drift_seed=seed, num_envs=n)
        schedule = entropy_schedule(config, kappa, rollouts * per_rollout, actions)  # 2, was: ent_coef

        def one_step(run, _):
            key_noise, key_env = jr.split(jr.fold_in(key_steps, run.env.clock))
            agent = run.agent._replace(obs_stats=merged(run.agent.obs_stats, run.obs))
            obs = normalised(agent.obs_stats, run.obs)
            std = jnp.exp(agent.params["log_std"])[None]
            action = network(agent.params["policy"], obs) + std * jr.normal(key_noise, (n, actions))
            next_obs, env_state, reward, terminated, truncated, info = env.step(
                key_env, run.env, jnp.clip(action, -1.0, 1.0)
            )
            terminated, truncated = terminated.astype(float), truncated.astype(float)
            agent, small = scaled(config, agent, reward, jnp.maximum(terminated, truncated))
            final_obs = normalised(agent.obs_stats, info["final_observation"])
            row = Rollout(obs, action, small, terminated, truncated, final_obs)
            return Run(next_obs, env_state, agent, run.schedule), (row, reward, info["drift"].change)

        def one_rollout(run, _):
            run, (rollout, reward, change) = jax.lax.scan(one_step, run, length=config.rollout)
            rows, td_error = prepare(config, run.agent.params, rollout)

            def minibatch(carry, places):
                agent, state = carry
                agent, signals = learn(config, agent, jax.tree.map(lambda x: x[places], rows), state.weight)  # 3
                signals = signals._replace(td_error=td_error, fresh_td_error=td_error)  # 4
                signals = signals._replace(online_reward=jnp.mean(reward))
                signals = signals._replace(true_drift=jnp.sum(change) / per_rollout)  # for the reference `oracle` alone
                after = schedule.update(signals, state)  # 5
                return (agent, after), (state.weight, after.logs.proxy)

            keys = jr.split(jr.fold_in(key_order, run.env.clock), config.epochs)
            order = jax.vmap(lambda key: jr.permutation(key, size))(keys).reshape(per_rollout, -1)
            (agent, state), logs = jax.lax.scan(minibatch, (run.agent, run.schedule), order)
            return run._replace(agent=agent, schedule=state), logs

        def until_evaluation(run, _):
            run, (weights, proxies) = jax.lax.scan(one_rollout, run, length=rollouts // config.evaluations)
            return run, {
                "evaluation_return": evaluate(config, run.agent, env, run.env.clock, key_test),
                "entropy_weight": jnp.mean(weights),  # since the evaluation before
                "proxy": jnp.mean(proxies),
            }

        key_env, key_policy, key_value, key_steps, key_order, key_test = jr.split(jr.key(seed), 6)
        params = {
            "policy": init_network(key_policy, (observations, *config.hidden, actions), gain=0.01),
            "value": init_network(key_value, (observations, *config.hidden, 1), gain=1.0),
            "log_std": jnp.zeros(actions),
        }
        obs_stats, return_stats = (
            (jnp.float32(1e-4), jnp.zeros(shape), jnp.ones(shape), jnp.zeros((2, *shape)))
            for shape in ((observations,), ())
        )
        agent = Agent(params, optimizer(config).init(params), obs_stats, return_stats, jnp.zeros(n))
        run = Run(*env.reset(key_env), agent, schedule.init())
        return jax.lax.scan(until_evaluation, run, length=config.evaluations)[1]

    return train


def sweep(config):
    """All seeds and kappas in one compiled program: curves (kappas, seeds, evaluations)."""
    seeds, kappas = jnp.arange(1, config.seeds + 1), jnp.array(list(config.methods.values()))
    train = make_train(config)
    train = jax.vmap(train, in_axes=(0, None))  # over seeds
    train = jax.vmap(train, in_axes=(None, 0))  # over kappas
    return jax.tree.map(np.asarray, jit(train)(seeds, kappas))


def write(config, curves):
    """Write one row per kappa, seed and evaluation, as .csv with the name of the plot."""
    methods, interval = list(config.methods.items()), config.steps // config.evaluations
    with config.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "kappa", "seed", "step", *curves])
        for k, seed, at in np.ndindex(curves["proxy"].shape):
            row = [*methods[k], seed + 1, (at + 1) * interval]
            writer.writerow([*row, *(float(values[k, seed, at]) for values in curves.values())])


def plot(config, curves):
    """Means over seeds, with a band from the lowest seed to the highest; dashed: changes of the drift."""
    env = envs.Drifting(envs.make(config.task), config.pattern, config.steps, num_envs=config.num_envs)
    changes = jax.vmap(lambda step: env.truth_at(step).is_change_point)(jnp.arange(env.world.total))
    steps = np.linspace(0, config.steps, config.evaluations + 1)[1:]
    figure = Figure(figsize=(7, 5), layout="constrained")
    for axis, name in zip(figure.subplots(2, sharex=True), ("evaluation_return", "entropy_weight"), strict=True):
        for method, values in zip(config.methods, curves[name], strict=True):
            axis.plot(steps, values.mean(0), label=method)
            axis.fill_between(steps, values.min(0), values.max(0), alpha=0.2, linewidth=0)
        for change in config.num_envs * np.flatnonzero(changes):
            axis.axvline(change, color="grey", linestyle="--", linewidth=0.8)
        axis.set_ylabel(name.replace("_", " "))
    figure.axes[0].legend()
    figure.supxlabel(f"environment steps (PPO, {config.task}, {config.pattern}, {config.seeds} seeds)")
    figure.savefig(config.out, format="png", dpi=120)


def main(argv=None):
    """Train, write the CSV and the plot, print the means; exit code 2 and one sentence for wrong options."""
    try:
        config = tyro.cli(Config, args=argv)
        table = config.out.with_suffix(".csv")
        if config.out.exists() or table.exists() or table == config.out or not config.out.parent.is_dir():
            raise ValueError(f"--out {config.out}, or its .csv, exists or has no folder; choose another file")
        make_train(config)
    except (KeyError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    curves = sweep(config)
    write(config, curves)
    plot(config, curves)
    for k, method in enumerate(config.methods):
        returns, weight = curves["evaluation_return"][k], curves["entropy_weight"][k].mean()
        print(f"{method}: return {returns.mean():.1f}, at the end {returns[:, -1].mean():.1f}; weight {weight:.3g}")
    print(f"plot: {config.out}; curves: {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

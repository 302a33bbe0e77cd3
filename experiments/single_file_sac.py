"""SAC with a drift-aware entropy weight in one file, to copy into your own project and change.

Usage: python experiments/single_file_sac.py --pattern abrupt --schedule aes --kappas 0.03 0.1 0.3 --seeds 5

Contents: options, networks, one gradient step, evaluation, one run, the sweep and its files. Numbered comments mark the
eight places where an entropy schedule replaces SAC's tuning of the weight.
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
from aesjax import SCHEDULES, Signals, aes, fresh_residuals, jit  # 1


@dataclass(frozen=True)
class Config:
    """SAC on a drifting task. Each seed has its own drift, which all schedules and kappas share."""

    task: str = "toy"  # in JAX (toy, pendulum, reacher, ...) or MuJoCo (hopper, halfcheetah, ...): `aesjax list`
    pattern: str = "abrupt"  # drift: steady, abrupt, linear, periodic or mixed
    schedule: str = "aes"  # of the entropy weight: aes, aes_r, aes_c, auto, fixed, ... (`aesjax list`)
    kappa: float = 1.0  # of aes: factor of the square root of the mean drift proxy
    kappas: tuple[float, ...] = ()  # several values of kappa, trained together; empty: kappa alone
    beta: float = 0.95  # of aes: decay of the moving average of the proxy
    q: float = 0.9  # the proxy is the q-quantile of the absolute TD errors
    lambda_min: float = 1e-4  # smallest entropy weight, reward per nat
    lambda_max: float = 1.0  # largest entropy weight, reward per nat
    base: float = 0.05  # the weight of fixed, the base of aes_r, the first weight of aes; reward per nat
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    gamma: float = 0.97  # discount
    tau: float = 0.01  # step of the target critics towards the critics
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    batch: int = 128  # transitions of a gradient step
    num_envs: int = 1  # parallel environments; one gradient step per step of all of them
    replay: float = 0.05  # share of the run's transitions in the replay; a longer one delays the response to drift
    warmup: float = 0.01  # share of the run with random actions, at least 128 transitions
    seeds: int = 5
    steps: int = 20_000  # environment steps per run, over all parallel environments
    evaluations: int = 50
    episodes: int = 10  # of an evaluation
    out: Path = Path("single_file_sac.png")  # the plot; the curves have the same name with .csv

    @property
    def methods(self):
        """Values of kappa that are trained together, by their names in tables."""
        if "kappa" not in SCHEDULES[self.schedule].options:
            return {self.schedule: self.kappa}
        return {f"{self.schedule}(kappa={kappa:g})": kappa for kappa in self.kappas or (self.kappa,)}


NEWEST = 128  # newest transitions, whose TD errors a schedule such as aes_r reads
RING = fresh_residuals(NEWEST, critics=2)  # 2
Transition = namedtuple("Transition", "obs action reward terminated next_obs")  # next_obs: before any reset
Agent = namedtuple("Agent", "actor critic target actor_adam critic_adam")  # critic, target: two networks, stacked
Run = namedtuple("Run", "obs env replay agent newest schedule")  # 3, the carry of the scan


def entropy_schedule(config, kappa, updates, actions):
    """The schedule of a run: `aes`, or another schedule by name."""
    options = {"kappa": kappa, "beta": config.beta, "q": config.q, "base": config.base}
    options |= {"lambda_min": config.lambda_min, "lambda_max": config.lambda_max}
    if config.schedule == "aes":
        return aes(**options)
    factory = SCHEDULES[config.schedule]
    options |= {"updates": updates, "target_entropy": -float(actions), "action_size": actions}
    return factory(**{name: options[name] for name in factory.options if name in options})


def init_network(key, sizes):
    """Weights and biases of all layers, uniform in +-1/sqrt(inputs)."""
    layers = []
    for at, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        uniform = jr.uniform(jr.fold_in(key, at), (inputs + 1, outputs), minval=-(inputs**-0.5), maxval=inputs**-0.5)
        layers.append({"bias": uniform[0], "kernel": uniform[1:]})
    return layers


def network(layers, x):
    """Outputs (B, O) for inputs (B, I), with ReLU between the layers."""
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"][None]


def q_values(critics, obs, action):
    """Both critics' values (2, B)."""
    return jax.vmap(network, (0, None))(critics, jnp.hstack([obs, action]))[..., 0]


def policy(actor, obs, noise):
    """Actions (B, A) of the tanh-Gaussian policy from normal noise, and their log-densities (B,); noise 0: the mode."""
    mean, raw = jnp.split(network(actor, obs), 2, axis=-1)
    log_std = -5.0 + 3.5 * (jnp.tanh(raw) + 1.0)  # within -5 and 2
    u = mean + jnp.exp(log_std) * noise
    log_slope = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))  # of tanh at u
    return jnp.tanh(u), jnp.sum(-0.5 * (noise**2 + jnp.log(2.0 * jnp.pi)) - log_std - log_slope, axis=-1)


def td_errors(agent, batch, weight, noise, gamma):
    """TD errors (2, B) of both critics."""
    action, log_prob = policy(agent.actor, batch.next_obs, noise)
    value = jnp.min(q_values(agent.target, batch.next_obs, action), axis=0)
    soft_value = value - weight * log_prob  # the weight enters here
    soft_target = jax.lax.stop_gradient(batch.reward + gamma * (1.0 - batch.terminated) * soft_value)
    return soft_target[None] - q_values(agent.critic, batch.obs, batch.action)


def adam_step(learning_rate, grads, state, params):
    """Parameters and state of Adam after a step."""
    change, state = optax.adam(learning_rate).update(grads, state)
    return optax.apply_updates(params, change), state


def learn(config, agent, batch, weight, key):
    """One step of the critics, then of the actor against the new critics; the agent, and the schedule's signals."""
    noise = jr.normal(key, (3, *batch.action.shape))  # of the soft target, the schedule's sample and the actor's loss

    def critic_loss(critic):
        td_error = td_errors(agent._replace(critic=critic), batch, weight, noise[0], config.gamma)
        return jnp.sum(jnp.mean(td_error**2, axis=1)), td_error.ravel()

    def actor_loss(actor):
        action, log_prob = policy(actor, batch.obs, noise[2])
        q = jnp.min(q_values(critic, batch.obs, action), axis=0)
        return jnp.mean(weight * log_prob - q)  # the weight also enters here

    grads, td_error = jax.grad(critic_loss, has_aux=True)(agent.critic)
    critic, critic_adam = adam_step(config.critic_learning_rate, grads, agent.critic_adam, agent.critic)
    grads = jax.grad(actor_loss)(agent.actor)
    actor, actor_adam = adam_step(config.actor_learning_rate, grads, agent.actor_adam, agent.actor)
    target = optax.incremental_update(critic, agent.target, config.tau)
    signals = Signals(td_error, log_prob=policy(actor, batch.obs, noise[1])[1])  # 4
    return Agent(actor, critic, target, actor_adam, critic_adam), signals


def evaluate(config, agent, env, clock, key):
    """Mean return () of the deterministic policy under the drift at vector step ``clock``."""
    key, task_params = jr.fold_in(key, clock), env.params_at(clock)

    def going_on(carry):
        _, _, alive, _, time = carry
        return (time < env.world.time_limit) & jnp.any(alive > 0.0)

    def step(carry):
        obs, state, alive, total, time = carry
        action, _ = policy(agent.actor, obs, 0.0)
        obs, state, reward, terminated, *_ = env.world.step(jr.fold_in(key, time), state, action, task_params)
        return obs, state, alive * (1.0 - terminated), total + alive * reward, time + 1

    obs, state = env.world.reset(jr.fold_in(key, env.world.time_limit), config.episodes, task_params)
    start = (obs, state, jnp.ones(config.episodes), jnp.zeros(config.episodes), jnp.int32(0))
    return jnp.mean(jax.lax.while_loop(going_on, step, start)[3])


def check(config):
    """Raise UnknownNameError or ValueError, one sentence, for invalid options."""
    for name in ("steps", "num_envs", "batch", "seeds", "evaluations", "episodes"):
        if (count := getattr(config, name)) < 1:
            raise ValueError(f"{name} must be at least 1; got {count}")
    if config.steps % (config.num_envs * config.evaluations):
        unit = f"{config.num_envs} environments x {config.evaluations} evaluations"
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
    total = config.steps // n  # vector steps, the unit of the drift's clock
    warmup, slots = max(int(config.warmup * total), -(-NEWEST // n)), max(int(config.replay * total), 1)
    if warmup >= total:
        raise ValueError(f"steps must exceed the {warmup * n} of the warm-up; got {config.steps}")
    for kappa in config.methods.values():
        entropy_schedule(config, kappa, total - warmup, actions)  # raises for invalid values
    envs.Drifting(task, config.pattern, config.steps, num_envs=n)  # raises for invalid values

    def train(seed, kappa=config.kappa):
        env = envs.Drifting(task, config.pattern, config.steps, drift_seed=seed, num_envs=n)
        schedule = entropy_schedule(config, kappa, total - warmup, actions)  # 5, was: log_alpha and its optimizer

        def one_step(run, _):
            clock, weight = run.env.clock, run.schedule.weight  # 6, was: jnp.exp(log_alpha)
            key_random, key_noise, key_env, key_rows, key_learn = jr.split(jr.fold_in(key_steps, clock), 5)
            # Act, and store the transitions.
            random = jr.uniform(key_random, (n, actions), minval=-1.0, maxval=1.0)
            noise = jr.normal(key_noise, (2, n, actions))
            action = jnp.where(clock < warmup, random, policy(run.agent.actor, run.obs, noise[0])[0])
            obs, env_state, reward, terminated, _, info = env.step(key_env, run.env, action)
            arrived = Transition(run.obs, action, reward, terminated.astype(float), info["final_observation"])
            replay = jax.tree.map(lambda ring, row: ring.at[clock % slots].set(row), run.replay, arrived)
            newest = RING.update(run.newest, td_errors(run.agent, arrived, weight, noise[1], config.gamma))  # 7
            # Learn from a batch; the schedule decides the weight of the next step.
            rows = jr.randint(key_rows, (config.batch,), 0, jnp.minimum(clock + 1, slots) * n)
            batch = jax.tree.map(lambda ring: ring[rows // n, rows % n], replay)
            agent, signals = learn(config, run.agent, batch, weight, key_learn)
            signals = signals._replace(fresh_td_error=newest.td_error, reward=reward, online_reward=jnp.mean(reward))
            signals = signals._replace(true_drift=info["drift"].change)  # for the reference schedule `oracle` alone
            learned = (agent, schedule.update(signals, run.schedule))  # 8, was: the update of log_alpha
            agent, state = jax.tree.map(
                lambda new, old: jnp.where(clock < warmup, old, new), learned, (run.agent, run.schedule)
            )
            return Run(obs, env_state, replay, agent, newest, state), (weight, state.logs.proxy)

        def until_evaluation(run, _):
            run, (weights, proxies) = jax.lax.scan(one_step, run, length=total // config.evaluations)
            return run, {
                "evaluation_return": evaluate(config, run.agent, env, run.env.clock, key_test),
                "entropy_weight": jnp.mean(weights),  # since the evaluation before
                "proxy": jnp.mean(proxies),
            }

        key_env, key_actor, key_critic, key_steps, key_test = jr.split(jr.key(seed), 5)
        actor = init_network(key_actor, (observations, *config.hidden, 2 * actions))
        sizes = (observations + actions, *config.hidden, 1)
        critic = jax.vmap(lambda key: init_network(key, sizes))(jr.split(key_critic))
        adams = optax.adam(1.0).init(actor), optax.adam(1.0).init(critic)
        agent = Agent(actor, critic, critic, *adams)
        shapes = [(observations,), (actions,), (), (), (observations,)]
        replay = Transition(*(jnp.zeros((slots, n, *shape)) for shape in shapes))
        run = Run(*env.reset(key_env), replay, agent, RING.init(), schedule.init())
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
    figure.supxlabel(f"environment steps (SAC, {config.task}, {config.pattern}, {config.seeds} seeds)")
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

"""SAC with a drift-aware entropy weight on a drifting task, in one file to copy into your own project and change.

Usage: python experiments/single_file_sac.py --pattern abrupt --schedule aes_r --seeds 5"""

import sys
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import tyro
from flax import linen as nn
from matplotlib.figure import Figure

import envs
from aesjax import Signals, jit
from aesjax.schedules import SCHEDULES

TASK = envs.make("toy")
OBS, ACTIONS, TIME_LIMIT = TASK.env.spec
NUM_ENVS, BATCH, HIDDEN = 4, 128, 64  # one gradient step per step of all NUM_ENVS copies of the environment
ADAM, GAMMA, TAU = optax.adam(1e-3), 0.97, 0.01
REPLAY, WARMUP = 0.05, 0.01  # shares of the run; a long replay hides from the agent that the task has changed
FRESH, EVALUATIONS, EPISODES = 128, 50, 10  # newest residuals kept; evaluations of a run, episodes in each
Transition = namedtuple("Transition", "obs action reward terminated next_obs")  # next_obs: before any reset
Agent = namedtuple("Agent", "actor critic target actor_adam critic_adam")  # critic, target: two networks, stacked
Run = namedtuple("Run", "obs env replay fresh agent schedule")  # the carry of the scan


class Options(NamedTuple):
    """SAC on the drifting toy task. Every seed has a drift of its own, the same under all schedules."""

    pattern: str = "abrupt"  # drift: steady, abrupt, linear, periodic or mixed
    schedule: str = "aes_r"  # of the entropy weight: fixed, auto, aes, aes_r, ... (`aesjax list` names all)
    weight: float = 0.05  # the weight of fixed, the start of aes, the base of aes_r; reward per nat
    seeds: int = 5
    steps: int = 20_000  # environment steps per seed
    out: Path = Path("single_file_sac.png")  # the plot


def dense(inputs, outputs):
    """A layer whose weights and biases start uniform in +-1/sqrt(inputs)."""
    start = partial(jr.uniform, minval=-(inputs**-0.5), maxval=inputs**-0.5)
    return nn.Dense(outputs, kernel_init=start, bias_init=start)


ACTOR = nn.Sequential([dense(OBS, HIDDEN), nn.relu, dense(HIDDEN, HIDDEN), nn.relu, dense(HIDDEN, 2 * ACTIONS)])
CRITIC = nn.Sequential([dense(OBS + ACTIONS, HIDDEN), nn.relu, dense(HIDDEN, HIDDEN), nn.relu, dense(HIDDEN, 1)])
q_values = jax.vmap(lambda critic, *x: jnp.asarray(CRITIC.apply(critic, jnp.hstack(x)))[:, 0], (0, None, None))


def sample(actor, obs, noise):
    """Actions (B, A) of the tanh-Gaussian policy from normal noise, and their log-densities (B,); noise 0: the mode."""
    mean, raw = jnp.split(jnp.asarray(ACTOR.apply(actor, obs)), 2, axis=-1)
    log_std = -5.0 + 3.5 * (jnp.tanh(raw) + 1.0)  # within -5 and 2
    u = mean + jnp.exp(log_std) * noise
    log_slope = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))  # of tanh at u
    return jnp.tanh(u), jnp.sum(-0.5 * (noise**2 + jnp.log(2.0 * jnp.pi)) - log_std - log_slope, axis=-1)


def residuals(agent, batch, weight, noise):
    """Temporal-difference errors (2, B) of both critics; the entropy weight's first place is the soft target."""
    action, log_prob = sample(agent.actor, batch.next_obs, noise)
    value = jnp.min(q_values(agent.target, batch.next_obs, action), axis=0) - weight * log_prob
    soft_target = jax.lax.stop_gradient(batch.reward + GAMMA * (1.0 - batch.terminated) * value)
    return soft_target[None] - q_values(agent.critic, batch.obs, batch.action)


def learn(agent, batch, weight, key):
    """One step of the critics, then of the actor against the new critics; the agent, and the schedule's signals."""
    noise = jr.normal(key, (3, *batch.action.shape))  # of the soft target, the schedule's sample and the actor's loss

    def critic_loss(critic):
        td_error = residuals(agent._replace(critic=critic), batch, weight, noise[0])
        return jnp.sum(jnp.mean(td_error**2, axis=1)), td_error.ravel()

    def actor_loss(actor):  # the weight's second place
        action, log_prob = sample(actor, batch.obs, noise[2])
        return jnp.mean(weight * log_prob - jnp.min(q_values(critic, batch.obs, action), axis=0))

    grads, td_error = jax.grad(critic_loss, has_aux=True)(agent.critic)
    change, critic_adam = ADAM.update(grads, agent.critic_adam)
    critic = optax.apply_updates(agent.critic, change)
    change, actor_adam = ADAM.update(jax.grad(actor_loss)(agent.actor), agent.actor_adam)
    actor = optax.apply_updates(agent.actor, change)
    signals = Signals(td_error, log_prob=sample(actor, batch.obs, noise[1])[1])
    return Agent(actor, critic, optax.incremental_update(critic, agent.target, TAU), actor_adam, critic_adam), signals


def evaluate(actor, env, clock, key):
    """Mean return of the deterministic policy while the drift stands still at ``clock``."""
    key, task_params = jr.fold_in(key, clock), env.params_at(clock)

    def step(carry, time):
        obs, state, alive = carry
        keys = jr.split(jr.fold_in(key, time), EPISODES)
        action, _ = sample(actor, obs, 0.0)
        obs, state, reward, terminated, *_ = jax.vmap(TASK.env.step, (0, 0, 0, None))(keys, state, action, task_params)
        return (obs, state, alive * (1.0 - terminated)), alive * reward

    begun = jax.vmap(TASK.env.reset, (0, None))(jr.split(jr.fold_in(key, TIME_LIMIT), EPISODES), task_params)
    _, rewards = jax.lax.scan(step, (*begun, jnp.ones(EPISODES)), jnp.arange(TIME_LIMIT))
    return jnp.sum(rewards) / EPISODES


def train(options, seed):
    """One run: its evaluation returns, the entropy weight of every step, and the drift values at the end."""
    total = options.steps // NUM_ENVS  # steps of all copies at once, the unit of the drift's clock
    warmup, slots = max(int(WARMUP * total), FRESH // NUM_ENVS), int(REPLAY * total)
    env = envs.Drifting(TASK, options.pattern, options.steps, drift_seed=seed, num_envs=NUM_ENVS)
    run = {"base": options.weight, "target_entropy": -ACTIONS, "action_size": ACTIONS, "updates": total - warmup}
    schedule = SCHEDULES[options.schedule].for_run(**run)

    def one_step(run, _):
        clock, weight = run.env.clock, run.schedule.weight  # a lag of one: earlier steps have decided this weight
        key_random, key_noise, key_env, key_rows, key_learn = jr.split(jr.fold_in(key_steps, clock), 5)
        # Act, store what happened, and note how much it surprises the critics.
        random = jr.uniform(key_random, (NUM_ENVS, ACTIONS), minval=-1.0, maxval=1.0)
        noise = jr.normal(key_noise, (2, NUM_ENVS, ACTIONS))
        action = jnp.where(clock < warmup, random, sample(run.agent.actor, run.obs, noise[0])[0])
        obs, env_state, reward, terminated, _, info = env.step(key_env, run.env, action)
        newest = Transition(run.obs, action, reward, terminated.astype(float), info["final_observation"])
        replay = jax.tree.map(lambda ring, row: ring.at[clock % slots].set(row), run.replay, newest)
        fresh = jnp.hstack([run.fresh[:, NUM_ENVS:], residuals(run.agent, newest, weight, noise[1])])
        # Learn from a batch and decide the next weight; `true_drift` is for the reference schedule `oracle` alone.
        rows = jr.randint(key_rows, (BATCH,), 0, jnp.minimum(clock + 1, slots) * NUM_ENVS)
        batch = jax.tree.map(lambda ring: ring[rows // NUM_ENVS, rows % NUM_ENVS], replay)
        agent, signals = learn(run.agent, batch, weight, key_learn)
        signals = signals._replace(fresh_td_error=fresh.ravel(), reward=reward, true_drift=info["drift"].change)
        learned = (agent, schedule.update(signals, run.schedule))  # but not in the warm-up:
        learned = jax.tree.map(lambda new, old: jnp.where(clock < warmup, old, new), learned, run[-2:])
        return Run(obs, env_state, replay, fresh, *learned), weight

    def until_evaluation(run, _):
        run, weights = jax.lax.scan(one_step, run, length=total // EVALUATIONS)
        return run, (evaluate(run.agent.actor, env, run.env.clock, key_test), weights)

    key_env, key_actor, key_critic, key_steps, key_test = jr.split(jr.key(seed), 5)
    critic = jax.vmap(CRITIC.init, (0, None))(jr.split(key_critic), jnp.zeros((1, OBS + ACTIONS)))
    actor = ACTOR.init(key_actor, jnp.zeros((1, OBS)))
    agent = Agent(actor, critic, critic, ADAM.init(actor), ADAM.init(critic))
    replay = Transition(*(jnp.zeros((slots, NUM_ENVS, *shape)) for shape in [(OBS,), (ACTIONS,), (), (), (OBS,)]))
    run = Run(*env.reset(key_env), replay, jnp.zeros((2, FRESH)), agent, schedule.init())
    _, (returns, weights) = jax.lax.scan(until_evaluation, run, length=EVALUATIONS)
    return returns, weights.ravel(), env.truth_at(total).values


def plot(options, curves, changes):
    """Every curve's mean over seeds, with a band from the lowest seed to the highest; dashed: change points."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    for axis, (name, values) in zip(figure.subplots(2, sharex=True), curves.items(), strict=True):
        steps = jnp.linspace(0, options.steps, values.shape[1] + 1)[1:]
        axis.plot(steps, values.mean(0))
        axis.fill_between(steps, values.min(0), values.max(0), alpha=0.25, linewidth=0)
        axis.vlines(changes, *axis.get_ylim(), colors="grey", linestyles="--", linewidth=0.8)
        axis.set_ylabel(name)
    figure.supxlabel(f"environment steps ({options.pattern}, {options.schedule}, {options.seeds} seeds)")
    figure.savefig(options.out, format="png", dpi=120)


def main(argv=None):
    """Train all seeds in one compiled program, plot and report; exit code 2 where the options are wrong."""
    options, unit = tyro.cli(Options, args=argv), NUM_ENVS * EVALUATIONS
    try:
        if options.out.exists() or not options.out.parent.is_dir():
            raise ValueError(f"--out {options.out} exists or has no folder; choose another file")
        if options.seeds < 1 or options.steps < 1 or options.steps % unit:
            raise ValueError(f"--seeds must be positive and --steps a positive multiple of {unit}")
        env = envs.Drifting(TASK, options.pattern, options.steps, num_envs=NUM_ENVS)
        SCHEDULES[options.schedule].for_run(base=options.weight)
    except (KeyError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    returns, weights, drift = jit(jax.vmap(lambda seed: train(options, seed)))(jnp.arange(1, options.seeds + 1))
    changes = NUM_ENVS * jnp.flatnonzero(jax.vmap(env.truth_at)(jnp.arange(weights.shape[1])).is_change_point)
    plot(options, {"evaluation return": returns, "entropy weight": weights}, changes)
    optimum = envs.optimal_return(TASK.name)
    best = f" of at most {optimum(drift).mean():.1f}" if optimum else ""
    print(f"final return {returns[:, -1].mean():.1f}{best}; plot: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

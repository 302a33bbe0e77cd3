"""rejax's SAC and PPO for `aesjax bench`: reads one JSON case per line and writes its rate.

Runs in a separate environment, because rejax pins gymnax 0.0.9. The timed work is rejax's own `train_iteration` in a
`fori_loop`, vmapped over seeds, without evaluation: for SAC collection of `num_envs` steps and one gradient step each,
for PPO a rollout and its epochs.
"""

import json
import sys
import time

import jax
from rejax import PPO, SAC

SAC_ENVS, REPLAY = 4, 5000
PPO_ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 8, 128, 10, 4


def make_algorithm(name, width, batch):
    """Algorithm, iterations per call, and gradient or environment steps per iteration."""
    hidden, common = (width, width), {"env": "Pendulum-v1", "gamma": 0.97, "learning_rate": 1e-3}
    common |= {"total_timesteps": 10**8, "eval_freq": 10**8}
    if name == "ppo":
        sizes = {"num_envs": PPO_ENVS, "num_steps": ROLLOUT, "num_epochs": EPOCHS, "num_minibatches": MINIBATCHES}
        return PPO.create(agent_kwargs={"hidden_layer_sizes": hidden}, **sizes, **common), 2, PPO_ENVS * ROLLOUT
    sizes = {"num_envs": SAC_ENVS, "batch_size": batch, "buffer_size": REPLAY, "fill_buffer": 256, "num_epochs": 1}
    return SAC.create(hidden_layer_sizes=hidden, **sizes, **common), 50, 1


def make_timer(algorithm, runs, width, batch, seconds):
    """Function that does a fixed amount of work and returns its rate."""
    algo, iterations, work = make_algorithm(algorithm, width, batch)
    state = jax.jit(jax.vmap(algo.init_state))(jax.random.split(jax.random.PRNGKey(0), runs))

    def iterate(state):
        return jax.lax.fori_loop(0, iterations, lambda _, ts: algo.train_iteration(ts), state)

    step = jax.jit(jax.vmap(iterate), donate_argnums=0)
    state = step(step(state))

    def go(count):
        nonlocal state
        began = time.perf_counter()
        for _ in range(count):
            state = step(state)
        jax.block_until_ready(state)
        return time.perf_counter() - began

    jax.block_until_ready(state)
    count = max(1, round(seconds / go(1)))
    return lambda: runs * iterations * work * count / go(count)


if __name__ == "__main__":
    timers = {}
    for line in sys.stdin:
        if line not in timers:
            timers[line] = make_timer(**json.loads(line))
        print(timers[line](), flush=True)

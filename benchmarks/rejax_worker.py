"""rejax's SAC as a contestant of `aesjax bench`: reads one JSON request per line, answers with one line.

Runs in an environment of its own (rejax pins gymnax 0.0.9). The timed work is rejax's own `train_iteration` in a
`fori_loop`, vmapped over seeds, without evaluation: collection of `num_envs` steps and one gradient step each.
"""

import json
import sys
import time

import jax
from rejax import SAC

NUM_ENVS, REPLAY, ITERATIONS = 4, 5000, 50


def make_timer(runs, width, batch, seconds):
    algo = SAC.create(
        env="Pendulum-v1",
        hidden_layer_sizes=(width, width),
        num_envs=NUM_ENVS,
        batch_size=batch,
        buffer_size=REPLAY,
        fill_buffer=256,
        num_epochs=1,
        learning_rate=1e-3,
        gamma=0.97,
        total_timesteps=10**8,
        eval_freq=10**8,
    )
    state = jax.jit(jax.vmap(algo.init_state))(jax.random.split(jax.random.PRNGKey(0), runs))

    def iterate(state):
        return jax.lax.fori_loop(0, ITERATIONS, lambda _, ts: algo.train_iteration(ts), state)

    step = jax.jit(jax.vmap(iterate), donate_argnums=0)
    box = {"state": step(step(state))}

    def go(count):
        jax.block_until_ready(box["state"])
        began = time.perf_counter()
        for _ in range(count):
            box["state"] = step(box["state"])
        jax.block_until_ready(box["state"])
        return time.perf_counter() - began

    count = max(1, round(seconds / go(1)))
    return lambda: runs * ITERATIONS * count / go(count)


def main():
    timers = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "prepare" in request:
            case = request["prepare"]
            timers[case["runs"], case["width"], case["batch"]] = make_timer(**case)
            answer = {"ready": True}
        else:
            case = request["time"]
            answer = {"updates_per_second": timers[case["runs"], case["width"], case["batch"]]()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""Steps per second of ``gymnasium.make_vec("aesjax/...")`` and of Gymnasium's AsyncVectorEnv of the same model.

    python benchmarks/vector_env.py --envs 32 --rounds 3 --out benchmarks/vector_env.json

Random actions, a process per environment in `AsyncVectorEnv`, contestants interleaved in every round. On a machine with
other load the wall clock favours the contestant with more processes, so steps per second of CPU time stand beside it.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np

SECONDS = 2.0
CASES = {  # id -> Gymnasium's environment of the same model
    "aesjax/SlipperyAnt-v0": "Ant-v5",
    "aesjax/AESHopper-v0": "Hopper-v5",
    "aesjax/AESHalfCheetah-v0": "HalfCheetah-v5",
    "aesjax/ChuaWalkerMass-v0": "Walker2d-v5",
}


def used(processes):
    """CPU seconds of this process and of ``processes`` so far."""
    own = sum(os.times()[:2])
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return own + ticks / os.sysconf("SC_CLK_TCK")


def stepped(env, rates):
    """Timer of random actions: environment steps per second; steps per CPU second are appended to ``rates``."""
    rng = np.random.default_rng(0)
    actions = [rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32) for _ in range(50)]
    env.reset(seed=0)
    for action in actions[:5]:
        env.step(action)

    def timer():
        began, cpu, steps = time.perf_counter(), used(getattr(env, "processes", ())), 0
        while time.perf_counter() - began < SECONDS:
            env.step(actions[steps % len(actions)])
            steps += 1
        rates.append(steps * env.num_envs / (used(getattr(env, "processes", ())) - cpu))
        return steps * env.num_envs / (time.perf_counter() - began)

    return timer


def measured(name, parallel, rounds):
    """Rates of one id and of ``parallel``, Gymnasium's environments of the same model."""
    from experiments.bench.timing import interleaved

    num_envs = parallel.num_envs
    vectors = {"async": parallel, "make_vec": gymnasium.make_vec(f"envs.adapters.gymnasium:{name}", num_envs)}
    rates = {who: [] for who in vectors}
    contestants = {who: stepped(env, rates[who]) for who, env in vectors.items()}
    result = interleaved(contestants, rounds, {"make_vec_over_async": ("make_vec", "async")})
    for env in vectors.values():
        env.close()
    medians = {who: float(np.median(values)) for who, values in rates.items()}
    per_cpu = {**medians, "ratio": medians["make_vec"] / medians["async"]}
    return {"task": name, "envs": num_envs, **result, "steps_per_cpu_second": per_cpu}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # Forked before JAX starts, so that a process has what Gymnasium needs and no more.
    parallel = {name: gymnasium.make_vec(other, options.envs, "async") for name, other in CASES.items()}
    from experiments.bench.timing import measure

    cases = [(name, partial(measured, name, env, options.rounds)) for name, env in parallel.items()]
    about = {"command": " ".join(sys.argv), "cores": os.cpu_count(), "load": os.getloadavg()}
    measure(cases, options.out, about)

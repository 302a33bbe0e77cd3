"""MuJoCo Warp beside the C engine on every physics task: equal starts and random actions.

python benchmarks/parity/engines.py --out benchmarks/parity/engines.json [--tasks hopper,isaac_ant]

Without resets. Observations are compared over `STEPS` control steps before a copy of either engine terminates,
returns over whole episodes. A difference is relative to 1 + |value|. A copy has departed where its observation
differs by more than `DEPARTED`: contacts of the two engines then differ, or a chaotic body has amplified rounding,
and only distributions can be compared.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs import isaac, mujoco
from experiments.measure import t_interval
from experiments.study import store

STARTS, STEPS, DEPARTED = 64, 200, 1e-2


def played(name: str, engine: str) -> dict[str, np.ndarray]:
    """Observation, reward and survival (steps, starts, ...), returns of whole episodes (starts,), faults."""
    env = envs.make(name, engine=engine).env
    params = jax.tree.map(jnp.float32, env.task.params)

    def run() -> Any:
        _, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), STARTS), params)

        def body(carry: Any, step: Any) -> Any:
            state, total, alive = carry
            key = jax.random.fold_in(jax.random.key(1), step)
            action = jax.random.uniform(key, (STARTS, env.spec.action_size), minval=-1.0)
            obs, state, reward, terminated, *_ = jax.vmap(env.step, (None, 0, 0, None))(key, state, action, params)
            total, alive = total + alive * reward, alive * (1.0 - terminated)
            return (state, total, alive), (obs, reward, alive > 0)

        # The rest of the episodes keeps no observations.
        carry, seen = jax.lax.scan(body, (state, jnp.zeros(STARTS), jnp.ones(STARTS)), jnp.arange(STEPS))
        rest = jnp.arange(STEPS, env.spec.time_limit)
        (state, total, _), _ = jax.lax.scan(lambda carry, step: (body(carry, step)[0], None), carry, rest)
        return *seen, total, env.faults(state)

    obs, reward, alive, total, faults = jax.device_get(jax.jit(run)())
    return {"obs": obs, "reward": reward, "alive": alive, "returns": total, "faults": faults}


def compared(name: str) -> dict[str, Any]:
    """The row of one task."""
    ours, theirs = played(name, "warp"), played(name, "mujoco")
    alive = ours["alive"] & theirs["alive"]
    gap = np.max(np.abs(ours["obs"] - theirs["obs"]) / (1 + np.abs(theirs["obs"])), -1) * alive
    rewards = np.abs(ours["reward"] - theirs["reward"]) * alive
    together = np.cumsum(gap > DEPARTED, 0) == 0
    return {
        "task": name,
        "observation": {str(k): [float(np.median(gap[:k].max(0))), float(gap[:k].max())] for k in (1, 5, 20, STEPS)},
        "departed": float(1 - together[-1].mean()),
        "largest_before": {"observation": float((gap * together).max()), "reward": float((rewards * together).max())},
        "returns": {n: [float(v) for v in t_interval(r["returns"])] for n, r in (("warp", ours), ("mujoco", theirs))},
        "faults": int(ours["faults"]),
    }


def main() -> None:
    """Compare and write the record after every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join([*mujoco.TASKS, *isaac.TASKS]))
    given = parser.parse_args()
    rows = []
    for name in given.tasks.split(","):
        rows.append(compared(name))
        print(rows[-1], flush=True)
        store.write_json(
            given.out, {"starts": STARTS, "steps": STEPS, "environment": store.environment(), "tasks": rows}
        )


if __name__ == "__main__":
    main()

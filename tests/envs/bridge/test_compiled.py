"""A simulator as a step of a compiled program, on JAX's own buffers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.envs.bridge.common import torch as installed

torch = installed()


from envs.bridge.compiled import step_of  # noqa: E402
from envs.bridge.host import InProcess, SimEnv  # noqa: E402
from tests.envs.bridge.points import Points  # noqa: E402

N, STEPS = 5, 50


def policy(obs, t):
    return jnp.clip(jnp.sin(obs * 3.0 + t), -1.0, 1.0)


def looped():
    env = SimEnv(InProcess(Points(N)))
    obs, rows = env.reset(seed=1), []
    for t in range(STEPS):
        rows.append(env.step(jax.jit(policy)(obs, jnp.float32(t))))
        obs = rows[-1].obs
        rows[-1] = jax.tree.map(np.array, rows[-1])
    return jax.tree.map(lambda *x: np.stack(x), *rows)


@pytest.mark.parametrize("kind", ["jit", "scan"])
def test_the_compiled_step_equals_the_host_loop(kind):
    env = SimEnv(InProcess(Points(N)))
    obs, token, step = env.reset(seed=1), jnp.int32(0), step_of(env)

    def move(carry, t):
        token, obs = carry
        token, rows = step(token, obs, policy(obs, t))
        return (token, rows.obs), rows

    times = jnp.arange(STEPS, dtype=jnp.float32)
    if kind == "scan":
        (token, _), rows = jax.jit(lambda c: jax.lax.scan(move, c, times))((token, obs))
    else:
        carry, found, once = (token, obs), [], jax.jit(move)
        for t in times:
            carry, out = once(carry, t)
            found.append(out)
        token, rows = carry[0], jax.tree.map(lambda *x: jnp.stack(x), *found)
    assert int(token) == STEPS
    expected = looped()
    assert expected.valid.mean() < 1.0
    for name, ours, theirs in zip(rows._fields, rows, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)

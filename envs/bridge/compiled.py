"""A simulator in this process as a step of a compiled program: `buffer_callback`, where JAX owns the arrays.

On a CPU and on a GPU the simulator reads and fills JAX's own buffers. For `jit` and `lax.scan`; never for `vmap`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.buffer_callback import buffer_callback

from envs.bridge import errors
from envs.bridge.host import SimEnv, SimStep


def step_of(env: SimEnv) -> Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, SimStep]]:
    """``(token () int32, obs (N, O) acted on, action (N, A)) -> token, SimStep`` of an ``env`` that was reset.

    Handing the token of one step to the next is what fixes their order.
    """
    torch = errors.torch()
    n, s = env.about["num"], env.about["obs_size"]
    flags = (jax.ShapeDtypeStruct((n,), jnp.bool_),) * 4
    observed = jax.ShapeDtypeStruct((n, s), jnp.float32)
    shapes = (observed, jax.ShapeDtypeStruct((n,), jnp.float32), *flags, *([observed] * env.about["final"]))

    def on_host(context: Any, out: Any, token: Any, action: Any) -> None:
        tensor = torch.from_dlpack(action)
        if tensor.is_cuda:
            with torch.cuda.stream(torch.cuda.ExternalStream(context.stream)):
                _fill(out, token, tensor)
        else:
            _fill(out, token, tensor)

    def _fill(out: Any, token: Any, tensor: Any) -> None:
        rows = env.simulation.step_tensors(tensor.clone().to(env.about["device"]))
        torch.from_dlpack(out[0]).copy_(torch.from_dlpack(token) + 1)
        for buffer, value in zip(out[1:], (value for value in rows if value is not None), strict=True):
            torch.from_dlpack(buffer).copy_(value)

    call = buffer_callback(on_host, (jax.ShapeDtypeStruct((), jnp.int32), *shapes), has_side_effect=True)

    def step(token: jax.Array, obs: jax.Array, action: jax.Array) -> tuple[jax.Array, SimStep]:
        token, *rows = call(token, action)
        return token, env.finished(*rows, before=obs)

    return step

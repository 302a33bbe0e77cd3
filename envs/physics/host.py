"""Host callbacks of compiled programs: one call per batch of records, and the usable cores."""

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def usable_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Packed:
    """Packing of a callback's arguments into one array and of its results into another, as JAX's cost is per array.

    A record is words of uint32: float64 numbers as pairs, then float32 numbers.
    """

    @staticmethod
    def traced(doubles: Array | None, *floats: Array) -> Array:
        """(words,) of one record: ``doubles`` already as words, and any number of 1-D float arrays."""
        words = jax.lax.bitcast_convert_type(jnp.concatenate(floats).astype(jnp.float32), jnp.uint32)
        return words if doubles is None else jnp.concatenate([doubles, words])

    @staticmethod
    def scalars(params: Any) -> Array:
        """(P,) float32, the numbers of a NamedTuple."""
        return jnp.stack([jnp.asarray(value, jnp.float32) for value in params]) if params else jnp.zeros(0)

    @staticmethod
    def floats_of(words: Array) -> Array:
        """``words`` reinterpreted as float32."""
        return jax.lax.bitcast_convert_type(words, jnp.float32)

    @staticmethod
    def split(words: np.ndarray, doubles: int) -> tuple[np.ndarray, np.ndarray]:
        """(n, doubles) float64 and (n, rest) float32 of (n, words)."""
        rows = np.ascontiguousarray(words[:, : 2 * doubles]).view(np.float64)
        return rows, words[:, 2 * doubles :].view(np.float32)

    @staticmethod
    def join(doubles: np.ndarray, floats: np.ndarray) -> np.ndarray:
        """Inverse of `split`."""
        return np.concatenate([np.ascontiguousarray(doubles).view(np.uint32), floats.view(np.uint32)], axis=1)


# JAX copies larger arguments on its own threads, which may all be waiting for callbacks.
_INLINE_BYTES = 2**16


def on_host(function: Callable[[np.ndarray], np.ndarray], out_words: int) -> Callable[[Array], Array]:
    """Turn a host function of (n, words) uint32 into a function of arrays with any batching, called once per batch."""

    def call(words: Array) -> Array:
        n, width = words.shape
        rows = max(1, _INLINE_BYTES // (4 * width))
        pieces = [words[i : i + rows] for i in range(0, n, rows)]

        def whole(*pieces: Any) -> np.ndarray:
            return function(np.concatenate([np.asarray(piece) for piece in pieces]))

        return jax.pure_callback(whole, jax.ShapeDtypeStruct((n, out_words), jnp.uint32), *pieces)

    return for_batches(call)


def for_batches(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Call a function with one batch axis (n, ...) once for all copies, under any nesting of ``vmap``."""

    @jax.custom_batching.custom_vmap
    def call(inputs: Any) -> Any:
        return function(inputs)

    @call.def_vmap
    def _(size: int, batched: Any, inputs: Any) -> Any:
        spread = jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (size, *x.shape)), inputs, batched[0])
        out = call(jax.tree.map(lambda x: x.reshape(size * x.shape[1], *x.shape[2:]), spread))
        out = jax.tree.map(lambda x: x.reshape(size, x.shape[0] // size, *x.shape[1:]), out)
        return out, jax.tree.map(lambda _: True, out)

    return call


class Hosted:
    """An environment with steps outside JAX, which stores errors of its callbacks."""

    _failure: str | None = None
    _apart: Self | None = None

    def apart(self) -> Self:
        """The same environment with a separate host."""
        raise NotImplementedError

    def for_evaluation(self) -> Self:
        """The same environment, for episodes that do not affect these."""
        self._apart = self._apart or self.apart()
        return self._apart

    def guarded(self, function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """Host side of a callback, which stores its first error for `failed`."""

        def call(words: np.ndarray) -> np.ndarray:
            try:
                return function(words)
            except Exception as error:
                text = str(error)
                if not type(error).__module__.startswith("envs."):  # of user code
                    text = f"{type(error).__name__}: {text}; its traceback:\n{traceback.format_exc()}"
                self._failure = self._failure or text
                self.close()
                raise

        return call

    def failed(self) -> str | None:
        """Error that ended the last program, with the traceback of user code; reading clears it."""
        apart = None if self._apart is None else self._apart.failed()
        failure, self._failure = self._failure or apart, None
        return failure

    def close(self) -> None:
        """Release the host's resources; the next reset starts again."""
        if self._apart is not None:
            self._apart.close()


@contextmanager
def in_own_words(env: Any, kind: type[Exception] = ValueError) -> Iterator[Any]:
    """Raise ``kind`` with the error of a callback of ``env``, and close it after the block; no-op without a host."""
    if not isinstance(env, Hosted):
        yield None
        return
    logger = logging.getLogger("jax._src.callback")  # JAX prints the error that is raised again below
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield env
    except Exception:
        if (failure := env.failed()) is None:
            raise
        raise kind(failure) from None
    finally:
        logger.setLevel(level)
        env.close()

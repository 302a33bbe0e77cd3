"""A simulator inside a compiled program: an environment whose steps are calls back to the host.

JAX does not see the state of the simulator, so calls are numbered. The next number steps it, and the newest number
returns the same rows again. Any number from a new simulator begins new episodes with a masked row, which is how a
resumed study continues. Within a program the calls are ordered, because each needs the number that the previous one
returned. A program may hold one run of it at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.bridge import errors
from envs.bridge.transport import Worker, learned
from envs.core import EnvSpec, Mask, Step
from envs.physics.host import Hosted, Packed, on_host

Array = jax.Array


class BridgeState(NamedTuple):
    """One copy; batched along a leading axis."""

    sequence: Array  # () int32, steps of this simulation since its restart
    valid: Array  # () bool, as in `envs.core.Mask`
    stored: Array  # () bool
    live: Array  # () bool


class _Running:
    """An open simulation and its position."""

    def __init__(self, simulation: Worker) -> None:
        self.simulation = simulation
        self.sequence: int | None = None  # None: no run has begun
        self.obs: Any = None  # (N, O) newest
        self.answer: Any = None  # at the newest step


class BridgeEnv(Hosted):
    """One copy of a bridged task as seen by JAX; batched by ``vmap``, its callback steps all copies.

    Args:
      start: number of copies -> a simulation; called when the first row with this number of copies arrives.
      evaluates: whether simulations serve all evaluations of a run; else each reset begins a run in a new one.
    """

    exclusive = True  # one run at a time

    def __init__(self, start: Callable[[int], Worker], about: Any, evaluates: bool = False) -> None:
        self.about, self._open, self._names = about, start, tuple(about["nominal"])  # of the parameters
        self._evaluates, self._new_run = evaluates, True
        self.spec = EnvSpec(*(about[name] for name in ("obs_size", "action_size", "time_limit", "discrete")))
        self._running: dict[int, _Running] = {}
        s = self.spec.obs_size
        self._on_start = on_host(self.guarded(self._host_start), s + 1)
        self._on_step = on_host(self.guarded(self._host_step), 2 * s + 6)

    def reset(self, key: Array, params: Any) -> tuple[Array, BridgeState]:
        """Begin new episodes in all copies; the first copy's key is the seed."""
        words = jnp.concatenate(
            [jax.random.key_data(key).astype(jnp.uint32), Packed.traced(None, Packed.scalars(params))]
        )
        out = Packed.floats_of(self._on_start(words[None])[0])
        yes = jnp.bool_(True)
        return out[:-1], BridgeState(jnp.int32(0), yes, yes, out[-1] > 0)

    def autoreset(self, key_step: Array, key_reset: Array, state: BridgeState, action: Array, params: Any) -> Step:
        """One step under ``action`` (A,) in [-1, 1]; the simulator draws random numbers and resets internally."""
        del key_step, key_reset
        # A copy with a masked step gets a zero action, because its policy output may not be finite.
        action = jnp.where(state.live, jnp.clip(action, -1.0, 1.0), jnp.zeros_like(action))
        number = jax.lax.bitcast_convert_type(state.sequence, jnp.uint32)[None]
        words = jnp.concatenate([number, Packed.traced(None, Packed.scalars(params), action)])
        out = Packed.floats_of(self._on_step(words[None])[0])
        s = self.spec.obs_size
        reward, terminated, truncated, valid, stored, live = out[2 * s :]
        state = BridgeState(state.sequence + 1, valid > 0, stored > 0, live > 0)
        return out[:s], state, reward, terminated > 0, truncated > 0, {"final_observation": out[s : 2 * s]}

    def step(self, key: Array, state: BridgeState, action: Array, params: Any) -> Step:
        """`autoreset`, because there is no step without reset."""
        return self.autoreset(key, key, state, action, params)

    def mask(self, state: BridgeState) -> Mask:
        """Valid copies."""
        return Mask(state.valid, state.stored, state.live)

    def apart(self) -> "BridgeEnv":
        """The same task in separate simulations."""
        return BridgeEnv(self._open, self.about, evaluates=True)

    def close(self) -> None:
        """End all of its simulations; the next step starts new ones."""
        super().close()
        for running in self._running.values():
            running.simulation.close()
        self._running.clear()

    # Host side, (n, words) in and out. A record: two words of key, or one of the sequence, then factors and action.

    def _simulation(self, num: int, new: bool = False) -> _Running:
        """The simulation with ``num`` copies; a ``new`` one, or one with another number, replaces the last."""
        if new or num not in self._running:
            for other in list(self._running):
                self._running.pop(other).simulation.close()
            self._running[num] = _Running(self._open(num))
        return self._running[num]

    def _drift(self, running: _Running, factors: np.ndarray) -> None:
        if (factors != factors[:1]).any():
            raise errors.SimBridgeError(
                f"factors differ between the copies of a simulation ({np.unique(factors, axis=0).tolist()}), "
                "but its gravity is one number; runs of other drifts take turns"
            )
        running.simulation.drift(dict(zip(self._names, map(float, factors[0]), strict=True)))

    def _host_start(self, words: np.ndarray) -> np.ndarray:
        if self._apart is not None:
            self._apart._new_run = True
        running = self._simulation(words.shape[0], self._new_run)  # state of a simulator may survive its reset
        self._new_run = not self._evaluates
        self._drift(running, words[:, 2:].view(np.float32))
        running.obs, live = running.simulation.restart(int(words[0, 0]))
        running.obs, running.sequence, running.answer = running.obs.copy(), 0, None
        return np.concatenate([running.obs, live[:, None]], 1, dtype=np.float32).view(np.uint32)

    def _host_step(self, words: np.ndarray) -> np.ndarray:
        running, number = self._simulation(words.shape[0]), int(words[0, 0])
        if (words[:, 0] != number).any():
            raise errors.SimBridgeError(
                f"steps {np.unique(words[:, 0]).tolist()} of one simulation were requested together; interleave runs"
            )
        if running.answer is not None and running.sequence == number + 1:
            return running.answer  # a repeated request
        floats = np.ascontiguousarray(words[:, 1:]).view(np.float32)
        factors, actions = np.split(floats, [len(self._names)], axis=1)
        self._drift(running, factors)
        if running.sequence is None:
            running.answer = self._begun(running, number)
        elif running.sequence == number:
            running.answer = self._stepped(running, np.ascontiguousarray(actions))
        else:
            raise errors.SimBridgeError(f"step {number} was requested from a simulation at step {running.sequence}")
        running.sequence = number + 1
        return running.answer

    def _begun(self, running: _Running, number: int) -> np.ndarray:
        """Row of a new simulation within a run: new episodes, all masked."""
        obs, live = running.simulation.restart((number * 2654435761 + 1) % 2**32, number + 1)
        running.obs = obs.copy()
        return self._packed(running.obs, running.obs, np.zeros((5, len(obs))), live)

    def _stepped(self, running: _Running, actions: np.ndarray) -> np.ndarray:
        rows, before = running.simulation.step(actions), running.obs
        final, reward, stored = learned(np, rows, before, self.about["lost"])
        running.obs = rows.obs.copy()
        columns = (reward, rows.terminated, rows.truncated, rows.valid, stored)
        return self._packed(running.obs, final, columns, rows.live)

    @staticmethod
    def _packed(obs: np.ndarray, final: np.ndarray, columns: Any, live: np.ndarray) -> np.ndarray:
        beside = np.stack([*columns, live], axis=1)
        return np.concatenate([obs, final, beside], axis=1, dtype=np.float32, casting="unsafe").view(np.uint32)

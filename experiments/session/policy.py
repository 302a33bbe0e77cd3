"""The policy of a trained run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from aesjax.compiling import jit
from aesjax.registry import listed, lookup
from aesjax.seeding import stream
from aesjax.typed import Count, typed
from agents import Carrier, OnPolicyCarrier
from agents.common.episodes import episode_returns
from envs.world import World
from experiments.session.exported import save
from experiments.study.checkpoint import Snapshot, changes_of, load_agent, load_snapshot
from experiments.study.program import Plan, Share

END, NOMINAL = "end", "nominal"


@dataclass(frozen=True)
class Policy:
    """The policy of one run at one step: a function from observations to actions in [-1, 1]."""

    method: str
    pattern: str
    seed: int
    step: int  # environment steps of its training
    world: World = field(repr=False)
    carrier: Carrier | OnPolicyCarrier = field(repr=False)
    agent: Any = field(repr=False)
    drift: Any = field(repr=False)  # of its run
    directory: Path = field(repr=False)  # of its study
    end: int = field(repr=False)  # last vector step of its run

    @classmethod
    def load(cls, directory: Path, plan: Plan, method: str, pattern: str, seed: int, at: int | str) -> "Policy":
        """Load a stored policy of a study.

        Raises:
          UnknownNameError, ValueError: an unknown run, or no policy of that step.
        """
        carriers = {row.name: row.carrier for row in plan.rows}
        share = plan.share(lookup("method of this study", carriers, method))
        labels = {(label["pattern"], label["seed"]): label for label in share.labels if label["method"] == method}
        if (pattern, seed) not in labels:
            known = listed(f"{p} with seed {s}" for p, s in labels)
            raise ValueError(f"the study has no run of {method} on '{pattern}' with seed {seed}; there are {known}")
        snapshot, drift_seed = _snapshot(directory, share, labels[pattern, seed], at), plan.config.drift_seed
        world, carrier = share.learner.world, share.learner.agent
        drift = world.drift(pattern, seed if drift_seed is None else drift_seed)
        end = plan.config.vector_steps(share.carrier) - 1
        return cls(method, pattern, seed, snapshot.step, world, carrier, snapshot.agent, drift, directory, end)

    @property
    def run(self) -> dict[str, Any]:
        """Label with method, pattern, seed and step."""
        return {name: getattr(self, name) for name in ("method", "pattern", "seed", "step")}

    def __call__(self, obs: Any, key: Any = None) -> jax.Array:
        """Actions (A,) or (N, A) in [-1, 1] for observations (O,) or (N, O): the mode, or with a key or seed a sample.

        Raises:
          ValueError: observations of another size.
        """
        obs = jnp.asarray(obs, jnp.float32)
        size = self.world.obs_size
        if obs.ndim not in (1, 2) or obs.shape[-1] != size:
            hint = ", the last ones of `envs.drift.normalised`" if self.world.observe else ""
            raise ValueError(
                f"observations of task '{self.world.name}' are ({size},) or (N, {size}){hint}; got {obs.shape}"
            )
        key = jax.random.key(key) if isinstance(key, int) else key
        batch = obs[None] if obs.ndim == 1 else obs
        act = self._act if isinstance(batch, Tracer) else self._compiled
        action = act(batch, key)
        return action[0] if obs.ndim == 1 else action

    def _act(self, obs: Any, key: Any) -> Any:
        if key is None:
            return self.carrier.act_deterministic(self.agent, obs)
        seen = self.carrier.view(self.agent, obs) if isinstance(self.carrier, OnPolicyCarrier) else obs
        return jnp.clip(self.carrier.act(self.agent, seen, key), -1.0, 1.0)

    @cached_property
    def _compiled(self) -> Any:
        return jit(self._act)

    def save(self, path: str | Path) -> Path:
        """Write the mode of the policy as a NumPy file, which needs no JAX to be read; returns its path.

        Arrays: ``mean`` and ``scale`` (S,) of observations and their ``clip`` (), ``kernel0`` (K, S, H) and ``bias0``
        (K, 1, H) of K networks and further layers, the names of the ``activation`` and of the ``head``. Actions of
        `experiments.session.reader` differ from those of the policy by at most 1e-5, which is checked.

        Raises:
          ValueError: the deterministic action is not one pass through a network, or ``path`` is not a new .npz file.
        """
        save(self, path := Path(path).expanduser())
        return path

    def evaluate(self, drift: str | Sequence[float] = END, episodes: int = 10, seed: int = 0) -> np.ndarray:
        """Returns (episodes,) of complete episodes under constant drift, with deterministic actions.

        Args:
          drift: "end" of its run, "nominal", or one value per coordinate of the drifting parameters, in task units.
          seed: of the initial states.

        Raises:
          ValueError: a wrong number of drift values, a value that is not finite, or no episodes.
        """
        world, episodes = self.world, typed(Count, episodes, "episodes")
        if isinstance(drift, str):
            held = lookup("drift", {END: self.drift, NOMINAL: world.drift("steady", 0)}, drift)
        else:
            held = world.held(drift)
        values, _ = world.path(held, jnp.array([self.end], jnp.int32))
        key = stream(jax.random.key(seed), "evaluation")
        act = lambda obs, key: self.carrier.act_deterministic(self.agent, obs)  # noqa: E731
        run = jit(lambda key: episode_returns(world, act, world.params_of(values[0]), key, episodes))
        return np.asarray(run(key))


def _snapshot(directory: Path, share: Share, label: Mapping[str, Any], at: int | str) -> Snapshot:
    config, learner = share.config, share.learner
    if at == END:
        return load_agent(directory, config, learner, label)
    points = changes_of(config, learner)[label["pattern"]][label["seed"]]

    def stored(point: int) -> Snapshot | None:
        return load_snapshot(directory, config, learner, label, point // config.spacing)

    if at in points and (found := stored(int(at))) is not None:
        return found
    known = [str(point) for point in points if stored(point) is not None]
    steps = f" and at steps {', '.join(known)}" if known else ""
    raise ValueError(f"policies are stored at the end{steps}; got {at!r}")

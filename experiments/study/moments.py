"""Policies of the moments at which drift changes: kept while training, for pictures of what the agent did then.

Of an agent only the arrays are kept that its deterministic policy reads: no optimiser, no targets, of SAC no critic.
One folder per carrier, wave and evaluation, written and checked like a checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.drift import change_points
from experiments.study import checkpoint
from experiments.study.build import Part
from experiments.study.config import StudyConfig
from experiments.study.snapshots import Snapshot
from experiments.study.store import MOMENTS


def evaluation_at(config: StudyConfig, carrier: str, step: int) -> int:
    """Number of the last evaluation at or before a vector step; at a change the policy knows what was before alone."""
    return step // config.chunk(carrier)


def keep_moments(
    directory: Path, config: StudyConfig, part: Part
) -> Callable[[int, int, Sequence[Mapping[str, Any]], Any], None]:
    """Callback after every evaluation, with wave, chunk, labels and state; it writes snapshots at changes.

    The policy at a change is the one that the segment before it ended with; that of the last is among the agents.
    """
    import polars as pl

    points = change_points(config.vector_steps(part.carrier), config.segments)
    wanted = {evaluation_at(config, part.carrier, point) for point in points} - {0}
    names = read_by(part)

    def keep(wave: int, chunk: int, labels: Sequence[Mapping[str, Any]], state: Any) -> None:
        if chunk not in wanted:
            return
        leaves = jax.tree.leaves(state.agent)
        kept = {name: leaves[int(name)] for name in names}
        rows = pl.DataFrame([dict(label) for label in labels])
        place = directory / MOMENTS / part.carrier / f"{wave:03d}-{chunk:05d}"
        checkpoint.save(place, config.fingerprint(), wave, chunk, kept, rows, runs=len(labels))

    return keep


def load_moment(directory: Path, config: StudyConfig, part: Part, run: int, chunk: int) -> Snapshot | None:
    """The policy of run ``run`` of ``part`` at an evaluation, or None where none was stored.

    Arrays of the agent that the policy does not read are zero.
    """
    agent, names = _shapes(part), read_by(part)
    leaves, structure = jax.tree.flatten(agent)
    like = {name: leaves[int(name)] for name in names}
    for place in sorted((directory / MOMENTS / part.carrier).glob(f"*-{chunk:05d}")):
        saved = checkpoint.load_newest(place, config.fingerprint(), like)
        rows = [] if saved is None else saved.rows.to_dicts()
        if saved is not None and part.labels[run] in rows:
            at = rows.index(part.labels[run])
            own = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
            for name in names:
                own[int(name)] = np.asarray(saved.state[name])[at]
            steps = chunk * config.chunk(part.carrier) * config.envs_of(part.carrier)
            return Snapshot(jax.tree.unflatten(structure, own), steps)
    return None


def read_by(part: Part) -> list[str]:
    """Numbers of the agent's arrays that its deterministic policy reads, as text."""
    agent, obs = _shapes(part), jax.ShapeDtypeStruct((1, part.setup.world.obs_size), jnp.float32)
    program = jax.make_jaxpr(part.setup.agent.act_deterministic)(agent, obs).jaxpr
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    read |= {id(variable) for variable in program.outvars}
    count = len(jax.tree.leaves(agent))
    return [str(i) for i, variable in enumerate(program.invars[:count]) if id(variable) in read]


def _shapes(part: Part) -> Any:
    """One agent's arrays, as shapes."""
    one = jax.tree.map(lambda leaf: leaf[0], part.runs)
    return jax.eval_shape(part.program.init, one).agent

"""Agents stored while training and at its end: checkpoints hold replays too and make room for newer ones.

One folder per carrier and wave, and evaluation where drift changes, written and checked like a checkpoint.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.drift import change_points
from experiments.study import checkpoint, checksums, store
from experiments.study.build import Part
from experiments.study.config import StudyConfig

if TYPE_CHECKING:
    import polars as pl


class Snapshot(NamedTuple):
    """One run's agent at some point of its training."""

    agent: Any  # pytree of NumPy arrays, no run axis
    step: int  # environment steps it has trained


def save_agents(
    directory: Path,
    config: StudyConfig,
    carrier: str,
    wave: int,
    labels: Sequence[Mapping[str, Any]],
    state: Any,
) -> None:
    """Store the agents of a wave that has just ended; the run axis of ``state`` may be longer than ``labels``."""
    place = directory / store.AGENTS / carrier / f"{wave:03d}"
    checkpoint.save(place, config.fingerprint(), wave, config.evaluations, {"agent": state.agent}, _rows(labels))


def load_ended(
    directory: Path, config: StudyConfig, carrier: str, like: Any
) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Labels and stacked states, in the structure of ``like``, of every wave that `save_agents` wrote."""
    for saved in _stored(directory, config, f"{store.AGENTS}/{carrier}/*", like):
        yield saved.rows.to_dicts(), saved.state


def _stored(directory: Path, config: StudyConfig, places: str, like: Any) -> Iterator[checkpoint.Saved]:
    """The agents or snapshots in the folders that match ``places``, once their checksums do."""
    for place in sorted(directory.glob(places)):
        checksums.check_folder(directory, place)
        saved = checkpoint.load_newest(place, config.fingerprint(), like)
        if saved is not None:
            yield saved


def load_agent(directory: Path, config: StudyConfig, part: Part, run: int) -> Snapshot:
    """The newest agent of run ``run`` of ``part``: the one it ended with, else that of the newest checkpoint."""
    like = part.shapes()
    per_chunk = config.chunk(part.carrier) * config.envs_of(part.carrier)
    label = part.labels[run]
    for saved in _stored(directory, config, f"{store.AGENTS}/{part.carrier}/*", {"agent": like.agent}):
        rows = saved.rows.to_dicts()
        if label in rows:
            return Snapshot(_row(saved.state["agent"], rows.index(label)), saved.chunk * per_chunk)
    place = directory / store.CHECKPOINTS / part.carrier
    saved = checkpoint.load_newest(place, config.fingerprint(), like)
    who = f"{label['method']}, {label['pattern']}, seed {label['seed']}"
    if saved is None:
        hint = "its training wrote none; train it again with a shorter --checkpoint-seconds"
        raise ValueError(f"the study in {directory} has no checkpoint of {who}: {hint}")
    width = jax.tree.leaves(saved.state)[0].shape[0]  # as it was when the checkpoint was written
    if run // width != saved.wave:
        raise ValueError(
            f"the newest checkpoint in {place} holds other runs (number {saved.wave * width + 1} to "
            f"{min((saved.wave + 1) * width, len(part.labels))} of {len(part.labels)}), not {who}"
        )
    return Snapshot(_row(saved.state.agent, run % width), saved.chunk * per_chunk)


def _rows(labels: Sequence[Mapping[str, Any]]) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame([dict(label) for label in labels])


def _row(state: Any, at: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[at], state)


def evaluation_at(config: StudyConfig, carrier: str, step: int) -> int:
    """Number of the last evaluation at or before a vector step; at a change the policy knows what was before alone."""
    return step // config.chunk(carrier)


def keep_moments(
    directory: Path, config: StudyConfig, part: Part, note: Callable[[str], None]
) -> Callable[[int, int, Sequence[Mapping[str, Any]], Any], None]:
    """Callback after every evaluation, with wave, chunk, labels and state; it writes snapshots at changes.

    The policy at a change is the one that the segment before it ended with; that of the last is among the agents. Only
    the arrays are stored that the deterministic policy reads: no optimiser, no targets, of SAC no critic.

    Args:
      note: called with a sentence where a snapshot cannot be written, which is no reason to end a study.
    """
    points = change_points(config.vector_steps(part.carrier), config.segments)
    wanted = {evaluation_at(config, part.carrier, point) for point in points} - {0}
    names = read_by(part)

    def keep(wave: int, chunk: int, labels: Sequence[Mapping[str, Any]], state: Any) -> None:
        if chunk not in wanted:
            return
        leaves = jax.tree.leaves(state.agent)
        kept = {name: leaves[int(name)] for name in names}
        place = directory / store.MOMENTS / part.carrier / f"{wave:03d}-{chunk:05d}"
        try:
            checkpoint.save(place, config.fingerprint(), wave, chunk, kept, _rows(labels), runs=len(labels))
        except store.Unwritable as error:
            note(f"{error}; this policy can be neither loaded nor filmed")

    return keep


def load_moment(directory: Path, config: StudyConfig, part: Part, run: int, chunk: int) -> Snapshot | None:
    """The policy of run ``run`` of ``part`` at an evaluation, or None where none was stored.

    Arrays of the agent that the policy does not read are zero.
    """
    agent, names = _agent_of(part), read_by(part)
    leaves, structure = jax.tree.flatten(agent)
    like = {name: leaves[int(name)] for name in names}
    for saved in _stored(directory, config, f"{store.MOMENTS}/{part.carrier}/*-{chunk:05d}", like):
        rows = saved.rows.to_dicts()
        if part.labels[run] in rows:
            at = rows.index(part.labels[run])
            own = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
            for name in names:
                own[int(name)] = np.asarray(saved.state[name])[at]
            steps = chunk * config.chunk(part.carrier) * config.envs_of(part.carrier)
            return Snapshot(jax.tree.unflatten(structure, own), steps)
    return None


def read_by(part: Part) -> list[str]:
    """Numbers of the agent's arrays that its deterministic policy reads, as text."""
    agent, obs = _agent_of(part), jax.ShapeDtypeStruct((1, part.setup.world.obs_size), jnp.float32)
    program = jax.make_jaxpr(part.setup.agent.act_deterministic)(agent, obs).jaxpr
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    read |= {id(variable) for variable in program.outvars}
    count = len(jax.tree.leaves(agent))
    return [str(i) for i, variable in enumerate(program.invars[:count]) if id(variable) in read]


def _agent_of(part: Part) -> Any:
    """One agent's arrays, as shapes."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), part.shapes().agent)

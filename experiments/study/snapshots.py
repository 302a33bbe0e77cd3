"""Agents stored while training and at its end: checkpoints hold replays too and make room for newer ones.

One folder per carrier and batch of runs, and evaluation where drift changes, written and checked like a checkpoint.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from agents.common.carrier import OnPolicyCarrier
from agents.train import Learner
from envs.drift import change_points
from experiments.study import checkpoint, store
from experiments.study.config import StudyConfig
from experiments.study.program import Share
from experiments.study.results import check_folder
from experiments.study.run import Evaluated

if TYPE_CHECKING:
    import polars as pl


class Snapshot(NamedTuple):
    """One run's agent at some point of its training."""

    agent: Any  # pytree of NumPy arrays, no run axis
    step: int  # environment steps it has trained


def agent_like(learner: Learner) -> Any:
    """One agent's arrays, as shapes."""
    key = jax.ShapeDtypeStruct((), jax.eval_shape(lambda: jax.random.key(0)).dtype)
    agent = learner.agent
    if isinstance(agent, OnPolicyCarrier):
        return jax.eval_shape(lambda key: agent.init(key, learner.sizes.num_envs), key)
    return jax.eval_shape(agent.init, key)


def save_agents(directory: Path, config: StudyConfig, carrier: str, now: Evaluated) -> None:
    """Store the agents of a batch of runs that has just ended."""
    place = directory / store.AGENTS / carrier / f"{now.batch:03d}"
    agents = {"agent": now.state.agent}
    checkpoint.save(place, config.fingerprint(), now.batch, config.evaluations, agents, _rows(now.labels))


def load_ended(directory: Path, config: StudyConfig, learner: Learner) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Labels and stacked agents of every batch of runs that `save_agents` wrote."""
    like = {"agent": _stacked(agent_like(learner))}
    for saved in _stored(directory, config, f"{store.AGENTS}/{learner.spec.name}/*", like):
        yield saved.rows.to_dicts(), saved.state["agent"]


def load_agent(directory: Path, config: StudyConfig, learner: Learner, label: Mapping[str, Any]) -> Snapshot:
    """The agent with which the run ``label`` ended."""
    for rows, agents in load_ended(directory, config, learner):
        if label in rows:
            return Snapshot(_row(agents, rows.index(dict(label))), config.steps)
    who = f"{label['method']}, {label['pattern']}, seed {label['seed']}"
    raise ValueError(f"{directory / store.AGENTS / learner.spec.name} holds no agent of {who}")


def _stored(directory: Path, config: StudyConfig, places: str, like: Any) -> Iterator[checkpoint.Saved]:
    """The agents or snapshots in the folders that match ``places``, once their checksums do."""
    for place in sorted(directory.glob(places)):
        check_folder(directory, place)
        saved = checkpoint.load_newest(place, config.fingerprint(), like)
        if saved is not None:
            yield saved


def _stacked(like: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), like)


def _rows(labels: Sequence[Mapping[str, Any]]) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame([dict(label) for label in labels])


def _row(state: Any, at: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[at], state)


def evaluation_at(config: StudyConfig, carrier: str, step: int) -> int:
    """Number of the last evaluation at or before a vector step; at a change the policy knows what was before alone."""
    return step // config.interval(carrier)


def snapshots_at(config: StudyConfig, share: Share) -> set[int]:
    """Numbers of the evaluations at changes of the drift, where policies are stored; none of another simulator's task.

    The policy at a change is the one that the segment before it ended with; that of the last is among the agents.
    """
    if getattr(share.learner.world.task.env, "exclusive", False):
        return set()
    points = change_points(config.vector_steps(share.carrier), config.segments)
    return {evaluation_at(config, share.carrier, point) for point in points} - {0}


def save_snapshot(
    directory: Path, config: StudyConfig, share: Share, now: Evaluated, note: Callable[[str], None]
) -> None:
    """Store the policies of a batch of runs: the arrays that the deterministic policy reads, of SAC no critic.

    Args:
      note: called with a sentence where a snapshot cannot be written, which is no reason to end a study.
    """
    leaves = jax.tree.leaves(now.state.agent)
    arrays = {name: leaves[int(name)] for name in read_by(share.learner)}
    place = directory / store.SNAPSHOTS / share.carrier / f"{now.batch:03d}-{now.number:05d}"
    try:
        name, rows = config.fingerprint(), _rows(now.labels)
        checkpoint.save(place, name, now.batch, now.number, arrays, rows, runs=len(now.labels))
    except store.Unwritable as error:
        note(f"{error}; this policy can be neither loaded nor filmed")


def load_snapshot(
    directory: Path, config: StudyConfig, learner: Learner, label: Mapping[str, Any], number: int
) -> Snapshot | None:
    """The policy of the run ``label`` at an evaluation, or None where none was stored.

    Arrays of the agent that the policy does not read are zero.
    """
    leaves, structure = jax.tree.flatten(agent_like(learner))
    like = {name: _stacked(leaves[int(name)]) for name in read_by(learner)}
    carrier = learner.spec.name
    for saved in _stored(directory, config, f"{store.SNAPSHOTS}/{carrier}/*-{number:05d}", like):
        rows = saved.rows.to_dicts()
        if label in rows:
            own = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
            for name in like:
                own[int(name)] = np.asarray(saved.state[name])[rows.index(dict(label))]
            steps = number * config.interval(carrier) * config.envs_of(carrier)
            return Snapshot(jax.tree.unflatten(structure, own), steps)
    return None


def read_by(learner: Learner) -> list[str]:
    """Numbers of the agent's arrays that its deterministic policy reads, as text."""
    agent, obs = agent_like(learner), jax.ShapeDtypeStruct((1, learner.world.obs_size), jnp.float32)
    program = jax.make_jaxpr(learner.agent.act_deterministic)(agent, obs).jaxpr
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    read |= {id(variable) for variable in program.outvars}
    count = len(jax.tree.leaves(agent))
    return [str(i) for i, variable in enumerate(program.invars[:count]) if id(variable) in read]

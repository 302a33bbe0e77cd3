"""The agents at the end of training, small: checkpoints hold replays too and make room for newer ones.

One folder per carrier and wave, written and checked like a checkpoint.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.study import checkpoint, store
from experiments.study.build import Part
from experiments.study.config import StudyConfig
from experiments.study.sources import AGENTS


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
    import polars as pl

    rows = pl.DataFrame([dict(label) for label in labels])
    place = directory / AGENTS / carrier / f"{wave:03d}"
    checkpoint.save(place, config.fingerprint(), wave, config.evaluations, {"agent": state.agent}, rows)


def load_ended(
    directory: Path, config: StudyConfig, carrier: str, like: Any
) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Labels and stacked states, in the structure of ``like``, of every wave that `save_agents` wrote."""
    for place in sorted((directory / AGENTS / carrier).glob("*")):
        saved = checkpoint.load_newest(place, config.fingerprint(), like)
        if saved is not None:
            yield saved.rows.to_dicts(), saved.state


def load_agent(directory: Path, config: StudyConfig, part: Part, run: int) -> Snapshot:
    """The newest agent of run ``run`` of ``part``: the one it ended with, else that of the newest checkpoint."""
    one = jax.tree.map(lambda leaf: leaf[:1], part.runs)
    like = jax.eval_shape(jax.vmap(part.program.init), one)
    per_chunk = config.chunk(part.carrier) * config.envs_of(part.carrier)
    label, notes = part.labels[run], []
    for place in sorted((directory / AGENTS / part.carrier).glob("*")):
        try:
            saved = checkpoint.load_newest(place, config.fingerprint(), {"agent": like.agent})
        except checkpoint.CheckpointError as error:
            notes.append(str(error))
            continue
        found = [] if saved is None else [i for i, row in enumerate(saved.rows.to_dicts()) if row == label]
        if saved is not None and found:
            return Snapshot(_row(saved.state["agent"], found[0]), saved.chunk * per_chunk)
    place = directory / store.CHECKPOINTS / part.carrier
    saved = checkpoint.load_newest(place, config.fingerprint(), like)
    who = f"{label['method']}, {label['pattern']}, seed {label['seed']}"
    if saved is None:
        reason = notes[0] if notes else "its training wrote none; train it again with a shorter --checkpoint-seconds"
        raise ValueError(f"the study in {directory} has no checkpoint of {who}: {reason}")
    width = jax.tree.leaves(saved.state)[0].shape[0]  # as it was when the checkpoint was written
    if run // width != saved.wave:
        raise ValueError(
            f"the newest checkpoint in {place} holds other runs (number {saved.wave * width + 1} to "
            f"{min((saved.wave + 1) * width, len(part.labels))} of {len(part.labels)}), not {who}"
        )
    return Snapshot(_row(saved.state.agent, run % width), saved.chunk * per_chunk)


def _row(state: Any, at: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[at], state)

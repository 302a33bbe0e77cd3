"""Checkpoints, final agents, and policies at changes: states of a batch of runs, written atomically.

Each is a folder with the state (orbax), the rows (Parquet) and `about.json`: its study, its progress, and the SHA-256
of the other files. It gets its final name in one rename. A damaged checkpoint is skipped and the previous one is used.
Checkpoints also hold replays, and old ones are deleted. Agents and policies have one folder per carrier and batch of
runs; policies also per evaluation at a change of the drift.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from aesjax.compiling import jit
from agents.common.carrier import OnPolicyCarrier
from agents.train import Learner
from envs.drift import change_steps, draw
from experiments.study import store
from experiments.study.config import StudyConfig
from experiments.study.process import numerics

_ABOUT = "about.json"
_KEEP = 2
_DIGITS = 7  # of the number of an evaluation in a folder's name, after the number of the batch


class CheckpointError(ValueError):
    """No checkpoint can be used; the text has the reason."""


class Saved(NamedTuple):
    """Contents of a checkpoint."""

    batch: int  # number of the batch of runs
    number: int  # evaluations of that batch in `state` and `rows`, besides the first
    state: Any  # pytree of NumPy arrays with a leading run axis
    rows: pl.DataFrame  # all rows so far, including finished batches
    notes: list[str]  # skipped checkpoints, with reasons
    devices: int | None = None  # number of devices in training; None: not recorded
    seconds: float = 0.0  # of training until then, in all sessions


def _folders(directory: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if path.is_dir() and path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)  # a batch may have more digits than others


def _name(batch: int, number: int) -> str:
    return f"{batch:03d}{number:0{_DIGITS}d}"


def save(
    directory: Path,
    study: str,
    batch: int,
    number: int,
    state: Any,
    rows: pl.DataFrame,
    devices: int | None = None,
    seconds: float = 0.0,
) -> None:
    """Write a checkpoint and delete all but the newest two.

    Args:
      study: fingerprint of the study's configuration.
      state: pytree of arrays with a leading run axis; fetched to the host here.
      devices: number of devices in training, which changes rounding.
      seconds: of training so far, in all sessions.

    Raises:
      Unwritable: it cannot be written; earlier checkpoints are unchanged and no partial file remains.
    """
    final = directory / _name(batch, number)
    partial = directory / f"{store.PARTIAL}{final.name}"
    host = jax.tree.map(np.asarray, jax.device_get(state))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _write_state(partial.absolute() / "state", host)
        store.write_rows(partial / "rows.parquet", rows)
        about = {"study": study, "batch": batch, "number": number, "rows": rows.height, "numerics": numerics()}
        about |= {"seconds": round(seconds, 2), "sha256": store.digest(_files(partial))} | (
            {} if devices is None else {"devices": devices}
        )
        store.write_json(partial / _ABOUT, about)
        for path in (*partial.rglob("*"), partial):
            store.sync(path)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            text = f"checkpoint {final} cannot be written: {store.reason(error)}"
            raise store.Unwritable(text) from None
        raise
    for old in _folders(directory)[_KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    for leftover in directory.glob(f"{store.PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _write_state(path: Path, state: Any) -> None:
    """Write a pytree of arrays into the new folder ``path`` by orbax; OSError on failure."""
    import orbax.checkpoint as ocp

    try:
        with ocp.PyTreeCheckpointer() as writer:
            # Orbax rejects arrays of size zero; for these the leading axis is written.
            writer.save(path, jax.tree.map(lambda x: x if np.size(x) else np.zeros(x.shape[:1], x.dtype), state))
    except (ValueError, RuntimeError) as error:  # long messages of tensorstore
        code = re.search(r"os_error_code='(\d+)'", str(error))
        raise OSError(os.strerror(int(code[1])) if code else store.reason(error)) from None


def _read_state(path: Path, like: Any) -> Any:
    """The state of ``path`` as NumPy arrays, in the structure of ``like``, a pytree of shapes."""
    import orbax.checkpoint as ocp

    arguments = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), like)
    with ocp.PyTreeCheckpointer() as reader:
        state = reader.restore(path, item=like, restore_args=arguments)
    return jax.tree.map(lambda x, y: x if np.size(y) else np.zeros(x.shape + y.shape[1:], x.dtype), state, like)


def _about(folder: Path, study: str) -> dict[str, Any]:
    """Contents of a checkpoint's `about.json`; ValueError if it is damaged or of another study."""
    about = store.read_json(folder / _ABOUT)
    if about["study"] != study:
        raise ValueError("it belongs to a study with another configuration")
    # Orbax would restore some changed bytes without an error, and print a traceback for a missing one.
    if about["sha256"] != store.digest(_files(folder)):
        raise ValueError("one of its files is missing, truncated or changed")
    return about


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _ABOUT)


def load_newest(directory: Path, study: str, like: Any) -> Saved | None:
    """The newest readable checkpoint, or None without checkpoints.

    Args:
      like: pytree of shapes (`jax.eval_shape` of the stacked init); the state is restored into its structure.

    Raises:
      CheckpointError: all checkpoints are damaged or of another study.
    """
    notes: list[str] = []
    for folder in _folders(directory):
        try:
            about, rows = _about(folder, study), store.read_rows(folder / "rows.parquet")
            state = _read_state(folder.absolute() / "state", like)
            return Saved(
                about["batch"], about["number"], state, rows, notes, about.get("devices"), about.get("seconds", 0.0)
            )
        except (ValueError, TypeError, KeyError, OSError) as error:  # orbax raises many classes
            notes.append(f"checkpoint {folder.name} was not used: {store.reason(error)}")
    if notes:
        raise CheckpointError(f"no usable checkpoint in {directory}: {notes[0]}")  # the newest
    return None


def evaluated(directory: Path, evaluations: int) -> int:
    """Evaluations, besides the first of every batch, until the newest checkpoint; 0 without one.

    Args:
      evaluations: of a batch.
    """
    for folder in _folders(directory):
        return int(folder.name[:-_DIGITS]) * evaluations + int(folder.name[-_DIGITS:])
    return 0


def adopt(source: Path, target: Path, study: str, batch: int, into: str) -> None:
    """Link or copy the newest checkpoint of a ``study`` into another folder, as batch ``batch`` of the study ``into``.

    Raises:
      CheckpointError: no checkpoint, or it is damaged or of another study.
      Unwritable: it cannot be written.
    """
    try:
        folder = next(iter(_folders(source)))
        about = _about(folder, study)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        why = "there is none" if isinstance(error, StopIteration) else store.reason(error)
        raise CheckpointError(f"no usable checkpoint in {source}: {why}") from None
    name = _name(batch, about["number"])
    partial = target / f"{store.PARTIAL}{name}"
    try:
        shutil.copytree(folder, partial, copy_function=_link, ignore=lambda _, names: {_ABOUT} & set(names))
        store.write_json(partial / _ABOUT, about | {"study": into, "batch": batch})
        os.rename(partial, target / name)
    except (OSError, shutil.Error) as error:
        raise store.Unwritable(f"{target / name} cannot be written: {store.reason(error)}") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class Snapshot(NamedTuple):
    """Agent of one run at some step of its training."""

    agent: Any  # pytree of NumPy arrays, no run axis
    step: int  # environment steps of its training


def agent_like(learner: Learner) -> Any:
    """Shapes of one agent's arrays."""
    key = jax.ShapeDtypeStruct((), jax.eval_shape(lambda: jax.random.key(0)).dtype)
    agent = learner.agent
    if isinstance(agent, OnPolicyCarrier):
        return jax.eval_shape(lambda key: agent.init(key, learner.sizes.num_envs), key)
    return jax.eval_shape(agent.init, key)


def save_agents(directory: Path, config: StudyConfig, carrier: str, now: Any) -> None:
    """Store the agents of a finished batch of runs; ``now``: its last `experiments.study.run.Evaluated`."""
    place = directory / store.AGENTS / carrier / f"{now.batch:03d}"
    agents = {"agent": now.state.agent}
    save(place, config.fingerprint(), now.batch, config.evaluations, agents, pl.DataFrame(now.labels))


def load_ended(directory: Path, config: StudyConfig, learner: Learner) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Labels and stacked agents of every batch of runs that `save_agents` wrote."""
    like = {"agent": _stacked(agent_like(learner))}
    for saved in _stored(directory, config, f"{store.AGENTS}/{learner.spec.name}/*", like):
        yield saved.rows.to_dicts(), saved.state["agent"]


def load_agent(directory: Path, config: StudyConfig, learner: Learner, label: Mapping[str, Any]) -> Snapshot:
    """Final agent of the run ``label``."""
    for rows, agents in load_ended(directory, config, learner):
        if label in rows:
            at = rows.index(dict(label))
            return Snapshot(jax.tree.map(lambda leaf, at=at: np.asarray(leaf)[at], agents), config.steps)
    who = f"{label['method']}, {label['pattern']}, seed {label['seed']}"
    raise ValueError(f"{directory / store.AGENTS / learner.spec.name} holds no agent of {who}")


def _stored(directory: Path, config: StudyConfig, places: str, like: Any) -> Iterator[Saved]:
    """Agents or snapshots in the folders that match ``places``, with verified checksums."""
    for place in sorted(directory.glob(places)):
        store.check_folder(directory, place)
        saved = load_newest(place, config.fingerprint(), like)
        if saved is not None:
            yield saved


def _stacked(like: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), like)


def changes_of(config: StudyConfig, learner: Learner) -> dict[str, dict[int, list[int]]]:
    """Pattern -> seed -> environment steps at which the drift changes while the run trains.

    Raises:
      ValueError: they do not increase.
    """
    world, seeds = learner.world, [seed if config.drift_seed is None else config.drift_seed for seed in config.seeds]

    def steps_of(seed: jax.Array) -> dict[str, jax.Array]:
        sample, channels = draw(world.task, seed, world.segments), world.task.channels
        return {n: change_steps(channels, world.patterns[n], sample, world.timeline) for n in config.patterns}

    changes: dict[str, dict[int, list[int]]] = {name: {} for name in config.patterns}
    for name, drawn in jit(jax.vmap(steps_of))(jnp.array(seeds, jnp.uint32)).items():
        for seed, steps in zip(config.seeds, learner.sizes.num_envs * np.asarray(drawn, np.int64), strict=True):
            steps = steps[1:] if config.onset and steps[0] < 0 else steps  # no jump at the onset
            if not np.all(np.diff(steps, prepend=0, append=config.whole) > 0):
                raise ValueError(f"changes of pattern '{name}' must increase during a run; got steps {steps.tolist()}")
            changes[name][seed] = steps[steps < config.steps].tolist()
    return changes


def snapshots_at(config: StudyConfig, learner: Learner) -> set[int]:
    """Numbers of the evaluations at changes of any run, where policies are stored; empty for external simulators.

    The policy at a change is the last one before it; the policy after the last change is the final agent.
    """
    if getattr(learner.world.task.env, "exclusive", False):
        return set()
    runs = [steps for of_seeds in changes_of(config, learner).values() for steps in of_seeds.values()]
    return {*(np.concatenate(runs).astype(int) // config.spacing).tolist()} - {0}


def save_snapshot(
    directory: Path, config: StudyConfig, learner: Learner, now: Any, note: Callable[[str], None]
) -> None:
    """Store the policies of a batch of runs: the arrays that the deterministic policy reads, without SAC's critics.

    Args:
      note: called with a sentence if a snapshot cannot be written, which does not end the study.
    """
    leaves, count = jax.tree.leaves(now.state.agent), len(now.labels)
    arrays = {name: leaves[int(name)][:count] for name in read_by(learner)}
    place = directory / store.SNAPSHOTS / learner.spec.name / f"{now.batch:03d}-{now.number:05d}"
    try:
        save(place, config.fingerprint(), now.batch, now.number, arrays, pl.DataFrame(now.labels))
    except store.Unwritable as error:
        note(f"{error}; this policy can be neither loaded nor filmed")


def load_snapshot(
    directory: Path, config: StudyConfig, learner: Learner, label: Mapping[str, Any], number: int
) -> Snapshot | None:
    """The policy of the run ``label`` at an evaluation, or None if it was not stored.

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
            return Snapshot(jax.tree.unflatten(structure, own), number * config.spacing)
    return None


def read_by(learner: Learner) -> list[str]:
    """Indices of the agent's arrays that its deterministic policy reads, as text."""
    agent, obs = agent_like(learner), jax.ShapeDtypeStruct((1, learner.world.obs_size), jnp.float32)
    program = jax.make_jaxpr(learner.agent.act_deterministic)(agent, obs).jaxpr
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    read |= {id(variable) for variable in program.outvars}
    count = len(jax.tree.leaves(agent))
    return [str(i) for i, variable in enumerate(program.invars[:count]) if id(variable) in read]

"""Trained agents that the runs of a study begin with: `--warm-start DIR`, a finished study or agents exported from one.

The agent is taken over: parameters, targets, optimiser moments, running statistics of observations and rewards. All
else begins again, alike in every arm: environments, replay, schedule, adaptations and the drift, whose clock is at 0.
One exception concerns the tuning of a temperature: `auto` starts from the entropy weight at the end of the agent's
training, unless ``auto_initial`` is typed. Agents that did not observe the drift begin a study with ``observe="drift"``
too: see `widened`.

`export` writes agents apart from their study: one NumPy archive per carrier, float32 arrays with a leading axis over
agents under the paths of the agent's state, and `warm.json` with what they were trained on, seeds, returns and SHA-256.
"""

import dataclasses
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from aesjax.schedules import Schedule
from agents import CarrierSpec
from agents.train import Learner
from experiments.study import checkpoint, store
from experiments.study.checkpoint import agent_like, load_ended
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.program import Share, share_of
from experiments.study.store import EXPORTED, agent_files

FORMAT = 1  # of exported agents
STEADY = "steady"


class Agents(NamedTuple):
    """One carrier's trained agents. R = how many."""

    nature: Mapping[str, Any]  # what they were trained on and how, plain JSON: see `nature_of`
    runs: list[dict[str, Any]]  # (R,) seed, method, steps, entropy_weight, return_mean
    leaves: Mapping[str, np.ndarray]  # path in the agent's state -> (R, ...); nothing about episodes under way
    moments: frozenset[str] = frozenset()  # those of the paths that Adam remembers


class Warm(NamedTuple):
    """Trained agents with which a part of a study begins."""

    runs: Any  # those of the part, `auto` starting where its agent stood
    begin: Callable[[Sequence[int], Any], Any]  # see `experiments.study.run.sweep`
    agents: list[dict[str, Any]]  # per seed, for the manifest: which agent


def nature_of(learner: Learner, config: StudyConfig) -> dict[str, Any]:
    """Fields that must agree between the study that trained agents and the one that begins with them, plain JSON."""
    task, own = learner.world.task, config.settings[learner.spec.name]
    named = {channel.name for channel in task.channels}
    seen = {"observe": {c.name: [c.low, c.high] for c in task.channels}} if config.observe else {}
    return json.loads(
        json.dumps(
            {
                "task": config.task,
                # Where the physics is computed is not part of the task that is learned, nor what drifts unobserved.
                "options": {k: v for k, v in config.options.items() if k not in ("engine", "channels")},
                "altered_by": sorted(named & set(task.altering)),
                "observation_size": task.env.spec.obs_size,
                "action_size": task.env.spec.action_size,
                "config": dataclasses.asdict(learner.agent.config),
                "hyper": {k: float(v) for k, v in learner.spec.hyper(**own.hyper)._asdict().items()},
            }
            | seen
        )
    )


def _misfit(carrier: CarrierSpec, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Text after "its agents" where two natures differ in something that may not; ours alone may observe the drift."""
    if "observe" in theirs and "observe" not in ours:
        return "observed the true drift, which this study does not (--observe drift)"
    differing = [
        f"{name.replace('_', ' ')} {json.dumps(theirs.get(name))}, not {json.dumps(ours.get(name))}"
        for name in ("task", "options", "altered_by", "observation_size", "action_size", "observe")
        if theirs.get(name) != ours.get(name) and (name != "observe" or "observe" in theirs)
    ]
    meaning = carrier.meaning
    for group in ("config", "hyper"):
        names = set(ours["config"]) if meaning is None else set(meaning)
        differing += [
            f"{name} {json.dumps(theirs[group].get(name))}, not {json.dumps(ours[group][name])}"
            for name in sorted(names & set(ours[group]))
            if theirs[group].get(name) != ours[group][name]
        ]
    return f"have {'; '.join(differing)}" if differing else ""


def _named(tree: Any) -> dict[str, Any]:
    """Path -> leaf."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _moments_of(agent: Any) -> frozenset[str]:
    """Paths of all that Adam remembers."""

    def is_adam(node: Any) -> bool:
        return isinstance(node, optax.ScaleByAdamState)

    found = set()
    for path, node in jax.tree_util.tree_leaves_with_path(agent, is_leaf=is_adam):
        if is_adam(node):
            found |= {jax.tree_util.keystr(path) + name for name in _named(node)}
    return frozenset(found)


def _episodic(learner: Learner, path: str) -> bool:
    names = learner.spec.episodic
    return any(path == f".{name}" or path.startswith((f".{name}.", f".{name}[")) for name in names)


def read(directory: Path, carrier: str, *, seeds: Sequence[int] | None = None) -> Agents:
    """The agents of one carrier in ``directory``, of every finished run on `STEADY` of one method.

    Args:
      directory: a finished study, or agents exported from one.
      seeds: these only; None: all there are.
    """
    found = _exported(directory, carrier) if (directory / EXPORTED).is_file() else _trained(directory, carrier)
    there = [run["seed"] for run in found.runs]
    if seeds is None:
        return found
    if missing := sorted(set(seeds) - set(there)):
        raise ValueError(f"{directory}: there is no trained agent of '{carrier}' with seed {missing[0]}")
    at = [there.index(seed) for seed in seeds]
    leaves = {name: leaf[at] for name, leaf in found.leaves.items()}
    return found._replace(runs=[found.runs[i] for i in at], leaves=leaves)


def _trained(directory: Path, carrier: str) -> Agents:
    import polars as pl

    agent_files(directory, [carrier])
    study = open_study(directory)
    config, share = study.config, share_of(study.config, carrier)
    finished, curves = study.ended.runs("finished"), study.ended.rows(store.CURVES)
    good = [
        label
        for label in share.labels
        if label["pattern"] == STEADY and (label["method"], STEADY, label["seed"]) in finished
    ]
    if not good:
        raise ValueError(f"{directory}: no run of carrier '{carrier}' on '{STEADY}' has finished")
    own = share.learner.spec.label  # the baseline's, if the study has it
    method = own if any(label["method"] == own for label in good) else good[0]["method"]
    good = [label for label in good if label["method"] == method]
    agents = _rows(directory, config, share.learner, good)
    leaves = {name: leaf for name, leaf in _named(agents).items() if not _episodic(share.learner, name)}
    runs = []
    for label in good:
        last = curves.filter(pl.col("method") == method, carrier=carrier, pattern=STEADY, seed=label["seed"])
        last = last.sort("step").row(-1, named=True)
        runs.append({name: last[name] for name in ("seed", "method", "step", "entropy_weight", "return_mean")})
    nature = nature_of(share.learner, config)
    nature["hyper"] |= next(row.method.hyper for row in share.rows if row.name == method)
    return Agents(nature, runs, leaves, _moments_of(agents))


def _rows(directory: Path, config: StudyConfig, learner: Learner, labels: Sequence[Mapping[str, Any]]) -> Any:
    """Agents that `save_agents` stored for the runs ``labels``, stacked in their order."""
    found: dict[int, Any] = {}
    try:
        for rows, state in load_ended(directory, config, learner):
            for at, row in enumerate(rows):
                if row in labels:
                    found[labels.index(row)] = jax.tree.map(lambda leaf, at=at: np.asarray(leaf)[at], state)
    except checkpoint.CheckpointError as error:
        raise ValueError(f"{directory}: {error}") from None
    for at, label in enumerate(labels):
        if at not in found:
            place, who = directory / store.AGENTS / learner.spec.name, f"{label['method']}, seed {label['seed']}"
            raise ValueError(f"{place}: nothing is kept of {who}")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(found[at] for at in range(len(labels))))


def _exported(directory: Path, carrier: str) -> Agents:
    path, about = directory / EXPORTED, store.read_json(directory / EXPORTED)
    try:
        if about["format"] != FORMAT:
            raise ValueError(f"{path}: its format is {about['format']}, this version reads {FORMAT}")
        if carrier not in about["carriers"]:
            known = ", ".join(about["carriers"])
            raise ValueError(f"--warm-start {directory}: it has no agents of carrier '{carrier}'; carriers: {known}")
        entry = about["carriers"][carrier]
        file, digest, nature, runs = (entry[name] for name in ("file", "sha256", "nature", "runs"))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from None
    data = directory / file
    if not data.is_file() or store.sha256(data) != digest:
        raise ValueError(f"{data} is missing, truncated or changed")
    try:
        with np.load(data, allow_pickle=False) as arrays:
            leaves = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{data} cannot be read: {error}") from None
    return Agents(nature, runs, leaves)


def warm_of(config: StudyConfig, share: Share, runs: Any) -> Warm | None:
    """Trained agents of the stacked ``runs`` of a share; None where they begin with new agents.

    The run of a seed takes the agent trained with that seed; seeds without one take those there are in turn.
    """
    given, carrier = config.warm_start, share.carrier
    if not given:
        return None
    directory = Path(given["from"])
    if store.digest(agent_files(directory, config.carriers)) != given["sha256"]:
        raise ValueError(f"the agents in {directory} are not those that the study was configured with")
    agents = read(directory, carrier)
    ours, like = nature_of(share.learner, config), agent_like(share.learner)
    if misfit := _misfit(share.learner.spec, agents.nature, ours):
        raise ValueError(f"--warm-start {directory}: its agents of carrier '{carrier}' {misfit}")
    if "observe" in ours and "observe" not in agents.nature:
        agents = widened(agents, like, carrier, sum(channel.size for channel in share.learner.world.task.channels))
    moments = _fitting(directory, share.learner, agents, like)

    trained = {run["seed"]: i for i, run in enumerate(agents.runs)}
    others = [seed for seed in config.seeds if seed not in trained]
    source = {seed: trained[seed] if seed in trained else others.index(seed) % len(trained) for seed in config.seeds}
    of = np.array([source[label["seed"]] for label in share.labels])

    weight = np.array([run["entropy_weight"] for run in agents.runs], np.float32)[of]
    typed = {row.name for row in share.rows if "auto_initial" in row.method.values}
    own = np.array([label["method"] in typed for label in share.labels]) | ~(np.isfinite(weight) & (weight > 0))
    begun = {"auto_initial": weight}
    schedules = tuple(
        Schedule(
            schedule.factory,
            {o: np.where(own, value, begun[o]) if o in begun else value for o, value in schedule.given.items()},
            schedule.proxy,
        )
        for schedule in runs.schedules
    )
    runs = runs._replace(schedules=schedules)

    def begin(members: Sequence[int], state: Any) -> Any:
        at = of[np.asarray(members)]

        def taken(path: Any, leaf: Any) -> Any:
            name = jax.tree_util.keystr(path)
            return agents.leaves[name][at] if name in agents.leaves else leaf

        return state._replace(agent=jax.tree_util.tree_map_with_path(taken, state.agent))

    found = [{"seed": seed, "trained": agents.runs[i], "shared": seed in others} for seed, i in source.items()]
    return Warm(runs, begin, [entry | {"adam": "continued" if moments else "anew"} for entry in found])


def widened(agents: Agents, like: Any, carrier: str, drift: int) -> Agents:
    """Agents that observe ``drift`` more numbers and act as before, of whatever value these are.

    The weights of the new inputs are 0, as are Adam's moments of them; running statistics begin at mean 0, variance 1.
    Observations are a network's first inputs; in MEow's flow they are the last.
    """
    wanted, at = _named(like), agents.nature["observation_size"]
    wider = dict(agents.leaves)
    for name, leaf in agents.leaves.items():
        shape = wanted[name].shape if name in wanted else leaf.shape[1:]
        for axis, (ours, theirs) in enumerate(zip(shape, leaf.shape[1:], strict=False), start=1):
            if ours == theirs + drift:
                place = [theirs if carrier == "meow" else at] * drift
                wider[name] = np.insert(leaf, place, float(name.endswith(".var")), axis=axis)
    return agents._replace(leaves=wider)


def _fitting(directory: Path, learner: Learner, agents: Agents, like: Any) -> bool:
    """Whether Adam's moments are there, which may be left out together."""
    wanted = {name: leaf for name, leaf in _named(like).items() if not _episodic(learner, name)}
    moments = _moments_of(like)
    there = bool(moments & agents.leaves.keys())
    for name, leaf in wanted.items():
        found = agents.leaves.get(name)
        if found is None and name in moments and not there:
            continue
        if found is None or found.shape[1:] != leaf.shape or found.dtype != leaf.dtype:
            has = "missing" if found is None else f"{found.dtype}{list(found.shape[1:])}"
            raise ValueError(
                f"--warm-start {directory}: the parameters of its agents of carrier '{learner.spec.name}' do not fit: "
                f"{name} is {has}, not {leaf.dtype}{list(leaf.shape)}"
            )
    return there


def export(directories: Sequence[Path], out: Path, *, seeds: Sequence[int] | None = None, moments: bool = False) -> int:
    """Write the agents that the studies in ``directories`` ended with into ``out``; the bytes that they take.

    Args:
      directories: finished studies of one task; every carrier is taken from the first that trained it.
      out: a folder that is new or empty.
      seeds: of the agents wanted; None: all there are.
      moments: with what Adam remembers, which is twice the parameters.
    """
    store.check_new(out, "--out")
    found: dict[str, tuple[Path, Any]] = {}
    for directory in directories:
        config = open_study(directory).config
        for carrier in config.carriers:
            found.setdefault(carrier, (directory, config))
    tasks = {directory: config.task for directory, config in found.values()}
    if len(set(tasks.values())) > 1:
        (one, first), (other, second) = list(tasks.items())[:2]
        raise ValueError(f"the studies are of different tasks: {first} in {one}, {second} in {other}")
    agents = {carrier: read(directory, carrier, seeds=seeds) for carrier, (directory, _) in found.items()}

    out.mkdir(parents=True, exist_ok=True)
    entries = {}
    for carrier, one in agents.items():
        path = out / f"{carrier}.npz"
        kept = {name: leaf for name, leaf in one.leaves.items() if moments or name not in one.moments}
        with store.replacing(path) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, **kept)  # type: ignore  # names are not those of its parameters
        directory, config = found[carrier]
        entries[carrier] = {
            "file": path.name,
            "sha256": store.sha256(path),
            "nature": dict(one.nature),
            "runs": one.runs,
            "adam": moments,
            "study": config.to_json(),
            "commit": open_study(directory).ended.manifest.get("commit"),
        }
    store.write_json(out / EXPORTED, {"format": FORMAT, "carriers": entries})
    return sum(path.stat().st_size for path in out.iterdir())

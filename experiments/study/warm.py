"""Trained agents that the runs of a study begin with: `--warm-start DIR`, a finished study or agents exported from one.

The agent is taken over: parameters, targets, optimiser moments, running statistics of observations and rewards. All
else begins again, alike in every arm: environments, replay, schedule, adaptations and the drift, whose clock is at 0.
One exception concerns the tuning of a temperature: `auto` starts from the entropy weight at the end of the agent's
training, unless ``auto_initial`` is typed. Agents that did not observe the drift begin a study with ``observe="drift"``
too: see `widened`.
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

from agents import CARRIERS
from experiments.study import checkpoint, store
from experiments.study.build import Part, build_part
from experiments.study.config import StudyConfig
from experiments.study.folder import open_study
from experiments.study.snapshots import load_ended
from experiments.study.sources import EXPORTED, agent_files

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
    begin: Callable[[Sequence[int], Any], Any]  # see `experiments.study.driver.run_sweep`
    agents: list[dict[str, Any]]  # per seed, for the manifest: which agent


def nature_of(config: StudyConfig, carrier: str) -> dict[str, Any]:
    """Fields that must agree between the study that trained agents and the one that begins with them, plain JSON."""
    task, spec, own = config.build_task(), CARRIERS[carrier], config.settings[carrier]
    static = spec.config(**{k: tuple(v) if isinstance(v, list) else v for k, v in own["config"].items()})
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
                "config": dataclasses.asdict(static),
                "hyper": {k: float(v) for k, v in spec.hyper(**own["hyper"])._asdict().items()},
            }
            | seen
        )
    )


def _misfit(carrier: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Text after "its agents" where two natures differ in something that may not; ours alone may observe the drift."""
    if "observe" in theirs and "observe" not in ours:
        return "observed the true drift, which this study does not (--observe drift)"
    differing = [
        f"{name.replace('_', ' ')} {json.dumps(theirs.get(name))}, not {json.dumps(ours.get(name))}"
        for name in ("task", "options", "altered_by", "observation_size", "action_size", "observe")
        if theirs.get(name) != ours.get(name) and (name != "observe" or "observe" in theirs)
    ]
    meaning = CARRIERS[carrier].meaning
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


def _episodic(carrier: str, path: str) -> bool:
    return any(path == f".{name}" or path.startswith((f".{name}.", f".{name}[")) for name in CARRIERS[carrier].episodic)


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
    study = open_study(directory, ended=True)
    config, part = study.config, build_part(study.config, carrier)
    finished, curves = study.ended.runs("finished"), study.ended.rows(store.CURVES)
    good = [
        label
        for label in part.labels
        if label["pattern"] == STEADY and (label["method"], STEADY, label["seed"]) in finished
    ]
    if not good:
        raise ValueError(f"{directory}: no run of carrier '{carrier}' on '{STEADY}' has finished")
    own = CARRIERS[carrier].label  # the baseline's, if the study has it
    method = own if any(label["method"] == own for label in good) else good[0]["method"]
    good = [label for label in good if label["method"] == method]
    like = part.shapes()
    agents = _rows(directory, config, carrier, {"agent": like.agent}, good)
    leaves = {name: leaf for name, leaf in _named(agents["agent"]).items() if not _episodic(carrier, name)}
    runs = []
    for label in good:
        last = curves.filter(pl.col("method") == method, carrier=carrier, pattern=STEADY, seed=label["seed"])
        last = last.sort("step").row(-1, named=True)
        runs.append({name: last[name] for name in ("seed", "method", "step", "entropy_weight", "return_mean")})
    nature = nature_of(config, carrier)
    typed = {name: value for arm in part.setup.arms if arm.name == method for name, value in arm.values}
    nature["hyper"] |= {name: value for name, value in typed.items() if name in nature["hyper"]}
    return Agents(nature, runs, leaves, _moments_of(like.agent))


def _rows(directory: Path, config: StudyConfig, carrier: str, like: Any, labels: Sequence[Mapping[str, Any]]) -> Any:
    """Agents that `save_agents` stored for the runs ``labels``, stacked in their order."""
    found: dict[int, Any] = {}
    try:
        for rows, state in load_ended(directory, config, carrier, like):
            for at, row in enumerate(rows):
                if row in labels:
                    found[labels.index(row)] = jax.tree.map(lambda leaf, at=at: np.asarray(leaf)[at], state)
    except checkpoint.CheckpointError as error:
        raise ValueError(f"{directory}: {error}") from None
    for at, label in enumerate(labels):
        if at not in found:
            place, who = directory / store.AGENTS / carrier, f"{label['method']}, seed {label['seed']}"
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


def warm_of(config: StudyConfig, part: Part) -> Warm | None:
    """Trained agents of the runs of ``part``; None where they begin with new agents.

    The run of a seed takes the agent trained with that seed; seeds without one take those there are in turn.
    """
    given, carrier = config.warm_start, part.carrier
    if not given:
        return None
    directory = Path(given["from"])
    if store.digest(agent_files(directory, config.carriers)) != given["sha256"]:
        raise ValueError(f"the agents in {directory} are not those that the study was configured with")
    agents = read(directory, carrier)
    ours, like = nature_of(config, carrier), part.shapes().agent
    if misfit := _misfit(carrier, agents.nature, ours):
        raise ValueError(f"--warm-start {directory}: its agents of carrier '{carrier}' {misfit}")
    if "observe" in ours and "observe" not in agents.nature:
        agents = widened(agents, like, carrier, sum(channel.size for channel in config.build_task().channels))
    moments = _fitting(directory, carrier, agents, like)

    trained = {run["seed"]: i for i, run in enumerate(agents.runs)}
    others = [seed for seed in config.seeds if seed not in trained]
    source = {seed: trained[seed] if seed in trained else others.index(seed) % len(trained) for seed in config.seeds}
    of = np.array([source[label["seed"]] for label in part.labels])

    weight = np.array([run["entropy_weight"] for run in agents.runs], np.float32)[of]
    typed = {arm.name for arm in part.setup.arms if "auto_initial" in dict(arm.values)}
    own = np.array([label["method"] in typed for label in part.labels]) | ~(np.isfinite(weight) & (weight > 0))
    options = {
        name: {o: np.where(own, value, weight) if o == "auto_initial" else value for o, value in options.items()}
        for name, options in part.runs.schedule.options.items()
    }
    runs = part.runs._replace(schedule=part.runs.schedule._replace(options=options))

    def begin(members: Sequence[int], state: Any) -> Any:
        at = of[np.asarray(members)]

        def taken(path: Any, leaf: Any) -> Any:
            name = jax.tree_util.keystr(path)
            return agents.leaves[name][at] if name in agents.leaves else leaf

        return state._replace(agent=jax.tree_util.tree_map_with_path(taken, state.agent))

    begun = [{"seed": seed, "trained": agents.runs[i], "shared": seed in others} for seed, i in source.items()]
    return Warm(runs, begin, [entry | {"adam": "continued" if moments else "anew"} for entry in begun])


def widened(agents: Agents, like: Any, carrier: str, drift: int) -> Agents:
    """Agents that observe ``drift`` more numbers and act as before, of whatever value these are.

    The weights of the new inputs are 0, as are Adam's moments of them; running statistics begin at mean 0, variance 1.
    Observations are a network's first inputs; in MEow's flow they are the last.
    """
    wanted, at = _named(like), agents.nature["observation_size"]
    wider = dict(agents.leaves)
    for name, leaf in agents.leaves.items():
        shape = wanted[name].shape if name in wanted else leaf.shape
        for axis, (ours, theirs) in enumerate(zip(shape[1:], leaf.shape[1:], strict=False), start=1):
            if ours == theirs + drift:
                place = [theirs if carrier == "meow" else at] * drift
                wider[name] = np.insert(leaf, place, float(name.endswith(".var")), axis=axis)
    return agents._replace(leaves=wider)


def _fitting(directory: Path, carrier: str, agents: Agents, like: Any) -> bool:
    """Whether Adam's moments are there, which may be left out as a whole."""
    wanted = {name: leaf for name, leaf in _named(like).items() if not _episodic(carrier, name)}
    moments = _moments_of(like)
    there = bool(moments & agents.leaves.keys())
    for name, leaf in wanted.items():
        shape = leaf.shape[1:]
        found = agents.leaves.get(name)
        if found is None and name in moments and not there:
            continue
        if found is None or found.shape[1:] != shape or found.dtype != leaf.dtype:
            has = "missing" if found is None else f"{found.dtype}{list(found.shape[1:])}"
            raise ValueError(
                f"--warm-start {directory}: the parameters of its agents of carrier '{carrier}' do not fit: "
                f"{name} is {has}, not {leaf.dtype}{list(shape)}"
            )
    return there

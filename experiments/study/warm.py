"""Initial agents of a study's runs: `--warm-start DIR`, a finished study or agents exported from one.

The agent's parameters, targets, optimiser moments, and running statistics of observations and rewards are used. All
other state starts anew in every method: environments, replay, schedule, adaptations and the drift clock. One exception:
`auto` starts from the entropy weight at the end of the agent's training, unless ``auto_initial`` is given. Agents that
did not observe the drift are extended for ``observe``: see `widened`.

`export_agents` writes agents without their study and without Adam's state: one NumPy archive per carrier, with float32
arrays under the paths of the agent's state and a leading axis over agents, and `warm.json` with their training
settings, seeds, returns and SHA-256.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from aesjax.schedules import Schedule
from agents import CarrierSpec
from agents.train import Learner
from envs.world import DRIFT
from experiments.study import store
from experiments.study.checkpoint import agent_like, load_agent
from experiments.study.codec import Objects
from experiments.study.config import STEADY
from experiments.study.folder import open_study, writing
from experiments.study.process import check_numerics
from experiments.study.program import Plan, Share
from experiments.study.store import EXPORTED, agent_files

FORMAT = 1  # of exported agents
#: Fields that a task may lack.
_SAME = ("task", "options", "altered_by", "observation_size", "action_size", "discrete", "observe")


class Agents(NamedTuple):
    """Trained agents of one carrier; R is their number."""

    nature: Mapping[str, Any]  # settings of their training, plain JSON: see `nature_of`
    runs: list[dict[str, Any]]  # (R,) seed, method, step, entropy_weight, return_mean
    leaves: Mapping[str, np.ndarray]  # path in the agent's state -> (R, ...), without unfinished episodes


class Warm(NamedTuple):
    """Initial agents of one carrier's runs."""

    runs: Any  # runs of the carrier; `auto` starts from its agent's weight
    begin: Callable[[Sequence[int], Any], Any]  # see `experiments.study.run.sweep`
    agents: list[dict[str, Any]]  # per seed, for the manifest: its agent


def nature_of(share: Share) -> dict[str, Any]:
    """Settings that must match between the training of agents and a study that starts from them, plain JSON."""
    config, learner, task = share.config, share.learner, share.learner.world.task
    named = {channel.name for channel in task.channels}
    nature = {
        "task": config.task,
        # The physics engine and unobserved channels are not part of the learned task.
        "options": {k: v for k, v in config.options.items() if k not in ("engine", "channels")},
        "altered_by": sorted(named & set(task.altering)),
        "observation_size": learner.world.own_size,
        "action_size": task.env.spec.action_size,
        "config": dataclasses.asdict(learner.agent.config),
        "hyper": {k: float(v) for k, v in learner.spec.hyper(**config.settings[share.carrier].hyper)._asdict().items()},
    }
    if task.env.spec.discrete:
        nature["discrete"] = True
    if config.observe:
        ranges = {channel.name: [channel.low, channel.high] for channel in task.channels}
        nature["observe"] = ranges if config.observe == DRIFT else {config.observe: [0, 1]}
    return json.loads(json.dumps(nature))


def _misfit(carrier: CarrierSpec, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Text after "its agents" if required settings differ; only the new study may observe the drift."""
    if "observe" in theirs and "observe" not in ours:
        return f"observed {', '.join(theirs['observe'])} of the drift, which this study does not (--observe)"
    pairs = [(name, theirs.get(name), ours.get(name)) for name in _SAME if name != "observe" or name in theirs]
    for group in ("config", "hyper"):
        names = set(ours["config"]) if carrier.meaning is None else set(carrier.meaning)
        pairs += [(name, theirs[group].get(name), ours[group][name]) for name in sorted(names & set(ours[group]))]
    differing = [
        f"{name.replace('_', ' ' if name in _SAME else '_')} {json.dumps(one)}, not {json.dumps(other)}"
        for name, one, other in pairs
        if one != other
    ]
    return f"have {'; '.join(differing)}" if differing else ""


def _named(learner: Learner, agent: Any) -> dict[str, Any]:
    """Path -> leaf of an agent's state, without unfinished episodes."""
    names = "|".join(learner.spec.episodic)
    leaves = ((jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(agent))
    return {name: leaf for name, leaf in leaves if not (names and re.match(rf"\.({names})\b", name))}


def _of_optimiser(path: str) -> bool:
    """Whether a path belongs to an optimiser's state or is a rounding error; running statistics have a count."""
    return re.search(r"^\.(\w+_)?opt\b|(?<!_moments)\.(count|mu|nu)\b|\.lost\b", path) is not None


def read(
    directory: Path,
    carrier: str,
    run: Mapping[str, Any] = MappingProxyType({}),
    objects: Objects = MappingProxyType({}),
) -> Agents:
    """Agents of one carrier, from the finished runs of one method and pattern of a study, or exported.

    The pattern is `STEADY` if the study has it, else its only pattern.

    Args:
      run: method, pattern and seed, to read the agent of one run.
      objects: see `open_study`.
    """
    exported = (directory / EXPORTED).is_file()
    return _exported(directory, carrier) if exported else _trained(directory, carrier, run, objects)


def _trained(directory: Path, carrier: str, run: Mapping[str, Any], objects: Objects) -> Agents:
    import polars as pl

    agent_files(directory, [carrier])
    study = open_study(directory, objects)
    config, share = study.config, Plan(study.config).share(carrier)
    finished, curves = study.ended.runs("finished"), study.ended.rows(store.CURVES)
    good = [label for label in share.labels if (label["method"], label["pattern"], label["seed"]) in finished]
    good = [label for label in good if run.items() <= {**label, "step": config.steps}.items()]
    patterns = {label["pattern"] for label in good}
    if len(patterns & {STEADY} or patterns) != 1:
        several = f"runs on {', '.join(sorted(patterns))}: give the Policy of one of them as start"
        none = f"no finished run{f' of {dict(run)}' if run else ''}"
        raise ValueError(f"{directory} has, of carrier '{carrier}', {several if patterns else none}")
    (pattern,) = patterns & {STEADY} or patterns
    good = [label for label in good if label["pattern"] == pattern]
    own = share.learner.spec.label  # of the baseline, if the study has it
    method = own if any(label["method"] == own for label in good) else good[0]["method"]
    good = [label for label in good if label["method"] == method]
    runs = []
    for label in good:
        last = curves.filter(pl.col("method") == method, carrier=carrier, pattern=pattern, seed=label["seed"])
        last = last.sort("step").row(-1, named=True)
        runs.append({name: last[name] for name in ("seed", "method", "step", "entropy_weight", "return_mean")})
    nature = nature_of(share)
    nature["hyper"] |= next(row.method.hyper for row in share.rows if row.name == method)
    agents = [_named(share.learner, load_agent(directory, config, share.learner, label).agent) for label in good]
    return Agents(nature, runs, {name: np.stack([agent[name] for agent in agents]) for name in agents[0]})


def _exported(directory: Path, carrier: str) -> Agents:
    path, about = directory / EXPORTED, store.read_json(directory / EXPORTED)
    if about.get("format") != FORMAT:
        raise ValueError(f"{path}: its format is {about.get('format')}, this version reads {FORMAT}")
    if carrier not in about["carriers"]:
        known = ", ".join(about["carriers"])
        raise ValueError(f"--warm-start {directory}: it has no agents of carrier '{carrier}'; carriers: {known}")
    entry = about["carriers"][carrier]
    check_numerics(f"--warm-start {directory}", entry)
    data = directory / entry["file"]
    if not data.is_file() or store.sha256(data) != entry["sha256"]:
        raise ValueError(f"{data} is missing, truncated or changed")
    with np.load(data, allow_pickle=False) as arrays:
        return Agents(entry["nature"], entry["runs"], dict(arrays))


def warm_of(share: Share, runs: Any) -> Warm | None:
    """Initial agents of the batched ``runs`` of a share; None if they start with new agents.

    A run uses the agent trained with its seed; other seeds use the available agents in order.
    """
    config, given, carrier = share.config, share.config.warm_start, share.carrier
    if not given:
        return None
    directory = Path(given["from"])
    if store.digest(agent_files(directory, config.carriers)) != given["sha256"]:
        raise ValueError(f"the agents in {directory} are not those that the study was configured with")
    agents = read(directory, carrier, given.get("run", {}), config.at_hand)
    ours, like = nature_of(share), _named(share.learner, agent_like(share.learner))
    if misfit := _misfit(share.learner.spec, agents.nature, ours):
        raise ValueError(f"--warm-start {directory}: its agents of carrier '{carrier}' {misfit}")
    if "observe" in ours and "observe" not in agents.nature:
        facts = share.learner.world.obs_size - ours["observation_size"]
        agents = widened(agents, like, carrier, facts)
    moments = set(filter(_of_optimiser, agents.leaves))
    continued = moments == set(filter(_of_optimiser, like))
    if not continued:  # exported without them, or those of another optimiser
        agents = agents._replace(leaves={name: leaf for name, leaf in agents.leaves.items() if name not in moments})
    for name, leaf in like.items():
        found = agents.leaves.get(name)
        has = "missing" if found is None else f"{found.dtype}{list(found.shape[1:])}"
        if has != f"{leaf.dtype}{list(leaf.shape)}" and (continued or not _of_optimiser(name)):
            raise ValueError(
                f"--warm-start {directory}: the parameters of its agents of carrier '{carrier}' do not fit: "
                f"{name} is {has}, not {leaf.dtype}{list(leaf.shape)}"
            )

    trained = {run["seed"]: i for i, run in enumerate(agents.runs)}
    source = {seed: trained.get(seed, (seed - 1) % len(trained)) for seed in config.seeds}
    of = np.array([source[label["seed"]] for label in share.labels])

    weight = np.array([run["entropy_weight"] for run in agents.runs], np.float32)[of]
    typed = {row.name for row in share.rows if "auto_initial" in row.method.values}
    own = np.array([label["method"] in typed for label in share.labels]) | ~(np.isfinite(weight) & (weight > 0))
    schedules = []
    for each in runs.schedules:
        options = {o: np.where(own, v, weight) if o == "auto_initial" else v for o, v in each.given.items()}
        schedules.append(Schedule(each.factory, options, each.proxy))

    def begin(members: Sequence[int], state: Any) -> Any:
        at = of[np.asarray(members)]

        def taken(path: Any, leaf: Any) -> Any:
            name = jax.tree_util.keystr(path)
            return agents.leaves[name][at] if name in agents.leaves else leaf

        return state._replace(agent=jax.tree_util.tree_map_with_path(taken, state.agent))

    adam = {"adam": "continued" if continued else "anew"}
    found = [
        {"seed": seed, "trained": agents.runs[i], "shared": seed not in trained} | adam for seed, i in source.items()
    ]
    return Warm(runs._replace(schedules=tuple(schedules)), begin, found)


def widened(agents: Agents, like: Mapping[str, Any], carrier: str, facts: int) -> Agents:
    """Agents with ``facts`` additional observations, whose actions do not depend on them.

    The weights of the new inputs and their Adam moments are 0; their running statistics have mean 0 and variance 1,
    and the scale of their normalisation is 1.
    Observations are the first inputs of a network, and the last in MEow's flow.

    Args:
      like: path -> shape of one agent of the study.
    """
    at, wider = agents.nature["observation_size"], dict(agents.leaves)
    for name, leaf in agents.leaves.items():
        shape = like[name].shape if name in like else leaf.shape[1:]
        for axis, (ours, theirs) in enumerate(zip(shape, leaf.shape[1:], strict=False), start=1):
            if ours == theirs + facts:
                place = [theirs if carrier == "meow" else at] * facts
                one = name.endswith((".var", "['var']", "['scale']")) and not _of_optimiser(name)
                wider[name] = np.insert(leaf, place, float(one), axis=axis)
    return agents._replace(leaves=wider)


def export_agents(directories: Sequence[Path], out: Path, objects: Objects = MappingProxyType({})) -> int:
    """Write the final agents of studies into ``out``, new or empty; returns their size in bytes.

    Args:
      directories: finished studies of one task; every carrier is taken from the first study that trained it.
      objects: see `open_study`.
    """
    store.check_new(out, "--out")
    studies = [open_study(directory) for directory in directories]
    if len(tasks := {study.config.task for study in studies}) > 1:
        raise ValueError(f"the studies are of different tasks: {', '.join(sorted(tasks))}")
    found = {carrier: study for study in reversed(studies) for carrier in study.config.carriers}
    agents = {carrier: read(study.directory, carrier, objects=objects) for carrier, study in found.items()}

    with writing(out):
        entries = {}
        for carrier, one in agents.items():
            path = out / f"{carrier}.npz"
            kept: Any = {name: leaf for name, leaf in one.leaves.items() if not _of_optimiser(name)}
            with store.replacing(path) as partial, open(partial, "wb") as file:
                np.savez_compressed(file, **kept)
            entries[carrier] = {
                "file": path.name,
                "sha256": store.sha256(path),
                "nature": dict(one.nature),
                "runs": one.runs,
                "adam": False,
                "study": found[carrier].config.to_json(),
                "commit": found[carrier].ended.manifest.get("commit"),
                "numerics": found[carrier].ended.manifest.get("numerics", {}),
            }
        store.write_json(out / EXPORTED, {"format": FORMAT, "carriers": entries})
    return sum(path.stat().st_size for path in out.iterdir())

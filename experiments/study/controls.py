"""Records that the controls of a study play: weights and levers of another study's runs, recorded or replayed."""

import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aesjax.adaptations import CONTROLS, Played
from aesjax.types import Levers
from experiments.study import rescore, store
from experiments.study.config import StudyConfig, check_unchanged
from experiments.study.method import Control
from experiments.study.program import Records, Share
from experiments.study.rescore import Recorded, Replayed
from experiments.study.store import open_results

_ALIKE = ("task", "steps", "evaluations", "proxy", "source", "drift_seed")  # equal in both studies


def records_of(config: StudyConfig, share: Share) -> Records:
    """The record that each control of one carrier plays in every run; empty without controls.

    A record is replayed from the proxies, so it has a value for every recorded sample; of a schedule that cannot be
    replayed and adjusts nothing else, the weights at the evaluations are taken.
    """
    controls = {row.name: row.method.control for row in share.rows if row.method.control is not None}
    if not controls:
        return {}
    source = _source(config, share.carrier)
    played: dict[tuple[str, str, int], Played] = {}
    for name, control in controls.items():
        for (pattern, seed), record in _record(source, config, control).items():
            if pattern in config.patterns and seed in config.seeds:
                # The same order for all that is made of one run, another one for every run.
                key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(pattern.encode()))
                played[name, pattern, seed] = CONTROLS[control.name].change(record, key, control.blocks)
    return played


def _source(config: StudyConfig, carrier: str) -> Recorded:
    directory = Path(config.controls["from"])
    path = directory / store.STREAMS
    if not path.is_file() or store.sha256(path) != config.controls["streams"]:
        raise ValueError(f"the record in {directory} is not there any more, or not what the study was configured with")
    source = rescore.load(directory)
    check_unchanged(open_results(directory).config, config.to_json())
    apart = [name for name in _ALIKE if getattr(source.config, name) != getattr(config, name)]
    if apart or source.config.settings.get(carrier) != config.settings[carrier]:
        what = ", ".join(apart) or f"the settings of carrier '{carrier}'"
        raise ValueError(f"--controls-from {directory}: its {what} differ from this study's")
    return source


def _record(source: Recorded, config: StudyConfig, control: Control) -> dict[tuple[str, int], Played]:
    """One method's runs by pattern and seed."""
    share = rescore.share_of_method(source, control.of)
    carrier, row = share.carrier, share.rows[0]
    wanted = {(row.name, pattern, seed) for pattern in config.patterns for seed in config.seeds}
    if missing := sorted(wanted - source.finished):
        method, pattern, seed = missing[0]
        raise ValueError(f"--controls-from has no finished run of {method} on '{pattern}' with seed {seed}")
    mine = source.limited_to([row.name])
    rows = mine.streams.filter(carrier=carrier)
    proxies = rescore.proxies_in(rows)
    labels = list(zip(rows["pattern"], rows["seed"], strict=True))
    if not (reason := rescore.obstacle(share, control.of, proxies)):
        result, _ = rescore.replay_runs(mine, share, control.of)
        return {label: _from_replay(result, i, source.stride(carrier)) for i, label in enumerate(labels)}
    if control.of.adaptations:
        raise ValueError(f"control '{control.name}' of '{row.rule}' cannot be made: {reason}")
    streams = rescore.samples_of(rows, proxies[0])
    samples = streams.shape[1] - rescore.first_update(streams)
    return {label: _from_curves(mine, carrier, *label, samples) for label in labels}


def _from_replay(result: Replayed, run: int, stride: int) -> Played:
    """The values in force in a sample are those after the sample before it."""

    def shifted(values: Any, first: Any) -> Any:
        return np.concatenate([[first], values[run, :-1]]).astype(np.float32)

    neutral = {"window": 1.0, "rate": 1.0, "updates": 1.0}
    levers = {
        name: shifted(values, neutral[name]) if name in neutral else values[run].astype(np.float32)
        for name, values in result.levers._asdict().items()
        if values is not None
    }
    return Played(np.float32(1), np.int32(stride), shifted(result.weight, result.initial[run]), Levers(**levers))


def _from_curves(source: Recorded, carrier: str, pattern: str, seed: int, samples: int) -> Played:
    """The weight between two evaluations is taken to be the one at the second."""
    rows = source.curves.filter(carrier=carrier, pattern=pattern, seed=seed).sort("step")
    weight = rows["entropy_weight"].to_numpy()[1:].astype(np.float32)
    weight = weight[np.isfinite(weight)]  # the first evaluations may lie in the warm-up
    at = np.minimum(np.arange(samples) * len(weight) // samples, len(weight) - 1)
    return Played(np.float32(1), np.int32(source.stride(carrier)), weight[at])

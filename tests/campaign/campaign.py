"""The kinds of faults and how many of each: a short form for every day, a long one by hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from tests.campaign import bad_inputs, disk, flips, interruptions, kills, races, soak
from tests.campaign.judge import Finding
from tests.campaign.studies import STUDIES, Bench
from tests.campaign.worker import Worker


class Form(NamedTuple):
    """How many faults of each kind. None: all there are."""

    arguments: int | None
    files: int | None
    kills: int
    studies: Sequence[str]  # that are killed
    early: int  # signals in the first seconds
    later: int
    result_flips: int
    checkpoint_flips: int
    share: float  # of flips that all readers are shown
    resumed: int  # flips after which a study is continued
    races: int
    disks: int
    soak_steps: int  # 0: none


SHORT = Form(250, 60, 2, ("sac",), 3, 0, 300, 100, 0.01, 0, 1, 1, 0)
LONG = Form(None, None, 60, [n for n in STUDIES if n != "read"], 24, 12, 3000, 1500, 0.05, 10, 20, 10, 2_000_000)

Throw = Callable[[Bench, Worker, Form, int], Iterator[Finding]]
KINDS: Mapping[str, Throw] = {
    "bad_inputs": lambda bench, worker, form, seed: chain(
        bad_inputs.arguments(bench, worker, seed, form.arguments), bad_inputs.files(bench, worker, seed, form.files)
    ),
    "flips": lambda bench, worker, form, seed: chain(
        flips.flips_of_results(bench, worker, seed, form.result_flips, form.share),
        flips.flips_of_checkpoints(bench, worker, seed, form.checkpoint_flips, form.resumed),
    ),
    "kills": lambda bench, worker, form, seed: kills.kills(bench, seed, form.kills, form.studies),
    "signals": lambda bench, worker, form, seed: interruptions.interruptions(bench, seed, form.early, form.later),
    "races": lambda bench, worker, form, seed: races.races(bench, seed, form.races),
    "disk": lambda bench, worker, form, seed: disk.full_disks(bench, form.disks),
    "soak": lambda bench, worker, form, seed: soak.soak(bench, form.soak_steps) if form.soak_steps else iter(()),
}


def campaign(bench: Bench, form: Form, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Finding]:
    """Throw everything and tell what came of it, one by one."""
    with Worker() as worker:
        for kind in kinds:
            yield from KINDS[kind](bench, worker, form, seed)

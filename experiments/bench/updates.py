"""`aesjax bench`: updates (PPO: environment steps) per second, every contestant taking turns in one session.

A single absolute time means little on a shared machine. Each round times all contestants one after another, so that
what is reported are ratios within a round, and beside them the matrix-multiplication rate of the same minute: the
limit that an update of these networks cannot pass.
"""

import itertools
import re
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax.adaptations import ADAPTATIONS, AdaptationData, Supply
from aesjax.schedules import Choice, ScheduleData
from aesjax.types import Program
from agents import CARRIERS, OnPolicyCarrier
from agents.common import LoopConfig, Run
from agents.train import assemble
from envs.world import World
from experiments.bench.timing import TARGET_SECONDS, Timer, check_record, in_turns, training, write_record
from experiments.bench.worker import Worker

SCHEDULES = ("fixed", "aes", "auto", "aes_r")
#: A schedule with adaptations, or after a colon with another proxy: what they cost beside the schedule alone.
LEVERS = (
    "fixed+recent",
    "fixed+utd",
    "aes_r+burst",
    "aes_r+window",
    "aes_r+window+refresh+rate",
    "aes_r:dynamics",
)
REPLAY = 5000
_REJAX = ("rejax==0.1.3", "gymnax==0.0.9")


class Setting(NamedTuple):
    """A timed case: a carrier at one size."""

    carrier: str
    size: str
    task: str
    num_envs: int
    config: dict[str, Any]
    unit: str  # of the rates
    flops: float  # of the matrix products in one unit
    width: int
    batch: int


SIZES = {"small": (64, 128), "large": (256, 256)}  # hidden width (two layers), batch
ROLLOUT = {"rollout": 128, "epochs": 10, "minibatches": 4}
_PARTICLES = {"value_samples": 16, "fixed_particles": 8, "updated_particles": 8}


def setting(carrier: str, size: str) -> Setting:
    """The sizes timed for a carrier: SAC as in other libraries' benchmarks, PPO as rejax's, the others as on the toy.

    Raises:
      ValueError: there is no such size.
    """
    if size not in SIZES or (size == "large" and carrier != "sac"):
        raise ValueError(f"unknown size '{size}' for carrier '{carrier}'; known: {', '.join(SIZES)} (large: sac only)")
    width, batch = SIZES[size]
    hidden = (width, width)
    task, num_envs, unit, config = "toy", 4, "updates", {"hidden": hidden, "batch_size": batch}
    if carrier == "sac":
        flops = flops_per_update(width, batch)
    elif carrier == "ppo":
        # Without normalisation, as rejax has it by default.
        task, num_envs, unit = "pendulum", 8, "environment steps"
        config = {"hidden": hidden, "normalise_obs": 0.0, "normalise_reward": False} | ROLLOUT
        net = 2.0 * (_mlp(3, width, 1) + _mlp(3, width, 1))
        flops = net * (1 + 3 * ROLLOUT["epochs"])  # values and actions once, then forward and backward per epoch
    elif carrier == "sql":
        batch, k = 32, _PARTICLES
        q, f = _mlp(4, width, 1), _mlp(4, width, 2)
        value, score = 2 * k["value_samples"] * q, 2 * 2 * k["fixed_particles"] * q
        flops = 2.0 * batch * (value + score + 6 * q + (k["fixed_particles"] + 3 * k["updated_particles"]) * f)
        config = {"hidden": hidden, "batch_size": batch} | k
    elif carrier == "meow":
        batch = 64
        coupling, prior, shift = _mlp(4, width, 2), _mlp(2, width, 2), _mlp(2, width, 1)
        flops = 2.0 * batch * (4 * 2 * 3 * coupling + 3 * (prior + 2 * shift) + prior + 2 * shift)
        config = {"flow_hidden": hidden, "shift_hidden": hidden, "batch_size": batch}
    else:
        raise ValueError(f"carrier '{carrier}' has no benchmark")
    return Setting(carrier, size, task, num_envs, config, unit, flops, width, batch)


def _mlp(inputs: int, width: int, outputs: int) -> int:
    return inputs * width + width * width + width * outputs


def flops_per_update(width: int, batch: int, obs: int = 2, action: int = 2) -> float:
    """Floating-point operations of the matrix products in one SAC update (2 per multiply-add)."""
    actor, critic = _mlp(obs, width, 2 * action), _mlp(obs + action, width, 1)
    # Actor: target sample, then forward and backward of its loss. Each of two critics: target forward; forward and
    # backward of its loss (2x forward); in the actor's loss forward and backward to the action only.
    return 2.0 * batch * ((1 + 3) * actor + 2 * (1 + 3 + 2) * critic)


def _ours(rule: str, case: Setting, runs: int) -> Timer:
    """``rule`` is a schedule, after a colon its proxy, and adaptations after a +."""
    world, spec = World(envs.make(case.task), 10_000_000), CARRIERS[case.carrier]
    read, *levers = rule.split("+")
    schedule, _, proxy = read.partition(":")
    carrier = spec.make(world.obs_size, world.action_size, spec.config(**case.config))
    choice = Choice(schedule, proxy or "td_quantile")
    on_policy = isinstance(carrier, OnPolicyCarrier)
    chunk = 2 * carrier.rollout if on_policy else 50
    as_array = lambda tree: jax.tree.map(np.float32, tree)  # noqa: E731
    facts = {"base": 0.05, "target_entropy": -float(world.action_size), "updates": 1e5}
    weights = ScheduleData(np.int32(0), np.float32(0.9), {schedule: as_array(choice.factory.filled(facts, {}))})
    options = as_array({name: dict(ADAPTATIONS[name].options) for name in levers})
    adapted = AdaptationData(weights, dict.fromkeys(levers, np.float32(1)), options, np.float32(1e5))
    loop = assemble(
        world,
        carrier,
        LoopConfig(case.num_envs, chunk, 32, REPLAY),
        [choice],
        levers,
        [choice] if levers else (),
        supply=Supply(32 * case.num_envs, case.num_envs, REPLAY, 4 * LoopConfig.fresh_window),
        levers={ADAPTATIONS[name].lever for name in levers},
    )
    fields = {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "gamma": 0.97, "tau": 0.01}
    hyper = spec.hyper()._replace(**{k: v for k, v in fields.items() if k in spec.hyper._fields})
    drift = jax.device_get(world.drift("abrupt", 0))
    common = (drift, weights, as_array(hyper), np.float32(0), adapted if levers else None)
    items = [Run(np.uint32(seed), *common) for seed in range(runs)]
    return training(loop, items, chunk, world.total // chunk, runs * (chunk * case.num_envs if on_policy else chunk))


def _matmul(case: Setting, runs: int) -> Timer:
    """Rate of square products of the case's width, as its units per second if nothing else were done."""
    width, batch, repeats = case.width, case.batch, 100

    def chain(x: Any, w: Any, step: Any) -> tuple[Any, dict[str, Any]]:
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=repeats)[0], {}

    program = Program(lambda w: jnp.ones((batch, width)), chain, lambda x, w, step: {})
    weights = [np.eye(width, dtype=np.float32)] * runs
    return training(program, weights, 0, 2, 2.0 * runs * batch * width * width * repeats / case.flops)


def measured(case: Setting, runs: int, rounds: int, rejax: Worker | None = None) -> dict[str, Any]:
    """One carrier at one size with so many stacked runs: medians, ratios inside a round, and all rounds."""
    # Every schedule compiles a program of its own; on other carriers than SAC two show the cost.
    usable = (*SCHEDULES, *LEVERS) if case.carrier == "sac" else SCHEDULES[:2]
    contestants: dict[str, Timer] = {s: _ours(s, case, runs) for s in usable}
    contestants["matmul_limit"] = _matmul(case, runs)
    if rejax is not None and case.carrier in ("sac", "ppo"):
        name = {"algorithm": case.carrier, "runs": runs, "width": case.width, "batch": case.batch}
        contestants["rejax"] = rejax.timer(name, TARGET_SECONDS)
    ratios = {f"schedule_cost_{s}": ("fixed", s) for s in ("aes", "aes_r")}
    ratios |= {f"lever_cost_{s}": (re.split("[:+]", s)[0], s) for s in LEVERS}
    ratios["share_of_matmul_limit"] = ("aes", "matmul_limit")
    ratios |= {f"{s}_over_rejax": (s, "rejax") for s in ("aes", "fixed")}
    sizes = {"carrier": case.carrier, "size": case.size, "unit": case.unit, "task": case.task, "config": case.config}
    return sizes | {"runs": runs, "num_envs": case.num_envs, **in_turns(contestants, rounds, ratios)}


def run(*, carriers: str, runs: str, sizes: str, rounds: int, rejax: bool, out: Path | None) -> None:
    """Measure every case, print it, and write the figures if asked.

    Raises:
      ValueError, UnknownNameError: unknown carrier or size, bad number of runs, or the output exists.
    """
    try:
        counts = [int(part) for part in runs.split(",")]
    except ValueError:
        raise ValueError(f"--runs takes numbers such as 1,5,25,50; got '{runs}'") from None
    if min(counts) < 1 or rounds < 1:
        raise ValueError("--runs and --rounds must be at least 1")
    for name in carriers.split(","):
        CARRIERS[name]
    settings = [setting(name, size) for name in carriers.split(",") for size in sizes.split(",")]
    check_record(out)
    cases = []
    with ExitStack() as stack:
        pins = [f"jax=={jax.__version__}", *_REJAX]
        worker = stack.enter_context(closing(Worker("rejax_worker.py", pins))) if rejax else None
        for wanted, count in itertools.product(settings, counts):
            case = measured(wanted, count, rounds, worker)
            cases.append(case)
            print(_line(case), flush=True)
    command = f"aesjax bench --carriers {carriers} --runs {runs} --sizes {sizes} --rounds {rounds}"
    command += " --rejax" if rejax else ""
    write_record(out, command, {"rejax": _REJAX if rejax else None, "replay": REPLAY, "cases": cases})


def _line(case: dict[str, Any]) -> str:
    rates = "  ".join(f"{who} {rate:,.0f}" for who, rate in case["medians"].items())
    ratios = "  ".join(f"{name} {value['median']:.3f}" for name, value in case["ratios"].items())
    return f"{case['carrier']} {case['size']} x {case['runs']} runs, {case['unit']}/s: {rates}\n    ratios: {ratios}"

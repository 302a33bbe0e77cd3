"""`make_train`: the training of one run as one pure function, to be jitted and mapped over by the caller."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

import envs
from aesjax.adaptations import ADAPTATIONS, Adaptation, AdaptationFactory, Supply, driver_of
from aesjax.compiling import check_process
from aesjax.registry import hint, listed
from aesjax.schedules import SCHEDULES, DriftProxy, Schedule, as_schedule, fixed
from aesjax.typed import Bounds, Count, checked, require, several, typed
from aesjax.types import STREAM, Array, Program
from agents.carriers import CARRIERS
from agents.common import LoopConfig, Run, make_program
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.loop import stream_stride
from agents.common.spec import CarrierSpec
from envs.adopt import adapter_of, adopt_task
from envs.patterns import compiled
from envs.timeline import EVEN
from envs.world import World

# Of log A, the target entropy of A discrete actions. Christodoulou (2019) has 0.98, for which the weight of an almost
# uniform policy grows without bound on CartPole.
ENTROPY_SHARE = 0.5
ROLLOUT_ENVS = 8  # parallel environments of an on-policy carrier by default
Train = Callable[..., tuple[Any, dict[str, Array]]]


@checked
def make_train(
    task: Any,
    carrier: str | CarrierSpec = "sac",
    *,
    pattern: str = "steady",
    steps: Count = 20_000,
    evaluations: Count = 50,
    episodes: Count = 10,
    segments: Count = 5,
    onset: float = 0.0,
    changes: str = EVEN,
    num_envs: Count | None = None,
    replay: Count | None = None,
    warmup: Annotated[int, Bounds(0)] | None = None,
    base: Any = None,
    observe: str | None = None,
    history: Count = 1,
    adaptations: Any = (),
    optimiser: Any = None,
    **settings: Any,
) -> Train:
    """The training of one run of ``carrier`` on ``task``, as a pure function.

    ``state, curves = train(seed, schedule)`` trains one run. Compile it with `aesjax.jit`, and map it over seeds and
    over numbers of the schedule. ``state.agent`` is the trained agent. ``curves`` maps columns as those of a study
    (``return_mean``, ``entropy_weight``, ``proxy``, ...) to arrays (evaluations + 1,), NaN where a column has no value
    at step 0; ``step`` counts environment steps, ``diverged_at`` vector steps, -1 before. A study with equal settings
    has equal curves.

    ``seed`` is a whole number below 2^32, or a PRNG key, typed or raw, whose last word of data is the seed:
    ``jax.random.key(3)`` trains the run of seed 3. ``schedule`` is an object, a registered name or a constant weight.

    Args:
      task: a registered name, ``gymnasium:ID``, an `envs.Task`, an environment of gymnax, Brax, MuJoCo Playground
        or Gymnasium, or a function that makes one.
      carrier: a registered name or a custom carrier.
      pattern: drift pattern; the drift sample is that of the seed.
      steps: environment steps, over all parallel environments: a multiple of ``num_envs * evaluations`` and of
        ``num_envs * segments``, below 2^31.
      evaluations: after the one at step 0.
      episodes: per evaluation.
      segments: between changes of the drift.
      onset: share of the run before the drift.
      changes: lengths of the segments of patterns that jump, "even" or "random".
      num_envs: parallel environments; by default 1, so a gradient step per environment step, and on-policy 8.
      replay: transitions in the replay; by default a twentieth of ``steps``.
      warmup: environment steps with random actions; by default a hundredth of ``steps``, at least 128.
      base: the carrier's own entropy weight, reward per nat, from which schedules start; by default 0.1, for PPO 0.01.
        A study has its preset's instead.
      observe: "drift" appends the true drift values to the observations of policy and critics, "change" a flag for 2 %
        of the run after a change: references.
      history: last observations, with the actions between them, that policy and critics see.
      adaptations: other quantities adjusted by the schedule's signal, such as ``recent(share=0.1)``.
      optimiser: optax transformation of gradients, such as ``optax.scale_by_rms()``; its steps are multiplied by the
        carrier's learning rates. None: that of the carrier, Adam by default.
      **settings: fields of the carrier's config and hyper, such as ``hidden=(64, 64)``, ``learning_rate=1e-3``.

    Raises:
      ValueError, UnknownNameError: a setting that does not exist, or sizes that do not divide.

    >>> train = make_train("toy", "sac", steps=2_000, evaluations=10, hidden=(32, 32))
    >>> state, curves = jax.eval_shape(train, 0)
    >>> curves["return_mean"].shape
    (11,)
    """
    check_process()
    spec = carrier if isinstance(carrier, CarrierSpec) else CARRIERS[carrier]
    spec = spec if optimiser is None else spec._replace(optimiser=optimiser)
    config, hyper = _settings(spec, settings)
    num = (ROLLOUT_ENVS if spec.on_policy else 1) if num_envs is None else num_envs
    if not isinstance(base, Tracer | None):
        require(0.0 <= typed(float, base, "base") < float("inf"), "base", "finite and not negative", base)
        spec.check_base(base)
    for parts, count in {"evaluations": evaluations, "segments": segments}.items():
        if steps % (num * count):
            unit = f"{num * count} (num_envs={num} times {parts}={count})"
            raise ValueError(f"steps must be a positive multiple of {unit}; got {steps}")
    if steps >= 2**31:  # JAX has no longer integers by default
        raise ValueError(f"column 'step' of make_train counts to 2^31 - 1; use a study for more; got steps={steps}")
    total = steps // num
    if spec.on_policy:
        fit_rollout(config, total // evaluations, num)
    drift = {"patterns": compiled([pattern]), "onset": onset, "changes": changes}
    world = World(as_task(task), total, segments, observe, history=history, **drift)
    world.check_pattern(pattern)
    replay, random = sizes_of(
        steps,
        num,
        steps / 20 if replay is None else replay,
        steps / 100 if warmup is None else warmup,
    )
    learner = learner_of(
        spec, world, config, cast(Any, base), num_envs=num, evaluations=evaluations, episodes=episodes, replay=replay,
        warmup=random,
    )  # fmt: skip
    sizes, facts, program = learner.sizes, learner.facts, learner.program()
    given = adaptations if several(adaptations) else [adaptations]
    named = [ADAPTATIONS[part] if isinstance(part, str) else part for part in given]
    chosen = [part() if isinstance(part, AdaptationFactory) else part for part in named]
    for each in chosen:
        require(isinstance(each, Adaptation), "adaptations", "names or objects such as recent(share=0.1)", each)
        spec.check_lever(each.factory.name, each.factory.lever, spec.label)

    def train(seed: Any, schedule: Any = None) -> tuple[Any, dict[str, Array]]:
        """Train one run; returns its final state and its curves."""
        seed, own = _seed_of(seed), _schedule_of(spec.baseline if schedule is None else schedule)
        spec.check_base(own.filled(facts).options.get("base"))
        driver = driver_of(own, chosen)
        run = Run(
            seed=seed,
            drift=world.drift(pattern, seed),
            schedules=[jax.tree.map(jnp.asarray, own.filled(facts))],
            hyper=jax.tree.map(jnp.float32, hyper),
            adaptations=[jax.tree.map(jnp.asarray, each.filled()) for each in chosen],
            signals=[] if driver is None else [jax.tree.map(jnp.asarray, driver.filled(facts))],
            updates=jnp.float32(facts["updates"]) if chosen else None,
        )

        def interval(state: Any, at: Array) -> tuple[Any, dict[str, Array]]:
            state, metrics = program.chunk(state, run, at * sizes.interval)
            return state, program.evaluate(state, run, (at + 1) * sizes.interval) | metrics

        state = program.init(run)
        first = program.evaluate(state, run, jnp.int32(0)) | state.health._asdict()
        first |= {"simulation_faults": world.faults(state.env)}
        state, later = jax.lax.scan(interval, state, jnp.arange(evaluations, dtype=jnp.int32))
        curves = {"step": jnp.arange(evaluations + 1) * (steps // evaluations)}
        for name, values in later.items():
            if not name.startswith(STREAM):
                before = first[name] if name in first else jnp.full(values.shape[1:], jnp.nan)
                curves[name] = jnp.concatenate([before[None].astype(values.dtype), values])
        return state, curves

    return train


def _schedule_of(given: Any) -> Schedule:
    """Schedule from a name, a constant weight (), a factory or a function; ValueError for anything else."""
    if isinstance(given, str):
        return SCHEDULES[given]()
    if isinstance(given, int | float | np.number | jax.Array):
        return fixed(given if isinstance(given, jax.Array) else typed(float, given, "a schedule"))
    own = as_schedule(given)() if callable(given) else given
    require(isinstance(own, Schedule), "a schedule", "a name, a weight or an object such as aes(kappa=0.3)", given)
    return own


def _seed_of(given: Any) -> Array:
    """Seed () from a whole number or a PRNG key; ValueError for anything else."""
    if isinstance(given, jax.Array) and jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        given = jax.random.key_data(given)
    value = given if isinstance(given, jax.Array) else np.asarray(given)
    value = value[-1] if value.shape == (2,) and value.dtype == np.uint32 else value  # a key's data
    known = not isinstance(value, Tracer)
    if value.ndim or value.dtype.kind not in "iu" or (known and not 0 <= int(value) < 2**32):
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1} or one PRNG key; got {given!r}")
    return jnp.asarray(value, jnp.uint32)


class Learner(NamedTuple):
    """One carrier in one world: the part that all runs of a program share."""

    spec: CarrierSpec
    world: World
    agent: Carrier | OnPolicyCarrier
    sizes: LoopConfig
    supply: Supply  # transitions in a run's replay
    facts: Mapping[str, float]  # numbers that schedules request by name

    @property
    def updates(self) -> int:
        """Updates of a run's schedule; one gradient step each, unless an adaptation takes several."""
        return int(self.facts["updates"])

    @property
    def stride(self) -> int:
        """Updates per sample of the recorded streams."""
        on_policy = isinstance(self.agent, OnPolicyCarrier)
        intervals = self.world.total // self.sizes.interval
        return stream_stride(self.updates // intervals if on_policy else self.sizes.interval, LoopConfig.stream_samples)

    def program(self, record: Sequence[DriftProxy] = ()) -> Program:
        """The program of its runs; ``record`` names proxies to measure besides those that schedules read."""
        return make_program(self.world, self.agent, self.sizes, self.supply, tuple(record))


def learner_of(
    spec: CarrierSpec,
    world: World,
    config: Mapping[str, Any],
    base: float | None,
    *,
    num_envs: int,
    evaluations: int,
    replay: int,
    warmup: int,
    facts: Mapping[str, float] = MappingProxyType({}),
    **loop: Any,
) -> Learner:
    """A carrier with the sizes of its runs; ``replay`` and ``warmup`` are those of `sizes_of`.

    Args:
      base: the carrier's own entropy weight, reward per nat; None: the default.
      facts: further numbers that schedules request by name.
      loop: further fields of `LoopConfig`.

    Raises:
      ValueError: sizes that do not fit together, or too many gradient steps for a counter.
    """
    if world.discrete and spec.discrete is None:
        able = ", ".join(other.label for other in CARRIERS.values() if other.discrete)
        raise ValueError(f"carrier {spec.label} takes no discrete actions, as of task '{world.name}'; {able} take them")
    agent = spec.agent(world.obs_size, world.action_size, spec.config(**config), world.discrete)
    sizes = LoopConfig(num_envs, world.total // evaluations, newest=_in_envs(LoopConfig.newest, num_envs), **loop)
    if isinstance(agent, OnPolicyCarrier):
        supply, updates = Supply(), world.total // agent.config.rollout * agent.config.epochs * agent.config.minibatches
    else:
        sizes = dataclasses.replace(sizes, warmup=warmup // num_envs, capacity=replay)
        floor = min(max(agent.config.batch_size, 4 * sizes.newest), replay)
        supply = Supply(min(warmup + num_envs, replay), num_envs, replay, floor)
        updates = world.total - sizes.warmup
        if updates < 1:
            steps = world.total * num_envs
            raise ValueError(f"warmup must leave steps to learn in; got {sizes.warmup * num_envs} of {steps} steps")
    if updates >= 2**31:
        raise ValueError(f"a run counts its gradient steps to 2^31 - 1; {world.total} vector steps make {updates}")
    size, weight = float(world.action_size), spec.weight if base is None else base
    own = {"base": weight, "target_entropy": -size, "action_size": size, "updates": float(updates)}
    if world.discrete:
        # A softmax policy loses at most lam log A of value; a Gaussian about lam / 2 per action dimension.
        own |= {"target_entropy": ENTROPY_SHARE * math.log(size), "action_size": 2.0 * math.log(size)}
    return Learner(spec, world, agent, sizes, supply, {**own, **spec.schedule, **facts})


def sizes_of(steps: int, num_envs: int, replay: float, warmup: float) -> tuple[int, int]:
    """Transitions in the replay and environment steps of the warm-up, in multiples of the parallel environments.

    Args:
      steps: environment steps of a run.
      replay, warmup: the sizes wished for; the warm-up covers the window of newest transitions.

    >>> sizes_of(2_000, 6, 100, 20)
    (102, 132)
    """

    def nearest(count: float) -> int:
        return max(1, round(count / num_envs)) * num_envs

    return nearest(min(replay, steps)), max(nearest(warmup), _in_envs(LoopConfig.newest, num_envs))


def _in_envs(count: int, num_envs: int) -> int:
    """``count``, rounded up to a multiple of the parallel environments."""
    return -(-count // num_envs) * num_envs


def _settings(spec: CarrierSpec, settings: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Complete static structure and traced floats of a carrier; ValueError for an unknown setting."""
    fields = [field.name for field in dataclasses.fields(spec.config)]
    known = (*fields, *spec.hyper._fields)
    for name in settings:
        if name not in known:
            near = hint(name, known)
            raise ValueError(f"carrier {spec.label} has no setting '{name}'{near} settings: {listed(known)}")
    config = vars(spec.config(**{name: value for name, value in settings.items() if name in fields})).copy()
    hyper = spec.hyper()._replace(**{name: value for name, value in settings.items() if name in spec.hyper._fields})
    concrete = {name: value for name, value in hyper._asdict().items() if not isinstance(value, Tracer)}
    spec.check(spec.hyper()._replace(**concrete))
    return config, hyper


def fit_rollout(config: dict[str, Any], interval: int, num_envs: int) -> None:
    """Use the longest rollout up to the given one that divides ``interval``.

    The number of minibatches stays where they are equal; else it is the one whose minibatches have the nearest size.
    """
    rows = config["rollout"] * num_envs / config["minibatches"]
    config["rollout"] = max(n for n in range(1, min(config["rollout"], interval) + 1) if interval % n == 0)
    size = config["rollout"] * num_envs
    if size % config["minibatches"]:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        config["minibatches"] = min(divisors, key=lambda n: abs(n - size / rows))


def as_task(task: Any, **options: Any) -> envs.Task:
    """Task from a name, a task, an environment of another library, or a function that makes one.

    Raises:
      ValueError, UnknownNameError: ``task`` is not one of these.
    """
    if isinstance(task, str):
        return envs.make(task, **options)
    if not isinstance(task, envs.Task) and not callable(task) and not adapter_of(task):
        kinds = "an envs.Task, a gymnax, Brax, Playground or Gymnasium environment, or a function that makes one"
        raise ValueError(f"task must be a registered name, {kinds}; got {type(task).__name__}")
    name = getattr(task, "name", None) or getattr(task, "__name__", type(task).__name__)
    return envs.build(name, adopt_task(name, task), **options)

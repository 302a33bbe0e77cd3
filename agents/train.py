"""`make_train`: the training of one run as one pure function, to be jitted and mapped over from outside."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

import envs
from aesjax import adaptations as adapting
from aesjax import schedules
from aesjax.adaptations import (
    ADAPTATIONS,
    DEFAULT_SIGNAL,
    Adaptation,
    AdaptationData,
    AdaptationFactory,
    Supply,
)
from aesjax.registry import hint, lookup
from aesjax.schedules import Choice, DriftProxy, Schedule, ScheduleData, as_schedule
from aesjax.types import STREAM, Array, DriftAdaptation, EntropySchedule, Program
from agents.carriers import CARRIERS
from agents.common import LoopConfig, Run, make_program
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.off_policy import TRACKED
from agents.common.spec import CarrierSpec, whole
from envs.world import World

Train = Callable[..., tuple[Any, dict[str, Array]]]


def make_train(
    task: Any,
    carrier: str | CarrierSpec = "sac",
    *,
    pattern: str = "steady",
    steps: int = 20_000,
    evaluations: int = 50,
    episodes: int = 10,
    segments: int = 5,
    num_envs: int | None = None,
    replay: int | None = None,
    warmup: int | None = None,
    base: float | None = None,
    observe: str | None = None,
    adaptations: Sequence[str | Adaptation | AdaptationFactory] = (),
    **settings: Any,
) -> Train:
    """The training of one run of ``carrier`` on ``task``, as a pure function.

    ``state, curves = train(seed, schedule)`` trains one run. Compile it with `aesjax.jit`, and map it over seeds and
    over numbers of the schedule. ``state.agent`` is the trained agent. ``curves`` maps columns as those of a study
    (``return_mean``, ``entropy_weight``, ``proxy``, ...) to arrays (evaluations + 1,), NaN where a column has no value
    at step 0; ``step`` counts environment steps. A study with equal settings has equal curves.

    ``seed`` is a whole number below 2^32, or a PRNG key, typed or raw, whose last word of data is the seed:
    ``jax.random.key(3)`` trains the run of seed 3. Under ``jit`` a negative seed cannot be refused; its curves are NaN.

    Args:
      task: a registered name, an `envs.Task`, a gymnax environment or a Brax environment.
      carrier: a registered name, or a carrier of your own.
      pattern: drift pattern; the drift sample is that of the seed.
      steps: environment steps, over all parallel environments: a multiple of ``num_envs * evaluations`` below 2^32.
      evaluations: after the one at step 0.
      episodes: per evaluation.
      segments: between changes of the drift.
      num_envs: parallel environments; by default 4, on-policy 8.
      replay: transitions in the replay; by default a twentieth of ``steps``.
      warmup: environment steps with random actions; by default a hundredth of ``steps``, at least 128.
      base: the carrier's own entropy weight, reward per nat, from which schedules start.
      observe: "drift" appends the true drift values to the observations of policy and critics: a reference, no method.
      adaptations: what else the schedule's signal adjusts, such as ``recent(share=0.1)``.
      **settings: fields of the carrier's config and hyper, such as ``hidden=(64, 64)``, ``learning_rate=1e-3``.

    Raises:
      ValueError, UnknownNameError: a setting that does not exist, or sizes that do not divide.

    >>> train = make_train("toy", "sac", steps=2_000, evaluations=10, hidden=(32, 32))
    >>> state, curves = jax.eval_shape(train, 0)
    >>> curves["return_mean"].shape
    (11,)
    """
    spec = carrier if isinstance(carrier, CarrierSpec) else lookup("carrier", CARRIERS, carrier)
    config, hyper = _settings(spec, settings)
    num = whole("num_envs", (8 if "rollout" in config else 4) if num_envs is None else num_envs)
    steps, evaluations = whole("steps", steps), whole("evaluations", evaluations)
    episodes, segments = whole("episodes", episodes), whole("segments", segments)
    if base is not None and not isinstance(base, Tracer) and not 0.0 <= base < float("inf"):
        raise ValueError(f"base must be finite and not negative; got {base}")
    if steps % (num * evaluations):
        wanted = f"a positive multiple of {num} environments times {evaluations} evaluations"
        raise ValueError(f"steps must be {wanted}; got {steps}")
    if steps >= 2**32:  # JAX has no longer integers by default
        raise ValueError(f"column 'step' of make_train counts to 2^32 - 1, a study further; got steps={steps}")
    total = steps // num
    if "rollout" in config:
        fit_rollout(config, total // evaluations, num)
    world = World(as_task(task), total, segments, observe)
    world.check_pattern(pattern)
    built = spec.make(world.obs_size, world.action_size, spec.config(**config))
    on_policy = isinstance(built, OnPolicyCarrier)
    window = in_envs(LoopConfig.newest, num)
    random = max(steps // 100 if warmup is None else whole("warmup", warmup, 0), window) // num
    if not on_policy and random >= total:
        raise ValueError(f"warmup must leave steps to learn in; got {random * num} of {steps} steps")
    sizes = LoopConfig(
        num_envs=num,
        interval=total // evaluations,
        warmup=0 if on_policy else random,
        capacity=0 if on_policy else max((steps // 20 if replay is None else whole("replay", replay)) // num, 1) * num,
        episodes=episodes,
    )
    updates = updates_of(built, total, sizes.warmup)
    facts = facts_of(spec, updates, world.action_size, base)
    given = [adaptations] if isinstance(adaptations, str | Adaptation | AdaptationFactory) else adaptations
    named = [lookup("adaptation", ADAPTATIONS, part) if isinstance(part, str) else part for part in given]
    chosen = [part if isinstance(part, Adaptation) else Adaptation(part, {}) for part in named]
    for each in chosen:
        spec.check_lever(each.factory.name, each.factory.lever, spec.label)
    names = [each.factory.name for each in chosen]
    supply = supply_of(built, sizes, sizes.warmup * num)

    def train(seed: Any, schedule: Any = None) -> tuple[Any, dict[str, Array]]:
        """Train one run; returns its final state and its curves."""
        seed = _seed_of(seed)
        own: Any = schedules.SCHEDULES[spec.baseline] if schedule is None else schedule
        factory: Any = own
        own = as_schedule(factory)() if callable(own) else own
        choice, signals, data, adapted = _run_data(own, chosen, facts)
        program = assemble(world, built, sizes, [choice], names, signals, supply=supply, static=own.static)
        run = Run(
            seed=seed.astype(jnp.uint32),
            drift=world.drift(pattern, seed),
            schedule=data,
            hyper=jax.tree.map(jnp.float32, hyper),
            adaptation=adapted,
        )

        def interval(state: Any, at: Array) -> tuple[Any, dict[str, Array]]:
            state, metrics = program.chunk(state, run, at * sizes.interval)
            return state, program.evaluate(state, run, (at + 1) * sizes.interval) | metrics

        state = program.init(run)
        first = program.evaluate(state, run, jnp.int32(0))
        state, later = jax.lax.scan(interval, state, jnp.arange(evaluations, dtype=jnp.int32))
        counted = np.arange(evaluations + 1) * (steps // evaluations)
        curves = {"step": jnp.asarray(counted, jnp.uint32 if steps >= 2**31 else jnp.int32)}
        for name, values in later.items():
            if not name.startswith(STREAM):
                before = first[name] if name in first else jnp.full(values.shape[1:], jnp.nan)
                curve = jnp.concatenate([before[None].astype(values.dtype), values])
                curves[name] = jnp.where(seed >= 0, curve, jnp.nan) if curve.dtype == jnp.float32 else curve
        return state, curves

    return train


def _seed_of(given: Any) -> Array:
    """The seed () in a whole number or a PRNG key, of an integer type; ValueError for anything else."""
    if isinstance(given, jax.Array) and jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        given = jax.random.key_data(given)
    value = given if isinstance(given, jax.Array) else np.asarray(given)
    if value.ndim == 1 and value.dtype == np.uint32:  # a raw key
        value = value[-1]
    known = not isinstance(value, Tracer)
    if value.ndim or value.dtype.kind not in "iu" or (known and not 0 <= int(value) < 2**32):
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1} or one PRNG key; got {given!r}")
    return jnp.asarray(value, jnp.uint32 if known else None)


def _run_data(
    schedule: Any, chosen: Sequence[Adaptation], facts: Mapping[str, float]
) -> tuple[Choice, list[Choice], ScheduleData, AdaptationData | None]:
    """The schedule and the signals of a run's program, and the schedule and the adaptations of the run as data."""
    if not isinstance(schedule, Schedule):
        raise ValueError(f"a schedule is an object such as aes(kappa=0.3); got {type(schedule).__name__}")
    proxy = schedule.proxy if isinstance(schedule.proxy, DriftProxy) else schedules.td_quantile()
    choice = Choice(schedule.factory, proxy.factory, proxy.source)
    options = {choice.name: choice.factory.filled(facts, schedule.options)}
    data, adapted, signals = ScheduleData(jnp.int32(0), proxy.q, options), None, []
    if chosen:
        if any(each.factory.uses_signal for each in chosen):
            signals = [choice if choice.factory.relative else choice._replace(schedule=DEFAULT_SIGNAL)]
        driven = {each.name: options.get(each.name, each.factory.filled(facts, {})) for each in signals}
        given = {each.factory.name: {**each.factory.options, **each.given} for each in chosen}
        adapted = AdaptationData(data._replace(options=driven), dict.fromkeys(given, 1.0), given, facts["updates"])
    return choice, signals, *jax.tree.map(jnp.asarray, (data, adapted))


def reads_fresh(choices: Sequence[Choice]) -> bool:
    """Whether schedules read residuals of the newest transitions."""
    return bool(TRACKED & set(schedules.required_signals(choices)))


def assemble(
    world: World,
    built: Carrier | OnPolicyCarrier,
    sizes: LoopConfig,
    kinds: Sequence[Choice],
    names: Sequence[str] = (),
    signals: Sequence[Choice] = (),
    *,
    supply: Supply,
    record: Sequence[str] = (),
    static: Mapping[str, Any] = MappingProxyType({}),
) -> Program:
    """The program of runs that share a carrier, schedules and adaptations; what differs between them is a `Run`.

    Args:
      sizes: structure; the window of newest transitions is rounded up to fit the parallel environments.
      kinds: schedules of the runs.
      names, signals: adaptations of the runs, and the schedules that drive them.
      record: further proxies to measure.
      static: arguments of a single schedule that are no options.
    """
    config = dataclasses.replace(sizes, newest=in_envs(sizes.newest, sizes.num_envs))
    needs = frozenset(schedules.required_signals((*kinds, *signals)))

    def schedule_of(run: Run) -> EntropySchedule:
        own = schedules.build(kinds, run.schedule, record, static)
        if run.played is None:
            return own
        return schedules.overridden(own, run.played.weight, run.played.stride, run.played.on)

    def adaptation_of(run: Run) -> DriftAdaptation:
        return adapting.build(names, signals, run.adaptation, supply, run.played)

    return make_program(world, built, schedule_of, config, adaptation_of, needs)


def in_envs(count: int, num_envs: int) -> int:
    """``count``, rounded up to a multiple of the parallel environments.

    >>> in_envs(128, 6)
    132
    """
    return -(-count // num_envs) * num_envs


def _settings(spec: CarrierSpec, settings: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Static structure, complete, and traced floats of a carrier.

    Raises:
      ValueError: naming a setting that it does not have, and the nearest one.
    """
    fields = {field.name: field.default for field in dataclasses.fields(spec.config)}
    known = (*fields, *spec.hyper._fields)
    for name in settings:
        if name not in known:
            near = hint(name, known)
            raise ValueError(f"carrier {spec.label} has no setting '{name}'{near} settings: {', '.join(known)}")
    config = fields | {name: value for name, value in settings.items() if name in fields}
    hyper = spec.hyper()._replace(**{name: value for name, value in settings.items() if name in spec.hyper._fields})
    concrete = {name: value for name, value in hyper._asdict().items() if not isinstance(value, Tracer)}
    spec.check(spec.hyper()._replace(**concrete))
    return config, hyper


def facts_of(spec: CarrierSpec, updates: int, action_size: int, base: float | None = None) -> dict[str, float]:
    """The numbers of a run that schedules ask for by name."""
    weight = spec.weight if base is None else base
    size = float(action_size)
    return {"base": weight, "target_entropy": -size, "action_size": size, "updates": float(updates)}


def updates_of(built: Carrier | OnPolicyCarrier, steps: int, warmup: int) -> int:
    """Gradient steps of a run of ``steps`` vector steps, ``warmup`` of them without: the ticks of its schedule."""
    on_policy = isinstance(built, OnPolicyCarrier)
    updates = steps // built.rollout * built.epochs * built.minibatches if on_policy else steps - warmup
    if updates >= 2**31:
        raise ValueError(f"a run counts its gradient steps to 2^31 - 1; {steps} vector steps make {updates}")
    return updates


def supply_of(built: Carrier | OnPolicyCarrier, sizes: LoopConfig, warmup: int) -> Supply:
    """The transitions from which a run draws its batches; ``warmup`` environment steps pass without learning."""
    if isinstance(built, OnPolicyCarrier):
        return Supply()
    floor = min(max(built.config.batch_size, 4 * LoopConfig.newest), sizes.capacity)
    stored = min(warmup + sizes.num_envs, sizes.capacity)
    return Supply(stored, sizes.num_envs, sizes.capacity, floor)


def fit_rollout(config: dict[str, Any], interval: int, num_envs: int) -> None:
    """Set the longest rollout up to the given one that divides ``interval``, in equal minibatches of about its size."""
    rows = config["rollout"] * num_envs / config["minibatches"]
    config["rollout"] = max(n for n in range(1, config["rollout"] + 1) if interval % n == 0)
    size = config["rollout"] * num_envs
    if size % config["minibatches"]:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        config["minibatches"] = min(divisors, key=lambda n: abs(n - size / rows))


def as_task(task: Any) -> envs.Task:
    """A task from a registered name, a task, or a gymnax or Brax environment.

    Raises:
      ValueError, UnknownNameError: it is none of them.
    """
    if isinstance(task, envs.Task):
        return task
    if isinstance(task, str):
        return envs.make(task)
    if hasattr(task, "step_env") and hasattr(task, "default_params"):
        from envs.adapters.gymnax import from_gymnax

        return from_gymnax(task)
    if any(base.__module__.startswith("brax.envs") for base in type(task).__mro__):
        from envs.adapters.brax import from_brax

        return from_brax(task, type(task).__name__.lower(), channels=())
    called = "; call it" if callable(task) else ""
    raise ValueError(
        f"a task is a name, an envs.Task, or a gymnax or Brax environment; got {type(task).__name__}{called}"
    )

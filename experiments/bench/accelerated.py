"""What `experiments.bench.accelerator` measures, case by case: programs to compile, and what to do with them.

The training programs are those of `experiments.bench.roofline`, so that what is measured here is what was predicted.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import envs
from aesjax.schedules import order
from experiments.bench.cost import cost_of, step_of
from experiments.bench.mjx_throughput import rolling
from experiments.bench.roofline import DEVICES, loop_of
from experiments.bench.timing import take_turns, until
from experiments.study.build import build_part
from experiments.study.config import StudyConfig, make_config
from experiments.study.sweep import compile_program, step_array

_VARIANTS: dict[str, Callable[..., Any]] = {
    "all_pairs": order._all_pairs,
    "radix_1_bit": order._radix_select(1),
    "radix_2_bits": order._radix_select(2),
    "radix_4_bits": order._radix_select(4),
    "sort": lambda x, k: jnp.sort(x)[k],
}


class Prepared(NamedTuple):
    """Programs that wait for their compilation, and what is measured with the compiled ones."""

    programs: Mapping[str, Any]
    measure: Callable[[Mapping[str, Any]], dict[str, Any]]


class Case(NamedTuple):
    """One measurement."""

    section: str
    what: dict[str, Any]
    prepare: Callable[[], Prepared]


class _Training(NamedTuple):
    """Stacked runs on the first device, traced."""

    config: StudyConfig
    carrier: str
    runs: int
    data: Any
    traced: dict[str, Any]


def _training(config: StudyConfig, carrier: str, evaluate: bool = False) -> _Training:
    part = build_part(config, carrier)
    executables = compile_program(part.program, jax.local_devices()[:1])
    data = executables.place(part.runs)
    state = jax.eval_shape(executables.init, data)
    traced = {"init": executables.init.trace(data), "chunk": executables.chunk.trace(state, data, step_array(0))}
    if evaluate:
        traced["evaluate"] = executables.evaluate.trace(state, data, step_array(0))
    return _Training(config, carrier, len(part.labels), data, traced)


def _chunks(training: _Training, compiled: Mapping[str, Any], box: dict[str, Any]) -> Callable[[], int]:
    """One chunk after another past the warm-up, within the horizon; the state of the runs is in ``box``."""
    config, carrier = training.config, training.carrier
    chunk, done = config.chunk(carrier), 0
    box["state"] = compiled["init"](training.data)

    def work() -> int:
        nonlocal done
        box["state"], metrics = compiled["chunk"](box["state"], training.data, step_array(done * chunk))
        jax.block_until_ready(metrics)
        done = done % (config.evaluations - 1) + 1
        return 1

    while done * chunk * config.envs_of(carrier) < config.warmup_of(carrier) or not done:
        work()
    return work


def _memory(compiled: Any, runs: int) -> dict[str, Any]:
    """Bytes of a program as compiled, what it is given and what it needs beside that, by run."""
    found = compiled.memory_analysis()
    if found is None:
        return {}
    return {
        "state_and_data_bytes_per_run": found.argument_size_in_bytes / runs,
        "temporary_bytes_per_run": found.temp_size_in_bytes / runs,
    }


def _share(flops: float) -> dict[str, float]:
    """Of the data sheet's peak for products; nothing where the device is none of ours."""
    kind = jax.local_devices()[0].device_kind
    return {f"share_of_{name}": flops / peak.product_flops for name, peak in DEVICES.items() if name in kind}


def training_case(section: str, study: dict[str, Any], carrier: str, runs: int) -> Case:
    """Updates, environment steps and FLOPs per second of stacked runs, and the memory they need."""

    def prepare() -> Prepared:
        config = make_config(carriers=carrier, schedules="aes", patterns="abrupt", seeds=f"1:{runs}", **study)
        training = _training(config, carrier)
        turns, updates = loop_of(config, carrier)
        platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
        cost = cost_of(step_of(training.traced["chunk"].jaxpr), platform)

        def measure(compiled: Mapping[str, Any]) -> dict[str, Any]:
            rate = until(_chunks(training, compiled, {}))()
            flops = cost.flops * turns * rate
            return {
                "updates_per_s": rate * turns * updates * runs,
                "env_steps_per_s": rate * config.chunk(carrier) * config.envs_of(carrier) * runs,
                "seconds_per_turn_of_the_loop": 1.0 / rate / turns,
                "flops_per_s": flops,
                **_share(flops),
                **_memory(compiled["chunk"], runs),
            }

        return Prepared({name: stage.lower() for name, stage in training.traced.items()}, measure)

    return Case(section, {"carrier": carrier, "runs": runs, **study}, prepare)


def schedules_case(study: dict[str, Any], names: Sequence[str], runs: int, rounds: int) -> Case:
    """Updates per second of SAC under several schedules, in turns."""

    def prepare() -> Prepared:
        trainings = {
            name: _training(
                make_config(carriers="sac", schedules=name, patterns="abrupt", seeds=f"1:{runs}", **study), "sac"
            )
            for name in names
        }
        programs = {f"{n} {k}": s.lower() for n, each in trainings.items() for k, s in each.traced.items()}

        def measure(compiled: Mapping[str, Any]) -> dict[str, Any]:
            timers = {}
            for name, each in trainings.items():
                own = {key: compiled[f"{name} {key}"] for key in each.traced}
                timers[name] = until(_chunks(each, own, {}))
            measured = take_turns(timers, rounds)
            updates = runs * trainings[names[0]].config.chunk("sac")
            return {"updates_per_s": [{name: rate * updates for name, rate in turn.items()} for turn in measured]}

        return Prepared(programs, measure)

    return Case("schedules", {"carrier": "sac", "runs": runs, **study}, prepare)


def order_case(rows: int, size: int) -> Case:
    """Microseconds of one order statistic of ``size`` residuals in each of ``rows`` runs, by variant."""
    repeats = 64

    def prepare() -> Prepared:
        x = jax.random.normal(jax.random.key(0), (rows, size))

        def repeated(variant: Callable[..., Any]) -> Callable[..., Any]:
            def one(x: Any, _: Any) -> tuple[Any, None]:
                found = jax.tree.leaves(jax.vmap(variant, (0, None))(x, jnp.int32(0.9 * (size - 1))))[0]
                return x + 1e-6 * found[:, None], None  # the next turn waits for this one

            return lambda x: jax.lax.scan(one, x, None, length=repeats)[0]

        programs = {name: jax.jit(repeated(variant)).lower(x) for name, variant in _VARIANTS.items()}

        def measure(compiled: Mapping[str, Any]) -> dict[str, Any]:
            def work(program: Any) -> Callable[[], int]:
                return lambda: jax.block_until_ready(program(x)) is not None and repeats

            measured = take_turns({name: until(work(program)) for name, program in compiled.items()}, 1)[0]
            return {"microseconds": {name: 1e6 / rate for name, rate in measured.items()}}

        return Prepared(programs, measure)

    return Case("order", {"rows": rows, "size": size}, prepare)


def physics_case(task: str, copies: int, steps: int) -> Case:
    """Environment steps per second of a task on MJX under random actions, with auto-reset and drift."""

    def prepare() -> Prepared:
        start, roll = rolling(envs.make(task, engine="mjx"), copies, steps)
        state, params = jax.eval_shape(start, jax.random.key(0))
        programs = {
            "init": jax.jit(start).lower(jax.random.key(0)),
            "roll": jax.jit(roll, donate_argnums=0).lower(state, params, jax.random.key(1)),
        }

        def measure(compiled: Mapping[str, Any]) -> dict[str, Any]:
            state, params = compiled["init"](jax.random.key(0))
            key = jax.random.key(2)

            def work() -> int:
                nonlocal state, key
                key, now = jax.random.split(key)
                state, seen = compiled["roll"](state, params, now)
                jax.block_until_ready(seen)
                return steps * copies

            work()
            rate = until(work)()
            return {"env_steps_per_s": rate, "seconds_per_step": copies / rate, **_memory(compiled["roll"], copies)}

        return Prepared(programs, measure)

    return Case("physics", {"task": task, "copies": copies}, prepare)


def table_case(carrier: str, study: dict[str, Any]) -> Case:
    """Seconds of one carrier's share of the study `toy_table`: a chunk and an evaluation, times their number."""

    def prepare() -> Prepared:
        config = make_config(carriers=carrier, schedules="baseline,aes,aes_r", **study)
        training = _training(config, carrier, evaluate=True)

        def measure(compiled: Mapping[str, Any]) -> dict[str, Any]:
            box: dict[str, Any] = {}
            chunk = 1.0 / until(_chunks(training, compiled, box))()

            def evaluate() -> int:
                jax.block_until_ready(compiled["evaluate"](box["state"], training.data, step_array(0)))
                return 1

            evaluate()
            evaluation = 1.0 / until(evaluate)()
            total = config.evaluations * chunk + (config.evaluations + 1) * evaluation
            return {"chunk_s": chunk, "evaluation_s": evaluation, "without_compilation_s": total}

        return Prepared({name: stage.lower() for name, stage in training.traced.items()}, measure)

    return Case("toy_table", {"carrier": carrier, **study}, prepare)


def peaks(megabytes: int, width: int) -> Case:
    """Bytes per second of a copy in the device's memory, FLOP/s of a square product, at two precisions."""

    def prepare() -> Prepared:
        x = jax.random.normal(jax.random.key(0), (megabytes, 2**18))
        w = jax.random.normal(jax.random.key(1), (width, width))
        programs = {"copy": jax.jit(lambda x: x + 1.0).lower(x)}
        for precision in ("default", "highest"):
            programs[f"product_{precision}"] = jax.jit(lambda w, p=precision: jnp.dot(w, w, precision=p)).lower(w)

        def measure(compiled: Mapping[str, Any]) -> dict[str, Any]:
            def calls(program: Any, given: Any) -> float:
                jax.block_until_ready(program(given))
                began = time.perf_counter()
                for _ in range(10):
                    last = program(given)
                jax.block_until_ready(last)
                return 10 / (time.perf_counter() - began)

            copy = calls(compiled["copy"], x) * 2 * x.size * x.dtype.itemsize
            products = {n: calls(compiled[n], w) * 2 * width**3 for n in ("product_default", "product_highest")}
            return {"copy_bytes_per_s": copy} | {f"{name}_flops_per_s": rate for name, rate in products.items()}

        return Prepared(programs, measure)

    return Case("peaks", {"megabytes": megabytes, "width": width}, prepare)

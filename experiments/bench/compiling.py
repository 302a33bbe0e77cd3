"""`aesjax bench --compile`: seconds until every carrier's programs can run, compiled and read from what was kept.

Tracing and lowering are paid at every start, compiling only where nothing was kept. JAX keeps no program that calls
back to the host, so on the C engine only the programs around it are read.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from agents import CARRIERS
from envs.physics import ENGINES
from experiments.bench.timing import check_record, write_record
from experiments.study.compiled import keep_in, watched
from experiments.study.config import StudyConfig, make_config
from experiments.study.prepare import Prepared, prepare
from experiments.study.sweep import compile_program, step_array, take

TOY, TASK = "toy", "hopper"  # the task without an engine, and that of the engines


def _config(carrier: str, engine: str) -> StudyConfig:
    """A study as large as there are devices: the number of runs hardly matters to the compiler."""
    task: dict[str, Any] = {"task": TOY} if engine == TOY else {"task": TASK, "options": {"engine": engine}}
    seeds = f"1:{jax.local_device_count()}"
    return make_config(carriers=carrier, schedules="baseline,aes,aes_r", patterns="abrupt", seeds=seeds, **task)


def _built(share: Prepared) -> dict[str, dict[str, Any]]:
    """Function of the program -> seconds of tracing and lowering, of compiling or reading, and whether it was kept."""
    executables = compile_program(share.part.program, share.devices, share.waves.group)
    data = executables.place(take(share.part.runs, [i % len(share.part.labels) for i in range(share.waves.width)]))
    found: dict[str, dict[str, Any]] = {}

    def build(name: str, *given: Any) -> Any:
        began = time.perf_counter()
        lowered = getattr(executables, name).lower(*given)
        middle = time.perf_counter()
        with watched() as seen:
            executable = lowered.compile()
        found[name] = {"lowering": middle - began, "compiling": time.perf_counter() - middle, "kept": bool(seen)}
        return executable

    state = build("init", data)(data)
    build("chunk", state, data, step_array(0))
    build("evaluate", state, data, step_array(0))
    return found


def _case(carrier: str, engine: str) -> dict[str, Any]:
    share = prepare(_config(carrier, engine))[0]
    cold = _built(share)
    jax.clear_caches()
    warm = _built(prepare(_config(carrier, engine))[0])
    return {"carrier": carrier, "task": TOY if engine == TOY else TASK, "engine": engine, "cold": cold, "warm": warm}


def _line(case: dict[str, Any]) -> str:
    cold, warm = case["cold"], case["warm"]
    sums = [
        sum(entry[what] for entry in built.values()) for built in (cold, warm) for what in ("lowering", "compiling")
    ]
    where = TOY if case["engine"] == TOY else f"{case['task']} {case['engine']}"
    kept = ",".join(name for name, entry in case["warm"].items() if entry["kept"]) or "none"
    return f"{case['carrier']:<8} {where:<14}" + "".join(f"{number:>10.2f}" for number in sums) + f"  {kept}"


def run(*, carriers: str, engines: str, out: Path | None) -> None:
    """Build every carrier's programs twice, print and write it.

    Args:
      carriers: comma-separated, as typed.
      engines: comma-separated: those of Hopper, and `toy` for the toy task.

    Raises:
      ValueError, UnknownNameError: unknown carrier or engine, or the output exists.
    """
    for name in carriers.split(","):
        CARRIERS[name]
    known = (TOY, *ENGINES[1:])
    for engine in engines.split(","):
        if engine not in known:
            raise ValueError(f"--engines must name some of {', '.join(known)}; got '{engines}'")
    check_record(out)
    cases = []
    print(f"{'seconds':<23}{'tracing':>10}{'compiling':>10}{'tracing':>10}{'reading':>10}  kept")
    with tempfile.TemporaryDirectory(prefix="aesjax-compiled-", ignore_cleanup_errors=True) as folder:
        keep_in(Path(folder))
        for engine in engines.split(","):
            for carrier in carriers.split(","):
                cases.append(_case(carrier, engine))
                print(_line(cases[-1]), flush=True)
    write_record(out, f"aesjax bench --compile --carriers {carriers} --engines {engines}", {"cases": cases})

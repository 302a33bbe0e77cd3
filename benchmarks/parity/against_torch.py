"""Shared by the records of SAC and PPO against PyTorch: errors, optimisers in mid-course, the command, the record."""

import argparse
import json
import platform
import time
from pathlib import Path

import jax
import numpy as np
import torch

REQUIRED = {"float32": 1e-4, "float64": 1e-9}


def tensor(x):
    return torch.tensor(np.asarray(x, np.float64))


def relative(ours, theirs):
    theirs = theirs.detach() if isinstance(theirs, torch.Tensor) else theirs
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-30))


def adam_of(parameters, rate, state, arrays, eps=1e-8):
    """An Adam in mid-course: the moments and the step count that the other side has."""
    parameters = list(parameters)
    optimiser = torch.optim.Adam(parameters, lr=rate, eps=eps)
    for parameter, mean, square in zip(parameters, arrays(state.mu), arrays(state.nu), strict=True):
        optimiser.state[parameter] = {
            "step": torch.tensor(float(state.count)),
            "exp_avg": tensor(mean),
            "exp_avg_sq": tensor(square),
        }
    return optimiser


class Errors(dict):
    """The largest error so far by name."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def add(self, name, value):
        """Remember the value if it is the largest; what is not a number counts as infinite."""
        self[name] = max(self.get(name, 0.0), float(value)) if np.isfinite(value) else float("inf")

    def steps(self, name, count, old, ours, tensors):
        """Updates tensor by tensor, with and without the allowance, and the parameters themselves."""
        for before, after, parameter in zip(old, ours, tensors, strict=True):
            theirs = parameter.detach().numpy()
            difference = np.abs(after - theirs)
            spacing = np.spacing(np.maximum(np.abs(before), np.abs(after)).astype(self.dtype)).astype(np.float64)
            size = np.linalg.norm(theirs - before)
            if size == 0.0:  # a parameter without a gradient may not move at all
                size = 1e-30
            self.add(f"{name} update", np.linalg.norm(np.maximum(difference - 0.5 * count * spacing, 0.0)) / size)
            self.add(f"raw {name} update", np.linalg.norm(difference) / size)
            self.add(f"max abs {name} parameters", np.max(difference))


def record(carrier, description, measure, judged, settings, not_judged, more=lambda cases: {}):
    """Measure in both precisions, print the largest errors and write them; the exit code.

    Args:
      measure: of a dtype: the `Errors` of every case.
      judged: whether an error counts, from dtype, case and quantity; others are recorded where no case has them judged.
      more: entries of the record from the cases by dtype.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write; must not exist")
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists; records are not overwritten")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    torch.set_num_threads(1)
    began, cases, largest, passed = time.perf_counter(), {}, {}, {}
    for dtype, required in REQUIRED.items():
        jax.config.update("jax_enable_x64", dtype == "float64")
        cases[dtype], largest[dtype] = measure(dtype), {}
        for case, errors in cases[dtype].items():
            for quantity, value in errors.items():
                if judged(dtype, case, quantity) or quantity.startswith(("raw", "max abs")):
                    largest[dtype][quantity] = max(largest[dtype].get(quantity, 0.0), value)
        passed[dtype] = {name: value <= required for name, value in largest[dtype].items() if judged(dtype, "", name)}
    print(f"{'':40}" + "".join(f"{dtype:>10}" for dtype in largest))
    for name in largest["float32"]:
        values = [largest[dtype].get(name) for dtype in largest]
        print(f"{name:40}" + "".join(f"{'-' if value is None else f'{value:.1e}':>10}" for value in values))
    ok = all(value for table in passed.values() for value in table.values())
    print(f"{'pass' if ok else 'FAIL'}: required {REQUIRED}; {time.perf_counter() - began:.0f} s")
    packages = {"jax": jax.__version__, "numpy": np.__version__, "torch": torch.__version__}
    found = {
        "what": f"largest relative errors of agents.{carrier} against a PyTorch re-derivation",
        "command": f"python benchmarks/parity/{carrier}.py --out benchmarks/parity/{carrier}.json",
        "versions": {"python": platform.python_version()} | packages,
        "settings": settings,
        "required": REQUIRED,
        "not_judged": not_judged,
        "largest": largest,
        "passed": passed,
        "all_passed": ok,
        **more(cases),
        "cases": cases,
    }
    with arguments.out.open("x") as file:
        json.dump(found, file, indent=2)
        file.write("\n")
    return 0 if ok else 1

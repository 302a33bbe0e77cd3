"""Programs that XLA computes wrong on a CPU without `safe_options`, in a process without the suite's own flags."""

import os
import subprocess
import sys

#: Public reproducers: a product folded into a sum (jax #39257), and the last row of a mapped product (jax #39103).
PROGRAMS = """
import jax
import jax.numpy as jnp
import numpy as np
from aesjax import jit
from aesjax.types import Program
from experiments.study.run import compile_program

def folded(e):
    return jnp.sum((e @ jnp.full_like(e, 0.37)) * e, axis=-1)

def mapped(rows):
    matrix = jnp.eye(3)
    return jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(rows)

e = np.random.default_rng(0).normal(size=(5, 60, 60)).astype(np.float32)
line = np.arange(32_769, dtype=np.float32)
rows = np.stack([line, 0 * line, 0 * line], axis=1)
exact = {"folded": ((e.astype(float) @ np.full_like(e, 0.37, float)) * e).sum(-1), "mapped": line.astype(float) ** 2}

def error(function, argument):
    result, right = np.asarray(function(argument), float), exact[name]
    return np.max(np.abs(result - right)) / np.max(np.abs(right))

def study(function):
    program = Program(function, lambda state, run, step: (state, {}), lambda state, run, step: function(run))
    executables = compile_program(program, jax.devices()[:1])
    return lambda argument: executables.evaluate(argument[None], argument[None], 0)[0]

for name, function, argument in (("folded", folded, e), ("mapped", mapped, rows)):
    print(name, error(jit(function), argument), error(study(function), argument))
"""


def test_programs_compute_what_numpy_computes():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ran = subprocess.run([sys.executable, "-c", PROGRAMS], env=environment, capture_output=True, text=True, check=True)
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines] == ["folded", "mapped"]
    assert all(float(error) < 1e-5 for _, *errors in lines for error in errors), ran.stdout

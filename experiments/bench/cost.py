"""What a traced program costs on an accelerator, loops counted as often as they run: FLOPs, bytes, kernels.

XLA's cost analysis looks at the program as lowered, before fusion, and counts the body of every loop once. Here a scan
counts as often as it is long. A loop whose length depends on data (MJX's solver, an evaluation) still counts once.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval

#: Operations that XLA does not fuse into the ones before them, so that each is about one kernel of its own.
_KERNELS = frozenset(
    (
        *("dot_general", "cholesky", "triangular_solve", "sort"),
        *("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "argmax", "argmin"),
        *("cumsum", "cumprod", "gather", "scatter", "scatter-add", "dynamic_update_slice"),
        *("threefry2x32", "random_bits", "random_split", "random_fold_in"),
    )
)


class Cost(NamedTuple):
    """Sums over one execution."""

    flops: float  # floating-point operations, of matrix products and elementwise alike; a multiply-add is two
    transcendentals: float
    bytes: float  # operands and results of every operation, as if nothing were fused
    product_flops: float  # those of the matrix products
    products: float  # matrix products, each a kernel or more
    kernels: float  # estimate: operations that do not fuse into the ones before them, products included

    def plus(self, other: "Cost", factor: float = 1.0) -> "Cost":
        """This and ``factor`` times the other."""
        return Cost(*(a + factor * b for a, b in zip(self, other, strict=True)))


_NOTHING = Cost(*[0.0] * 6)


def cost_of(jaxpr: ClosedJaxpr, platform: str = "cuda") -> Cost:
    """The cost of one call of ``jaxpr`` (of `jax.make_jaxpr`) where it is lowered for ``platform``.

    No such device is needed. What nobody reads does not count: the compiler removes it, too.
    """
    jaxpr = _alive(jaxpr)
    return _analysed(jaxpr, platform).plus(_beyond_once(jaxpr.jaxpr, platform))


def step_of(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """The body of a chunk's own loop, the outermost and longest scan: what is done in one step of it.

    Raises:
      ValueError: there is no scan.
    """
    scans = [each for each in _equations(_alive(jaxpr).jaxpr) if each.primitive.name == "scan"]
    if not scans:
        raise ValueError("the program has no loop")
    return max(scans, key=lambda each: (each.params["length"], len(each.params["jaxpr"].jaxpr.eqns))).params["jaxpr"]


def _alive(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Without the operations whose results nobody reads; inputs stay."""
    kept, _ = partial_eval.dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.out_avals), instantiate=True)
    return ClosedJaxpr(kept, jaxpr.consts)


def _analysed(jaxpr: ClosedJaxpr, platform: str) -> Cost:
    """XLA's own figures, every loop once, and the kernels alike."""
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in jaxpr.in_avals]
    found: Any = jax.jit(jaxpr_as_fun(jaxpr)).trace(*shapes).lower(lowering_platforms=(platform,)).cost_analysis()
    names = ("flops", "transcendentals", "bytes accessed")
    flops, transcendentals, moved = (max(float(found.get(name, 0.0)), 0.0) for name in names)
    own = _kernels(jaxpr.jaxpr, platform)
    return own._replace(flops=flops, transcendentals=transcendentals, bytes=moved)


def _beyond_once(jaxpr: Any, platform: str) -> Cost:
    """What the scans in ``jaxpr`` cost beyond their first turn."""
    total = _NOTHING
    for each in jaxpr.eqns:
        if each.primitive.name == "scan":
            body, length = each.params["jaxpr"], each.params["length"]
            total = total.plus(_analysed(body, platform), length - 1).plus(_beyond_once(body.jaxpr, platform), length)
        elif each.primitive.name == "cond":
            branches = [_beyond_once(inner, platform) for inner in _branches(each, platform)]
            total = total.plus(Cost(*(max(values) for values in zip(*branches, strict=True))))
        else:
            for inner in _inside(each):
                total = total.plus(_beyond_once(inner, platform))
    return total


def _kernels(jaxpr: Any, platform: str) -> Cost:
    """FLOPs of the products, products and kernels, every loop once; nothing else."""
    total = _NOTHING
    for each in jaxpr.eqns:
        name = each.primitive.name
        flops = _product_flops(each) if name == "dot_general" else 0.0
        total = total.plus(Cost(0.0, 0.0, 0.0, flops, float(name == "dot_general"), float(name in _KERNELS)))
        inner = [_kernels(part, platform) for part in _branches(each, platform)]
        if inner and name == "cond":
            inner = [max(inner, key=lambda cost: cost.kernels)]
        for cost in inner:
            total = total.plus(cost)
    return total


def _product_flops(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    return 2.0 * math.prod(result) * math.prod(left[i] for i in contracted)


def _branches(equation: Any, platform: str) -> list[Any]:
    """The jaxprs inside an operation; of a choice between platforms, the one for ``platform``."""
    chosen = equation.params.get("branches_platforms")
    if equation.primitive.name != "cond" or chosen is None:
        return list(_inside(equation))
    at = next(i for i, names in enumerate(chosen) if names is None or platform in names)
    return [equation.params["branches"][at].jaxpr]


def _inside(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Of ``jaxpr`` and of what it calls, loops and choices left closed."""
    for each in jaxpr.eqns:
        yield each
        if each.primitive.name not in ("scan", "while", "cond"):
            for inner in _inside(each):
                yield from _equations(inner)

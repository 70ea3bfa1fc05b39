"""Unary costs in double or in single precision, behind one type.

The costs of large images are mostly small whole numbers, which single precision holds exactly in half the memory.
Kernels get both arrays, one of which is empty, and compute in double precision either way: so each is compiled once,
and which of the two there is changes no bit of any result.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.runtime.compiled import compiled

WORTH = 1 << 22  # costs from which on their memory counts
PART = 1 << 16  # costs that are looked at together

inline = compiled(_nrt=False, forceinline=True)  # a call with all arrays of a lattice costs more than a visit


@inline
def cost_at(double, single, i):
    """Cost number i."""
    return np.float64(single[i]) if len(single) > 0 else double[i]


@inline
def copy_costs(double, single, begin, count, out):
    """out[s] <- cost number begin + s."""
    if len(single) > 0:
        for s in range(count):
            out[s] = np.float64(single[begin + s])
    else:
        for s in range(count):
            out[s] = double[begin + s]


def both(costs: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """What kernels get for costs in either precision."""
    if costs.dtype == np.float32:
        return np.zeros(0), costs
    return costs, np.zeros(0, np.float32)


def in_parts(costs: npt.NDArray[Any]) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """Costs in double precision: all at once where they are, else some after the others."""
    if costs.dtype == np.float64:
        yield slice(0, len(costs)), costs
        return
    for begin in range(0, len(costs), PART):
        some = slice(begin, min(begin + PART, len(costs)))
        yield some, costs[some].astype(np.float64)


def in_single(costs: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
    """What double precision makes of these numbers, in single precision (a new array).

    None where some have more bits, or are none (NaN, -inf).  There is never a copy of all in double precision.
    """
    if costs.dtype.kind not in "fiu" or costs.dtype.itemsize > 8:
        return None
    flat = costs.reshape(-1)
    out = np.empty(len(flat), np.float32)
    with np.errstate(over="ignore"):
        for begin in range(0, len(flat), PART):
            some = slice(begin, begin + PART)
            part = flat[some].astype(np.float64, copy=False)
            out[some] = part
            if not (out[some] == part).all() or part.min() == -np.inf:
                return None
    return out.reshape(costs.shape)

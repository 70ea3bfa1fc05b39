"""Projected gradient descent, Algorithm 2."""

from __future__ import annotations

from tightmap.model.model import Model
from tightmap.reference.bcd import descend
from tightmap.reference.dense import softened, tables
from tightmap.reference.line_search import line_search
from tightmap.reference.model import Outcome, Tables
from tightmap.reference.simplex import project
from tightmap.reference.tensor import Vector


def pgd(model: Model | Tables, start: Vector | None = None, iterations: int = 1000, tolerance: float = 1e-6) -> Outcome:
    """Descent along the projected gradient, then rounding by BCD.

    start      a relaxed point; the solution of the unaries by default
    tolerance  the Frank-Wolfe gap, relative to the energy, at which a point counts as stationary (39)
    """
    hard = tables(model)
    t = softened(hard)
    x = t.one_hot(t.argmin(t.unary)) if start is None else start.copy()  # Step 1
    beta = 1.0 / t.scale  # beta = 1 on potentials in [-1, 1]
    trace = []
    for _ in range(iterations):
        slope = t.gradient(x)
        value = t.multilinear(x)
        gap = float(slope @ (x - t.one_hot(t.argmin(slope))))  # most negative <gradient, s - x>, (39)
        trace.append({"energy": value, "gap": gap})
        if gap <= tolerance * (1.0 + abs(value)):
            break
        s = project(x - beta * slope, t.offset)  # Step 2, (16)
        alpha = line_search(t.multilinear, t.order, x, s - x)  # (17)
        if alpha == 0.0 or (s == x).all():
            break
        x = x + alpha * (s - x)  # Step 3
    labels, _ = descend(t, x)
    return Outcome(labels, hard.energy(labels), trace)

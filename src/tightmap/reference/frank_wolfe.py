"""The Frank-Wolfe algorithm, Algorithm 3."""

from __future__ import annotations

from tightmap.model.model import Model
from tightmap.reference.bcd import descend
from tightmap.reference.dense import softened, tables
from tightmap.reference.line_search import line_search
from tightmap.reference.model import Outcome, Tables
from tightmap.reference.tensor import Vector


def frank_wolfe(
    model: Model | Tables, start: Vector | None = None, iterations: int = 1000, tolerance: float = 1e-6
) -> Outcome:
    """Steps towards the vertex that the gradient points to, then rounding by BCD.

    start      a relaxed point; the solution of the unaries by default
    tolerance  the gap <gradient, x - s>, relative to the energy, at which a point counts as stationary (39)
    """
    hard = tables(model)
    t = softened(hard)
    x = t.one_hot(t.argmin(t.unary)) if start is None else start.copy()  # Step 1
    trace = []
    for _ in range(iterations):
        slope = t.gradient(x)
        s = t.one_hot(t.argmin(slope))  # Step 2: (85), for every variable apart by Lemma 1, (86)
        value, gap = t.multilinear(x), float(slope @ (x - s))
        trace.append({"energy": value, "gap": gap})
        if gap <= tolerance * (1.0 + abs(value)):
            break
        alpha = line_search(t.multilinear, t.order, x, s - x)  # (17)
        if alpha == 0.0:
            break
        x = x + alpha * (s - x)  # Step 3
    labels, _ = descend(t, x)
    return Outcome(labels, hard.energy(labels), trace)

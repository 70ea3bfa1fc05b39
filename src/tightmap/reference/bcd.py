"""Block coordinate descent, Algorithm 1: minimise E over one x_i after the other; ICM when it starts at labels."""

from __future__ import annotations

import numpy as np

from tightmap.model.model import Model
from tightmap.reference.dense import softened, tables
from tightmap.reference.model import Labels, Outcome, Tables
from tightmap.reference.tensor import Vector

TIE = 1e-12  # relative to the largest cost: what differs by less is equal but for rounding


def descend(t: Tables, start: Vector) -> tuple[Labels, list[dict[str, float]]]:
    """From a relaxed point to labels that no change of one variable improves (Proposition 1)."""
    x = start.copy()  # Step 1
    trace = []
    slack = TIE * t.scale
    changed = True
    while changed:
        changed = False
        for i, row in enumerate(t.rows):  # Step 2
            cost = t.partial(x, i)  # (14)
            best = int(np.argmin(cost))  # Lemma 1: E is linear in x_i, so a vertex minimises it, (11)
            now = int(np.argmax(x[row]))
            if x[row][now] == 1.0 and cost[now] <= cost[best] + slack:
                continue  # already a discrete solution of (11): kept, or the loop need not end
            x[row] = 0.0
            x[row.start + best] = 1.0
            changed = True
        trace.append({"energy": t.multilinear(x)})
    return t.argmin(-x), trace  # Step 3: no x_i has changed


def bcd(model: Model | Tables, start: Vector | Labels | None = None) -> Outcome:
    """Descent from labels or from a relaxed point; by default from the solution of the unaries."""
    hard = tables(model)
    t = softened(hard)
    if start is None:
        start = t.argmin(t.unary)
    x = start.astype(np.float64) if start.dtype.kind == "f" else t.one_hot(start.astype(np.int64))
    labels, trace = descend(t, x)
    return Outcome(labels, hard.energy(labels), trace)

"""How close ADMM is to a Karush-Kuhn-Tucker point of the decomposed problem (paper §5, eq. 40-42).

At such a point the copies agree and every copy is optimal given the multipliers:

    x^d = Proj( x^d - (p^d + A^d' y) )   for all d,   sum_d A^d x^d = 0.

Then the common x is a stationary point of the energy (Proposition 4).  The residuals are the largest violations of
these equations.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import most_labels, workspace
from tightmap.graph.graph import Arrays
from tightmap.moves.context import Vector
from tightmap.moves.simplex import simplex_threshold
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER
from tightmap.solvers.admm.updates import CYCLIC, STAR, Form, add_unary, linear_term


@compiled
def _gradient_copy(g, form, x, d, out, scratch):
    start = np.empty(128, np.int64)
    work = np.empty(scratch)
    for i in range(len(g.cards)):
        row = out[g.offset[i] : g.offset[i + 1]]
        linear_term(g, form, x, d, i, row, start, work, EVER)
        add_unary(g, form, d, i, row)


@compiled
def _dual(g, x, direction, simplex, ceiling):
    worst = 0.0
    row = np.empty(most_labels(g.cards))
    for i in range(len(g.cards)):
        c, at = g.cards[i], g.offset[i]
        for s in range(c):
            row[s] = x[at + s] - direction[at + s]
        floor = simplex_threshold(row, c) if simplex else 0.0
        for s in range(c):
            worst = max(worst, abs(x[at + s] - min(max(row[s] - floor, 0.0), ceiling)))
    return worst


def copy_gradient(g: Arrays, form: Form, x: Vector, d: int) -> Vector:
    """p^d for all variables, unaries included; x is (D, N)."""
    out = np.empty(x.shape[1])
    _gradient_copy(g, form, np.ascontiguousarray(x).reshape(-1), d, out, workspace(g))
    return out


def transposed(form: Form, y: Vector, d: int) -> Vector:
    """A^d' y, the multipliers as copy d sees them; y is (D, N)."""
    last = form.copies - 1
    if form.decomposition == CYCLIC:
        return (y[d + 1] if d < last else 0.0) - (y[d] if d > 0 else np.zeros_like(y[0]))
    if form.decomposition == STAR:
        return -y[d] if d > 0 else y[1:].sum(axis=0)
    return y[d] - y.mean(axis=0)


def kkt_residuals(g: Arrays, form: Form, x: Vector, y: Vector, step: float) -> dict[str, float]:
    """Largest disagreement of the copies ("primal") and largest move of a projected step 1/step ("dual")."""
    primal = float(np.abs(x - x[0]).max(initial=0.0))
    dual = 0.0
    for d in range(form.copies):
        direction = (copy_gradient(g, form, x, d) + transposed(form, y, d)) / step
        simplex = d == 0 or form.all_simplex
        ceiling = 1.0 if form.copies > 2 else np.inf
        dual = max(dual, float(_dual(g, np.ascontiguousarray(x[d]), direction, simplex, ceiling)))
    return {"primal": primal, "dual": dual}

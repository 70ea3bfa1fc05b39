"""The updates of ADMM, for models of any order: section 4.2 of the paper and B.3 of its supplement, in their order.

The problem.  With D copies x^1, .., x^D of all vectors, D the largest order, the energy is E(x) = F(x, .., x), where F
is linear in every copy (eq. 20).  Minimising E over the simplices X is

    minimise F(x^1, .., x^D)  subject to  A^1 x^1 + .. + A^D x^D = 0,   x^d in X^d                              (eq. 21)

where the linear constraint says x^1 = .. = x^D in one of three ways, the decompositions:

    cyclic     x^(d-1) = x^d,   d = 2, .., D                                                                    (eq. 24)
    star       x^1 = x^d,   d = 2, .., D                                                                        (eq. 25)
    symmetric  x^d = (x^1 + .. + x^D) / D,   d = 1, .., D                                                       (eq. 26)

In the printed form the variable at position d of a clique uses copy d.  In the symmetrised form, the default here,
every clique appears in its D rotations with 1/D of its costs, so that a variable meets every copy: position q uses copy
(q + r) mod D in rotation r.

One iteration (algorithm 4) minimises the augmented Lagrangian (eq. 27) over one copy after the other, each given the
latest others, and then moves the multipliers:

    x^d <- projection of c^d on X^d,   d = 1, .., D                                                        (eq. 28, 35)
    y   <- y + rho (A^1 x^1 + .. + A^D x^D)                                                                     (eq. 29)
    r   = |A^1 x^1 + .. + A^D x^D|^2 + sum_d |change of x^d|^2,   the residual                                  (eq. 30)

With p^d, the gradient of F in x^d (eq. 31, 32), the centres c^d and the multipliers are

    cyclic     c^1 = x^2 - (y^2 + p^1) / rho                                                                    (eq. 36)
               c^d = (x^(d-1) + x^(d+1)) / 2 + (y^d - y^(d+1) - p^d) / (2 rho),   1 < d < D                     (eq. 37)
               c^D = x^(D-1) + (y^D - p^D) / rho                   (eq. 38, which prints p^D with the wrong sign)
               y^d <- y^d + rho (x^(d-1) - x^d),   d > 1
    star       c^1 = [sum_(d>1) x^d - (sum_(d>1) y^d + p^1) / rho] / (D - 1)
               c^d = x^1 + (y^d - p^d) / rho,   d > 1
               y^d <- y^d + rho (x^1 - x^d),   d > 1
    symmetric  c^d = mean of the other copies - D / (rho (D - 1)) (p^d + y^d - mean y)
               y^d <- y^d + rho (x^d - mean x)

The sets.  X^1 is the simplices, the other copies are only non-negative.  With three or more copies these also stay
below one: products of unbounded copies with negative costs would have no minimum, and a simplex is inside the unit box
anyway.

Over-relaxation by a factor a replaces the copy that the constraint compares with, x^1 or x^(D-1), by a times it plus
(1 - a) x^d, in c^d and in the update of y^d.

Every function here is about one variable (or one entry of its vectors): which variables are visited, in what order, by
which thread and whether at all is the matter of general.py.  A pairwise model on a grid has kernels of its own
(grid_kernels.py).  ``x`` and ``y`` are flat: entry s of copy d is at d * size + s, and a variable has the entries from
``at`` on.  Copies are counted from 0.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

from tightmap.factors.kernels import contract, labellings
from tightmap.moves.simplex import simplex_threshold
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import EVER, LOOK, late

CYCLIC, STAR, SYMMETRIC = 0, 1, 2
DECOMPOSITIONS = {"cyclic": CYCLIC, "star": STAR, "symmetric": SYMMETRIC}


class Form(NamedTuple):
    """Which of the equivalent decomposed problems is solved."""

    copies: int  # D >= 2
    decomposition: int
    symmetrize: bool
    all_simplex: bool  # every copy in the simplex instead of the first one only
    unary_split: bool  # unaries shared among the copies instead of given to the first
    relax: float  # over-relaxation of the consensus: 1 for none, below 2; not for symmetric, nor cyclic with D > 2


# ---------------------------------------------------------------------------------------- the gradient p^d (eq. 31, 32)


@lean
def copy_beside(form, d, pos, q):
    """The copy that position q of a clique uses where position pos uses copy d."""
    return (d + q - pos) % form.copies if form.symmetrize else q


@lean
def linear_term(g, form, x, d, i, out, start, work, until):
    """out = p^d_i, the gradient of F in copy d of variable i, without the unary (eq. 32).

    It is gathered from the factors around the variable, so that variables are independent of one another within a
    copy.  False when time was up before all factors were visited.
    """
    spent = 0.0
    c = g.cards[i]
    size = g.offset[len(g.cards)]
    for s in range(c):
        out[s] = 0.0
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = int(g.adj_factor[a])
        pos = int(g.adj_pos[a])
        if not form.symmetrize and pos != d:
            continue
        if until < EVER:
            spent += labellings(g, f)
            if spent > LOOK:
                spent = 0.0
                if late(until):
                    return False
        first = g.scope_start[f]
        for q in range(g.scope_start[f + 1] - first):
            start[q] = copy_beside(form, d, pos, q) * size + g.offset[g.scope[first + q]]
        contract(g, f, pos, x, start, out, work)
    if form.symmetrize:
        for s in range(c):
            out[s] /= form.copies
    return True


@lean
def add_unary(g, form, d, i, out):
    """Add copy d's share of the unary of variable i to p^d_i."""
    if form.unary_split or d == 0:
        share = 1.0 / form.copies if form.unary_split else 1.0
        for s in range(g.cards[i]):
            out[s] += share * g.unary[g.offset[i] + s]


# ------------------------------------------------------------------ the centre c^d: the minimum of eq. 34 without X^d


@lean
def _cyclic_centre(form, x, y, d, at, size, rho, c, p):
    last = form.copies - 1
    if d == 0:
        for s in range(at, at + c):
            p[s - at] = x[size + s] - (y[size + s] + p[s - at]) / rho  # eq. 36
    elif d == last:
        keep = 1.0 - form.relax
        a, b = (d - 1) * size, d * size
        for s in range(at, at + c):
            before = form.relax * x[a + s] + keep * x[b + s] if last == 1 else x[a + s]
            p[s - at] = before + (y[b + s] - p[s - at]) / rho  # eq. 38, its sign corrected
    else:
        a, b, e = (d - 1) * size, d * size, (d + 1) * size
        for s in range(at, at + c):
            p[s - at] = 0.5 * (x[a + s] + x[e + s]) + (y[b + s] - y[e + s] - p[s - at]) / (2.0 * rho)  # eq. 37


@lean
def _star_centre(form, x, y, d, at, size, rho, c, p):
    if d == 0:
        for s in range(at, at + c):
            total = -p[s - at] / rho
            for e in range(1, form.copies):
                total += x[e * size + s] - y[e * size + s] / rho
            p[s - at] = total / (form.copies - 1)
    else:
        keep = 1.0 - form.relax
        b = d * size
        for s in range(at, at + c):
            p[s - at] = form.relax * x[s] + keep * x[b + s] + (y[b + s] - p[s - at]) / rho


@lean
def _symmetric_centre(form, x, y, d, at, size, rho, c, p):
    last = form.copies - 1
    scale = form.copies / (rho * last)
    for s in range(at, at + c):
        others, mean = 0.0, 0.0
        for e in range(form.copies):
            mean += y[e * size + s]
            if e != d:
                others += x[e * size + s]
        p[s - at] = others / last - scale * (p[s - at] + y[d * size + s] - mean / form.copies)


@lean
def centre(form, x, y, d, at, size, rho, c, p):
    """p, which holds p^d of a variable with c labels, becomes c^d."""
    if form.decomposition == CYCLIC:
        _cyclic_centre(form, x, y, d, at, size, rho, c, p)
    elif form.decomposition == STAR:
        _star_centre(form, x, y, d, at, size, rho, c, p)
    else:
        _symmetric_centre(form, x, y, d, at, size, rho, c, p)


# ---------------------------------------------------------------------------------------------- the copies x^d (eq. 35)


@lean
def project(form, d, c, p):
    """p, which holds c^d, becomes the nearest point of X^d: simplex, non-negative vectors, or the unit box."""
    simplex = d == 0 or form.all_simplex
    floor = simplex_threshold(p, c) if simplex else 0.0
    for s in range(c):
        v = p[s] - floor
        v = v if v > 0.0 else 0.0
        if not simplex and form.copies > 2 and v > 1.0:
            v = 1.0
        p[s] = v


@lean
def squared_change(x, d, at, size, c, p):
    """By how much copy d would move to p: its part of the residual (eq. 30)."""
    total = 0.0
    for s in range(c):
        e = p[s] - x[d * size + at + s]
        total += e * e
    return total


@lean
def over_relaxed(form):
    """Over-relaxation is known for two blocks: star decompositions, and two copies one after the other."""
    return form.relax != 1.0 and (form.decomposition == STAR or (form.decomposition == CYCLIC and form.copies == 2))


@lean
def move_copy(form, x, y, d, at, size, rho, c, p):
    """Copy d becomes p.  Over-relaxed multipliers get the part that needs the copy before its update."""
    if d > 0 and over_relaxed(form):
        for s in range(c):
            y[d * size + at + s] += rho * (1.0 - form.relax) * (x[d * size + at + s] - p[s])
    for s in range(c):
        x[d * size + at + s] = p[s]


# ------------------------------------------------------------------------------------------- the multipliers y (eq. 29)


@lean
def _mean(form, x, s, size):
    """Mean over the copies of entry s, which only the symmetric decomposition needs."""
    total = 0.0
    if form.decomposition == SYMMETRIC:
        for d in range(form.copies):
            total += x[d * size + s]
    return total / form.copies


@lean
def _disagreement(form, x, d, s, size, mean):
    """By how much entry s of copy d violates its constraint (eq. 24 to 26)."""
    if form.decomposition == CYCLIC:
        return x[(d - 1) * size + s] - x[d * size + s]
    if form.decomposition == STAR:
        return x[s] - x[d * size + s]
    return x[d * size + s] - mean


@lean
def squared_disagreement(form, x, at, size, c):
    """|A^1 x^1 + .. + A^D x^D|^2 of one variable: its part of the residual (eq. 30)."""
    first = 0 if form.decomposition == SYMMETRIC else 1
    total = 0.0
    for s in range(at, at + c):
        mean = _mean(form, x, s, size)
        for d in range(first, form.copies):
            e = _disagreement(form, x, d, s, size, mean)
            total += e * e
    return total


@lean
def move_multipliers(form, x, y, at, size, rho, c):
    """y <- y + rho (A^1 x^1 + .. + A^D x^D) for one variable."""
    first = 0 if form.decomposition == SYMMETRIC else 1
    scale = form.relax if over_relaxed(form) else 1.0
    for s in range(at, at + c):
        mean = _mean(form, x, s, size)
        for d in range(first, form.copies):
            y[d * size + s] += rho * scale * _disagreement(form, x, d, s, size, mean)

"""ADMM sweeps for any model: factors of every kind and order, all three decompositions, exact caching.

The energy is written with D copies x^1..x^D of all vectors, D the largest order (paper §4.2, eq. 20).  In the printed
form the variable at position d of a clique uses copy d.  In the symmetrised form, the default, every clique appears in
its D rotations with 1/D of its table, so that a variable meets every copy: position q uses copy (q + r) mod D in
rotation r.  Both make F(x, .., x) = E(x).  One iteration updates the copies in turn, each given the latest others,

    x^d <- projection of c^d on its set (eq. 35),   c^d the minimiser of the augmented Lagrangian in x^d (``_centre``),

and then the multipliers y.  With p^d the gradient of F in x^d (eq. 32), for the three kinds of constraints,

    cyclic     c^1 = x^2 - (y^2 + p^1) / rho                                                  (eq. 24, 36-38, where the
               c^d = (x^(d-1) + x^(d+1)) / 2 + (y^d - y^(d+1) - p^d) / (2 rho)                sign of p^D is corrected)
               c^D = x^(D-1) + (y^D - p^D) / rho
               y^d += rho (x^(d-1) - x^d),   d > 1
    star       c^1 = [sum_(d>1) x^d - (sum_(d>1) y^d + p^1) / rho] / (D - 1)                                   (eq. 25)
               c^d = x^1 + (y^d - p^d) / rho,   y^d += rho (x^1 - x^d),   d > 1
    symmetric  c^d = mean of the other copies - D / (rho (D - 1)) (p^d + y^d - mean y)                         (eq. 26)
               y^d += rho (x^d - mean x)

The first copy is in the simplices, the others are non-negative.  With three or more copies these also stay below one:
products of unbounded copies with negative costs would have no minimum, and a simplex is inside the unit box anyway.

p^d, the gradient of F in x^d, is gathered per variable from the factors around it, so that variables are independent
within a copy: no atomics, any number of threads, same result.

Caching as on grids (grid.py): a vector that would move by at most ``eps`` (squared) stays, a variable is skipped
while nothing that it reads has changed, and the two together give bit for bit what recomputing everything gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import contract, labellings
from tightmap.graph.graph import Arrays
from tightmap.moves.simplex import simplex_threshold
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import EVER, LOOK, end_of, late
from tightmap.runtime.sync import meet, together

CYCLIC, STAR, SYMMETRIC = 0, 1, 2
DECOMPOSITIONS = {"cyclic": CYCLIC, "star": STAR, "symmetric": SYMMETRIC}
BLOCK = 64  # variables that a thread takes at a time


class Form(NamedTuple):
    """Which of the equivalent decomposed problems is solved."""

    copies: int  # D >= 2
    decomposition: int
    symmetrize: bool
    all_simplex: bool  # every copy in the simplex instead of the first one only
    unary_split: bool  # unaries shared among the copies instead of given to the first
    relax: float  # over-relaxation of the consensus: 1 for none, below 2; not for symmetric, nor cyclic with D > 2


class GeneralState(NamedTuple):
    """Iterates of one run.  Copy d of variable i is x[d * N + offset[i] : ...], N the total number of labels."""

    x: npt.NDArray[np.float64]  # (D * N,)
    y: npt.NDArray[np.float64]  # (D * N,) multipliers; cyclic and star do not use those of the first copy
    dirty: npt.NDArray[np.uint8]  # (D + 1, n), the last row for the multipliers
    residual: npt.NDArray[np.float64]  # (D + 1, blocks)


def general_state(g: Arrays, form: Form) -> GeneralState:
    n, size = len(g.cards), len(g.unary)
    d = form.copies
    blocks = -(-n // BLOCK)
    return GeneralState(
        np.zeros(d * size), np.zeros(d * size), np.ones((d + 1, n), np.uint8), np.zeros((d + 1, max(blocks, 1)))
    )


@lean
def pull(g, form, x, d, i, out, start, work, until):
    """out = p^d_i, the gradient of F with respect to copy d of variable i, without the unary.

    False when time was up before all factors were visited.
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
            copy = (d + q - pos) % form.copies if form.symmetrize else q
            start[q] = copy * size + g.offset[g.scope[first + q]]
        contract(g, f, pos, x, start, out, work)
    if form.symmetrize:
        for s in range(c):
            out[s] /= form.copies
    return True


@lean
def add_unary(g, form, d, i, out):
    """Add copy d's share of the unary of variable i."""
    if form.unary_split or d == 0:
        share = 1.0 / form.copies if form.unary_split else 1.0
        for s in range(g.cards[i]):
            out[s] += share * g.unary[g.offset[i] + s]


@lean
def _centre(form, x, y, d, at, size, rho, c, p):
    """p (holding p^d) becomes c^d: supplement B, with the sign of p^D corrected.  ``at`` = offset of the variable."""
    last = form.copies - 1
    if form.decomposition == CYCLIC:
        if d == 0:
            for s in range(at, at + c):
                p[s - at] = x[size + s] - (y[size + s] + p[s - at]) / rho
        elif d == last:
            keep = 1.0 - form.relax
            a, b = (d - 1) * size, d * size
            for s in range(at, at + c):
                before = form.relax * x[a + s] + keep * x[b + s] if last == 1 else x[a + s]
                p[s - at] = before + (y[b + s] - p[s - at]) / rho
        else:
            a, b, e = (d - 1) * size, d * size, (d + 1) * size
            for s in range(at, at + c):
                p[s - at] = 0.5 * (x[a + s] + x[e + s]) + (y[b + s] - y[e + s] - p[s - at]) / (2.0 * rho)
    elif form.decomposition == STAR:
        if d == 0:
            for s in range(at, at + c):
                total = -p[s - at] / rho
                for e in range(1, form.copies):
                    total += x[e * size + s] - y[e * size + s] / rho
                p[s - at] = total / last
        else:
            keep = 1.0 - form.relax
            b = d * size
            for s in range(at, at + c):
                p[s - at] = form.relax * x[s] + keep * x[b + s] + (y[b + s] - p[s - at]) / rho
    else:
        scale = form.copies / (rho * last)
        for s in range(at, at + c):
            others, mean = 0.0, 0.0
            for e in range(form.copies):
                mean += y[e * size + s]
                if e != d:
                    others += x[e * size + s]
            p[s - at] = others / last - scale * (p[s - at] + y[d * size + s] - mean / form.copies)


@lean
def _mark(g, form, dirty, d, i):
    """Everything that reads copy d of variable i: the factors around it, and the variable's other copies."""
    for e in range(form.copies + 1):
        dirty[e, i] = 1
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = int(g.adj_factor[a])
        pos = int(g.adj_pos[a])
        if not form.symmetrize and pos != d:
            continue
        first = g.scope_start[f]
        for q in range(g.scope_start[f + 1] - first):
            if q != pos:
                dirty[(d + q - pos) % form.copies if form.symmetrize else q, g.scope[first + q]] = 1


@compiled
def _update_block(g, form, state, d, b, rho, eps, scratch, until):
    """Copy d of the dirty variables of a block; returns how many there were (fewer when time is up)."""
    x, dirty = state.x, state.dirty
    n = len(g.cards)
    size = g.offset[n]
    work = np.empty(scratch)
    start = np.empty(128, np.int64)
    p = np.empty(g.cards.max())
    total = 0.0
    count = 0
    spent = 0.0
    for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
        if dirty[d, i] == 0:
            continue
        spent += 100.0
        if spent > LOOK:
            spent = 0.0
            if late(until):
                break
        c, at = g.cards[i], g.offset[i]
        if not pull(g, form, x, d, i, p, start, work, until):
            break
        dirty[d, i] = 0
        count += 1
        add_unary(g, form, d, i, p)
        _centre(form, x, state.y, d, at, size, rho, c, p)
        simplex = d == 0 or form.all_simplex
        floor = simplex_threshold(p, c) if simplex else 0.0
        change = 0.0
        for s in range(c):
            v = p[s] - floor
            v = v if v > 0.0 else 0.0
            if not simplex and form.copies > 2 and v > 1.0:
                v = 1.0
            e = v - x[d * size + at + s]
            change += e * e
            p[s] = v
        if change > eps:
            total += change
            if form.relax != 1.0 and d > 0 and (form.decomposition == STAR or form.copies == 2):
                # over-relaxed multipliers: this part needs the copy before its update, the rest follows below
                for s in range(c):
                    state.y[d * size + at + s] += rho * (1.0 - form.relax) * (x[d * size + at + s] - p[s])
            for s in range(c):
                x[d * size + at + s] = p[s]
            _mark(g, form, dirty, d, i)
    state.residual[d, b] = total
    return count


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
    """By how much entry s of copy d violates its constraint."""
    if form.decomposition == CYCLIC:
        return x[(d - 1) * size + s] - x[d * size + s]
    if form.decomposition == STAR:
        return x[s] - x[d * size + s]
    return x[d * size + s] - mean


@lean
def _multiply_block(g, form, state, b, rho, eps):
    """The multipliers of a block, and its squared violation of the consensus."""
    x, y, dirty = state.x, state.y, state.dirty
    n, last = len(g.cards), form.copies
    first = 0 if form.decomposition == SYMMETRIC else 1
    over_relaxed = form.decomposition == STAR or (form.decomposition == CYCLIC and last == 2)
    scale = form.relax if over_relaxed else 1.0
    size = g.offset[n]
    total = 0.0
    for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
        if dirty[last, i] == 0:
            continue
        dirty[last, i] = 0
        at, end = g.offset[i], g.offset[i + 1]
        gap = 0.0
        for s in range(at, end):
            mean = _mean(form, x, s, size)
            for d in range(first, last):
                e = _disagreement(form, x, d, s, size, mean)
                gap += e * e
        if gap > eps:
            total += gap
            for s in range(at, end):
                mean = _mean(form, x, s, size)
                for d in range(first, last):
                    y[d * size + s] += rho * scale * _disagreement(form, x, d, s, size, mean)
            for e in range(last + 1):
                dirty[e, i] = 1
    state.residual[last, b] = total


@lean
def _touch(state):
    state.dirty[:] = 1


@lean
def _residual(state):
    total = 0.0
    for d in range(state.residual.shape[0]):
        for b in range(state.residual.shape[1]):
            total += state.residual[d, b]
    return total


@compiled
def _sweeps(g, form, state, rho, eps, iterations, cached, scratch, left, work, total, thread, threads, progress):
    """One thread's share; all meet after every copy, after the multipliers, and when the first has added up.

    total gets the squared residual, and whether the time is up, on which all threads have to agree.
    """
    blocks = state.residual.shape[1]
    first, last = blocks * thread // threads, blocks * (thread + 1) // threads
    met = 0
    until = end_of(left)
    for _ in range(iterations):
        if not cached:
            met += 1
            if thread == 0:
                _touch(state)
            if not meet(progress, thread, threads, met):
                return
        for d in range(form.copies):
            for b in range(first, last):
                work[b] += _update_block(g, form, state, d, b, rho, eps, scratch, until)
            met += 1
            if not meet(progress, thread, threads, met):
                return
        for b in range(first, last):
            _multiply_block(g, form, state, b, rho, eps)
        met += 1
        if not meet(progress, thread, threads, met):
            return
        if thread == 0:
            total[0] = _residual(state)
            total[1] = 1.0 if late(until) else 0.0
        met += 1
        if not meet(progress, thread, threads, met) or total[0] == 0.0 or total[1] == 1.0:
            return


def general_sweeps(
    g: Arrays,
    form: Form,
    state: GeneralState,
    rho: float,
    eps: float,
    iterations: int,
    cached: bool,
    scratch: int,
    left: float = EVER,
    team: int = 1,
) -> tuple[float, int]:
    """Iterations at one rho, until time is up.  Returns (squared residual of the last one, vectors computed)."""
    work, total = np.zeros(state.residual.shape[1], np.int64), np.zeros(2)
    together(team, _sweeps, team, g, form, state, rho, eps, iterations, cached, scratch, left, work, total)
    return float(total[0]), int(work.sum())

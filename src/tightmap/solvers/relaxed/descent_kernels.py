"""Kernels of descent on relaxed vectors: directions, and what the energy does along them.

A point x has its gradient g kept beside it.  One iteration is a direction r (pass 1, variable by variable), the energy
along x + alpha r (pass 2, factor by factor), and a step, which is applied at the start of the next pass 1.  For models
of pairs the gradient is affine, g(x + alpha r) = g + alpha h with h = H r, so that pass 2 is the only place where
factors are visited: one operator application per iteration.

Most variables are soon at a vertex that their gradient does not leave.  ``moved`` marks variables with r != 0 and
``touched`` those with a moved neighbour; everything else is skipped, exactly: a variable whose gradient and vector are
unchanged has the same direction, and r = 0 does not depend on the length of the gradient step.

Every kernel works on a range of blocks of variables (or of factors) and leaves one row of sums per block, so that any
number of threads can share the blocks and the sums are added in one order.  Those that visit factors return False when
time was up before they were through.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.difference import difference_contract
from tightmap.factors.kernels import contract, labellings
from tightmap.factors.pairs import LINEAR, POTTS, QUADRATIC
from tightmap.graph.one_form import one_form
from tightmap.moves.simplex import simplex_threshold
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late

BLOCK = 512  # variables, or factors, per block: threads share blocks, and every block has its own sums
PLAIN, PAIRWISE, PROJECTED = 0, 1, 2  # rules for the direction

SNAP = 1e-9  # a variable that is this close to where its direction leads makes the whole step
STILL = 1e-13  # a direction whose entries are all smaller than this is a rounding error


@lean
def _advance(g, i, x, grad, r, h, moved, touched, alpha):
    """x_i += alpha r_i and g_i += alpha h_i, for what has changed."""
    o = g.offset[i]
    if moved[i]:
        size = 0.0
        for e in range(o, g.offset[i + 1]):
            size = max(size, abs(r[e]))
        step = 1.0 if size < SNAP and alpha > 0.0 else alpha
        for e in range(o, g.offset[i + 1]):
            v = x[e] + step * r[e]
            x[e] = v if v > 0.0 else 0.0
    if touched[i]:
        for e in range(o, g.offset[i + 1]):
            grad[e] += alpha * h[e]


@lean
def _plain(o, c, x, r, best):
    """Towards the vertex of the smallest derivative (paper, Algorithm 3)."""
    for s in range(c):
        r[o + s] = -x[o + s]
    r[o + best] = 1.0 - x[o + best]


@lean
def _pairwise(o, c, x, grad, r, best):
    """All mass of one label moves to the best one: of the label that gains most by it.

    Choosing the label with the largest derivative instead, as is usual, lets labels with next to no mass hold up the
    common step of all variables; the gain chosen here is at least a c-th of the Frank-Wolfe gap.
    """
    worst = best
    gain = 0.0
    for s in range(c):
        r[o + s] = 0.0
        v = x[o + s] * (grad[o + s] - grad[o + best])
        if v > gain:
            gain = v
            worst = s
    if worst != best:
        r[o + best] = x[o + worst]
        r[o + worst] = -x[o + worst]


@lean
def _projected(o, c, x, grad, r, beta, work):
    """Towards the projection of x - beta g (paper, Algorithm 2)."""
    for s in range(c):
        work[s] = x[o + s] - beta * grad[o + s]
    t = simplex_threshold(work, c)
    for s in range(c):
        v = work[s] - t
        r[o + s] = (v if v > 0.0 else 0.0) - x[o + s]


@one_form
@compiled
def direct(first_block, last_block, g, x, grad, r, h, moved, touched, alpha, rule, beta, sums):
    """Pass 1: take the step that is pending, then choose the direction of every variable.

    sums[block] = (Frank-Wolfe gap, <g, r>, <r, r>).
    """
    n = len(g.cards)
    for b in range(first_block, last_block):
        work = np.empty(256)
        gap = 0.0
        slope = 0.0
        square = 0.0
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            if moved[i] == 0 and touched[i] == 0:
                continue
            _advance(g, i, x, grad, r, h, moved, touched, alpha)
            o = g.offset[i]
            c = g.cards[i]
            if c > len(work):
                work = np.empty(c)
            best = 0
            inner = 0.0
            for s in range(c):
                if grad[o + s] < grad[o + best]:
                    best = s
            low = grad[o + best]
            for s in range(c):
                inner += (grad[o + s] - low) * x[o + s]
            gap += inner
            moved[i] = 0
            if inner <= 0.0:
                for s in range(c):
                    r[o + s] = 0.0
                continue
            if rule == 0:
                _plain(o, c, x, r, best)
            elif rule == 1:
                _pairwise(o, c, x, grad, r, best)
            else:
                _projected(o, c, x, grad, r, beta, work)
            size = 0.0
            for s in range(c):
                size = max(size, abs(r[o + s]))
            if size <= STILL:
                for s in range(c):
                    r[o + s] = 0.0
                continue
            moved[i] = 1
            for s in range(c):
                # the vectors r sum to zero: measured from the minimum the products are small and do not cancel
                slope += (grad[o + s] - low) * r[o + s]
                square += r[o + s] * r[o + s]
        sums[b, 0] = gap
        sums[b, 1] = slope
        sums[b, 2] = square


@one_form
@lean
def take_step(first_block, last_block, g, x, grad, r, h, moved, touched, alpha):
    """Take the pending step without choosing a new direction."""
    n = len(g.cards)
    for b in range(first_block, last_block):
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            _advance(g, i, x, grad, r, h, moved, touched, alpha)


@lean
def _apply_sum(kind, limit, c, total, row, work):
    """row += (table of differences) total."""
    if kind == POTTS:
        mass = 0.0
        for s in range(c):
            mass += total[s]
        for s in range(c):
            row[s] += mass - total[s]
    else:
        difference_contract(c, c, 1.0, kind == QUADRATIC, limit, total, 0, row, work)


@compiled
def respond(first_block, last_block, g, r, h, moved, touched, diagonal, scratch, sums, left):
    """Pass 2 for models of pairs: h = H r, with 2 diag(diagonal) added to H; sums[block] = <r, h>.

    Rows of h are written where ``touched`` says so, which are those of variables with a moved neighbour.
    Tables of differences that a variable shares with several neighbours are applied once, to the weighted sum of the
    neighbours' vectors.
    """
    n = len(g.cards)
    convex = len(diagonal) > 0
    until = end_of(left)
    spent = 0.0
    for b in range(first_block, last_block):
        work = np.empty(scratch)
        total = np.empty(scratch)
        start = np.empty(128, np.int64)
        bend = 0.0
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            if spent > LOOK:
                spent = 0.0
                if late(until):
                    return False
            o = g.offset[i]
            c = g.cards[i]
            row = h[o : g.offset[i + 1]]
            touched[i] = 0
            if convex and moved[i]:
                touched[i] = 1
                for s in range(c):
                    row[s] = 2.0 * diagonal[o + s] * r[o + s]
            shared = -1  # the first factor whose table is being collected
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                p = int(g.adj_pos[a])
                j = g.scope[g.scope_start[f] + 1 - p]
                if moved[j] == 0:
                    continue
                if touched[i] == 0:
                    touched[i] = 1
                    for s in range(c):
                        row[s] = 0.0
                spent += 20.0 + c * g.cards[j]
                at = g.offset[j]
                kind = g.kind[f]
                w = g.weight[f]
                if (kind == POTTS or kind == LINEAR or kind == QUADRATIC) and g.cards[j] == c:
                    if shared < 0:
                        shared = f
                        for s in range(c):
                            total[s] = w * r[at + s]
                        continue
                    if g.kind[shared] == kind and (kind == POTTS or g.params[g.param[shared]] == g.params[g.param[f]]):
                        for s in range(c):
                            total[s] += w * r[at + s]
                        continue
                start[1 - p] = at
                contract(g, f, p, r, start, row, work)
            if shared >= 0:
                limit = 0.0 if g.kind[shared] == POTTS else g.params[g.param[shared]]
                _apply_sum(g.kind[shared], limit, c, total, row, work)
            if touched[i] and moved[i]:
                for s in range(c):
                    bend += row[s] * r[o + s]
        sums[b, 0] = bend
    return True


@compiled
def sample(first_block, last_block, g, x, r, moved, points, scratch, sums, left):
    """Pass 2 for any order: sums[block, q] = E(x + points[q] r) - E(x) of the factors in the block."""
    m = len(g.kind)
    until = end_of(left)
    spent = 0.0
    for b in range(first_block, last_block):
        work = np.empty(scratch)
        out = np.empty(scratch)
        start = np.empty(128, np.int64)
        vectors = np.empty(256)
        for q in range(len(points)):
            sums[b, q] = 0.0
        for f in range(b * BLOCK, min(m, (b + 1) * BLOCK)):
            first = g.scope_start[f]
            last = g.scope_start[f + 1]
            active = False
            length = 0
            for p in range(first, last):
                active = active or moved[g.scope[p]] != 0
                start[p - first] = length
                length += g.cards[g.scope[p]]
            if not active:
                continue
            if length > len(vectors):
                vectors = np.empty(length)
            base = 0.0
            for q in range(-1, len(points)):
                spent += 20.0 + labellings(g, f)
                if spent > LOOK:
                    spent = 0.0
                    if late(until):
                        return False
                alpha = points[q] if q >= 0 else 0.0
                for p in range(first, last):
                    o = g.offset[g.scope[p]]
                    for s in range(g.cards[g.scope[p]]):
                        vectors[start[p - first] + s] = x[o + s] + alpha * r[o + s]
                c = g.cards[g.scope[first]]
                for s in range(c):
                    out[s] = 0.0
                # the types of the lists of neighbours, so that one compiled contract serves all kernels
                contract(g, np.int32(f), np.int8(0), vectors, start, out, work)
                value = 0.0
                for s in range(c):
                    value += out[s] * vectors[s]
                if q < 0:
                    base = value
                else:
                    sums[b, q] += value - base
    return True


@compiled
def regradient(first_block, last_block, g, x, grad, r, moved, touched, scratch, sums, left):
    """The gradient at x of every variable that shares a factor with a moved one; sums[block] = <r, change>."""
    n = len(g.cards)
    until = end_of(left)
    spent = 0.0
    for b in range(first_block, last_block):
        work = np.empty(scratch)
        row = np.empty(scratch)
        start = np.empty(128, np.int64)
        total = 0.0
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            touched[i] = 0
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                for p in range(g.scope_start[f], g.scope_start[f + 1]):
                    if moved[g.scope[p]] and g.scope[p] != i:
                        touched[i] = 1
                if touched[i]:
                    break
            if touched[i] == 0:
                continue
            o = g.offset[i]
            c = g.cards[i]
            for s in range(c):
                row[s] = g.unary[o + s]
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                spent += 20.0 + labellings(g, f)
                if spent > LOOK:
                    spent = 0.0
                    if late(until):
                        return False
                first = g.scope_start[f]
                for p in range(first, g.scope_start[f + 1]):
                    start[p - first] = g.offset[g.scope[p]]
                contract(g, f, int(g.adj_pos[a]), x, start, row, work)
            for s in range(c):
                total += r[o + s] * (row[s] - grad[o + s])
                grad[o + s] = row[s]
        sums[b, 0] = total
    return True

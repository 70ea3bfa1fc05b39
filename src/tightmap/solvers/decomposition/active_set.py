"""The quadratic program of one factor in AD3, by the active-set method (Martins et al. 2015).

    minimise  <c, u> + <theta, v> + eta / 2 |u|^2     over distributions v on the labellings x of the factor,

where u_p are the marginals of v.  The optimum lies on few labellings W.  On these alone, with G_kl the number of
positions at which the k-th and the l-th agree and b_k = -(c(x_k) + theta(x_k)) / eta, the optimum v and the multiplier
tau of sum v = 1 solve

    [0  1'] [tau]   [1]
    [1  G ] [ v ] = [b].

A negative entry of v is met on the way from the last v and leaves W.  Otherwise the labelling that costs least at the
slope, theta(x) + sum_p (c_p + eta u_p)(x_p), joins W unless it costs what those in W do, -eta tau: then the optimum is
found.  If it is affinely dependent on W (its Schur complement is zero), v moves along the dependence until something
in W reaches zero, and takes that place.  The inverse of the matrix is kept by bordering.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.runtime.compiled import compiled, lean
from tightmap.solvers.decomposition.cheapest import cheapest, cost_of

DEPENDENT = 1e-9  # Schur complement (of whole numbers) below which a labelling depends on the others
ROUNDING = 1e-14  # part of the size of what was added that is no difference
ROUNDS = 10  # per labelling that a set can have: more changes of the set than that are rounding
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Work(NamedTuple):
    """Scratch space of one thread, and in ``sets``, ``weight``, ``cost`` the set of the factor that is worked on."""

    sets: npt.NDArray[np.int64]  # (most + 1, largest arity) labellings
    weight: FloatArray  # (most + 1,) v
    cost: FloatArray  # (most + 1,) theta
    inverse: FloatArray  # (most + 2, most + 2)
    right: FloatArray  # (most + 2,)
    solution: FloatArray
    column: FloatArray
    own: IntArray  # (largest arity,)
    start: IntArray  # (128,) where the vectors of the positions begin in linear, marginal and slope
    linear: FloatArray  # c
    marginal: FloatArray  # u
    slope: FloatArray
    labels: IntArray  # of all variables
    held: FloatArray
    at: IntArray
    out: FloatArray
    scratch: FloatArray


@compiled
def make_work(variables, arity, entries, most, scratch):
    """``entries``: most entries of the vectors of one factor; ``most``: labellings in a set."""
    return Work(
        np.empty((most + 1, arity), np.int64),
        np.empty(most + 1),
        np.empty(most + 1),
        np.empty((most + 2, most + 2)),
        np.empty(most + 2),
        np.empty(most + 2),
        np.empty(most + 2),
        np.empty(arity, np.int64),
        np.empty(128, np.int64),
        np.empty(entries),
        np.empty(entries),
        np.empty(entries),
        np.empty(variables, np.int64),
        np.empty(entries),
        np.empty(128, np.int64),
        np.empty(scratch),
        np.empty(scratch),
    )


@lean
def _border(w, size, schur):
    """Add a row and a column to the matrix: ``column`` is the inverse times it."""
    inverse, column = w.inverse, w.column
    for i in range(size):
        for j in range(size):
            inverse[i, j] += column[i] * column[j] / schur
        inverse[i, size] = -column[i] / schur
        inverse[size, i] = inverse[i, size]
    inverse[size, size] = 1.0 / schur


@lean
def _strike(w, size, r):
    """Remove row and column r from the matrix; the last one takes their place."""
    inverse = w.inverse
    pivot = inverse[r, r]
    for i in range(size):
        if i != r:
            t = inverse[i, r] / pivot
            for j in range(size):
                if j != r:
                    inverse[i, j] -= t * inverse[r, j]
    last = size - 1
    if r != last:
        for i in range(last):
            if i != r:
                inverse[i, r] = inverse[i, last]
                inverse[r, i] = inverse[last, i]
        inverse[r, r] = inverse[last, last]


@lean
def _remove(w, k, count, r):
    """Labelling r leaves the set; the last one takes its place."""
    _strike(w, count + 1, r + 1)
    last = count - 1
    for p in range(k):
        w.sets[r, p] = w.sets[last, p]
    w.weight[r] = w.weight[last]
    w.cost[r] = w.cost[last]


@lean
def _multiply(w, size, out):
    for i in range(size):
        total = 0.0
        for j in range(size):
            total += w.inverse[i, j] * w.right[j]
        out[i] = total


@lean
def _schur(w, k, count, own):
    """Schur complement of a further labelling, whose solution is left in ``column``."""
    w.right[0] = 1.0
    for r in range(count):
        agree = 0
        for p in range(k):
            agree += w.sets[r, p] == own[p]
        w.right[r + 1] = agree
    _multiply(w, count + 1, w.column)
    schur = float(k)
    for r in range(count + 1):
        schur -= w.right[r] * w.column[r]
    return schur


@lean
def _append(w, k, count, own, weight, cost):
    for p in range(k):
        w.sets[count, p] = own[p]
    w.weight[count] = weight
    w.cost[count] = cost


@lean
def _invert(w, k, count):
    """The inverse of the matrix of a set that is taken over; returns how many are left, normally all."""
    inverse = w.inverse
    inverse[0, 0] = -k
    inverse[0, 1] = 1.0
    inverse[1, 0] = 1.0
    inverse[1, 1] = 0.0
    kept = 1
    for r in range(1, count):
        for p in range(k):
            w.own[p] = w.sets[r, p]
        schur = _schur(w, k, kept, w.own)
        if schur < DEPENDENT:
            w.weight[0] += w.weight[r]
            continue
        _border(w, kept + 1, schur)
        _append(w, k, kept, w.own, w.weight[r], w.cost[r])
        kept += 1
    return kept


@lean
def _marginals(g, f, k, count, w):
    a = g.scope_start[f]
    for p in range(k):
        for s in range(g.cards[g.scope[a + p]]):
            w.marginal[w.start[p] + s] = 0.0
    for r in range(count):
        for p in range(k):
            w.marginal[w.start[p] + w.sets[r, p]] += w.weight[r]


@lean
def _equilibrium(k, count, eta, w):
    """v and tau of the present set, in ``solution``; returns what the labellings of the set then cost."""
    base = 0.0
    for r in range(count):
        total = w.cost[r]
        for p in range(k):
            total += w.linear[w.start[p] + w.sets[r, p]]
        if r == 0:
            base = total
        w.right[r + 1] = (base - total) / eta
    w.right[0] = 1.0
    _multiply(w, count + 1, w.solution)
    return base - eta * w.solution[0]


@lean
def _towards(k, count, w):
    """Go from the weights towards the solution until the first one is zero, which leaves the set.

    False when that is the last one and nothing has moved.
    """
    step = 1.0
    out = -1
    for r in range(count):
        z = w.solution[r + 1]
        if z < 0.0:
            t = w.weight[r] / (w.weight[r] - z)
            if t < step or out < 0:
                step = t
                out = r
    for r in range(count):
        w.weight[r] += step * (w.solution[r + 1] - w.weight[r])
    _remove(w, k, count, out)
    return step > 0.0 or out < count - 1


@lean
def _exchange(k, count, w, cost):
    """A labelling that depends on the set takes the place of the one that reaches zero first on the way to it."""
    step = np.inf
    out = -1
    for r in range(count):
        d = w.column[r + 1]
        if d > DEPENDENT:
            t = w.weight[r] / d
            if t < step:
                step = t
                out = r
    if out < 0:
        return False
    for r in range(count):
        w.weight[r] -= step * w.column[r + 1]
    _remove(w, k, count, out)
    schur = _schur(w, k, count - 1, w.own)
    if schur < DEPENDENT:
        return False
    _border(w, count, schur)
    _append(w, k, count - 1, w.own, step, cost)
    return True


@lean
def _first(g, f, k, w):
    """Begin with the labelling that is cheapest without the quadratic term."""
    cheapest(g, f, w.linear, w.start, w.own, w.held, w.at, w.out, w.scratch)
    _append(w, k, 0, w.own, 1.0, cost_of(g, f, w.own, w.labels))


@lean
def solve_factor(g, f, eta, count, most, w):
    """Solve the program of factor f with the linear costs ``w.linear``, from the set of ``count`` labellings in w (0:
    from scratch); the result is in ``w.marginal`` and in the set, whose new size is returned.

    Marginals are those of a distribution whatever happens; should the set become larger than ``most``, or change more
    often than rounding alone explains, they are not quite optimal.
    """
    k = g.scope_start[f + 1] - g.scope_start[f]
    if count == 0:
        _first(g, f, k, w)
        count = 1
    count = _invert(w, k, count)
    for _ in range(ROUNDS * most):
        level = _equilibrium(k, count, eta, w)
        lowest = 0.0
        for r in range(count):
            lowest = min(lowest, w.solution[r + 1])
        if lowest < 0.0:
            moved = _towards(k, count, w)
            count -= 1
            if not moved:  # what has just joined leaves at once: its gain was rounding
                break
            continue
        for r in range(count):
            w.weight[r] = w.solution[r + 1]
        _marginals(g, f, k, count, w)
        entries = w.start[k]
        for e in range(entries):
            w.slope[e] = w.linear[e] + eta * w.marginal[e]
        cheapest(g, f, w.slope, w.start, w.own, w.held, w.at, w.out, w.scratch)
        known = False
        for r in range(count):
            same = True
            for p in range(k):
                same = same and w.sets[r, p] == w.own[p]
            known = known or same
        if known:
            break
        cost = cost_of(g, f, w.own, w.labels)
        total = cost
        size = abs(cost) + abs(level)
        for p in range(k):
            v = w.slope[w.start[p] + w.own[p]]
            total += v
            size += abs(v)
        if total >= level - ROUNDING * size:
            break
        schur = _schur(w, k, count, w.own)
        if schur < DEPENDENT:
            if not _exchange(k, count, w, cost):
                break
        elif count < most:
            _border(w, count + 1, schur)
            _append(w, k, count, w.own, 0.0, cost)
            count += 1
        else:
            break
    _marginals(g, f, k, count, w)
    return count

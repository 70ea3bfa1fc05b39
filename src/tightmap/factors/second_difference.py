"""Second differences over per-node values: weight * min(|v_a - 2 v_b + v_c|, limit) on triples (a, b, c).

The prior of second-order stereo: label s of variable i stands for the value v_i(s), a disparity for instance, and a
triple is free when its three values lie on a line.  Nothing is tabulated: 14 labels would need 2744 numbers a triple.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import UNIT, Block
from tightmap.factors.kind import FactorKind, Get, Kernels, Sizes
from tightmap.factors.piece import Form, Piece, simple_piece
from tightmap.graph.graph import Arrays, FloatArray, IntArray, Kind
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.simd import LANES, absolute, get, load, maximum, minimum, splat, store


@dataclass(frozen=True, eq=False)
class SecondDifferenceBlock(Block):
    """``values`` is flat: value of variable i, label s at values[offset[i] + s]; ``offset`` is that of the model."""

    values: FloatArray
    offset: IntArray
    limit: FloatArray  # 0-d

    kind: ClassVar[Kind] = Kind.SECOND_DIFFERENCE
    name: ClassVar[str] = Kind.SECOND_DIFFERENCE.name
    costs_in: ClassVar[tuple[str, ...]] = ("values", "limit")

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        a, b, c = (self.values[self.offset[self.scopes[:, p]] + labels[self.scopes[:, p]]] for p in range(3))
        return self.weights * np.minimum(np.abs(a - 2.0 * b + c), float(self.limit))

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        bend = _bends(self.values, self.offset, self.scopes[rows], shape)
        return self.weights[rows][:, None, None, None] * np.minimum(bend, float(self.limit))

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        swap = scopes[:, 0] > scopes[:, 2]
        scopes = np.where(swap[:, None], scopes[:, ::-1], scopes)
        free = form.new_id >= 0
        values = self.values[np.repeat(free, form.cards)]
        # Differences may be small where values are not: w a - 2 w b + w c is off by the rounding of three products and
        # two sums, each of which is at most |w| (|a| + 2 |b| + |c|) in size.
        cards = form.cards[free]
        largest = np.maximum.reduceat(np.abs(values), np.cumsum(cards) - cards)[scopes]
        form.allow(4.0 * UNIT * float((np.abs(weights) * (largest @ (1.0, 2.0, 1.0))).sum()))
        limit = min(float(self.limit), 4.0 * float(np.abs(values).max(initial=0.0)) + 1.0)
        piece = simple_piece(self.kind, np.ascontiguousarray(scopes), weights, [limit])
        piece.values = values
        return [piece]

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {"values": self.values, "limit": self.limit}


def _bends(values: FloatArray, offset: IntArray, scopes: IntArray, shape: tuple[int, ...]) -> FloatArray:
    """(m, *shape) |v_a - 2 v_b + v_c| of triples with these label counts."""
    parts = []
    for p in range(3):
        v = values[offset[scopes[:, p]][:, None] + np.arange(shape[p])]
        parts.append(v.reshape((len(scopes),) + tuple(shape[p] if q == p else 1 for q in range(3))))
    return np.abs(parts[0] - 2.0 * parts[1] + parts[2])


@lean
def _coefficient(p):
    return -2.0 if p == 1 else 1.0


@lean
def second_value(g, f, labels):
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    d = 0.0
    for p in range(3):
        i = g.scope[a + p]
        d += _coefficient(p) * g.params[base + g.offset[i] + labels[i]]
    d = abs(d)
    limit = g.params[g.param[f]]
    return g.weight[f] * (d if d < limit else limit)


@lean
def second_add_slice(g, f, pos, labels, out, scale):
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    limit = g.params[g.param[f]]
    w = scale * g.weight[f]
    rest = 0.0
    for p in range(3):
        if p != pos:
            i = g.scope[a + p]
            rest += _coefficient(p) * g.params[base + g.offset[i] + labels[i]]
    i = g.scope[a + pos]
    c = _coefficient(pos)
    v = base + g.offset[i]
    for s in range(g.cards[i]):
        d = abs(rest + c * g.params[v + s])
        out[s] += w * (d if d < limit else limit)


@compiled(_nrt=False, fastmath={"contract", "nsz"})
def second_contract(g, f, pos, x, start, out, work):
    """Sum over the labels of the two other positions, sixteen labels of this one at a time.

    Labels without mass are skipped (late iterates are sparse): the others of the inner position are packed into the
    workspace, their values first and then their masses.
    """
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    limit = splat(g.params[g.param[f]])
    w = g.weight[f]
    p = 1 if pos == 0 else 0
    q = 1 if pos == 2 else 2
    ip, iq = g.scope[a + p], g.scope[a + q]
    n, own = g.cards[g.scope[a + pos]], base + g.offset[g.scope[a + pos]]
    count_p, count_q = g.cards[ip], g.cards[iq]
    at_p, at_q = base + g.offset[ip], base + g.offset[iq]
    wide = 2 * LANES
    values, masses = wide, wide + count_q
    kept = 0
    for t in range(count_q):
        mass = x[start[q] + t]
        work[values + kept] = _coefficient(q) * g.params[at_q + t]
        work[masses + kept] = mass
        kept += 1 if mass != 0.0 else 0
    zero = limit - limit
    for first in range(0, n, wide):
        count = min(wide, n - first)
        for r in range(count):
            work[r] = _coefficient(pos) * g.params[own + first + r]
        low, high = load(work, 0), load(work, LANES)
        total, total_ = zero, zero
        for s in range(count_p):
            xs = w * x[start[p] + s]
            if xs == 0.0:
                continue
            vs = splat(_coefficient(p) * g.params[at_p + s])
            low_s, high_s = low + vs, high + vs
            sums, sums_ = zero, zero
            for t in range(kept):
                v, mass = splat(get(work, values + t)), splat(get(work, masses + t))
                sums = sums + mass * minimum(absolute(low_s + v), limit)
                sums_ = sums_ + mass * minimum(absolute(high_s + v), limit)
            total, total_ = total + splat(xs) * sums, total_ + splat(xs) * sums_
        store(work, 0, total)
        store(work, LANES, total_)
        for r in range(count):
            out[first + r] += work[r]


@lean
def _all_pairs_minmarg(g, f, pos, h, start, out):
    """Min-marginal by trying all labels of the two other positions; for negative weights, which bound nothing."""
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    limit = g.params[g.param[f]]
    w = g.weight[f]
    p = 1 if pos == 0 else 0
    q = 1 if pos == 2 else 2
    i = g.scope[a + pos]
    ip = g.scope[a + p]
    iq = g.scope[a + q]
    for r in range(g.cards[i]):
        out[r] = np.inf
    for s in range(g.cards[ip]):
        vs = _coefficient(p) * g.params[base + g.offset[ip] + s]
        for t in range(g.cards[iq]):
            v = h[start[p] + s] + h[start[q] + t]
            rest = vs + _coefficient(q) * g.params[base + g.offset[iq] + t]
            for r in range(g.cards[i]):
                d = abs(rest + _coefficient(pos) * g.params[base + g.offset[i] + r])
                u = v + w * (d if d < limit else limit)
                out[r] = u if u < out[r] else out[r]


@lean
def second_minmarg(g, f, pos, h, start, out, work):
    """Truncation bounds the search: a pair of labels worse than the best one by w * limit can never win.

    The pairs that are left are listed once; then eight labels of ``pos`` at a time run along the list.
    """
    w = g.weight[f]
    if w < 0.0:
        _all_pairs_minmarg(g, f, pos, h, start, out)
        return
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    p = 1 if pos == 0 else 0
    q = 1 if pos == 2 else 2
    n = g.cards[g.scope[a + pos]]
    count_p = g.cards[g.scope[a + p]]
    count_q = g.cards[g.scope[a + q]]
    own = base + g.offset[g.scope[a + pos]]
    at_p = base + g.offset[g.scope[a + p]]
    at_q = base + g.offset[g.scope[a + q]]
    low_p = np.inf
    for s in range(count_p):
        low_p = min(low_p, h[start[p] + s])
    low_q = np.inf
    for t in range(count_q):
        low_q = min(low_q, h[start[q] + t])
    cap = low_p + low_q + w * g.params[g.param[f]]
    padded = (n + LANES - 1) // LANES * LANES
    for r in range(n):
        work[r] = w * _coefficient(pos) * g.params[own + r]
    for r in range(n, padded):
        work[r] = 0.0
    last = padded
    for s in range(count_p):
        hs = h[start[p] + s]
        if hs + low_q >= cap:
            continue
        vs = w * _coefficient(p) * g.params[at_p + s]
        for t in range(count_q):
            v = hs + h[start[q] + t]
            work[last] = v
            work[last + 1] = vs + w * _coefficient(q) * g.params[at_q + t]
            last += 2 if v < cap else 0
    for r in range(0, padded, LANES):
        mine = load(work, r)
        best = splat(cap)
        for k in range(padded, last, 2):
            d = splat(work[k + 1]) + mine
            best = minimum(splat(work[k]) + maximum(d, splat(0.0) - d), best)
        store(work, r, best)
    for r in range(n):
        out[r] = work[r]


@lean
def second_tabulate(g, f, size, table):
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    limit = g.params[g.param[f]]
    w = g.weight[f]
    first, middle, last = g.scope[a], g.scope[a + 1], g.scope[a + 2]
    ends = g.params[base + g.offset[last] : base + g.offset[last] + g.cards[last]]
    x = 0
    for s in range(g.cards[first]):
        for t in range(g.cards[middle]):
            v = g.params[base + g.offset[first] + s] - 2.0 * g.params[base + g.offset[middle] + t]
            for r in range(len(ends)):
                d = abs(v + ends[r])
                table[x + r] = w * (d if d < limit else limit)
            x += len(ends)


@lean
def second_spread(g, f):
    """An upper bound: the limit need not be reached."""
    return abs(g.weight[f]) * g.params[g.param[f]]


class SecondDifferenceKind(FactorKind):
    kind = Kind.SECOND_DIFFERENCE
    block = SecondDifferenceBlock
    words = "second-difference"
    kernels = Kernels(second_value, second_add_slice, second_contract, second_minmarg, second_tabulate, second_spread)
    has_parameters = False
    ascending = False  # the middle variable is at position 1

    def extent(self, piece: Piece) -> tuple[FloatArray, FloatArray]:
        return np.zeros(len(piece.tables)), piece.tables[:, 0]

    def multiples(self, piece: Piece) -> None:
        return None  # the values of labels are any numbers

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        assert piece.values is not None
        w, limit = piece.weights[rows], piece.tables[piece.table[rows], 0]
        bend = _bends(piece.values, offset, piece.scopes[rows], shape)
        return w[:, None, None, None] * np.minimum(bend, limit[:, None, None, None])

    def scratch(self, g: Arrays, factors: npt.NDArray[Any], arity: int, labels: int) -> int:
        return 2 * labels * (labels + 1) + 32  # see second_minmarg

    def seconds(self, sizes: Sizes, rows: npt.NDArray[Any], contraction: bool) -> FloatArray:
        concave = (sizes.g.weight[rows] < 0.0) & (not contraction)
        return np.where(concave, 1.5e-9, 0.3e-9) * sizes.entries[rows]

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        model.add_second_difference(scopes, weights, get("values", "f", 1), float(get("limit", "f", 0)))


KIND = SecondDifferenceKind()

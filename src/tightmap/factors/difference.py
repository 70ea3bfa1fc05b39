"""Absolute and squared differences of label indices, truncated or not: weight * min(|a - b|^power, limit).

Sum-product uses prefix sums (algorithms of paper supplement B need only contractions), min-sum uses two sweeps for the
absolute difference and a lower envelope of parabolas for the squared one; all O(labels).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block, label_grid
from tightmap.factors.kind import FactorKind, Get, Kernels, Sizes
from tightmap.factors.piece import Form, Piece, sorted_scopes, with_limits
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import inlined, lean, shared

LINEAR, QUADRATIC = int(Kind.LINEAR), int(Kind.QUADRATIC)


@dataclass(frozen=True, eq=False)
class DifferenceBlock(Block):
    """Base of the two kinds: ``limits`` is (m,), +inf where the difference is not truncated."""

    limits: FloatArray

    power: ClassVar[int]
    per_row: ClassVar[tuple[str, ...]] = ("limits",)

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        gap = np.abs(labels[self.scopes[:, 0]].astype(np.float64) - labels[self.scopes[:, 1]]) ** self.power
        return self.weights * np.minimum(gap, self.limits)

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        a, b = label_grid(shape)
        gap = np.abs(a - b).astype(np.float64) ** self.power
        return self.weights[rows][:, None, None] * np.minimum(gap, self.limits[rows][:, None, None])

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        # a limit that no difference reaches becomes a finite one, so that no kernel forms 0 * inf
        widest = (form.cards[self.scopes[rows]].max(axis=1) - 1.0) ** self.power
        return [with_limits(self.kind, sorted_scopes(scopes), weights, np.minimum(self.limits[rows], widest))]

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {"limits": self.limits}


@dataclass(frozen=True, eq=False)
class LinearBlock(DifferenceBlock):
    kind: ClassVar[Kind] = Kind.LINEAR
    name: ClassVar[str] = Kind.LINEAR.name
    power: ClassVar[int] = 1


@dataclass(frozen=True, eq=False)
class QuadraticBlock(DifferenceBlock):
    kind: ClassVar[Kind] = Kind.QUADRATIC
    name: ClassVar[str] = Kind.QUADRATIC.name
    power: ClassVar[int] = 2


@lean
def difference_value(quadratic, limit, a, b):
    d = float(abs(a - b))
    if quadratic:
        d *= d
    return d if d < limit else limit


@inlined
def _value(g, f, labels):
    a = g.scope_start[f]
    s, t = labels[g.scope[a]], labels[g.scope[a + 1]]
    return g.weight[f] * difference_value(g.kind[f] == QUADRATIC, g.params[g.param[f]], s, t)


@lean
def _add_row(n, w, quadratic, limit, label, out):
    for s in range(n):
        out[s] += w * difference_value(quadratic, limit, s, label)


@lean
def window(quadratic, limit, widest):
    """Largest k with |k|^power < limit, at most widest; -1 when the limit is not positive."""
    if limit <= 0.0:
        return -1
    reach = np.sqrt(limit) if quadratic else limit
    if reach > widest + 1.0:
        return widest
    k = int(np.ceil(reach)) - 1
    # guard against the rounding of the square root
    while k >= 0 and difference_value(quadratic, np.inf, k, 0) >= limit:
        k -= 1
    while k < widest and difference_value(quadratic, np.inf, k + 1, 0) < limit:
        k += 1
    return min(k, widest)


@lean
def difference_contract(n, c, w, quadratic, limit, x, start, out, work):
    """Prefix sums of x, t x, t^2 x give every windowed sum in O(1); indices are centred to keep cancellation small."""
    reach = window(quadratic, limit, max(n, c) - 1)
    total = 0.0
    if reach <= 3:  # a short filter: limit * total minus the few terms inside the window
        for t in range(c):
            total += x[start + t]
        for s in range(n):
            acc = limit * total
            for t in range(max(0, s - reach), min(c, s + reach + 1)):
                acc -= (limit - difference_value(quadratic, np.inf, s, t)) * x[start + t]
            out[s] += w * acc
        return
    mid = 0.5 * (c - 1)
    m = c + 1
    work[0] = 0.0
    work[m] = 0.0
    work[2 * m] = 0.0
    for t in range(c):
        v = x[start + t]
        u = t - mid
        work[t + 1] = work[t] + v
        work[m + t + 1] = work[m + t] + u * v
        work[2 * m + t + 1] = work[2 * m + t] + u * u * v
    total = work[c]
    for s in range(n):
        lo = min(max(s - reach, 0), c)
        hi = min(s + reach + 1, c)
        if hi < lo:
            hi = lo
        u = s - mid
        outside = total - (work[hi] - work[lo])
        if quadratic:
            acc = u * u * (work[hi] - work[lo])
            acc += -2.0 * u * (work[m + hi] - work[m + lo]) + (work[2 * m + hi] - work[2 * m + lo])
        else:
            at = min(max(s + 1, lo), hi)
            acc = u * (work[at] - work[lo]) - (work[m + at] - work[m + lo])
            acc += (work[m + hi] - work[m + at]) - u * (work[hi] - work[at])
        if outside != 0.0:
            acc += limit * outside
        out[s] += w * acc


@shared()
def difference_minmarg(n, c, w, quadratic, limit, h, start, out, work):
    """min_t h(t) + w min(|s - t|^power, limit); negative weights go through the plain double loop."""
    if w < 0.0:
        for s in range(n):
            best = np.inf
            for t in range(c):
                u = h[start + t] + w * difference_value(quadratic, limit, s, t)
                best = u if u < best else best
            out[s] = best
        return
    lowest = np.inf
    for t in range(c):
        v = h[start + t]
        lowest = v if v < lowest else lowest
    cap = lowest + w * limit
    reach = window(quadratic, limit, max(n, c) - 1)
    if quadratic and reach > 8:
        _parabolas(n, c, w, h, start, out, work)
    elif quadratic or reach <= 2:
        for s in range(n):
            best = np.inf
            for t in range(max(0, s - reach), min(c, s + reach + 1)):
                u = h[start + t] + w * difference_value(quadratic, np.inf, s, t)
                best = u if u < best else best
            out[s] = best
    else:
        for s in range(n):
            out[s] = h[start + s] if s < c else np.inf
        for s in range(1, n):
            v = out[s - 1] + w
            out[s] = v if v < out[s] else out[s]
        # labels t >= n of the other side reach this side only through its last label
        tail = np.inf
        for t in range(c - 1, n - 1, -1):
            v = h[start + t]
            tail = min(tail + w, v)
        if n < c:
            out[n - 1] = min(out[n - 1], tail + w)
        for s in range(n - 2, -1, -1):
            v = out[s + 1] + w
            out[s] = v if v < out[s] else out[s]
    for s in range(n):
        out[s] = cap if cap < out[s] else out[s]


@lean
def _parabolas(n, c, w, h, start, out, work):
    """Lower envelope of the parabolas h(t) + w (s - t)^2; work holds roots and the places where they take over."""
    if w == 0.0:
        lowest = np.inf
        for t in range(c):
            lowest = min(lowest, h[start + t])
        for s in range(n):
            out[s] = lowest
        return
    top = -1
    m = c + 1
    for t in range(c):
        v = h[start + t]
        if v == np.inf:
            continue  # an impossible label is in no envelope, and inf - inf is never formed
        cross = -np.inf
        while top >= 0:
            r = work[top]
            cross = ((v + w * t * t) - (h[start + int(r)] + w * r * r)) / (2.0 * w * (t - r))
            if cross > work[m + top]:
                break
            top -= 1
            cross = -np.inf
        top += 1
        work[top] = t
        work[m + top] = cross
    if top < 0:
        for s in range(n):
            out[s] = np.inf
        return
    q = 0
    for s in range(n):
        while q < top and work[m + q + 1] < s:
            q += 1
        d = s - work[q]
        out[s] = h[start + int(work[q])] + w * d * d


# ---------------------------------------------------------------------------------------------- as kernels of factors


@inlined
def _add_slice(g, f, pos, labels, out, scale):
    a = g.scope_start[f]
    n, other = g.cards[g.scope[a + pos]], labels[g.scope[a + 1 - pos]]
    _add_row(n, scale * g.weight[f], g.kind[f] == QUADRATIC, g.params[g.param[f]], other, out)


@inlined
def _contract(g, f, pos, x, start, out, work):
    a = g.scope_start[f]
    n, c = g.cards[g.scope[a + pos]], g.cards[g.scope[a + 1 - pos]]
    limit = g.params[g.param[f]]
    difference_contract(n, c, g.weight[f], g.kind[f] == QUADRATIC, limit, x, start[1 - pos], out, work)


@inlined
def _minmarg(g, f, pos, h, start, out, work):
    a = g.scope_start[f]
    n, c = g.cards[g.scope[a + pos]], g.cards[g.scope[a + 1 - pos]]
    limit = g.params[g.param[f]]
    difference_minmarg(n, c, g.weight[f], g.kind[f] == QUADRATIC, limit, h, start[1 - pos], out, work)


@inlined
def _change(g, f, pos, labels, cost, now, s):
    j = g.scope[g.scope_start[f] + 1 - pos]
    quadratic, limit = g.kind[f] == QUADRATIC, g.params[g.param[f]]
    row = cost[g.offset[j] : g.offset[j + 1]]
    _add_row(g.cards[j], -g.weight[f], quadratic, limit, now, row)
    _add_row(g.cards[j], g.weight[f], quadratic, limit, s, row)


@lean
def _tabulate(g, f, size, table):
    a = g.scope_start[f]
    c = g.cards[g.scope[a + 1]]
    for s in range(g.cards[g.scope[a]]):
        for r in range(c):
            table[s * c + r] = g.weight[f] * difference_value(g.kind[f] == QUADRATIC, g.params[g.param[f]], s, r)


@lean
def _spread(g, f):
    a = g.scope_start[f]
    reach = float(max(g.cards[g.scope[a]], g.cards[g.scope[a + 1]]) - 1)
    return abs(g.weight[f]) * min(g.params[g.param[f]], reach * reach if g.kind[f] == QUADRATIC else reach)


class DifferenceKind(FactorKind):
    """Both kinds: they share their kernels, which ask for the kind where it matters."""

    kernels = None
    pair_kernels = Kernels(_value, _add_slice, _contract, _minmarg, _tabulate, _spread, _change)

    def extent(self, piece: Piece) -> tuple[FloatArray, FloatArray]:
        return np.zeros(len(piece.tables)), piece.tables[:, 0]

    def multiples(self, piece: Piece) -> FloatArray:
        return np.append(piece.tables.reshape(-1), 1.0)

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        a, b = label_grid(shape)
        gap = np.abs(a - b).astype(np.float64) ** (2 if self.kind == Kind.QUADRATIC else 1)
        limits = piece.tables[piece.table[rows], 0]
        return piece.weights[rows][:, None, None] * np.minimum(gap, limits[:, None, None])

    def seconds(self, sizes: Sizes, rows: npt.NDArray[Any], contraction: bool) -> FloatArray:
        concave = (sizes.g.weight[rows] < 0.0) & (not contraction)
        return np.where(concave, 1.5e-9 * sizes.entries[rows], super().seconds(sizes, rows, contraction))


class LinearKind(DifferenceKind):
    kind = Kind.LINEAR
    block = LinearBlock
    words = "truncated linear"
    metric = True

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        model.add_truncated_linear(scopes, weights, get("limits", "f", 1))


class QuadraticKind(DifferenceKind):
    kind = Kind.QUADRATIC
    block = QuadraticBlock
    words = "truncated quadratic"

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        model.add_truncated_quadratic(scopes, weights, get("limits", "f", 1))


LINEAR_KIND, QUADRATIC_KIND = LinearKind(), QuadraticKind()

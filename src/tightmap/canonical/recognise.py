"""Recognition of structure in dense tables, so that models read from files get the fast kernels.

A stack of tables of one shape is sorted, in vectorised tests, into: constant (goes to the constant), separable (goes to
the unaries), Potts, truncated linear or quadratic, P^n-Potts, and the rest, in which equal or proportional tables are
shared.  Exact equality is asked where it costs nothing; where a product was rounded (truncated differences,
proportional tables, separable sums) the largest deviation is accounted in ``slack`` and subtracted from every bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tightmap.factors.piece import Piece, simple_piece, with_limits
from tightmap.graph.graph import FloatArray, IntArray, Kind

ROUNDING = 1e-13  # relative deviation up to which a table counts as the structure it looks like
CHUNK = 4_000_000  # table entries looked at in one go


@dataclass
class Sums:
    """What the canonical form collects beside factors."""

    offset: IntArray
    unary: FloatArray
    owned: bool = False  # whether unary may be written in place (False: it is still the user's array)
    constant: float = 0.0
    slack: float = 0.0
    infeasible: bool = False
    added: bool = False  # whether a factor has become unaries
    notes: list[str] = field(default_factory=list)

    def add_unaries(self, variables: IntArray, costs: FloatArray) -> None:
        """Add (m, S) costs to m variables with S labels each."""
        self.added = True
        if not self.owned:
            self.unary = self.unary.copy()
            self.owned = True
        np.add.at(self.unary, self.offset[variables][:, None] + np.arange(costs.shape[1]), costs)


def recognise(scopes: IntArray, tables: FloatArray, index: IntArray, weights: FloatArray, sums: Sums) -> list[Piece]:
    """Pieces for dense factors: tables is (t, S1, ..., Sk), row c costs weights[c] * tables[index[c]]."""
    if len(scopes) == 0:
        return []
    shape = tables.shape[1:]
    step = max(1, CHUNK // max(1, int(np.prod(shape))))
    if len(tables) <= step:
        return _recognise_chunk(scopes, tables, index, weights, sums)
    pieces = []
    for start in range(0, len(tables), step):
        rows = np.flatnonzero((index >= start) & (index < start + step))
        part = tables[start : start + step]
        pieces += _recognise_chunk(scopes[rows], part, index[rows] - start, weights[rows], sums)
    return pieces


def _recognise_chunk(
    scopes: IntArray, tables: FloatArray, index: IntArray, weights: FloatArray, sums: Sums
) -> list[Piece]:
    t, k = len(tables), scopes.shape[1]
    shape = tables.shape[1:]
    flat = tables.reshape(t, -1)
    pieces: list[Piece] = []
    high = flat.max(axis=1)
    low = flat.min(axis=1)
    hard = np.isinf(high)
    size = np.maximum(np.abs(low), np.abs(np.where(hard, 0.0, high)))
    open_ = ~hard  # tables not yet recognised and free of +inf

    constant = open_ & (low == high)
    rows = _rows(constant, index)
    if len(rows):
        sums.constant += float((weights[rows] * low[index[rows]]).sum())
    open_ &= ~constant

    if open_.any():
        away = _separable_deviation(tables)
        separable = open_ & (away <= ROUNDING * size)
        rows = _rows(separable, index)
        if len(rows):
            _absorb_separable(scopes[rows], tables, index[rows], weights[rows], sums)
            sums.slack += float((np.abs(weights[rows]) * away[index[rows]]).sum())
        open_ &= ~separable

    diagonal = tuple(np.arange(min(shape)) for _ in range(k))
    same = np.zeros(shape, dtype=bool)
    same[diagonal] = True
    off = flat[:, ~same.ravel()]
    spread_is_flat = open_ & (off.min(axis=1, initial=np.inf) == off.max(axis=1, initial=-np.inf))
    own = flat[:, same.ravel()]
    flat_own = own.min(axis=1) == own.max(axis=1)

    if k == 2:
        potts = spread_is_flat & flat_own
        rows = _rows(potts, index)
        if len(rows):
            every = len(rows) == len(scopes)
            which = index if every else index[rows]
            scale = weights if every else weights[rows]
            if own[:, 0].any():
                sums.constant += float((scale * own[which, 0]).sum())
            w = scale * (off[which, 0] - own[which, 0])
            pieces.append(simple_piece(Kind.POTTS, scopes if every else scopes[rows], w))
        open_ &= ~potts
        for kind, power in ((Kind.LINEAR, 1), (Kind.QUADRATIC, 2)):
            found, slope, limit, away = _difference(tables, own, open_ & flat_own, size, power)
            rows = _rows(found, index)
            if len(rows):
                which = index[rows]
                sums.constant += float((weights[rows] * own[which, 0]).sum())
                sums.slack += float((np.abs(weights[rows]) * away[which]).sum())
                pieces.append(with_limits(kind, scopes[rows], weights[rows] * slope[which], limit[which]))
            open_ &= ~found
    else:
        pn = spread_is_flat
        rows = _rows(pn, index)
        if len(rows):
            # tables that differ by a constant are told apart here, which costs sharing but nothing else
            params = np.concatenate((off[:, :1], own), axis=1)
            none = np.zeros((t, 0), dtype=np.int64)
            piece = Piece(Kind.PN_POTTS, scopes[rows], weights[rows], index[rows], params, none)
            pieces.append(share_tables(piece, sums))
        open_ &= ~pn

    rows = _rows(open_ | hard, index)
    if len(rows):
        none = np.zeros((t, 0), dtype=np.int64)
        piece = Piece(Kind.DENSE, scopes[rows], weights[rows], index[rows], flat, none)
        pieces.append(share_tables(piece, sums))
    return pieces


def _rows(chosen: npt.NDArray[np.bool_], index: IntArray) -> IntArray:
    """The rows whose table is chosen."""
    if not chosen.any():
        return np.zeros(0, dtype=np.int64)
    return np.arange(len(index)) if chosen.all() else np.flatnonzero(chosen[index])


def _marginal(tables: FloatArray, p: int) -> FloatArray:
    """(t, S_p): the entries along axis p with all other labels at 0."""
    return tables[(slice(None), *(slice(None) if q == p else 0 for q in range(tables.ndim - 1)))]


def _separable_deviation(tables: FloatArray) -> FloatArray:
    """(t,) largest |T(x) - (sum of its lines through the origin)|; tables with +inf give inf or nan, never small."""
    t, k = len(tables), tables.ndim - 1
    origin = tables.reshape(t, -1)[:, 0].reshape((t,) + (1,) * k)
    with np.errstate(invalid="ignore"):
        rest = tables + (k - 1) * origin
        for p in range(k):
            line = _marginal(tables, p)
            rest = rest - line.reshape((t,) + tuple(-1 if q == p else 1 for q in range(k)))
        return np.abs(rest).reshape(t, -1).max(axis=1)


def _absorb_separable(scopes: IntArray, tables: FloatArray, index: IntArray, weights: FloatArray, sums: Sums) -> None:
    k = scopes.shape[1]
    origin = tables.reshape(len(tables), -1)[index, 0]
    sums.constant += float((weights * origin).sum())
    for p in range(k):
        line = _marginal(tables, p)[index] - origin[:, None]
        sums.add_unaries(scopes[:, p], weights[:, None] * line)


def _difference(
    tables: FloatArray, own: FloatArray, candidates: npt.NDArray[np.bool_], size: FloatArray, power: int
) -> tuple[npt.NDArray[np.bool_], FloatArray, FloatArray, FloatArray]:
    """Which tables are c + slope * min(|a - b|^power, limit), with slope, limit and deviation of each."""
    t, rows, cols = tables.shape
    found = candidates.copy()
    tables = np.where(
        found[:, None, None], tables, 0.0
    )  # tables with +inf are no candidates: keep them out of the sums
    base = np.where(found, own[:, 0], 0.0)
    slope = tables[:, 0, 1] - base
    # the difference is largest in a corner; a truncated one has reached its limit there
    corner = (tables[:, 0, -1] if cols >= rows else tables[:, -1, 0]) - base
    widest = float(max(rows, cols) - 1) ** power
    found &= slope != 0.0
    limit = np.full(t, widest)
    np.divide(corner, slope, out=limit, where=found)
    found &= limit >= 1.0
    limit = np.minimum(limit, widest)
    away = np.zeros(t)
    where = np.flatnonzero(found)
    if len(where):
        gap = np.abs(np.arange(rows)[:, None] - np.arange(cols)).astype(np.float64) ** power
        model = base[where, None, None] + slope[where, None, None] * np.minimum(gap, limit[where, None, None])
        away[where] = np.abs(model - tables[where]).reshape(len(where), -1).max(axis=1)
        found &= away <= ROUNDING * size
    return found, slope, limit, away


def share_tables(piece: Piece, sums: Sums) -> Piece:
    """Keep one copy of equal tables, and of proportional ones with the factor in the weight."""
    used, table = np.unique(piece.table, return_inverse=True)
    tables = piece.tables if len(used) == len(piece.tables) else piece.tables[used]
    table = table.reshape(-1).astype(np.int64)
    if len(tables) > 1:
        finite = np.where(np.isinf(tables), 0.0, tables)
        peak = np.abs(finite).argmax(axis=1)
        scale = finite[np.arange(len(tables)), peak]
        # hard tables keep their own scale, and so does the zero table
        scale = np.where((scale == 0.0) | np.isinf(tables).any(axis=1), 1.0, scale)
        unit = tables / scale[:, None]
        probe = np.cos(np.arange(1.0, tables.shape[1] + 1.0) * 1.618)
        code = np.round((np.where(np.isinf(unit), 7.0, unit) * probe).sum(axis=1), 10)
        _, first, group = np.unique(code, return_index=True, return_inverse=True)
        if len(first) == len(tables):  # as on photomontages: a table of its own for each of a million edges
            return Piece(piece.kind, piece.scopes, piece.weights, table, tables, piece.ints[used])
        group = group.reshape(-1)
        lead = first[group]  # the table that may stand for this one, up to a factor
        factor = scale / scale[lead]
        with np.errstate(invalid="ignore"):
            away = np.abs(tables - factor[:, None] * tables[lead])
        away[np.isinf(tables) & np.isinf(tables[lead])] = 0.0
        worst = np.where(np.isnan(away), np.inf, away).max(axis=1)
        alike = worst <= ROUNDING * np.abs(finite).max(axis=1)
        lead = np.where(alike, lead, np.arange(len(tables)))
        factor = np.where(alike, factor, 1.0)
        sums.slack += float((np.abs(piece.weights) * np.where(alike, worst, 0.0)[table]).sum())
        kept, place = np.unique(lead, return_inverse=True)
        return Piece(
            piece.kind,
            piece.scopes,
            piece.weights * factor[table],
            place.reshape(-1).astype(np.int64)[table],
            tables[kept],
            piece.ints[used][kept] if piece.ints.shape[1] else np.zeros((len(kept), 0), dtype=np.int64),
        )
    return Piece(piece.kind, piece.scopes, piece.weights, table, tables, piece.ints[used])

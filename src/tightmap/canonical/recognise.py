"""Recognition of structure in dense tables, so that models read from files get the fast kernels.

A stack of tables of one shape is sorted, in vectorised tests, into: constant (goes to the constant), separable (goes to
the unaries), Potts, truncated linear or quadratic, P^n-Potts, and the rest, in which equal or proportional tables are
shared.  Exact equality is asked where it costs nothing; where a product was rounded (truncated differences,
proportional tables, separable sums) the largest deviation is accounted in ``slack`` and subtracted from every bound.

Most tables have no structure at all or are constant or separable, which a kernel sees in one pass (``plain_forms``):
for few tables of a shape the vectorised tests take longer to call than to make.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tightmap.factors.piece import Piece, simple_piece, with_limits
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import lean

# Part of its largest cost by which a table may differ from the structure it looks like: what a few roundings make of
# it.  What is more than that may be meant (0.004 beside 1e11).
ROUNDING = 1e-15
RATIO = 2.0**100  # proportional tables share one up to this factor
GENERAL, SEPARABLE, CONSTANT = 1, 2, 3  # forms of tables; 0: not clear
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
    form, away = _forms(flat, shape)
    if form.all():
        return _plain_pieces(scopes, tables, index, weights, sums, form, away)
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
        away = np.full(t, np.inf)
        maybe = np.flatnonzero(open_ & ~_crossed(tables, ROUNDING * size))
        if len(maybe):
            away[maybe] = _separable_deviation(tables if len(maybe) == t else tables[maybe])
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


def _plain_pieces(
    scopes: IntArray,
    tables: FloatArray,
    index: IntArray,
    weights: FloatArray,
    sums: Sums,
    form: npt.NDArray[np.uint8],
    away: FloatArray,
) -> list[Piece]:
    """The same for a stack of tables whose forms are all known."""
    flat = tables.reshape(len(tables), -1)
    none = np.zeros((len(tables), 0), dtype=np.int64)
    if form.max() > GENERAL:  # the others are larger
        rows = _rows(form == CONSTANT, index)
        if len(rows):
            sums.constant += float((weights[rows] * flat[index[rows], 0]).sum())
        rows = _rows(form == SEPARABLE, index)
        if len(rows):
            _absorb_separable(scopes[rows], tables, index[rows], weights[rows], sums)
            sums.slack += float((np.abs(weights[rows]) * away[index[rows]]).sum())
        rows = _rows(form == GENERAL, index)
        if len(rows) == 0:
            return []
        scopes, weights, index = scopes[rows], weights[rows], index[rows]
    return [share_tables(Piece(Kind.DENSE, scopes, weights, index, flat, none), sums)]


def _forms(flat: FloatArray, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.uint8], FloatArray]:
    """What ``plain_forms`` sees of tables of this shape."""
    form, away = np.zeros(len(flat), np.uint8), np.zeros(len(flat))
    if flat.flags.c_contiguous and flat.flags.writeable:  # one kind of array: the kernel is compiled once
        diagonal, stride = 0, 1
        for size in reversed(shape):
            diagonal += stride
            stride *= size
        plain_forms(flat, stride // shape[0], min(shape), diagonal, len(shape) == 2, form, away)
    return form, away


@lean
def plain_forms(flat, width, labels, diagonal, pairs, form, away):
    """Which tables (rows of ``flat``) are constant, separable (told of pairs only) or without any structure.

    A table with a forbidden entry is kept as it is.  Else four entries have to show that it is no sum of a function of
    the first variable and one of the others, two off its diagonal that it is no Potts table, and in pairs two on it, or
    |0 - 1| and |1 - 2|, that it is no difference.  Ends with the first table of which nothing is sure.  ``width``:
    entries for each label of the first variable; ``diagonal``: steps from (0, ..., 0) to (1, ..., 1).
    """
    for t in range(flat.shape[0]):
        first = flat[t, 0]
        size = 0.0
        differ = False
        for x in range(flat.shape[1]):
            size = max(size, abs(flat[t, x]))
            differ = differ or flat[t, x] != first
        if size == np.inf:
            form[t] = GENERAL
            continue
        if not differ:
            form[t] = CONSTANT
            continue
        far = 0.0
        for row in range(0, flat.shape[1], width):
            for c in range(width):
                far = max(far, abs(flat[t, row + c] + first - flat[t, row] - flat[t, c]))
            if far > 4.0 * ROUNDING * size:
                break
        if pairs and far <= ROUNDING * size:
            form[t] = SEPARABLE
            away[t] = far
            continue
        if not far > 4.0 * ROUNDING * size:
            return
        differ = not pairs
        for a in range(1, labels):
            differ = differ or flat[t, a * diagonal] != first
        if not differ and not (labels > 2 and abs(flat[t, 1] - flat[t, width + 2]) > 4.0 * ROUNDING * size):
            return
        differ = False
        off = np.nan  # the first entry off the diagonal
        following = 0  # the next entry on it
        for x in range(flat.shape[1]):
            if x == following and x < labels * diagonal:
                following += diagonal
            elif off != off:
                off = flat[t, x]
            elif flat[t, x] != off:
                differ = True
                break
        if not differ:
            return
        form[t] = GENERAL


def _rows(chosen: npt.NDArray[np.bool_], index: IntArray) -> IntArray:
    """The rows whose table is chosen."""
    if not chosen.any():
        return np.zeros(0, dtype=np.int64)
    return np.arange(len(index)) if chosen.all() else np.flatnonzero(chosen[index])


def _marginal(tables: FloatArray, p: int) -> FloatArray:
    """(t, S_p): the entries along axis p with all other labels at 0."""
    return tables[(slice(None), *(slice(None) if q == p else 0 for q in range(tables.ndim - 1)))]


def _crossed(tables: FloatArray, most: FloatArray) -> npt.NDArray[np.bool_]:
    """(t,) tables that four entries show not to be a sum of functions of one variable: cheap, and true of most."""
    corner = tables[:, :2, :2].reshape(len(tables), min(2, tables.shape[1]), min(2, tables.shape[2]), -1)[..., 0]
    if corner.shape[1:] != (2, 2):
        return np.zeros(len(tables), dtype=bool)
    with np.errstate(invalid="ignore"):
        rest = corner[:, 1, 1] + corner[:, 0, 0] - corner[:, 1, 0] - corner[:, 0, 1]
    # written in another order than below: leave room for its rounding
    return np.abs(rest) > 4.0 * most


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
    if min(rows, cols) > 2:  # a difference costs the same for labels 0 and 1 as for 1 and 2: true of few other tables
        with np.errstate(invalid="ignore"):
            found &= np.abs(tables[:, 0, 1] - tables[:, 1, 2]) <= 4.0 * ROUNDING * size
    slope, limit, away = np.zeros(t), np.zeros(t), np.zeros(t)
    where = np.flatnonzero(found)
    if len(where) == 0:
        return found, slope, limit, away
    if len(where) < t:
        tables = tables[where]  # tables with +inf are no candidates: they stay out of the sums
    base = own[where, 0]
    step = tables[:, 0, 1] - base
    # the difference is largest in a corner; a truncated one has reached its limit there
    corner = (tables[:, 0, -1] if cols >= rows else tables[:, -1, 0]) - base
    widest = float(max(rows, cols) - 1) ** power
    top = np.zeros(len(where))
    with np.errstate(over="ignore"):  # no multiple of a tiny step: an infinite one, and the table will not fit
        np.divide(corner, step, out=top, where=step != 0.0)
    fits = np.flatnonzero((step != 0.0) & (top >= 1.0))
    found[:] = False
    if len(fits):
        gap = np.abs(np.arange(rows)[:, None] - np.arange(cols)).astype(np.float64) ** power
        tables, base, step, top, where = (
            tables[fits],
            base[fits],
            step[fits],
            np.minimum(top[fits], widest),
            where[fits],
        )
        model = base[:, None, None] + step[:, None, None] * np.minimum(gap, top[:, None, None])
        slope[where], limit[where] = step, top
        away[where] = np.abs(model - tables).reshape(len(where), -1).max(axis=1)
        # the step is known up to the rounding of the constant that was added to it, and is multiplied
        found[where] = away[where] <= ROUNDING * (size[where] + np.abs(base) * top)
    return found, slope, limit, away


def share_tables(piece: Piece, sums: Sums) -> Piece:
    """Keep one copy of equal tables, and of proportional ones with the factor in the weight."""
    if len(piece.tables) == 1 and len(piece.table):
        return piece
    used, table = np.unique(piece.table, return_inverse=True)
    tables = piece.tables if len(used) == len(piece.tables) else piece.tables[used]
    table = table.reshape(-1).astype(np.int64)
    if len(tables) > 1:
        lead, factor, worst = _leads(tables)
        sums.slack += float((np.abs(piece.weights) * worst[table]).sum())
        kept, place = np.unique(lead, return_inverse=True)
        return Piece(
            piece.kind,
            piece.scopes,
            piece.weights * factor[table],
            place.reshape(-1).astype(np.int64)[table],
            tables[kept] if len(kept) < len(tables) else tables,
            piece.ints[used][kept] if piece.ints.shape[1] else np.zeros((len(kept), 0), dtype=np.int64),
        )
    return Piece(piece.kind, piece.scopes, piece.weights, table, tables, piece.ints[used])


def _leads(tables: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """For each table one that stands for it (itself where it is alone), by which factor, and how far that is off."""
    code, scale = _codes(tables)
    _, first, group, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    lead, factor, worst = np.arange(len(tables)), np.ones(len(tables)), np.zeros(len(tables))
    shared = np.flatnonzero(count[group] > 1)  # on photomontages hardly any of a million tables is
    if len(shared) == 0:
        return lead, factor, worst
    other = first[group[shared]]  # the table that may stand for this one, up to a factor
    mine, theirs = tables[shared], tables[other]
    with np.errstate(invalid="ignore", over="ignore"):  # of the smallest numbers there are, which then are not alike
        ratio = scale[shared] / scale[other]
        away = np.abs(mine - ratio[:, None] * theirs)
    away[np.isinf(mine) & np.isinf(theirs)] = 0.0
    off = np.where(np.isnan(away), np.inf, away).max(axis=1)
    alike = off <= ROUNDING * np.abs(np.where(np.isinf(mine), 0.0, mine)).max(axis=1)
    alike &= (np.abs(ratio) < RATIO) & (np.abs(ratio) > 1.0 / RATIO)  # the weights take it, and must stay numbers
    rows = shared[alike]
    lead[rows], factor[rows], worst[rows] = other[alike], ratio[alike], off[alike]
    return lead, factor, worst


def _codes(tables: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(t,) numbers that proportional tables have in common, and the scale of each."""
    hard = np.isinf(tables)
    with_hard = hard.any(axis=1)
    finite = np.where(hard, 0.0, tables) if with_hard.any() else tables
    peak = np.abs(finite).argmax(axis=1)
    scale = finite[np.arange(len(tables)), peak]
    # hard tables keep their own scale, and so does the zero table
    scale = np.where((scale == 0.0) | with_hard, 1.0, scale)
    unit = tables / scale[:, None]
    if with_hard.any():
        unit = np.where(np.isinf(unit), 7.0, unit)
    unit *= np.cos(np.arange(1.0, tables.shape[1] + 1.0) * 1.618)
    return np.round(unit.sum(axis=1), 10), scale

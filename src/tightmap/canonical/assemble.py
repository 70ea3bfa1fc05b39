"""The last step of canonicalisation: concatenate pieces into flat arrays and give hard costs a finite value.

The cost M that stands for +inf is safe: it exceeds the sum of the ranges of all finite costs, so every labelling that
uses a forbidden entry is worse than every one that does not, and the set of optima is unchanged.  A certified bound
above the largest energy a feasible labelling can have therefore proves that there is none.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.canonical.recognise import Sums
from tightmap.factors.kinds import PAIRS, row_of
from tightmap.factors.piece import Piece
from tightmap.graph.graph import Arrays, FloatArray, Graph, IntArray, PairArrays
from tightmap.graph.pixel_costs import in_parts
from tightmap.runtime.compiled import lean

FEW_BITS = 30  # costs that are multiples of 2^-30 are recognised as such
# the fields of a Graph in which nothing is forbidden
NOTHING_FORBIDDEN: dict[str, Any] = {
    "constant": 0.0,
    "hard": 0.0,
    "hard_threshold": math.inf,
    "hopeless": math.inf,
    "soft_range": 0.0,
    "unary_hard": None,
    "params_hard": None,
}


def assemble(
    pieces: list[Piece],
    cards: IntArray,
    sums: Sums,
    variables: IntArray,
    fixed: IntArray,
    grid_shape: tuple[int, int] | None,
    power: int = 0,
    typical: float = 1.0,
    shift: float = 0.0,
) -> Graph:
    pieces = in_order(pieces)
    offset = sums.offset
    unary = sums.unary if sums.unary.flags["C_CONTIGUOUS"] else np.ascontiguousarray(sums.unary)

    hard = sums.infeasible or bool(np.isinf(unary.max(initial=0.0)))
    hard = hard or any(bool(np.isinf(p.tables).any()) for p in pieces)
    quantum = common_quantum(unary, pieces, sums)
    big, threshold, hopeless, soft_range = 0.0, math.inf, math.inf, 0.0
    unary_hard: np.ndarray | None = None
    if hard:
        spread, top, size, soft_range = _finite_spread(unary, offset, pieces)
        # Not lost in the rounding of any energy, and a multiple of it: scaled costs give the same model, scaled
        margin = (spread + size) / 256.0 or 1.0
        big = spread + margin
        if quantum > 0.0:
            big = quantum * math.ceil(big / quantum)
        # feasible labellings are at most ``top``, others at least ``top + margin``
        threshold, hopeless = top + 0.25 * margin, top + 0.75 * margin
        unary_hard = np.isinf(unary)
        if unary_hard.any():
            low = _finite_row_min(unary, offset)
            unary = np.where(unary_hard, np.repeat(low, cards) + big, unary)
    constant = 2.0 * big if sums.infeasible else 0.0

    params, ints, params_hard, columns = _concatenate(pieces, big)
    order = _factor_order(pieces)
    scope_start, scope = _scopes(pieces, order)
    adj_start, adj_factor, adj_pos = _adjacency(scope_start, scope, len(cards))
    if order is None:
        columns = columns._replace(weight=columns.weight.copy())  # no array of the model's
    else:
        kind, weight, param, iparam = columns
        columns = Columns(_taken(kind, order), weight[order], _taken(param, order), _taken(iparam, order))
    pairs = all(piece.arity <= 2 and piece.kind in PAIRS for piece in pieces)
    arrays = (PairArrays if pairs else Arrays)(
        cards=cards.astype(np.int32),
        offset=offset,
        unary=unary,
        kind=columns.kind,
        scope_start=scope_start,
        scope=scope,
        weight=columns.weight,
        param=columns.param,
        iparam=columns.iparam,
        params=params,
        ints=ints,
        adj_start=adj_start,
        adj_factor=adj_factor,
        adj_pos=adj_pos,
    )
    return Graph(
        arrays=arrays,
        constant=constant,
        variables=variables,
        fixed=fixed,
        grid_shape=grid_shape,
        quantum=quantum,
        slack=sums.slack,
        hard=big,
        hard_threshold=threshold,
        hopeless=hopeless,
        soft_range=soft_range,
        unary_hard=unary_hard if unary_hard is not None and unary_hard.any() else None,
        params_hard=params_hard if params_hard is not None and params_hard.any() else None,
        power=power,
        typical=typical,
        shift=shift,
    )


def in_order(pieces: list[Piece]) -> list[Piece]:
    """The pieces that have factors, by arity and kind."""
    found = [_fold_weights_of_hard_tables(p) for p in pieces if len(p.scopes)]
    return sorted(found, key=lambda p: (p.arity, int(p.kind)))


def _fold_weights_of_hard_tables(piece: Piece) -> Piece:
    """Tables with +inf get their weights multiplied in: M is then the same number in every table."""
    if not piece.tables.size:
        return piece
    with_inf = np.asarray(np.isinf(piece.tables).any(axis=1))
    if not with_inf.any() or (piece.weights[with_inf[piece.table]] == 1.0).all():
        return piece
    folded: FloatArray = np.where(with_inf[piece.table], piece.weights, 1.0)
    pairs, place = np.unique(np.column_stack((piece.table, folded)), axis=0, return_inverse=True)
    tables = piece.tables[pairs[:, 0].astype(np.int64)]
    tables = np.where(np.isinf(tables), np.inf, tables * pairs[:, 1:])
    return Piece(
        piece.kind,
        piece.scopes,
        np.where(with_inf[piece.table], 1.0, piece.weights),
        place.reshape(-1).astype(np.int64),
        tables,
        piece.ints[pairs[:, 0].astype(np.int64)],
        piece.values,
    )


def _row_reduce(unary: FloatArray, offset: IntArray, ufunc: np.ufunc) -> FloatArray:
    return ufunc.reduceat(unary, offset[:-1]) if len(unary) else np.zeros(0)


def _finite_row_min(unary: FloatArray, offset: IntArray) -> FloatArray:
    low = _row_reduce(unary, offset, np.minimum)
    return np.where(np.isinf(low), 0.0, low)


def table_extent(piece: Piece) -> tuple[FloatArray, FloatArray]:
    """(m,) smallest and largest finite cost of every factor of a piece, weight included."""
    least, most = row_of(piece.kind).extent(piece)
    low, high = piece.weights * least[piece.table], piece.weights * most[piece.table]
    return np.minimum(low, high), np.maximum(low, high)


def _finite_spread(unary: FloatArray, offset: IntArray, pieces: list[Piece]) -> tuple[float, float, float, float]:
    """Sum of the ranges of all finite costs, the largest energy they can add up to, their size in all, and the
    largest cost of one factor above its smallest one or zero."""
    low = _finite_row_min(unary, offset)
    high = _row_reduce(np.where(np.isinf(unary), -np.inf, unary), offset, np.maximum)
    high = np.where(np.isinf(high), 0.0, high)
    spread, top = float((high - low).sum()), float(high.sum())
    size = float(np.maximum(np.abs(low), np.abs(high)).sum())
    largest = float((high - low).max(initial=0.0))
    for piece in pieces:
        least, most = table_extent(piece)
        spread += float((most - least).sum())
        top += float(most.sum())
        size += float(np.maximum(np.abs(least), np.abs(most)).sum())
        largest = max(largest, float((most - np.minimum(least, 0.0)).max(initial=0.0)))
    return spread, top, size, largest


@lean
def _common_divisor(values):
    """Of all finite numbers times 2^FEW_BITS, 0 where they are all zero, -1 where one of them has more bits."""
    total = np.int64(0)
    for i in range(len(values)):
        scaled = abs(values[i]) * 2.0**FEW_BITS
        if scaled == 0.0 or abs(values[i]) == np.inf:
            continue
        if scaled > 2.0**52 or scaled != np.rint(scaled):
            return np.int64(-1)
        rest = np.int64(scaled)
        if total == 0:
            total = rest
            continue
        rest %= total
        while rest:
            total, rest = rest, total % rest
    return total


def _gcd_of(values: npt.NDArray[Any]) -> float:
    """Largest power-of-two fraction times an integer that divides every number, 0.0 if there is none."""
    if len(values) and values.strides[0] == 0:
        values = values[:1]
    if not (values.flags.c_contiguous and values.flags.writeable):
        values = values.copy()  # one kind of array, so that the kernel is compiled once
    total = 0
    for _, part in in_parts(values):
        total = math.gcd(total, divisor) if (divisor := int(_common_divisor(part))) >= 0 else -1
        if total < 0:
            break
    return math.inf if total == 0 else max(total, 0) / 2.0**FEW_BITS


def common_quantum(unary: npt.NDArray[Any], pieces: list[Piece], sums: Sums) -> float:
    """q > 0 such that every finite energy minus the constant is a multiple of q; 0.0 when none is known.

    The constant is left out of it, so that integral costs with a real offset keep their quantum.
    """
    if sums.slack > 0.0:
        return 0.0
    divisors = [_gcd_of(piece.weights) for piece in pieces]
    total = _gcd_of(unary) if all(divisors) else 0.0
    for piece, weights in zip(pieces, divisors, strict=True):
        if total == 0.0:
            return 0.0
        numbers = row_of(piece.kind).multiples(piece)
        tables = 0.0 if numbers is None else _gcd_of(numbers)
        if tables == 0.0 or weights == 0.0:
            return 0.0
        own = tables * weights
        if math.isinf(own):
            continue
        if math.isinf(total):
            total = own
        else:
            a, b = total * 2.0**FEW_BITS, own * 2.0**FEW_BITS
            if a != round(a) or b != round(b):
                return 0.0
            total = math.gcd(int(a), int(b)) / 2.0**FEW_BITS
    return 0.0 if math.isinf(total) else total


class Columns(NamedTuple):
    """One entry per factor."""

    kind: npt.NDArray[np.uint8]
    weight: FloatArray
    param: IntArray
    iparam: IntArray


def _concatenate(pieces: list[Piece], big: float) -> tuple[FloatArray, IntArray, np.ndarray | None, Columns]:
    params: list[FloatArray] = []
    ints: list[IntArray] = []
    hard: list[np.ndarray] = []
    columns: list[Columns] = []
    at, iat = 0, 0
    for piece in pieces:
        tables, own_ints = piece.tables, piece.ints
        if piece.values is not None:
            own_ints = np.full((len(tables), 1), at, dtype=np.int64)
            params.append(piece.values)
            hard.append(np.zeros(len(piece.values), dtype=bool))
            at += len(piece.values)
        mask = np.isinf(tables)
        if mask.any():
            low = np.where(mask, np.inf, tables).min(axis=1)
            low = np.where(np.isinf(low), 0.0, low)
            tables = np.where(mask, low[:, None] + big, tables)
        params.append(tables.reshape(-1))
        hard.append(mask.reshape(-1))
        ints.append(own_ints.reshape(-1))
        kind = np.full(len(piece.scopes), int(piece.kind), dtype=np.uint8)
        place, iplace = (_places(piece, start, width) for start, width in ((at, tables), (iat, own_ints)))
        columns.append(Columns(kind, piece.weights, place, iplace))
        at += tables.size
        iat += own_ints.size
    joined = columns[0] if len(columns) == 1 else _joined(columns)
    flat = np.concatenate(params) if params else np.zeros(0)
    mask_flat = np.concatenate(hard) if hard else None
    # Numba reads these even when no factor uses them: never of length zero
    flat = flat if len(flat) else np.zeros(1)
    flat_ints = np.concatenate(ints) if ints else np.zeros(0, dtype=np.int64)
    flat_ints = flat_ints if len(flat_ints) else np.zeros(1, dtype=np.int64)
    return flat, flat_ints, mask_flat, joined


def _places(piece: Piece, start: int, rows: np.ndarray) -> IntArray:
    """Where the row of every factor begins in a list in which these rows begin at ``start``."""
    if len(rows) > 1 and rows.shape[1]:
        return start + piece.table * rows.shape[1]
    # one row for all: on large grids pages of zeros that nobody writes to take no memory
    return np.full(len(piece.scopes), start) if start else np.zeros(len(piece.scopes), dtype=np.int64)


def _joined(columns: list[Columns]) -> Columns:
    if not columns:
        return Columns(np.zeros(0, np.uint8), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Columns(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))


def _taken(column: npt.NDArray[Any], order: IntArray) -> npt.NDArray[Any]:
    """column[order]; on large grids most columns are the same everywhere, as a glance at some entries suggests."""
    same = (column[:: max(1, len(column) // 64)] == column[0]).all() and (column == column[0]).all()
    return column if same else column[order]


def _factor_order(pieces: list[Piece]) -> IntArray | None:
    """Factors by arity, kind and their first two variables, as they came where these are the same; None: in order."""
    if len(pieces) == 1:
        first, second = pieces[0].scopes[:, 0], pieces[0].scopes[:, 1]
        falls = first[1:] < first[:-1]
        if not falls.any() and not ((first[1:] == first[:-1]) & (second[1:] < second[:-1])).any():
            return None
        if first.max() < 1 << 31 and second.max() < 1 << 31:
            key = first << 31
            key |= second
            return np.argsort(key, kind="stable")  # the rows and columns of a grid are two runs, which is quick
        return np.lexsort((second, first))
    if not pieces:
        return None
    first = np.concatenate([piece.scopes[:, 0] for piece in pieces])
    second = np.concatenate([piece.scopes[:, 1] for piece in pieces])
    group = np.repeat([piece.arity * 16 + int(piece.kind) for piece in pieces], [len(piece.scopes) for piece in pieces])
    order = np.lexsort((second, first, group))
    return None if bool((order[1:] > order[:-1]).all()) else order


def _scopes(pieces: list[Piece], order: IntArray | None) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """Pieces are sorted by arity, and the order keeps arities apart: permute within each arity."""
    starts: list[IntArray] = []
    parts: list[npt.NDArray[np.int32]] = []
    begin, end = 0, 0
    for k in sorted({p.arity for p in pieces}):
        same = [p.scopes.astype(np.int32) for p in pieces if p.arity == k]
        rows = same[0] if len(same) == 1 else np.concatenate(same)
        if order is not None:
            rows = _rows_in_order(rows, order[begin : begin + len(rows)] - begin if begin else order[: len(rows)])
        parts.append(rows.reshape(-1))
        starts.append(np.arange(end + k, end + k * len(rows) + 1, k) if begin else np.arange(0, k * len(rows) + 1, k))
        begin += len(rows)
        end += k * len(rows)
    if not parts:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32)
    return _whole(starts), _whole(parts)


def _whole(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _rows_in_order(rows: npt.NDArray[np.int32], order: IntArray) -> npt.NDArray[np.int32]:
    """rows[order]; pairs are taken as one number each, which is twice as fast."""
    if rows.shape[1] != 2:
        return rows[order]
    return np.ascontiguousarray(rows).view(np.int64)[:, 0][order].view(np.int32).reshape(-1, 2)


@lean
def _list_factors(scope_start, scope, fill, factor, position):
    """Write every factor under its variables; fill[i] is the next free place of variable i."""
    for f in range(len(scope_start) - 1):
        for s in range(scope_start[f], scope_start[f + 1]):
            a = fill[scope[s]]
            fill[scope[s]] = a + 1
            factor[a] = f
            position[a] = s - scope_start[f]


@lean
def _count(scope, start):
    """start[i + 1] = how often the variables up to i occur (start is zero before)."""
    for s in range(len(scope)):
        start[scope[s] + 1] += 1
    for i in range(1, len(start)):
        start[i] += start[i - 1]


def _adjacency(scope_start: IntArray, scope: npt.NDArray[np.int32], n: int) -> tuple[IntArray, np.ndarray, np.ndarray]:
    adj_start = np.zeros(n + 1, dtype=np.int64)
    _count(scope, adj_start)
    factor, position = np.empty(len(scope), np.int32), np.empty(len(scope), np.int8)
    _list_factors(scope_start, scope, adj_start[:-1].copy(), factor, position)
    return adj_start, factor, position

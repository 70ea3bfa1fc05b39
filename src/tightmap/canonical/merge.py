"""Factors on the same scope are added: Potts weights where both are Potts, small dense tables otherwise.

Adding keeps the relaxations tight (one message per edge instead of two) but may turn structure into tables; where that
would cost real memory the factors stay side by side, which is just as correct.
"""

from __future__ import annotations

import numpy as np

from tightmap.canonical.recognise import Sums, recognise
from tightmap.factors.kinds import row_of
from tightmap.factors.piece import Piece
from tightmap.graph.graph import IntArray, Kind

MERGE_ENTRIES = 20_000_000  # dense entries that merging may create in all


def scope_keys(scopes: IntArray, n: int) -> IntArray:
    """(m,) numbers that are equal exactly for equal scopes."""
    k = scopes.shape[1]
    if n == 0 or k * np.log2(max(n, 2)) < 62:
        key = scopes[:, 0].astype(np.int64)
        for p in range(1, k):  # in place: there may be many
            key *= n
            key += scopes[:, p]
        return key
    _, inverse = np.unique(scopes, axis=0, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64)


def has_repeats(keys: IntArray) -> bool:
    """Does a number occur twice?  Factors mostly come sorted, and a sort alone is far cheaper than np.unique."""
    rising = keys[1:] > keys[:-1]
    runs = len(keys) - int(np.count_nonzero(rising))
    if runs <= 1:
        return False
    # a few sorted runs, as the rows and columns of a grid are, only need merging
    ordered = np.sort(keys, kind="stable" if runs < 64 else "quicksort")
    return bool((ordered[1:] == ordered[:-1]).any())


def merge_duplicates(pieces: list[Piece], cards: IntArray, sums: Sums) -> list[Piece]:
    """Pieces in which (almost) no scope occurs twice."""
    out: list[Piece] = []
    for k in sorted({p.arity for p in pieces}):
        same = [p for p in pieces if p.arity == k and len(p.scopes)]
        out += _merge_arity(same, cards, sums) if same else []
    return out


def _sum_potts(pieces: list[Piece], n: int) -> list[Piece]:
    """One Potts piece without repeated edges; edges whose weights cancel are gone."""
    potts = [p for p in pieces if p.kind == Kind.POTTS]
    if not potts:
        return pieces
    scopes = potts[0].scopes if len(potts) == 1 else np.concatenate([p.scopes for p in potts])
    weights = potts[0].weights if len(potts) == 1 else np.concatenate([p.weights for p in potts])
    keys = scope_keys(scopes, n)
    if has_repeats(keys):
        keys, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        weights = np.bincount(inverse.reshape(-1), weights=weights, minlength=len(keys))
        scopes = scopes[first]
    keep = weights != 0.0
    if not keep.all():
        scopes, weights = scopes[keep], weights[keep]
    zero = np.zeros(len(scopes), dtype=np.int64)
    merged = Piece(Kind.POTTS, scopes, weights, zero, np.zeros((1, 0)), np.zeros((1, 0), dtype=np.int64))
    return [merged] + [p for p in pieces if p.kind != Kind.POTTS]


def _merge_arity(pieces: list[Piece], cards: IntArray, sums: Sums) -> list[Piece]:
    n = len(cards)
    pieces = _sum_potts(pieces, n)
    if [p.kind for p in pieces] == [Kind.POTTS]:
        return pieces
    sets = [p.scopes if row_of(p.kind).ascending else np.sort(p.scopes, axis=1) for p in pieces]
    keys = scope_keys(np.concatenate(sets), n)
    if not has_repeats(keys):
        return pieces
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    twice = counts[inverse.reshape(-1)] > 1
    sizes = np.prod(cards[np.concatenate(sets)[twice]].astype(np.float64), axis=1)
    if float(sizes.sum()) > MERGE_ENTRIES:
        return pieces
    out: list[Piece] = []
    parts: list[tuple[Piece, IntArray, IntArray, IntArray]] = []  # piece, rows, sorted scopes, keys
    start = 0
    for piece, sorted_scopes in zip(pieces, sets, strict=True):
        mine = twice[start : start + len(piece.scopes)]
        own = keys[start : start + len(piece.scopes)]
        start += len(piece.scopes)
        if not mine.all():
            out.append(piece.take(~mine))
        rows = np.flatnonzero(mine)
        if len(rows):
            parts.append((piece, rows, sorted_scopes[rows], own[rows]))
    out += _add_tables(parts, cards, sums)
    return out


def _add_tables(parts: list[tuple[Piece, IntArray, IntArray, IntArray]], cards: IntArray, sums: Sums) -> list[Piece]:
    """Dense sums of the listed rows, one per scope, recognised again."""
    every = np.concatenate([s for _, _, s, _ in parts])
    keys, first, place = np.unique(np.concatenate([k for *_, k in parts]), return_index=True, return_inverse=True)
    place = place.reshape(-1)
    scopes = every[first]
    shapes = cards[scopes]
    out: list[Piece] = []
    for shape_row in np.unique(shapes, axis=0):
        shape = tuple(int(s) for s in shape_row)
        chosen = np.flatnonzero((shapes == shape_row).all(axis=1))
        slot = np.full(len(keys), -1, dtype=np.int64)
        slot[chosen] = np.arange(len(chosen))
        total = np.zeros((len(chosen), *shape))
        start = 0
        for piece, rows, _, _ in parts:
            where = slot[place[start : start + len(rows)]]
            start += len(rows)
            mine = np.flatnonzero(where >= 0)
            if not len(mine):
                continue
            own = tuple(int(c) for c in cards[piece.scopes[rows[mine[0]]]])
            tables = row_of(piece.kind).dense(piece, rows[mine], own, sums.offset)
            if row_of(piece.kind).ascending:
                np.add.at(total, where[mine], tables)
            else:
                for r, scope in enumerate(piece.scopes[rows[mine]]):
                    # its scope is in the order of roles; its table has to follow the sorted one
                    total[where[mine[r]]] += tables[r].transpose(np.argsort(scope))
        index = np.arange(len(chosen), dtype=np.int64)
        out += recognise(scopes[chosen], total, index, np.ones(len(chosen)), sums)
    return out

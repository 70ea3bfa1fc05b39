"""Blocks as plain tables, for formats that know nothing else.

A format wants every factor on distinct variables (and sometimes in ascending order); a Model allows a variable to be
repeated and its labels to be held by evidence.  Here both are worked in, so that the energies of all labellings stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.block import Block
from tightmap.factors.dense import DenseBlock
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.source import check_entries
from tightmap.io.tokens import group_rows
from tightmap.model.model import Model

PIECE = 1 << 20  # table entries that are made at a time


def table_size(model: Model, block: Block) -> float:
    """Entries of all dense tables of a block (a float: it may be astronomically large)."""
    return float(np.prod(model.cardinalities[block.scopes].astype(np.float64), axis=1).sum())


def check_expansion(model: Model, format: str) -> None:
    """Refuse to write a model whose factors do not fit into tables."""
    check_entries(
        sum(table_size(model, b) for b in model.blocks) + float(model.offset[-1]), f"writing this model as {format}"
    )


def hard_unaries(model: Model) -> FloatArray:
    """Flat unary costs with the evidence worked in: +inf for every label that contradicts it."""
    held = np.flatnonzero(model.clamped >= 0)
    if not len(held):
        return model.unaries
    costs = model.unaries.copy()
    for i in held:
        row = costs[model.offset[i] : model.offset[i + 1]]
        kept = row[model.clamped[i]]
        row[:] = np.inf
        row[model.clamped[i]] = kept
    return costs


def unary_tables(model: Model) -> Iterator[tuple[int, FloatArray]]:
    """(variable, costs) for every variable whose costs are not all zero."""
    costs = hard_unaries(model)
    busy = np.add.reduceat(costs != 0.0, model.offset[:-1]) if model.num_variables else np.zeros(0)
    for i in np.flatnonzero(busy):
        yield int(i), costs[model.offset[i] : model.offset[i + 1]]


def repetition(scopes: IntArray) -> IntArray:
    """(m, k): for every position, the first position of the same variable in its scope."""
    return np.argmax(scopes[:, :, None] == scopes[:, None, :], axis=2)


def repeated(scopes: IntArray) -> npt.NDArray[np.bool_]:
    """(m,): the scope has a variable more than once."""
    ordered = np.sort(scopes, axis=1)
    return (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)


def collapsed(model: Model, block: Block, rows: IntArray) -> Iterator[tuple[IntArray, FloatArray]]:
    """(scopes, tables) of rows with repeated variables, as tables on the distinct ones."""
    scopes = block.scopes[rows]
    needed = float(np.prod(model.cardinalities[scopes].astype(np.float64), axis=1).sum())
    check_entries(needed, "expanding factors that name a variable twice")
    pattern = repetition(scopes)
    for _, part in group_rows(np.concatenate([pattern, model.cardinalities[scopes]], axis=1)):
        first = pattern[part[0]]
        keep = np.unique(first)
        shape = tuple(model.cardinalities[scopes[part[0]]].tolist())
        axis = np.searchsorted(keep, first)
        grids = np.ogrid[tuple(slice(0, shape[p]) for p in keep)]
        for piece in pieces(part, float(np.prod(np.array(shape, dtype=np.float64)))):
            tables = block.dense(rows[piece], shape)
            yield scopes[piece][:, keep], tables[(slice(None), *(grids[a] for a in axis))]


def pieces(rows: IntArray, size: float) -> Iterator[IntArray]:
    """Rows in pieces whose tables, of ``size`` entries each, stay small."""
    step = max(1, int(PIECE / max(size, 1.0)))
    for low in range(0, len(rows), step):
        yield rows[low : low + step]


def tables(model: Model) -> Iterator[tuple[IntArray, FloatArray]]:
    """All factors as (scopes (m, k), tables (m, S1, ..., Sk)) with distinct variables in every scope."""
    for block in model.blocks:
        twice = repeated(block.scopes)
        yield from collapsed(model, block, np.flatnonzero(twice))
        plain = np.flatnonzero(~twice)
        for shape, part in group_rows(model.cardinalities[block.scopes[plain]]):
            for piece in pieces(plain[part], float(np.prod(np.array(shape, dtype=np.float64)))):
                yield block.scopes[piece], block.dense(piece, shape)


def pooled(block: DenseBlock, rows: IntArray) -> tuple[FloatArray, IntArray]:
    """Distinct weighted tables of some rows of a dense block, and which one each row uses."""
    keys = np.stack([block.index[rows].astype(np.float64), block.weights[rows]], axis=1)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return block.dense(rows[first], tuple(block.tables.shape[1:])), inverse.reshape(-1)


def binary_quadratic(model: Model, format: str) -> tuple[float, FloatArray, IntArray, FloatArray]:
    """offset, linear (n,), edges (m, 2) with a < b, quadratic (m,) of a model of two-label variables, x in {0, 1}."""
    if model.num_variables and (model.cardinalities != 2).any():
        i = int(np.argmax(model.cardinalities != 2))
        raise ModelError(f"{format} holds binary variables only, variable {i} has {int(model.cardinalities[i])} labels")
    if model.max_order > 2:
        raise ModelError(f"{format} holds factors of at most 2 variables, got one of {model.max_order}")
    costs = hard_unaries(model).reshape(-1, 2)
    hard = not (np.isfinite(costs).all() and np.isfinite(model.constant))
    with np.errstate(invalid="ignore"):
        linear = costs[:, 1] - costs[:, 0]
    offset = model.constant + float(costs[:, 0].sum())
    total: dict[tuple[int, int], float] = {}
    for scopes, table in tables(model):
        hard = hard or not np.isfinite(table).all()
        if hard:
            break
        if scopes.shape[1] == 1:
            offset += float(table[:, 0].sum())
            np.add.at(linear, scopes[:, 0], table[:, 1] - table[:, 0])
            continue
        offset += float(table[:, 0, 0].sum())
        np.add.at(linear, scopes[:, 0], table[:, 1, 0] - table[:, 0, 0])
        np.add.at(linear, scopes[:, 1], table[:, 0, 1] - table[:, 0, 0])
        joint = table[:, 1, 1] - table[:, 1, 0] - table[:, 0, 1] + table[:, 0, 0]
        for (a, b), q in zip(np.sort(scopes, axis=1).tolist(), joint.tolist(), strict=True):
            total[a, b] = total.get((a, b), 0.0) + q
    if hard:
        raise ModelError(f"{format} cannot hold forbidden labellings (+inf); use .h5, .uai, .wcsp or .npz")
    pairs = sorted(total)
    return (
        offset,
        linear,
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        np.array([total[p] for p in pairs], dtype=np.float64),
    )

"""Blocks of kinds from outside the package as blocks of our own: dense tables, or a default cost with exceptions."""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.factors.block import Block, Exceptions, labelling_numbers
from tightmap.factors.custom import CustomBlock
from tightmap.factors.dense import DenseBlock
from tightmap.factors.sparse import SparseBlock
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.runtime.memory import require

SMALL = 1 << 12  # labellings up to which a table is as good as any list
LARGEST = 1 << 22  # labellings of a factor that are all tried
EXCEPTIONAL = 1 / 8  # a list is kept where at most this part of the labellings are exceptions
NUMBERED = 2.0**62  # labellings that can be numbered
AXES = 64  # and the variables that they may have


def lowered(block: Block, cards: IntArray) -> list[Block]:
    """The same factors in blocks of our own; a block that is one already stays as it is."""
    if not isinstance(block, CustomBlock):
        return [block]
    first, group = _distinct(block, cards)
    shapes = cards[block.scopes[first]]
    sizes = np.prod(shapes.astype(np.float64), axis=1)
    entries = float(sizes[sizes <= LARGEST].sum())
    require(8.0 * entries, f"{block.name}: tables of {entries:.4g} entries in all")
    out: list[Block] = []
    for shape_row in np.unique(shapes, axis=0):
        shape = tuple(int(c) for c in shape_row)
        groups = np.flatnonzero((shapes == shape_row).all(axis=1))
        if sizes[groups[0]] <= SMALL:
            out.append(_dense(block, shape, first[groups], group, groups))
            continue
        for q in groups:
            rows = np.flatnonzero(group == q)
            out.append(_listed(block, shape, rows) or _dense(block, shape, first[[q]], group, np.array([q])))
    return out


def _distinct(block: CustomBlock, cards: IntArray) -> tuple[IntArray, IntArray]:
    """One row of every group that shares a table, and the group of every row."""
    columns = [cards[block.scopes]]
    for name in block.per_row:
        values = np.asarray(getattr(block, name)).reshape(len(block), -1)
        columns.append(np.unique(values, axis=0, return_inverse=True)[1].reshape(-1, 1))
    _, first, group = np.unique(np.concatenate(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), group.reshape(-1).astype(np.int64)


def _dense(block: CustomBlock, shape: tuple[int, ...], first: IntArray, group: IntArray, groups: IntArray) -> Block:
    """The rows of some groups as tables, one per group; ``first`` is a row of each."""
    place = np.full(int(group.max()) + 1, -1, dtype=np.int64)
    place[groups] = np.arange(len(groups))
    rows = np.flatnonzero(place[group] >= 0)
    tables = block.tables(first, shape)
    index = place[group[rows]]
    hard = np.asarray(np.isinf(tables.reshape(len(tables), -1)).any(axis=1))
    block.check_weights(rows[hard[index]])
    return DenseBlock(block.scopes[rows], block.weights[rows], tables, index)


def _listed(block: CustomBlock, shape: tuple[int, ...], rows: IntArray) -> Block | None:
    """Rows that share a table as a list of exceptions; None where a table is better."""
    row, size = int(rows[0]), float(np.prod(np.array(shape, dtype=np.float64)))
    found = block.exceptions(row, shape)
    if found is not None:
        found = _checked(block, row, shape, found)
    elif size <= LARGEST:
        found = _exceptions_of(block.tables(rows[:1], shape)[0])
    else:
        raise ModelError(
            f"{block.name}: the factor on variables {tuple(block.scopes[row].tolist())} has {size:.4g} labellings, "
            f"more than the {LARGEST} that are tried; {type(block).__name__}.exceptions can list those that differ "
            "from a common cost"
        )
    if found is None:
        return None
    entries, values, default = found
    if np.isinf(values).any() or np.isinf(default):
        block.check_weights(rows)
    return SparseBlock(block.scopes[rows], block.weights[rows], np.array(shape), entries, values, np.array(default))


def _exceptions_of(table: FloatArray) -> Exceptions | None:
    """A table as a list of exceptions to its most frequent cost, where that is much shorter."""
    if table.ndim > AXES:
        return None
    values, counts = np.unique(table, return_counts=True)
    default = values[np.argmax(counts)]
    if table.size - counts.max() > EXCEPTIONAL * table.size:
        return None
    entries = np.argwhere(table != default)
    return entries, table[tuple(entries.T)], float(default)


def _checked(block: CustomBlock, row: int, shape: tuple[int, ...], found: Exceptions) -> Exceptions:
    """The exceptions that a kind lists, once it is certain that they are what ``costs`` says."""
    what = f"{block.name}: exceptions of the factor on variables {tuple(block.scopes[row].tolist())}"
    if len(shape) > AXES or float(np.prod(np.array(shape, dtype=np.float64))) >= NUMBERED:
        raise ModelError(f"{what}: {shape} are more labellings than can be numbered")
    entries = np.asarray(found[0])
    values, default = np.asarray(found[1], dtype=np.float64), float(found[2])
    if entries.shape != (len(values), len(shape)) or values.ndim != 1 or not np.issubdtype(entries.dtype, np.integer):
        raise ModelError(
            f"{what}: expected (K, {len(shape)}) labels and (K,) costs, got {entries.shape}, {values.shape}"
        )
    entries = entries.astype(np.int64)
    if ((entries < 0) | (entries >= np.array(shape))).any() or not default > -np.inf:
        raise ModelError(f"{what}: labels or the default cost {default} are out of range, label counts are {shape}")
    if len(np.unique(labelling_numbers(entries, shape))) < len(entries):
        raise ModelError(f"{what}: the same labelling is listed twice")
    if (block.checked_costs(np.full(len(entries), row), entries) != values).any():
        raise ModelError(f"{what}: the costs listed are not those of {type(block).__name__}.costs")
    return entries, values, default

"""OpenGM models in HDF5, written: structured factors stay structured, shared tables are stored once.

OpenGM wants the variables of a factor in ascending order and the first one fastest in a table, integers as uint64, and
values in the type that the header announces (float64 here).  A kind that OpenGM does not know becomes a table.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block, labelling_numbers
from tightmap.factors.custom import CustomBlock
from tightmap.factors.dense import DenseBlock
from tightmap.factors.difference import DifferenceBlock, LinearBlock
from tightmap.factors.pattern import PatternBlock, pattern_ranks
from tightmap.factors.pn_potts import PnPottsBlock
from tightmap.factors.potts import PottsBlock
from tightmap.factors.second_difference import SecondDifferenceBlock
from tightmap.factors.sparse import SparseBlock
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io import opengm_streams as ids
from tightmap.io.expand import collapsed, hard_unaries, pieces, pooled, repeated, table_size
from tightmap.io.opengm_functions import opengm_patterns
from tightmap.io.source import check_entries
from tightmap.io.tokens import group_rows
from tightmap.model.model import Model

Parts = Iterable[npt.NDArray[Any]]


class _Streams:
    """The functions and factors written so far."""

    def __init__(self) -> None:
        self.indices: dict[int, list[npt.NDArray[np.uint64]]] = {}
        self.values: dict[int, list[FloatArray]] = {}
        self.count: dict[int, int] = {}
        self.factors: list[tuple[int, IntArray, IntArray]] = []  # type, function of each factor, scopes

    def add(self, kind: int, scopes: IntArray, index: IntArray, count: int, indices: Parts, values: Parts) -> None:
        """Factors on ``scopes`` that use number ``index`` of ``count`` new functions, given by their two streams."""
        first = self.count.setdefault(kind, 0)
        self.count[kind] += count
        self.indices.setdefault(kind, []).extend(np.asarray(i, dtype=np.uint64).ravel() for i in indices)
        self.values.setdefault(kind, []).extend(np.asarray(v, dtype=np.float64).ravel() for v in values)
        self.factors.append((kind, index + first, scopes))

    def tables(self, scopes: IntArray, pool: FloatArray, index: IntArray) -> None:
        """Factors on ascending scopes that share a pool of C-order tables."""
        shape = pool.shape[1:]
        flat = np.ascontiguousarray(pool.transpose(0, *range(len(shape), 0, -1)))
        self.add(ids.EXPLICIT, scopes, index, len(pool), [np.tile([len(shape), *shape], len(pool))], [flat])


def write_opengm(model: Model, stream: IO[bytes], suffix: str, *, group: str = "gm") -> None:
    """Write an OpenGM model into the group ``group``; evidence becomes hard unary costs."""
    import h5py

    expanded = sum(table_size(model, b) for b in model.blocks if _unknown(b))
    check_entries(expanded, "writing the factors that OpenGM has no function for as tables")
    streams = _Streams()
    if model.constant:
        streams.tables(np.zeros((1, 0), dtype=np.int64), np.array([model.constant]), np.zeros(1, dtype=np.int64))
    costs = hard_unaries(model)
    for (labels,), nodes in group_rows(model.cardinalities[:, None]):
        table = costs[model.offset[nodes][:, None] + np.arange(labels)]
        busy = table.any(axis=1)
        if busy.any():
            streams.tables(nodes[busy][:, None], table[busy], np.arange(int(busy.sum())))
    for block in model.blocks:
        twice = repeated(block.scopes)
        for scopes, tables in collapsed(model, block, np.flatnonzero(twice)):
            _tables(streams, scopes, tables, np.arange(len(tables)))
        rows = np.flatnonzero(~twice)
        if len(rows):
            _block(streams, model, block, rows)

    kinds = sorted(streams.count)
    where = {kind: t for t, kind in enumerate(kinds)}
    records = []
    for kind, function, scopes in streams.factors:
        head = np.stack([function, np.full(len(scopes), where[kind]), np.full(len(scopes), scopes.shape[1])], axis=1)
        records.append(np.concatenate([head, scopes], axis=1).ravel())
    total = sum(len(f[2]) for f in streams.factors)
    header = [2, 0, model.num_variables, total, len(kinds)]
    header += [v for kind in kinds for v in (kind, streams.count[kind])] + [1]

    buffer = io.BytesIO()  # HDF5 seeks back and forth, a compressing stream cannot
    with h5py.File(buffer, "w") as file:
        root = file.create_group(group)
        root.create_dataset("header", data=np.array(header, dtype=np.uint64))
        root.create_dataset("numbers-of-states", data=model.cardinalities.astype(np.uint64))
        for kind in kinds:
            folder = root.create_group(f"function-id-{kind}")
            folder.create_dataset("indices", data=np.concatenate(streams.indices[kind]))
            folder.create_dataset("values", data=np.concatenate(streams.values[kind]))
        if records:
            root.create_dataset("factors", data=np.concatenate(records).astype(np.uint64))
    stream.write(buffer.getbuffer())


def _unknown(block: Block) -> bool:
    """OpenGM has no structured function for it."""
    long = isinstance(block, PatternBlock) and block.arity > ids.MAX_PATTERN
    return long or isinstance(block, SecondDifferenceBlock | CustomBlock)


def _tables(streams: _Streams, scopes: IntArray, pool: FloatArray, index: IntArray) -> None:
    """Dense factors: tables are turned so that their variables ascend; one table may be needed in several turns."""
    for turn, part in group_rows(np.argsort(scopes, axis=1, kind="stable")):
        used, inverse = np.unique(index[part], return_inverse=True)
        turned = pool[used].transpose(0, *(1 + p for p in turn))
        streams.tables(scopes[part][:, list(turn)], turned, inverse.reshape(-1))


def _block(streams: _Streams, model: Model, block: Block, rows: IntArray) -> None:
    scopes, weights = block.scopes[rows], block.weights[rows]
    ascending = np.sort(scopes, axis=1)
    if isinstance(block, DenseBlock):
        _tables(streams, scopes, *pooled(block, rows))
    elif isinstance(block, PottsBlock):
        _pairs(streams, model, ids.POTTS, ascending, np.stack([np.zeros(len(rows)), weights], axis=1))
    elif isinstance(block, DifferenceBlock):
        limits = block.limits[rows]
        linear = isinstance(block, LinearBlock)
        cut = np.isfinite(limits)
        kind = ids.TRUNCATED_ABSOLUTE if linear else ids.TRUNCATED_SQUARED
        _pairs(streams, model, kind, ascending[cut], np.stack([limits, weights], axis=1)[cut])
        _pairs(streams, model, ids.ABSOLUTE if linear else ids.SQUARED, ascending[~cut], weights[~cut, None])
    elif isinstance(block, PnPottsBlock):
        _pn_potts(streams, model, block, ascending, weights)
    elif isinstance(block, PatternBlock) and block.arity <= ids.MAX_PATTERN:
        _patterns(streams, model, block, scopes, weights)
    elif isinstance(block, SparseBlock):
        _sparse(streams, block, scopes, weights)
    else:
        for shape, part in group_rows(model.cardinalities[scopes]):
            for piece in pieces(rows[part], float(np.prod(np.array(shape, dtype=np.float64)))):
                _tables(streams, block.scopes[piece], block.dense(piece, shape), np.arange(len(piece)))


def _pairs(streams: _Streams, model: Model, kind: int, scopes: IntArray, values: FloatArray) -> None:
    """Functions on two variables: equal label counts and parameters are one function."""
    if not len(scopes):
        return
    keys = np.concatenate([model.cardinalities[scopes], values], axis=1)
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    streams.add(kind, scopes, index.reshape(-1), len(distinct), [distinct[:, :2]], [distinct[:, 2:]])


def _pn_potts(streams: _Streams, model: Model, block: PnPottsBlock, scopes: IntArray, weights: FloatArray) -> None:
    k = block.arity
    keys = np.concatenate([model.cardinalities[scopes], weights[:, None]], axis=1)
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    index = index.reshape(-1)
    shapes = distinct[:, :k].astype(np.int64)
    if (block.costs[1:] == block.costs[1]).all():
        values = distinct[:, k:] * block.costs[[1, 0]]
        heads = np.concatenate([np.full((len(shapes), 1), k), shapes], axis=1)
        streams.add(ids.POTTS_N, scopes, index, len(shapes), [heads], [values])
        return
    indices, numbers = [], []  # costs that depend on the common label: a default and one exception per label
    for shape, weight in zip(shapes.tolist(), distinct[:, k].tolist(), strict=True):
        strides = np.cumprod([1.0, *shape[:-1]])
        check_entries(0.0 if strides[-1] * shape[-1] < 2.0**62 else np.inf, "a sparse function of OpenGM")
        labels = np.arange(min(shape))
        indices.append(np.concatenate([[k, *shape, len(labels)], labels * int(strides.astype(np.int64).sum())]))
        numbers.append(weight * np.concatenate([block.costs[:1], block.costs[1 + labels]]))
    streams.add(ids.SPARSE, scopes, index, len(shapes), indices, numbers)


def _patterns(streams: _Streams, model: Model, block: PatternBlock, scopes: IntArray, weights: FloatArray) -> None:
    strings, rank = opengm_patterns(block.arity)
    for turn, part in group_rows(np.argsort(scopes, axis=1, kind="stable")):
        # position p of the ascending scope is position turn[p] of the user's; patterns are ranked on the user's
        back = np.argsort(turn)
        values = np.empty(len(strings))
        values[rank] = block.values[pattern_ranks(strings[:, back])]
        own = scopes[part][:, list(turn)]
        keys = np.concatenate([model.cardinalities[own], weights[part][:, None]], axis=1)
        distinct, index = np.unique(keys, axis=0, return_inverse=True)
        heads = [np.array([block.arity, *s]) for s in distinct[:, :-1].astype(np.int64).tolist()]
        streams.add(ids.POTTS_G, own, index.reshape(-1), len(distinct), heads, [w * values for w in distinct[:, -1]])


def _sparse(streams: _Streams, block: SparseBlock, scopes: IntArray, weights: FloatArray) -> None:
    for turn, part in group_rows(np.argsort(scopes, axis=1, kind="stable")):
        shape = block.shape[list(turn)]
        keys = labelling_numbers(block.entries[:, list(turn)[::-1]], shape[::-1].tolist())  # the first runs fastest
        order = np.argsort(keys)
        head = np.concatenate([[block.arity, *shape, len(keys)], keys[order]])
        numbers = np.concatenate([block.default.reshape(1), block.values[order]])
        distinct, index = np.unique(weights[part], return_inverse=True)
        with np.errstate(invalid="ignore"):
            values = [w * numbers if w else np.zeros_like(numbers) for w in distinct]
        own = scopes[part][:, list(turn)]
        streams.add(ids.SPARSE, own, index.reshape(-1), len(distinct), [head] * len(distinct), values)

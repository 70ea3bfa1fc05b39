"""Sparse tables: a default cost and a list of exceptions, of any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import PART, Block, Exceptions, labelling_numbers, weighted
from tightmap.factors.kind import FactorKind, Get, Kernels, Sizes
from tightmap.factors.piece import Form, Piece
from tightmap.factors.sparse_kernels import (
    sparse_add_slice,
    sparse_contract,
    sparse_minmarg,
    sparse_spread,
    sparse_tabulate,
    sparse_value,
)
from tightmap.graph.graph import Arrays, FloatArray, IntArray, Kind
from tightmap.runtime.lazy import lazy

FEW = 16  # factors that share a list of exceptions and are looked up one by one


@dataclass(frozen=True, eq=False)
class SparseBlock(Block):
    """``entries`` is (K, k) label vectors with costs ``values`` (K,); every other labelling costs ``default``.

    ``shape`` is the label counts of the scopes.  Exceptions are shared by the rows of the block.
    """

    shape: IntArray
    entries: IntArray
    values: FloatArray
    default: FloatArray  # 0-d

    kind: ClassVar[Kind] = Kind.SPARSE
    name: ClassVar[str] = Kind.SPARSE.name
    costs_in: ClassVar[tuple[str, ...]] = ("values", "default")

    def keys(self) -> IntArray:
        """C-order index of every exception."""
        return labelling_numbers(self.entries, self.shape.tolist())

    @lazy
    def sorted_keys(self) -> tuple[IntArray, FloatArray]:
        """Keys of the exceptions, ascending, with their costs."""
        keys = self.keys() if len(self.entries) else np.zeros(0, dtype=np.int64)
        order = np.argsort(keys, kind="stable")
        return keys[order], self.values[order]

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        return self._costs(labels, slice(None))

    def total(self, labels: npt.NDArray[np.integer]) -> float:
        parts = (slice(begin, begin + PART) for begin in range(0, len(self), PART))
        return sum(float(self._costs(labels, part).sum()) for part in parts)

    def _costs(self, labels: npt.NDArray[np.integer], rows: slice) -> FloatArray:
        own = labels[self.scopes[rows]]
        value = np.full(len(own), float(self.default))
        if len(self) <= FEW:  # a look at all exceptions is cheaper than sorting them
            for r, mine in enumerate(own):
                at = np.flatnonzero(self.entries[:, 0] == mine[0])
                for p in range(1, len(mine)):
                    at = at[self.entries[at, p] == mine[p]]
                value[r] = self.values[at[0]] if len(at) else value[r]
        elif len(self.entries):
            keys, values = self.sorted_keys
            wanted = labelling_numbers(own, self.shape.tolist())
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            hit = keys[at] == wanted
            value[hit] = values[at[hit]]
        return weighted(self.weights[rows], value)

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        table = np.full(shape, float(self.default))
        table[tuple(self.entries.T)] = self.values
        return weighted(self.weights[rows].reshape((-1,) + (1,) * len(shape)), table)

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        return form.exceptions(scopes, self.entries, self.values, float(self.default), tuple(self.shape), weights)

    def exceptions(self, row: int, shape: tuple[int, ...]) -> Exceptions:
        return self.entries, self.values, float(self.default)

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {"shape": self.shape, "entries": self.entries, "values": self.values, "default": self.default}


class SparseKind(FactorKind):
    kind = Kind.SPARSE
    block = SparseBlock
    words = "sparse"
    kernels = Kernels(sparse_value, sparse_add_slice, sparse_contract, sparse_minmarg, sparse_tabulate, sparse_spread)

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        out = np.empty((len(rows), *shape))
        for r, t in enumerate(piece.table[rows]):
            flat = np.full(int(np.prod(shape)), piece.tables[t, 0])
            count = int(piece.ints[t, 0])
            flat[piece.ints[t, 1 : 1 + count]] = piece.tables[t, 1 : 1 + count]
            out[r] = np.where(np.isinf(flat), np.inf, piece.weights[rows[r]] * flat).reshape(shape)
        return out

    def scratch(self, g: Arrays, factors: npt.NDArray[Any], arity: int, labels: int) -> int:
        return arity * (labels + 3) + 2  # see _cheapest_default

    def seconds(self, sizes: Sizes, rows: npt.NDArray[Any], contraction: bool) -> FloatArray:
        return 3e-9 * sizes.arity[rows] * sizes.g.ints[sizes.g.iparam[rows]]

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        default = float(get("default", "f", 0))
        model.add_sparse(scopes, get("entries", "iu", 2), get("values", "f", 1), default, weights)


KIND = SparseKind()

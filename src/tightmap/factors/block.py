"""Block: many factors of one kind and one arity, as the user wrote them.

A Model is a list of blocks.  A block evaluates its factors on the user's own numbers, can show any of its rows as
dense tables (the twin that every kernel is tested against), and is otherwise only data.  The fast kernels of the same
kind work on the canonical Graph and live in the same file.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.piece import Form, Piece, simple_piece, sorted_scopes
from tightmap.factors.repeated import folded, unfolded
from tightmap.graph.graph import FloatArray, IntArray, Kind

PART = 1 << 15  # factors evaluated together
SMALLEST = 2.0**-1074  # number above zero
UNIT = 2.0**-53  # by this part of itself a number may be rounded

Exceptions = tuple[IntArray, FloatArray, float]  # (K, k) label vectors, (K,) their costs, the cost of all others


def weighted(weights: FloatArray, values: FloatArray) -> FloatArray:
    """weights * values where a weight of zero switches a factor off, even a hard one (0 * inf = 0)."""
    if np.isinf(values).any():
        with np.errstate(invalid="ignore"):
            return np.where(weights == 0.0, 0.0, weights * values)
    return weights * values


@dataclass(frozen=True, eq=False)
class Block(ABC):
    """Base of the blocks: ``scopes`` is (m, k) in the user's variables and order, ``weights`` is (m,)."""

    scopes: IntArray
    weights: FloatArray

    kind: ClassVar[Kind]  # what it becomes in the canonical form, unless that recognises something simpler
    name: ClassVar[str]  # what files call it

    per_row: ClassVar[tuple[str, ...]] = ()  # parameters with one entry per factor
    costs_in: ClassVar[tuple[str, ...]] = ()  # parameters that the cost of a factor is proportional to

    @property
    def arity(self) -> int:
        return int(self.scopes.shape[1])

    def __len__(self) -> int:
        return len(self.scopes)

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: what the block is given by; what was derived from that is made again when it is needed."""
        return folded({f.name: getattr(self, f.name) for f in fields(self)})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(unfolded(state))

    @abstractmethod
    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        """(m,) cost of every factor at a labelling of the whole model."""

    def total(self, labels: npt.NDArray[np.integer]) -> float:
        """Cost of all factors, some thousand at a time: what is in between stays small."""
        rows = ("scopes", "weights", *self.per_row)
        cost = 0.0
        for begin in range(0, len(self), PART):
            part = replace(self, **{name: getattr(self, name)[begin : begin + PART] for name in rows})
            cost += float(part.evaluate(labels).sum())
        return cost

    def sizes(self, rows: slice) -> FloatArray:
        """Roughly the largest finite cost of some factors, to choose a unit by."""
        weights: FloatArray = np.abs(self.weights[rows])
        if not self.costs_in:
            return weights
        with np.errstate(over="ignore", under="ignore"):
            return weights * max(largest_finite(getattr(self, name)) for name in self.costs_in)

    def scaled(self, power: int) -> Block:
        """The same factors with all costs multiplied by 2^power."""
        largest = max((largest_finite(getattr(self, name)) for name in self.costs_in), default=0.0)
        if self.costs_in and largest == 0.0:
            return self  # costs nothing in any unit
        own = math.frexp(largest)[1] if largest > 0.0 else 0  # parameters get ordinary size, weights take the rest
        parts = {name: np.ldexp(getattr(self, name), -own) for name in self.costs_in}
        weights = np.ldexp(self.weights, power + own)
        if any(np.isinf(part).any() for part in parts.values()):
            # costs may vanish beside others, but what is forbidden stays so: a weight of 0 would allow everything
            weights[(weights == 0.0) & (self.weights > 0.0)] = SMALLEST
        return replace(self, weights=weights, **parts)

    @abstractmethod
    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        """(len(rows), *shape) tables of some rows whose scopes all have these label counts."""

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        """Some rows in canonical form, on the canonical variables ``scopes``, all free and different."""
        return [simple_piece(self.kind, sorted_scopes(scopes), weights)]

    def exceptions(self, row: int, shape: tuple[int, ...]) -> Exceptions | None:
        """A row as a default cost and a list of exceptions, where that is shorter than a table; weight left out."""
        return None

    @property
    @abstractmethod
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Named arrays that, with scopes and weights, say everything about the block (for files)."""

    @property
    def nbytes(self) -> int:
        return int(self.scopes.nbytes + self.weights.nbytes + sum(a.nbytes for a in self.parameters.values()))


def largest_finite(values: npt.NDArray[Any]) -> float:
    """The largest finite absolute value."""
    if values.size == 0:
        return 0.0
    most = max(float(values.max()), -float(values.min()))
    if math.isfinite(most):  # without the arrays that the mask needs
        return most
    return float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))


def labelling_numbers(labels: npt.NDArray[np.integer], shape: Sequence[int]) -> IntArray:
    """C-order index of every row of (m, k) labels.

    As np.ravel_multi_index, which takes no more axes than an array may have: 31 or 32 before NumPy 2.
    """
    numbers = np.zeros(len(labels), dtype=np.int64)
    for p, count in enumerate(shape):
        numbers *= int(count)
        numbers += labels[:, p]
    return numbers


def numbered_labellings(numbers: npt.NDArray[np.integer], shape: Sequence[int]) -> IntArray:
    """(m, k) labels of C-order indices, as np.unravel_index for any number of axes."""
    rest = np.array(numbers, dtype=np.int64)
    labels = np.empty((len(rest), len(shape)), dtype=np.int64)
    for p in range(len(shape) - 1, -1, -1):
        rest, labels[:, p] = np.divmod(rest, int(shape[p]))
    return labels


def label_grid(shape: tuple[int, ...]) -> list[npt.NDArray[np.int64]]:
    """Open index grids of a table: label_grid((2, 3)) gives arrays of shape (2, 1) and (1, 3)."""
    return [g.astype(np.int64) for g in np.ogrid[tuple(slice(0, s) for s in shape)]]

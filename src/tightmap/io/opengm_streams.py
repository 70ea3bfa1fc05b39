"""The types of function in OpenGM files, and the two streams in which all functions of one type are stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.tokens import chase
from tightmap.model.model import Model
from tightmap.runtime.lazy import lazy

EXPLICIT, SPARSE, ABSOLUTE, TRUNCATED_ABSOLUTE, SQUARED, TRUNCATED_SQUARED = range(16000, 16006)
POTTS, POTTS_N, CONSTANT, STATIC_UNARY, DYNAMIC_UNARY, POTTS_G = range(16006, 16012)
FIELD_OF_EXPERTS = 16033

MAX_PATTERN = 11  # the mask of equal pairs must fit in 64 bits


@dataclass(frozen=True, eq=False)
class Functions:
    """All functions of one type: ``count`` of them in the streams ``indices`` and ``values``."""

    kind: int
    count: int
    indices: IntArray
    values: FloatArray
    implied: IntArray  # label count that the factors imply, -1 where unknown

    def fail(self, what: str) -> None:
        raise ModelError(f"group function-id-{self.kind}: {what}")

    @lazy
    def shaped(self) -> tuple[IntArray, IntArray]:
        """(start, arity) of the shape of every function, for streams of records ``d, s_1 .. s_d``."""
        if self.count > len(self.indices):
            self.fail(f"expected {self.count} functions, got {len(self.indices)} indices")
        starts, arity, end = chase(self.indices, 0, self.count)
        if len(starts) < self.count or end != len(self.indices):
            self.fail(f"indices, entry {end}: expected {self.count} shapes in all, got {len(starts)}")
        return starts + 1, arity

    def shapes(self, used: IntArray, scopes: IntArray, model: Model) -> IntArray:
        """(m, k) shapes of the functions of some factors, checked against their variables."""
        starts, arity = self.shaped
        k = scopes.shape[1]
        if (arity[used] != k).any():
            f = int(used[np.argmax(arity[used] != k)])
            self.fail(f"function {f} has {int(arity[f])} variables, a factor uses it on {k}")
        shapes = self.indices[starts[used][:, None] + np.arange(k)]
        self.check(shapes, used, scopes, model)
        return shapes

    def pair_shapes(self, used: IntArray, scopes: IntArray, model: Model) -> IntArray:
        """The same for types that are always on two variables (no ``d`` in the stream)."""
        if scopes.shape[1] != 2:
            self.fail(f"a factor uses it on {scopes.shape[1]} variables, expected 2")
        if len(self.indices) != 2 * self.count:
            self.fail(f"expected {2 * self.count} indices, got {len(self.indices)}")
        shapes = self.indices.reshape(-1, 2)[used]
        self.check(shapes, used, scopes, model)
        return shapes

    def check(self, shapes: IntArray, used: IntArray, scopes: IntArray, model: Model) -> None:
        wrong = (shapes != model.cardinalities[scopes]).any(axis=1)
        if wrong.any():
            c = int(np.argmax(wrong))
            self.fail(
                f"function {int(used[c])} has the shape {tuple(shapes[c].tolist())}, but it is used on variables "
                f"{tuple(scopes[c].tolist())} with {tuple(model.cardinalities[scopes[c]].tolist())} labels"
            )

    def fixed_values(self, each: int) -> FloatArray:
        """(count, each) values of types with a fixed number of them."""
        if len(self.values) != each * self.count:
            self.fail(f"expected {each * self.count} values, got {len(self.values)}")
        return self.values.reshape(self.count, each)

    def value_starts(self, sizes: FloatArray) -> IntArray:
        """Where the values of every function start, when function f has sizes[f] of them."""
        total = float(sizes.sum())
        if total != len(self.values):
            self.fail(f"expected {total:.0f} values for these shapes, got {len(self.values)}")
        return (np.cumsum(sizes) - sizes).astype(np.int64)

    @lazy
    def table_starts(self) -> IntArray:
        starts, arity = self.shaped
        if (arity == 0).all():
            return self.value_starts(np.ones(self.count))
        sizes = np.ones(self.count)
        inside = np.repeat(np.arange(self.count), arity)
        places = np.repeat(starts - (np.cumsum(arity) - arity), arity) + np.arange(int(arity.sum()))
        with np.errstate(over="ignore"):
            np.multiply.at(sizes, inside, self.indices[places].astype(np.float64))
        return self.value_starts(sizes)

    @lazy
    def sparse_layout(self) -> list[tuple[int, int, int, int, int]]:
        """(place of the shape, arity, place of the keys, how many, place of the values) of every sparse function."""
        layout = []
        at = value = 0
        indices = self.indices
        for f in range(self.count):
            arity = int(indices[at]) if at < len(indices) else -1
            where = at + 1 + arity
            number = int(indices[where]) if arity >= 0 and where < len(indices) else -1
            if number < 0 or where + 1 + number > len(indices) or value + 1 + number > len(self.values):
                self.fail(f"function {f} (indices, entry {at}): expected a shape and keys, got the end of the streams")
            layout.append((at + 1, arity, where + 1, number, value))
            at, value = where + 1 + number, value + 1 + number
        return layout

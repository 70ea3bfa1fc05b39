"""The types of function in OpenGM files: what their two streams mean, and the call of Model that each becomes.

A decoder gets all factors of one type and one arity: scopes (m, k) and the number of the function each one uses.
Structured functions stay structured; a parameter that is +inf turns them into tables (Model wants finite weights).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tightmap.errors import ModelError
from tightmap.factors.pattern import bell, pattern_ranks
from tightmap.graph import FloatArray, IntArray
from tightmap.io.source import check_entries
from tightmap.io.tokens import chase, group_rows
from tightmap.model import Model

EXPLICIT, SPARSE, ABSOLUTE, TRUNCATED_ABSOLUTE, SQUARED, TRUNCATED_SQUARED = range(16000, 16006)
POTTS, POTTS_N, CONSTANT, STATIC_UNARY, DYNAMIC_UNARY, POTTS_G = range(16006, 16012)
FIELD_OF_EXPERTS = 16033

_PAIR_VALUES = {ABSOLUTE: 1, TRUNCATED_ABSOLUTE: 2, SQUARED: 1, TRUNCATED_SQUARED: 2, POTTS: 2}
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

    @cached_property
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

    @cached_property
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


def _explicit(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    shapes = functions.shapes(used, scopes, model)
    starts = functions.table_starts
    for shape, part in group_rows(shapes):
        distinct, index = np.unique(used[part], return_inverse=True)
        size = int(np.prod(shape)) if shape else 1
        pool = functions.values[starts[distinct][:, None] + np.arange(size)]
        pool = pool.reshape(len(distinct), *shape[::-1]).transpose(0, *range(len(shape), 0, -1))
        model.add_indexed_factors(scopes[part], pool, index.reshape(-1))


def _dense_pairs(model: Model, scopes: IntArray, table: Callable[[IntArray, IntArray, int], FloatArray]) -> None:
    """Tables for pairs whose parameters are not finite; table(a, b, row) makes one."""
    shapes = model.cardinalities[scopes]
    check_entries(float(np.prod(shapes.astype(np.float64), axis=1).sum()), "functions with infinite parameters")
    for c, (s, t) in enumerate(shapes.tolist()):
        grid = np.ogrid[:s, :t]
        with np.errstate(invalid="ignore"):
            model.add_factors(scopes[c : c + 1], table(grid[0], grid[1], c))


def _potts(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.pair_shapes(used, scopes, model)
    equal, differ = functions.fixed_values(2)[used].T
    hard = ~(np.isfinite(equal) & np.isfinite(differ))
    soft = ~hard
    model.add_constant(float(equal[soft].sum()))
    model.add_potts(scopes[soft], differ[soft] - equal[soft])
    if hard.any():
        equal, differ = equal[hard], differ[hard]
        _dense_pairs(model, scopes[hard], lambda a, b, c: np.where(a == b, equal[c], differ[c]))


def _difference(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.pair_shapes(used, scopes, model)
    parameters = functions.fixed_values(_PAIR_VALUES[functions.kind])[used]
    weight = parameters[:, -1]
    if not np.isfinite(weight).all():
        functions.fail(f"function {int(used[np.argmin(np.isfinite(weight))])}: expected a finite weight")
    limit = parameters[:, 0] if parameters.shape[1] == 2 else np.full(len(weight), np.inf)
    below = limit < 0  # min(d, t) = t for every d
    model.add_constant(float((weight * limit)[below].sum()) if below.any() else 0.0)
    linear = functions.kind in (ABSOLUTE, TRUNCATED_ABSOLUTE)
    add = model.add_truncated_linear if linear else model.add_truncated_quadratic
    add(scopes[~below], weight[~below], limit[~below])


def _potts_n(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.shapes(used, scopes, model)
    equal, differ = functions.fixed_values(2)[used].T
    if scopes.shape[1] < 2:  # fewer labels always agree
        model.add_constant(float(equal.sum()))
        return
    soft = np.isfinite(equal) & np.isfinite(differ)
    model.add_constant(float(equal[soft].sum()))
    model.add_pn_potts(scopes[soft], differ[soft] - equal[soft])
    hard = np.flatnonzero(~soft)
    for _, part in _each(used[hard]):
        row = int(hard[part[0]])
        labels = int(model.cardinalities[scopes[row]].min())
        agreeing = np.repeat(np.arange(labels)[:, None], scopes.shape[1], axis=1)
        model.add_sparse(scopes[hard[part]], agreeing, np.full(labels, equal[row]), float(differ[row]))


def _constant(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.shapes(used, scopes, model)
    model.add_constant(float(functions.fixed_values(1)[used].sum()))


def _unary(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    """Single-site tables: their lengths are those of the variables (the stored ones are missing or unreliable)."""
    if scopes.shape[1] != 1:
        functions.fail(f"a factor uses it on {scopes.shape[1]} variables, expected 1")
    sizes = functions.implied.astype(np.float64)
    if (sizes < 0).any():  # some function is unused: all that is left is to assume equal lengths
        sizes[:] = len(functions.values) // functions.count
    starts = functions.value_starts(sizes)
    if (sizes[used] != model.cardinalities[scopes[:, 0]]).any():
        functions.fail("a function is used on variables with different numbers of labels")
    for (labels,), part in group_rows(model.cardinalities[scopes]):
        model.add_unaries(functions.values[starts[used[part]][:, None] + np.arange(labels)], scopes[part, 0])


def _each(used: IntArray) -> list[tuple[int, IntArray]]:
    """(function, its factors) for types that are decoded one function at a time."""
    return [(f, part) for (f,), part in group_rows(used[:, None])]


def opengm_patterns(k: int) -> tuple[IntArray, IntArray]:
    """All partitions of k positions as growth strings (p, k), in our order, and the rank of each in OpenGM's.

    OpenGM sets a bit for every pair (i, j), j < i, of equal labels, in the order of i then j, and sorts the masks.
    """
    strings = np.zeros((1, 1), dtype=np.int64)
    for _ in range(k - 1):
        most = strings.max(axis=1) + 2
        rows = np.repeat(np.arange(len(strings)), most)
        last = np.arange(len(rows)) - np.repeat(np.cumsum(most) - most, most)
        strings = np.concatenate([strings[rows], last[:, None]], axis=1)
    masks = np.zeros(len(strings), dtype=np.int64)
    bit = 0
    for i in range(1, k):
        for j in range(i):
            masks |= (strings[:, i] == strings[:, j]).astype(np.int64) << bit
            bit += 1
    rank = np.empty(len(masks), dtype=np.int64)
    rank[np.argsort(masks)] = np.arange(len(masks))
    return strings, rank


def _potts_g(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.shapes(used, scopes, model)
    arity = functions.shaped[1]
    if arity.max(initial=0) > MAX_PATTERN or arity.min(initial=1) < 1:
        functions.fail(f"expected 1 to {MAX_PATTERN} variables, got {int(arity.min())} to {int(arity.max())}")
    at = functions.value_starts(np.array([bell(int(k)) for k in range(MAX_PATTERN + 1)], dtype=np.float64)[arity])
    k = scopes.shape[1]
    if k == 1:
        model.add_constant(float(functions.values[at[used]].sum()))
        return
    strings, rank = opengm_patterns(k)
    ours = np.empty(len(rank), dtype=np.int64)
    ours[pattern_ranks(strings)] = rank
    for f, part in _each(used):
        model.add_label_patterns(scopes[part], functions.values[at[f] + ours])


def _sparse(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    layout = _sparse_layout(functions)
    k = scopes.shape[1]
    for f, part in _each(used):
        shape_at, arity, keys_at, number, value_at = layout[f]
        if arity != k:
            functions.fail(f"function {f} has {arity} variables, a factor uses it on {k}")
        shape = functions.indices[shape_at : shape_at + k]
        functions.check(np.broadcast_to(shape, (len(part), k)), np.full(len(part), f), scopes[part], model)
        keys = functions.indices[keys_at : keys_at + number]
        size = float(np.prod(shape.astype(np.float64)))
        if size >= 2.0**62 or (number and (keys.min() < 0 or keys.max() >= size)):
            functions.fail(f"function {f}: expected keys in 0..{size - 1:.0f}")
        default = float(functions.values[value_at])
        values = functions.values[value_at + 1 : value_at + 1 + number]
        labels = np.stack(np.unravel_index(keys, tuple(shape), order="F"), axis=1) if k else np.zeros((number, 0), int)
        if k >= 2:
            model.add_sparse(scopes[part], labels, values, default)
            continue
        table = np.full(tuple(shape), default)
        if number:
            table[tuple(labels.T)] = values if k else values[-1]
        model.add_factors(scopes[part], table)


def _sparse_layout(functions: Functions) -> list[tuple[int, int, int, int, int]]:
    """(place of the shape, arity, place of the keys, how many, place of the values) of every function."""
    layout = []
    at = value = 0
    indices = functions.indices
    for f in range(functions.count):
        arity = int(indices[at]) if at < len(indices) else -1
        where = at + 1 + arity
        number = int(indices[where]) if arity >= 0 and where < len(indices) else -1
        if number < 0 or where + 1 + number > len(indices) or value + 1 + number > len(functions.values):
            functions.fail(f"function {f} (indices, entry {at}): expected a shape and keys, got the end of the streams")
        layout.append((at + 1, arity, where + 1, number, value))
        at, value = where + 1 + number, value + 1 + number
    return layout


def _experts(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    """sum_e alpha_e ln(1 + (sum_j W_ej x_j)^2 / 2): a dense table, there is no structured kind for it."""
    if len(functions.indices) != 3 * functions.count:
        functions.fail(f"expected {3 * functions.count} indices, got {len(functions.indices)}")
    number, arity, labels = functions.indices.reshape(-1, 3).astype(np.float64).T
    starts = functions.value_starts(number * arity + number)
    k = scopes.shape[1]
    for f, part in _each(used):
        if arity[f] != k:
            functions.fail(f"function {f} has {arity[f]:.0f} variables, a factor uses it on {k}")
        shape = np.full(k, int(labels[f]))
        functions.check(np.broadcast_to(shape, (len(part), k)), np.full(len(part), f), scopes[part], model)
        check_entries(float(labels[f]) ** k, f"a field of experts on {k} variables")
        experts = int(number[f])
        weights = functions.values[starts[f] : starts[f] + experts * k].reshape(experts, k)
        alphas = functions.values[starts[f] + experts * k : starts[f] + experts * (k + 1)]
        if not (np.isfinite(weights).all() and np.isfinite(alphas).all()):
            functions.fail(f"function {f}: expected finite numbers")
        table = np.zeros(tuple(shape))
        for w, alpha in zip(weights, alphas, strict=True):
            filtered = sum(wj * g for wj, g in zip(w, np.ogrid[tuple(slice(0, s) for s in shape)], strict=True))
            table += alpha * np.log1p(0.5 * np.square(filtered))
        model.add_factors(scopes[part], table)


DECODERS: dict[int, Callable[[Model, Functions, IntArray, IntArray], None]] = {
    EXPLICIT: _explicit,
    SPARSE: _sparse,
    ABSOLUTE: _difference,
    TRUNCATED_ABSOLUTE: _difference,
    SQUARED: _difference,
    TRUNCATED_SQUARED: _difference,
    POTTS: _potts,
    POTTS_N: _potts_n,
    CONSTANT: _constant,
    STATIC_UNARY: _unary,
    DYNAMIC_UNARY: _unary,
    POTTS_G: _potts_g,
    FIELD_OF_EXPERTS: _experts,
}
